"""Next-sentence pairs: the texts of a step in, halves joined in pairs with labels out, a pure function as masks are.

Every text is cut in its middle. A coin of (seed, epoch, example id) decides for half of the texts that their second
halves change places among each other. Two halves of texts of at most n tokens have at most n tokens: nothing is
truncated, and every token of the step is still there once.
"""

from dataclasses import dataclass

import numpy as np

from dana.core.rng import derive_seed, hash_uniform
from dana.train.objectives.batch import IGNORED
from dana.train.objectives.masking import EPOCH_STRIDE
from dana.train.sequences.examples import Batch, SpecialTokens

FOLLOWS, ELSEWHERE = 0, 1  # the labels of BERT


@dataclass(frozen=True)
class Pairs:
    """The examples of a step as pairs of halves.

    Attributes:
        batch: ``before A middle B after`` of each; ids and weights are those of the text that A is from.
        types: int64 of shape (tokens,), 0 up to the middle's end and 1 behind it.
        texts: int64 of shape (tokens,), the example of the step whose text each token is from.
        labels: int64 of shape (examples,), :data:`FOLLOWS`, :data:`ELSEWHERE`, or
            :data:`dana.train.objectives.batch.IGNORED` where the text has fewer than two tokens.
    """

    batch: Batch
    types: np.ndarray
    texts: np.ndarray
    labels: np.ndarray


def pair(batch: Batch, special_tokens: SpecialTokens, epochs: np.ndarray | int, seed: int) -> Pairs:
    """Exchange the second halves of about half of a step's texts.

    The result depends on which examples are in the step, not on their order. One that would exchange with nobody, or
    with its own next epoch, keeps what follows it and is labelled so.

    Args:
        batch: All examples of the step, framed for pairs: A is the first ⌈n / 2⌉ tokens of text.
        special_tokens: Theirs.
        epochs: Shape (examples,) or one for all; pairs change with it.
        seed: Pairs of two seeds are independent.

    References:
        Devlin et al. 2019, section 3.1, task 2. There B comes from another document half of the time.
    """
    lengths = np.diff(batch.offsets)
    sizes = lengths - special_tokens.size
    heads = special_tokens.before.size + (sizes + 1) // 2 + special_tokens.middle.size
    with np.errstate(over="ignore"):
        keys = batch.ids + np.asarray(epochs).astype(np.uint64) * EPOCH_STRIDE
    chance = hash_uniform(derive_seed(seed, "next sentence"), keys)
    moved = np.flatnonzero((chance < 0.5) & (sizes >= 2))
    moved = moved[np.argsort(chance[moved], kind="stable")]
    second = np.arange(len(batch))  # whose second half each example gets
    second[moved] = np.roll(moved, 1)

    own = np.arange(len(batch))
    texts = np.stack([own, second], axis=1).ravel()
    starts = np.stack([batch.offsets[:-1], (batch.offsets[:-1] + heads)[second]], axis=1).ravel()
    counts = np.stack([heads, (lengths - heads)[second]], axis=1).ravel()
    ends = np.cumsum(counts)
    places = np.arange(batch.tokens.size) + np.repeat(starts - ends + counts, counts)
    return Pairs(
        Batch(batch.tokens[places], np.concatenate([[0], ends[1::2]]), batch.ids, batch.weights),
        np.repeat(np.tile([0, 1], len(batch)), counts),
        np.repeat(texts, counts),
        np.where(sizes < 2, IGNORED, np.where(batch.ids[second] == batch.ids, FOLLOWS, ELSEWHERE)),
    )
