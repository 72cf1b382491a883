"""Training examples: a tokenised corpus and its weights in, windows of kept text with a weight each out.

The tokens of a run (:mod:`dana.train.sequences.runs`) are cut into windows of equal length. Nothing crosses a gap
between kept units or the end of a document, and no token of a run is discarded.
"""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from dana.core.config import require
from dana.core.errors import DataError
from dana.core.logging import tracked
from dana.core.rng import derive_seed
from dana.train.sequences.runs import Run, corpus_runs
from dana.train.sequences.tokens import Tokens


@dataclass(frozen=True)
class Batch:
    """Some examples, end to end in memory.

    Attributes:
        tokens: int32 of shape (tokens,), special tokens included.
        offsets: int64 of shape (examples + 1,); example i is ``tokens[offsets[i]:offsets[i + 1]]``.
        ids: uint64 of shape (examples,).
        weights: float32 of shape (examples,).
    """

    tokens: np.ndarray
    offsets: np.ndarray
    ids: np.ndarray
    weights: np.ndarray

    def __len__(self) -> int:
        return self.ids.size


@dataclass(frozen=True)
class SpecialTokens:
    """The special tokens of every example.

    Attributes:
        before: int32, put before the text.
        after: int32, put behind it.
        middle: int32, put between the two halves of it; empty unless they are to be a pair.
    """

    before: np.ndarray
    after: np.ndarray
    middle: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int32))

    @classmethod
    def of(cls, tokenizer: Any, paired: bool = False) -> "SpecialTokens":
        """What a tokenizer adds to a text, or to a pair of texts, read off what it adds to a letter."""
        bare = tokenizer("a", add_special_tokens=False)["input_ids"]
        full = tokenizer("a")["input_ids"]
        at = next(place for place in range(len(full)) if full[place : place + len(bare)] == bare)
        before, after, middle = full[:at], full[at + len(bare) :], []
        if paired:
            both = tokenizer("a", "a")["input_ids"]
            middle = both[at + len(bare) : len(both) - len(bare) - len(after)]
        return cls(*(np.array(part, dtype=np.int32) for part in (before, after, middle)))

    @property
    def size(self) -> int:
        """Special tokens of an example."""
        return self.before.size + self.middle.size + self.after.size


@dataclass(frozen=True)
class Examples:
    """Training examples: spans of a token stream, which is not copied and may be mapped from disk.

    Attributes:
        stream: Integers of shape (tokens,), without special tokens.
        starts: int64 of shape (examples,), where each example's text begins in the stream.
        sizes: int64 of shape (examples,), tokens of text of each.
        ids: uint64 of shape (examples,), a hash of document and place: the same text has the same id, and so
            the same masks and place in the order, in every arm.
        weights: float32 of shape (examples,), λ > 0.
        special_tokens: Of each.
        replayed: How many of them, the last ones, are not what was kept but text to be drawn from on the side.
    """

    stream: np.ndarray
    starts: np.ndarray
    sizes: np.ndarray
    ids: np.ndarray
    weights: np.ndarray
    special_tokens: SpecialTokens
    replayed: int = 0

    def __len__(self) -> int:
        return self.ids.size

    @property
    def kept_weights(self) -> np.ndarray:
        """The weights of what was kept."""
        return self.weights[: self.ids.size - self.replayed]

    def with_replay(self, others: "Examples") -> "Examples":
        """These examples, and others of the same stream to be drawn from on the side."""
        return replace(
            self,
            starts=np.concatenate([self.starts, others.starts]),
            sizes=np.concatenate([self.sizes, others.sizes]),
            ids=np.concatenate([self.ids, others.ids]),
            weights=np.concatenate([self.weights, others.weights]),
            replayed=len(others),
        )

    @property
    def lengths(self) -> np.ndarray:
        """int64 of shape (examples,), tokens of each, special tokens included."""
        return self.sizes + self.special_tokens.size

    def rows(self, chosen: np.ndarray) -> "Examples":
        """The examples at `chosen`, in that order, of the same stream."""
        columns = (self.starts[chosen], self.sizes[chosen], self.ids[chosen], self.weights[chosen])
        return Examples(self.stream, *columns, self.special_tokens)

    def take(self, chosen: np.ndarray) -> Batch:
        """The examples at `chosen`, in that order, with their special tokens, in memory."""
        sizes, frame = self.sizes[chosen], self.special_tokens
        offsets = np.concatenate([[0], np.cumsum(sizes + frame.size)]).astype(np.int64)
        position = np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        tokens = np.empty(int(offsets[-1]), dtype=np.int32)
        text = self.stream[np.repeat(self.starts[chosen], sizes) + position]
        places = np.repeat(offsets[:-1] + frame.before.size, sizes) + position
        if frame.middle.size:
            halves = (sizes + 1) // 2
            places[position >= np.repeat(halves, sizes)] += frame.middle.size
            between = offsets[:-1] + frame.before.size + halves
            tokens[between[:, None] + np.arange(frame.middle.size)] = frame.middle
        tokens[places] = text
        tokens[offsets[:-1, None] + np.arange(frame.before.size)] = frame.before
        tokens[offsets[1:, None] - frame.after.size + np.arange(frame.after.size)] = frame.after
        return Batch(tokens, offsets, self.ids[chosen], self.weights[chosen])


