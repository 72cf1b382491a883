"""Tokenise a split of a labelled task once for all seeds, and pad its batches."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dana.core.errors import ArtifactError
from dana.encoders.transformer import overflowing
from dana.models.folder import padding_id
from dana.tasks.examples import Example
from dana.tasks.kinds.base import Kind

MOST_WINDOWS = 16  # of a text: the windows of a batch are in memory at once


def tokenise_words(
    words: Sequence[Sequence[str]], tokenizer: Any, max_tokens: int
) -> tuple[list[list[int]], list[np.ndarray]]:
    """Tokenise texts that are lists of words, each truncated to `max_tokens`.

    Words are joined by spaces, and a token belongs to the word of its last character. This works
    for any fast tokenizer, whether or not its tokens contain the space.

    Args:
        words: Words of each text.
        tokenizer: The checkpoint's tokenizer.
        max_tokens: Most tokens of a text, special tokens included.

    Returns:
        Token ids of each text; and for each text the position of each word's first token, int64 of
        shape (words,), -1 for a word that was truncated or has no token.

    Raises:
        ArtifactError: If the tokenizer is a slow one, which does not report the characters of its
            tokens.
    """
    if not tokenizer.is_fast:
        raise ArtifactError(
            f"{type(tokenizer).__name__}: is a slow tokenizer; labels of words need a fast one: "
            "save one as tokenizer.json to the model's folder"
        )
    texts = [" ".join(text) for text in words]
    encoding = tokenizer(texts, truncation=True, max_length=max_tokens, return_offsets_mapping=True)
    first_tokens = [
        _first_tokens(text, offsets)
        for text, offsets in zip(words, encoding["offset_mapping"], strict=True)
    ]
    return encoding["input_ids"], first_tokens


def _first_tokens(words: Sequence[str], offsets: Sequence[tuple[int, int]]) -> np.ndarray:
    """Return the position of each word's first token, -1 without one, by the characters of the tokens."""
    sizes = [len(word) + 1 for word in words]  # a space follows
    starts = (np.cumsum(sizes) - sizes).tolist()
    first_tokens = np.full(len(words), -1, dtype=np.int64)
    for position, (start, end) in enumerate(offsets):
        if end == start:
            continue  # a special token
        word = bisect_right(starts, end - 1) - 1
        if first_tokens[word] < 0:
            first_tokens[word] = position
    return first_tokens


def mark_tokens(encoding: Any, texts: Sequence[str], markers: Sequence[str]) -> list[list[int]]:
    """Number the tokens at which the markers begin, from 1; other tokens, and those of a marker cut off, are 0.

    Args:
        encoding: The texts, encoded by a fast tokenizer.
        texts: The texts.
        markers: Marks of which each stands at most once in a text.
    """
    numbers = [[0] * len(tokens) for tokens in encoding["input_ids"]]
    for row, text in enumerate(texts):
        for number, marker in enumerate(markers, 1):
            if marker not in text:
                continue
            token = encoding.char_to_token(row, text.index(marker))
            if token is not None:
                numbers[row][token] = number
    return numbers


