"""Batches of token ids: texts to padded batches of fixed shapes, bucketed by length, made ahead of the device.

A text's row has a width, and its batch a number of rows, that follow from the text's own length alone. So neither the
others of a batch nor their number can move a vector, not even its last bit, and texts may be tokenised a few at a time:
while the device computes a batch, a thread makes the next ones, in pinned memory, from which they are copied without
waiting for the device.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dana.core.errors import DataError
from dana.core.workers import prefetch

CPU_TOKENS = 512  # of a batch on a CPU: more is no faster there, and small batches need fewer fillers
TEXTS_AT_ONCE = 256  # tokenised in one call: few, so that the device soon has its first batch
AHEAD = 2  # batches that wait for the device


@dataclass(frozen=True)
class TokenBatch:
    """A padded batch, filled up to its fixed number of rows by copies of its first text.

    Attributes:
        rows: Which texts, int64 of shape (texts,).
        tokens: int64 of shape (size, width); the first `texts` rows are those of `rows`.
        mask: 1 where a token is real, int64 of the same shape.
    """

    rows: Tensor
    tokens: Tensor
    mask: Tensor

    def each(self, change: Callable[[Tensor], Tensor]) -> "TokenBatch":
        """Every part changed alike."""
        return TokenBatch(change(self.rows), change(self.tokens), change(self.mask))


@contextmanager
def batches_on(
    device: torch.device, tokenizer: Any, texts: Sequence[str], longest: int, most: int
) -> Iterator[Iterator[TokenBatch]]:
    """The batches of texts on a device; but for a CPU a thread makes them, which is over when the context is.

    While a GPU computes, the batches that it needs next are made, and no copy waits for it. On a CPU the thread would
    take the cores from the model.

    Args:
        device: Where the batches are wanted.
        tokenizer: Not to be used inside the context: it is busy.
        texts: In any order.
        longest: Longer texts are cut to so many tokens.
        most: See :func:`token_batches`; on a CPU 512 at most.

    Raises:
        DataError: From the iterator, if a text has no token at all.
    """
    made = token_batches(tokenizer, texts, longest, min(most, CPU_TOKENS) if device.type == "cpu" else most)
    if device.type == "cuda":
        made = (batch.each(Tensor.pin_memory) for batch in made)
    if device.type != "cpu":
        made = prefetch(made, AHEAD)
    with closing(made):
        yield (batch.each(lambda part: part.to(device, non_blocking=True)) for batch in made)


def token_batches(tokenizer: Any, texts: Sequence[str], longest: int, most: int) -> Generator[TokenBatch, None, None]:
    """Every text in one batch, together with texts of its width.

    Texts come longest first, by their characters, so that memory peaks early and the time left is not underestimated.
    A batch is made when it is full; those that never are come last, filled up.

    Args:
        tokenizer: Of transformers.
        texts: In any order.
        longest: Longer texts are cut to so many tokens.
        most: Most tokens of a batch, fillers included, where one row has no more.

    Raises:
        DataError: If a text has no token at all.
    """
    order = sorted(range(len(texts)), key=lambda row: -len(texts[row]))
    pad = tokenizer.pad_token_id or 0
    buckets: dict[int, list[tuple[int, list[int]]]] = {}
    for first in range(0, len(order), TEXTS_AT_ONCE):
        rows = order[first : first + TEXTS_AT_ONCE]
        for row, ids in zip(rows, _tokenised(tokenizer, [texts[row] for row in rows], longest), strict=True):
            if not ids:
                raise DataError(f"text {row} of the batch has no token: {texts[row]!r}")
            width = batch_width(len(ids), longest)
            bucket = buckets.setdefault(width, [])
            bucket.append((row, ids))
            if len(bucket) == batch_rows(width, most):
                yield _filled(buckets.pop(width), width, most, pad)
    for width in sorted(buckets, reverse=True):
        yield _filled(buckets[width], width, most, pad)


def _tokenised(tokenizer: Any, texts: list[str], longest: int) -> list[list[int]]:
    only_ids = {"return_attention_mask": False, "return_token_type_ids": False}
    return tokenizer(texts, truncation=True, max_length=longest, verbose=False, **only_ids)["input_ids"]


def _filled(bucket: list[tuple[int, list[int]]], width: int, most: int, pad: int) -> TokenBatch:
    ids = [tokens for _, tokens in bucket]
    fillers = [ids[0]] * (batch_rows(width, most) - len(ids))
    return TokenBatch(torch.tensor([row for row, _ in bucket]), *padded_batch([*ids, *fillers], width, pad))


def padded_batch(ids: Sequence[Sequence[int]], width: int, pad: int) -> tuple[Tensor, Tensor]:
    """Token ids and attention mask, both int64 of shape (texts, width).

    Args:
        ids: Token ids of each text, at most `width`.
        width: Tokens of a row.
        pad: Token id to pad with.
    """
    lengths = np.fromiter(map(len, ids), dtype=np.int64, count=len(ids))
    mask = np.arange(width) < lengths[:, None]
    tokens = np.full(mask.shape, pad, dtype=np.int64)
    tokens[mask] = np.fromiter(chain.from_iterable(ids), dtype=np.int64, count=int(lengths.sum()))
    return torch.from_numpy(tokens), torch.from_numpy(mask.astype(np.int64))


def batch_rows(width: int, most: int) -> int:
    """Rows of a batch of some width that has at most so many tokens, where one row has no more."""
    return max(1, most // width)


def batch_width(length: int, max_tokens: int) -> int:
    """Tokens to which a text of some length is padded: the next multiple of 8 up to 64, of 16 up to 128, then of 32."""
    step = 8 if length <= 64 else 16 if length <= 128 else 32
    return min(-(-length // step) * step, max(length, max_tokens))