def build_examples(
    tokens: Tokens,
    weights: Path | None,
    special_tokens: SpecialTokens,
    max_tokens: int,
    exclude: Collection[str] = (),
) -> tuple[Examples, dict[str, int]]:
    """Cut what the weights keep of a corpus into examples.

    Args:
        tokens: The corpus.
        weights: Folder of :data:`dana.core.schemas.WEIGHTS` in corpus order; rows of weight 0 or segment -1 are
            left out. Without one, everything counts with weight 1.
        special_tokens: Of each example.
        max_tokens: Most tokens of an example, special tokens included.
        exclude: Documents never to train on, by id.

    Returns:
        The examples, and counts of documents (in = kept + left out + excluded), runs, windows and tokens.

    Raises:
        DataError: If the weights do not fit the corpus, or nothing is left.
        ConfigError: If `max_tokens` is too small for the tokenizer.
    """
    room = max_tokens - special_tokens.size
    require(room >= 1, "max_tokens", max_tokens, f"at least {special_tokens.size + 1} for this tokenizer")
    counts: Counter[str] = Counter(documents_in=0, documents_kept=0, documents_left_out=0, documents_excluded=0)
    starts: list[np.ndarray] = []
    ids: list[int] = []
    found: list[np.ndarray] = []
    for run in tracked(corpus_runs(tokens, weights, exclude, counts), what="cut into examples", unit="runs"):
        edges, means = cut_run(run, tokens.last, room)
        places = tokens.last[edges[:-1]].tolist()
        ids += [derive_seed(0, "example", run.document.doc_id, place) for place in places]
        starts.append(edges)
        found.append(means)
        counts["runs"] += 1
    if not ids:
        raise DataError(f"{weights or 'the corpus'}: no text to train on is left ({dict(counts)})")
    examples = Examples(
        tokens.ids,
        np.concatenate([edges[:-1] for edges in starts]),
        np.concatenate([np.diff(edges) for edges in starts]),
        np.array(ids, dtype=np.uint64),
        np.concatenate(found).astype(np.float32),
        special_tokens,
    )
    counts["windows"] = len(ids)
    counts["tokens_text"] = int(examples.sizes.sum())
    counts["tokens_with_special"] = int(examples.lengths.sum())
    return examples, dict(counts)


def cut_run(run: Run, last: np.ndarray, room: int) -> tuple[np.ndarray, np.ndarray]:
    """Cut a run into the fewest windows that hold at most `room` tokens, equally long to within one token.

    Args:
        run: Kept text, at least one token.
        last: The last character of each token of the stream.
        room: Most tokens of a window.

    Returns:
        Edges of shape (windows + 1,) in the stream, and the mean weight over the tokens of each window.
    """
    inside = last[run.document.first : run.document.after]
    first, after = run.bounds(inside).tolist()
    many = -(-(after - first) // room)
    edges = first + np.arange(many + 1) * (after - first) // many
    if run.unit_weights.size == 1:
        return edges + run.document.first, np.full(many, run.unit_weights[0])
    of_token = np.searchsorted(run.unit_starts, inside[first:after], side="right") - 1
    sums = np.add.reduceat(run.unit_weights[of_token], edges[:-1] - first)
    return edges + run.document.first, sums / np.diff(edges)
