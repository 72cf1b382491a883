"""Examples of a split to token ids in padded batches; of words, the place of each word's first token."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dana.core.errors import ArtifactError
from dana.tasks.examples import Example
from dana.tasks.kinds.base import Kind


def tokenise_words(
    words: Sequence[Sequence[str]], tokenizer: Any, max_tokens: int
) -> tuple[list[list[int]], list[np.ndarray]]:
    """Tokenise texts of given words, each cut to `max_tokens`.

    The words are joined by spaces, and a token is of the word that its last character is in. So any fast tokenizer will
    do, whatever it makes of spaces.

    Args:
        words: Of each text.
        tokenizer: The checkpoint's.
        max_tokens: Special tokens included.

    Returns:
        Token ids of each text; and of each text the place of each word's first token, int64 of shape (words,), -1 of a
        word that was cut off or has no token.

    Raises:
        ArtifactError: If the tokenizer is a slow one, which does not say where its tokens are from.
    """
    if not tokenizer.is_fast:
        raise ArtifactError(f"{type(tokenizer).__name__}: a slow tokenizer; labels of words need a fast one")
    texts = [" ".join(own) for own in words]
    made = tokenizer(texts, truncation=True, max_length=max_tokens, return_offsets_mapping=True)
    places = []
    for own, offsets in zip(words, made["offset_mapping"], strict=True):
        starts = np.cumsum([0, *(len(word) + 1 for word in own[:-1])]).tolist()
        found = np.full(len(own), -1, dtype=np.int64)
        for place, (start, end) in enumerate(offsets):
            if end > start:
                word = bisect_right(starts, end - 1) - 1
                found[word] = place if found[word] < 0 else found[word]
        places.append(found)
    return made["input_ids"], places


@dataclass(frozen=True)
class Encoded:
    """One split, tokenised once for all seeds.

    A unit is what a model answers for: an example, or each of its words.

    Attributes:
        tokens: Token ids of each example, special tokens included.
        pad: Token id to pad with.
        types: Of pairs, which of the two texts each token is of, 0 or 1; None where the tokenizer does not say.
        targets: What the loss compares logits with, a row a unit; None where labels are not told.
        references: True answers of shape (examples,); None where labels are not told.
        places: Of each example, the place of each word's first token, -1 of a word that was cut off; None where
            examples are the units.
    """

    tokens: list[list[int]]
    pad: int
    types: list[list[int]] | None = None
    targets: np.ndarray | None = None
    references: np.ndarray | None = None
    places: list[np.ndarray] | None = None

    @classmethod
    def of(cls, examples: list[Example], tokenizer: Any, max_tokens: int) -> "Encoded":
        """Tokenise examples without their labels, each cut to `max_tokens`: of a pair the longer text first.

        Args:
            examples: All with a second text, or none; all with words, or none.
            tokenizer: The checkpoint's.
            max_tokens: Special tokens included.
        """
        pad, words = tokenizer.pad_token_id or 0, [example.words for example in examples if example.words is not None]
        if words:
            tokens, places = tokenise_words(words, tokenizer, max_tokens)
            return cls(tokens, pad, places=places)
        texts = [[example.text for example in examples]]
        pairs = [example.pair for example in examples if example.pair is not None]
        made = tokenizer(*texts, *([pairs] if pairs else []), truncation="longest_first", max_length=max_tokens)
        return cls(made["input_ids"], pad, made.get("token_type_ids") if pairs else None)

    @classmethod
    def labelled(cls, examples: list[Example], tokenizer: Any, max_tokens: int, kind: Kind) -> "Encoded":
        """Tokenise examples, and take their labels with them.

        Args:
            examples: As for :meth:`of`, and so are the next two.
            tokenizer: The checkpoint's.
            max_tokens: Special tokens included.
            kind: What the labels are.
        """
        answers = [example.label for example in examples]
        made = cls.of(examples, tokenizer, max_tokens)
        return replace(made, targets=kind.targets(answers), references=kind.gather(answers))

    @property
    def lengths(self) -> np.ndarray:
        """int64 of shape (examples,), tokens of each."""
        return np.array([len(tokens) for tokens in self.tokens], dtype=np.int64)

    @property
    def sizes(self) -> np.ndarray:
        """int64 of shape (examples,), units of each."""
        ones = np.ones(len(self.tokens), dtype=np.int64)
        return ones if self.places is None else np.array([part.size for part in self.places], dtype=np.int64)

    @cached_property
    def _seen(self) -> list[np.ndarray]:
        """The units of each example that were not cut off."""
        starts = np.cumsum(self.sizes) - self.sizes
        if self.places is None:
            return list(starts[:, None])
        return [start + np.flatnonzero(part >= 0) for start, part in zip(starts, self.places, strict=True)]

    def units(self, rows: np.ndarray) -> np.ndarray:
        """The units that a model answers for, given :meth:`batch` of the same rows, in the order of its logits."""
        return np.concatenate([self._seen[row] for row in rows])

    def batch(self, rows: np.ndarray, device: torch.device) -> tuple[Tensor, ...]:
        """Token ids, attention mask and, where there are some, token types, each int64 of shape (rows, longest).

        Where words are the units, the third is bool: which tokens are the first of a word.
        """
        lengths = torch.tensor([len(self.tokens[row]) for row in rows])
        mask = torch.arange(int(lengths.max())) < lengths[:, None]
        ids = _filled(self.tokens, rows, mask, self.pad)
        more = [] if self.types is None else [_filled(self.types, rows, mask, 0)]
        if self.places is not None:
            more = [torch.zeros(mask.shape, dtype=torch.bool)]
            for at, row in enumerate(rows):
                more[0][at, self.places[row][self.places[row] >= 0]] = True
        return tuple(part.to(device) for part in (ids, mask.long(), *more))


def _filled(values: list[list[int]], rows: np.ndarray, mask: Tensor, pad: int) -> Tensor:
    """The values of some examples where the mask is true, row by row, and `pad` elsewhere."""
    found = torch.full(mask.shape, pad)
    found[mask] = torch.tensor([value for row in rows for value in values[row]])
    return found
