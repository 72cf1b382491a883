"""From a corpus and its weights to training examples: windows of text that was kept, each with one weight.

A run (:mod:`dana.mlm.runs`) is tokenised as one text and cut into windows of equal length. Nothing crosses a
gap between kept units or the end of a document, and no token of a run is discarded.
"""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dana.config import require
from dana.errors import ConfigError, DataError
from dana.logging import tracked
from dana.mlm.runs import Run, corpus_runs
from dana.rng import derive_seed

RUNS_AT_ONCE = 1024  # enough for the tokenizer's threads, little enough to hold their offsets


@dataclass(frozen=True)
class Examples:
    """Training examples end to end.

    Attributes:
        tokens: int32 of shape (tokens,), special tokens included.
        offsets: int64 of shape (examples + 1,); example i is ``tokens[offsets[i]:offsets[i + 1]]``.
        ids: uint64 of shape (examples,), a hash of document and first character: the same text has the same
            id, and so the same masks and place in the order, in every arm.
        weights: float32 of shape (examples,), λ > 0.
    """

    tokens: np.ndarray
    offsets: np.ndarray
    ids: np.ndarray
    weights: np.ndarray

    def __len__(self) -> int:
        return self.ids.size

    @property
    def lengths(self) -> np.ndarray:
        """int64 of shape (examples,), tokens of each."""
        return np.diff(self.offsets)

    def take(self, rows: np.ndarray) -> "Examples":
        """The examples at `rows`, in that order."""
        pieces = [self.tokens[self.offsets[row] : self.offsets[row + 1]] for row in rows]
        tokens = np.concatenate(pieces) if pieces else self.tokens[:0]
        offsets = np.concatenate([[0], np.cumsum(self.lengths[rows])]).astype(np.int64)
        return Examples(tokens, offsets, self.ids[rows], self.weights[rows])


def build_examples(
    corpus: Path,
    weights: Path | None,
    tokenizer: Any,
    max_tokens: int,
    exclude: Collection[str] = (),
) -> tuple[Examples, dict[str, int]]:
    """Tokenise what the weights keep of a corpus.

    Args:
        corpus: Folder of :data:`dana.schemas.DOCUMENTS`.
        weights: Folder of :data:`dana.schemas.WEIGHTS` in corpus order; rows of weight 0 or segment -1 are
            left out. Without one, everything counts with weight 1.
        tokenizer: A fast Hugging Face tokenizer.
        max_tokens: Most tokens of an example, special tokens included.
        exclude: Documents never to train on, by id.

    Returns:
        The examples, and counts of documents (in = kept + left out + excluded), runs, windows and tokens.

    Raises:
        DataError: If the weights do not fit the corpus, or nothing is left.
        ConfigError: If the tokenizer is slow or `max_tokens` too small for it.
    """
    counts: Counter[str] = Counter(documents_in=0, documents_kept=0, documents_left_out=0, documents_excluded=0)
    cutter = Cutter.of(tokenizer, max_tokens)
    pieces: list[Examples] = []
    waiting: list[Run] = []
    for run in tracked(corpus_runs(corpus, weights, exclude, counts), what="tokenise", unit="runs"):
        waiting.append(run)
        if len(waiting) == RUNS_AT_ONCE:
            pieces.append(cutter.cut(waiting, counts))
            waiting = []
    pieces.append(cutter.cut(waiting, counts))
    examples = concatenate(pieces)
    if len(examples) == 0:
        raise DataError(f"{weights or corpus}: no text to train on is left ({dict(counts)})")
    return examples, dict(counts)


def concatenate(pieces: list[Examples]) -> Examples:
    """Examples of all pieces, in order."""
    lengths = np.concatenate([piece.lengths for piece in pieces])
    return Examples(
        np.concatenate([piece.tokens for piece in pieces]).astype(np.int32),
        np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        np.concatenate([piece.ids for piece in pieces]).astype(np.uint64),
        np.concatenate([piece.weights for piece in pieces]).astype(np.float32),
    )


@dataclass(frozen=True)
class Cutter:
    """Tokenises runs and cuts them into windows.

    Attributes:
        tokenizer: A fast tokenizer.
        room: Tokens of text in a window.
        before: Special tokens put before them.
        after: Special tokens put behind them.
    """

    tokenizer: Any
    room: int
    before: np.ndarray
    after: np.ndarray

    @classmethod
    def of(cls, tokenizer: Any, max_tokens: int) -> "Cutter":
        """The cutter of a tokenizer, its special tokens found by looking at what it adds to a letter."""
        if not getattr(tokenizer, "is_fast", False):
            raise ConfigError(f"tokenizer {type(tokenizer).__name__} has no character offsets; a fast one is needed")
        bare = tokenizer("a", add_special_tokens=False)["input_ids"]
        full = tokenizer("a")["input_ids"]
        at = next(place for place in range(len(full)) if full[place : place + len(bare)] == bare)
        before, after = full[:at], full[at + len(bare) :]
        room = max_tokens - len(before) - len(after)
        require(room >= 1, "max_tokens", max_tokens, f"at least {max_tokens - room + 1} for this tokenizer")
        return cls(tokenizer, room, np.array(before, dtype=np.int32), np.array(after, dtype=np.int32))

    def cut(self, runs: list[Run], counts: Counter[str]) -> Examples:
        """Windows of all runs, in order."""
        pieces: list[np.ndarray] = []
        ids: list[int] = []
        weights: list[float] = []
        encodings = (
            self.tokenizer(
                [run.text for run in runs],
                add_special_tokens=False,
                return_offsets_mapping=True,
                verbose=False,
            ).encodings
            if runs
            else []
        )
        for run, encoding in zip(runs, encodings, strict=True):
            tokens = np.array(encoding.ids, dtype=np.int32)
            starts = np.array(encoding.offsets, dtype=np.int64).reshape(-1, 2)[:, 0]
            of_unit = run.unit_weights[np.searchsorted(run.unit_starts, starts, side="right") - 1]
            # Equal windows, not full ones and a rest: a rest of two tokens is no context to learn from.
            for window in np.array_split(np.arange(tokens.size), -(-tokens.size // self.room) or 1):
                if window.size:
                    pieces += [self.before, tokens[window], self.after]
                    ids.append(derive_seed(0, "example", run.doc_id, run.start + int(starts[window[0]])))
                    weights.append(float(of_unit[window].mean()))
            counts["tokens_text"] += tokens.size
        special = self.before.size + self.after.size
        counts["runs"] += len(runs)
        counts["windows"] += len(ids)
        lengths = np.array([piece.size for piece in pieces[1::3]], dtype=np.int64) + special
        counts["tokens_with_special"] += int(lengths.sum())
        return Examples(
            np.concatenate(pieces) if pieces else np.zeros(0, dtype=np.int32),
            np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
            np.array(ids, dtype=np.uint64),
            np.array(weights, dtype=np.float32),
        )