@dataclass(frozen=True)
class EncodedSplit:
    """One split, tokenised once for all seeds.

    A unit has one prediction: it is an example, or each of its words.

    Attributes:
        tokens: Token ids of each example, special tokens included.
        pad: Id of the padding token.
        types: For pairs, the text of each token, 0 or 1; None if the tokenizer has no token types.
            For marked entities, the number of the marker that begins at each token, from 1, else 0.
        loss_labels: Targets of the loss, one row per unit; None without labels.
        labels: Labels of shape (examples,); None without labels.
        first_tokens: For each example, the position of each word's first token, -1 for a truncated
            word; None if examples are the units.
        windows: For each example, the token ids of its windows, special tokens included; None where
            an example is one row.
    """

    tokens: list[list[int]]
    pad: int
    types: list[list[int]] | None = None
    loss_labels: np.ndarray | None = None
    labels: np.ndarray | None = None
    first_tokens: list[np.ndarray] | None = None
    windows: list[list[list[int]]] | None = None

    @classmethod
    def from_examples(
        cls,
        examples: list[Example],
        tokenizer: Any,
        max_tokens: int,
        markers: Sequence[str] = (),
        windows: bool = False,
    ) -> "EncodedSplit":
        """Tokenise examples without their labels, cut to `max_tokens`; of a pair the longer text is cut first.

        Args:
            examples: All with a second text, or none; all with words, or none.
            tokenizer: The checkpoint's tokenizer.
            max_tokens: Most tokens of an example, special tokens included.
            markers: Where the texts are pooled: the marks before the entities.
            windows: Cut each text into windows of `max_tokens`, at most :data:`MOST_WINDOWS`,
                instead of cutting it off.
        """
        pad = padding_id(tokenizer)
        texts = [example.text for example in examples]
        if windows:
            windows_of_texts = cut_windows(texts, tokenizer, max_tokens)
            whole = [list(chain.from_iterable(parts)) for parts in windows_of_texts]
            return cls(whole, pad, windows=windows_of_texts)
        words = [example.words for example in examples if example.words is not None]
        if words:
            tokens, first_tokens = tokenise_words(words, tokenizer, max_tokens)
            return cls(tokens, pad, first_tokens=first_tokens)
        pairs = [example.pair for example in examples if example.pair is not None]
        both_texts = [texts, pairs] if pairs else [texts]
        encoding = tokenizer(*both_texts, truncation="longest_first", max_length=max_tokens)
        types = None
        if markers:
            types = mark_tokens(encoding, texts, markers)
        elif pairs:
            types = encoding.get("token_type_ids")
        return cls(encoding["input_ids"], pad, types)

    @classmethod
    def with_labels(
        cls,
        examples: list[Example],
        tokenizer: Any,
        max_tokens: int,
        kind: Kind,
        markers: Sequence[str] = (),
        windows: bool = False,
    ) -> "EncodedSplit":
        """Tokenise examples with their labels.

        Args:
            examples: See :meth:`from_examples`.
            tokenizer: See :meth:`from_examples`.
            max_tokens: See :meth:`from_examples`.
            kind: Kind of the labels.
            markers: See :meth:`from_examples`.
            windows: See :meth:`from_examples`.
        """
        label_values = [example.label for example in examples]
        encoding = cls.from_examples(examples, tokenizer, max_tokens, markers, windows)
        return replace(
            encoding, loss_labels=kind.loss_labels(label_values), labels=kind.gather(label_values)
        )

    @property
    def lengths(self) -> np.ndarray:
        """int64 of shape (examples,), tokens of each."""
        return np.array([len(tokens) for tokens in self.tokens], dtype=np.int64)

    @property
    def sizes(self) -> np.ndarray:
        """int64 of shape (examples,), units of each."""
        if self.first_tokens is None:
            return np.ones(len(self.tokens), dtype=np.int64)
        return np.array([part.size for part in self.first_tokens], dtype=np.int64)

    @cached_property
    def _visible_units(self) -> list[np.ndarray]:
        starts = np.cumsum(self.sizes) - self.sizes
        if self.first_tokens is None:
            return list(starts[:, None])
        return [
            start + np.flatnonzero(part >= 0)
            for start, part in zip(starts, self.first_tokens, strict=True)
        ]

    def units(self, rows: np.ndarray) -> np.ndarray:
        """Return the units of a :meth:`batch`, in the order of the logits; truncated words are left out."""
        return np.concatenate([self._visible_units[row] for row in rows])

    def batch(self, rows: np.ndarray, device: torch.device) -> tuple[Tensor, ...]:
        """Pad token ids, attention mask and, if present, token types to int64 of shape (rows, longest).

        If words are the units, the third tensor is bool and marks the first token of each word. If
        texts are cut into windows, these are the rows, and the third tensor is the text of each.
        """
        if self.windows is not None:
            return tuple(part.to(device) for part in self._windows_of(rows, self.windows))
        lengths = torch.tensor([len(self.tokens[row]) for row in rows])
        mask = torch.arange(int(lengths.max())) < lengths[:, None]
        ids = _pad_rows(self.tokens, rows, mask, self.pad)
        inputs = [ids, mask.long()]
        if self.first_tokens is not None:
            is_first = torch.zeros(mask.shape, dtype=torch.bool)
            for place, row in enumerate(rows):
                positions = self.first_tokens[row]
                is_first[place, positions[positions >= 0]] = True
            inputs.append(is_first)
        elif self.types is not None:
            inputs.append(_pad_rows(self.types, rows, mask, 0))
        return tuple(part.to(device) for part in inputs)

    def _windows_of(self, rows: np.ndarray, windows: list[list[list[int]]]) -> list[Tensor]:
        """Pad the windows of some texts; with the mask, and the text of each."""
        parts = [window for row in rows for window in windows[row]]
        owners = [text for text, row in enumerate(rows) for _ in windows[row]]
        lengths = torch.tensor([len(window) for window in parts])
        mask = torch.arange(int(lengths.max())) < lengths[:, None]
        ids = _pad_rows(parts, np.arange(len(parts)), mask, self.pad)
        return [ids, mask.long(), torch.tensor(owners)]

    def count_cut(self, max_tokens: int) -> int:
        """Count the examples that have all the tokens that are read, so that longer ones are cut."""
        if self.windows is not None:
            return sum(len(windows) >= MOST_WINDOWS for windows in self.windows)
        return int((self.lengths >= max_tokens).sum())


def cut_windows(
    texts: Sequence[str], tokenizer: Any, max_tokens: int, most: int | None = MOST_WINDOWS
) -> list[list[list[int]]]:
    """Cut each text into windows of at most `max_tokens`, special tokens included.

    Args:
        texts: The texts.
        tokenizer: A fast tokenizer.
        max_tokens: Most tokens of a window.
        most: Most windows of a text; None for all.

    Returns:
        Token ids of the windows of each text.
    """
    windows: list[list[list[int]]] = [[] for _ in texts]
    for text, ids in overflowing(texts, tokenizer, max_tokens):
        if most is None or len(windows[text]) < most:
            windows[text].append(ids)
    return windows


def _pad_rows(values: list[list[int]], rows: np.ndarray, mask: Tensor, pad: int) -> Tensor:
    matrix = torch.full(mask.shape, pad)
    matrix[mask] = torch.tensor([value for row in rows for value in values[row]])
    return matrix
