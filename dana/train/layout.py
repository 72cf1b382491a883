"""Split the examples of a step into micro-batches, and lay each out as rows of a forward pass.

padded     one example per row, rows of similar length together, padded to the longest
unpadded   all examples in one row without padding; attention is told where each begins (see dana/models/varlen.py)

Losses do not depend on the layout.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

BUSY_TOKENS = 1024  # tokens that keep a processor busy; smaller passes cost more than padding
BUSY_TOKENS_OF_GPU = 16_384  # and a GPU
MIN_LENGTH_RATIO = 0.75  # shortest to longest example of a padded micro-batch


@dataclass(frozen=True)
class BatchLayout:
    """How micro-batches are laid out and passed through the model.

    Attributes:
        layout: One of :data:`dana.train.LAYOUTS`.
        budget: Most tokens of a micro-batch, padding included; a single example may be longer.
        pad: Id of the padding token.
        first_position: Position id of an example's first token.
        bf16: Run forward passes in bfloat16 by autocast; weights and losses stay in float32.
        busy: Tokens that keep the device busy: padded rows of a micro-batch are of similar length
            only beyond so many.
        least: Padded rows with fewer tokens than this are no micro-batch of their own where the
            one before has room.
    """

    layout: str = "padded"
    budget: int = 8192
    pad: int = 0
    first_position: int = 0
    bf16: bool = False
    busy: int = BUSY_TOKENS
    least: int = 1

    @classmethod
    def from_config(
        cls, config: Any, budget: int, layout: str = "padded", bf16: bool = False
    ) -> "BatchLayout":
        """Read padding token and first position from a model's configuration."""
        from dana.models.heads import RESERVED_POSITIONS

        first_position = RESERVED_POSITIONS.get(config.model_type, 0)
        return cls(layout, budget, config.pad_token_id or 0, first_position, bf16)

    def on(self, device_type: str) -> "BatchLayout":
        """Return the layout for a kind of device: a GPU's passes are larger and fewer."""
        if device_type == "cpu":
            return self
        return replace(self, busy=BUSY_TOKENS_OF_GPU, least=BUSY_TOKENS_OF_GPU // 2)


def micro_batches(
    lengths: np.ndarray, layout: BatchLayout, rank: int = 0, world: int = 1
) -> list[np.ndarray]:
    """Return one rank's micro-batches of a step; every rank has the same number of them.

    Args:
        lengths: Shape (examples,), tokens of each example of the step.
        layout: Layout, with the token budget of a micro-batch.
        rank: Index of this rank.
        world: Number of ranks.

    Returns:
        Indices into the step's examples, longest first. Together the ranks hold every example once;
        a micro-batch is empty where there are fewer examples than ranks.
    """
    order = np.argsort(-lengths, kind="stable")
    lengths = lengths[order]
    ends = np.cumsum(lengths)
    batches = []
    start = 0
    while start < order.size:
        if layout.layout == "padded":
            count = _padded_count(lengths[start:], layout, world)
        else:
            done = int(ends[start] - lengths[start])
            count = _unpadded_count(ends[start:] - done, layout.budget, world)
        batches.append(order[start : start + count][rank::world])
        start += count
    return batches


def _padded_count(lengths: np.ndarray, layout: BatchLayout, world: int) -> int:
    """Count the next examples, longest first, that share a padded micro-batch on every rank.

    The budget bounds the count. Examples much shorter than the first are left to another pass once
    the device is busy: their padding would cost more than the pass.
    """
    longest = int(lengths[0])
    limit = max(1, layout.budget // longest) * world
    enough = max(1, layout.busy // longest) * world
    similar = int(np.searchsorted(-lengths, -MIN_LENGTH_RATIO * longest, side="right"))
    count = min(limit, max(enough, similar))
    rest = int(lengths[count:].sum())
    if rest < layout.least * world and lengths.size <= limit:
        return int(lengths.size)
    return count


def _unpadded_count(ends: np.ndarray, budget: int, world: int) -> int:
    """Count the next examples that share a micro-batch without padding on every rank.

    The passes are as few as the budget allows, and equal: a small one at the end would cost as much
    time as a whole one.

    Args:
        ends: Shape (examples,), tokens of the examples up to and with each, longest first.
        budget: Most tokens of a rank.
        world: Number of ranks.
    """
    limit = budget * world
    passes = -(-int(ends[-1]) // limit)
    count = int(np.searchsorted(ends, ends[-1] / passes, side="left")) + 1
    if count <= ends.size and ends[count - 1] > limit:
        count -= 1
    return max(world, count)


def lay_out(
    examples: np.ndarray, offsets: np.ndarray, layout: BatchLayout
) -> tuple[np.ndarray, dict[str, Any]]:
    """Lay examples out as the rows of a forward pass.

    Args:
        examples: Indices of examples of the step, at least one.
        offsets: Shape (examples of the step + 1,), start of each example in the step's flat tokens.
        layout: One example per row, or all in one.

    Returns:
        int64 of shape (rows, width), positions in the flat tokens, -1 for padding; and the model's
        arguments that keep attention within each example.
    """
    import torch

    lengths = np.diff(offsets)[examples]
    starts = offsets[:-1][examples]
    longest = int(lengths.max())
    if layout.layout == "padded":
        column = np.arange(longest)
        real = column < lengths[:, None]
        positions = np.where(real, starts[:, None] + column, -1)
        return positions, {"attention_mask": torch.from_numpy(real.astype(np.int64))}
    ends = np.cumsum(lengths)
    column = np.arange(ends[-1]) - np.repeat(ends - lengths, lengths)  # in its example
    bounds = torch.from_numpy(np.append(0, ends).astype(np.int32))
    attention = {
        "position_ids": torch.from_numpy(column + layout.first_position)[None],
        "cu_seq_lens_q": bounds,
        "cu_seq_lens_k": bounds,
        "max_length_q": longest,
        "max_length_k": longest,
    }
    return (column + np.repeat(starts, lengths))[None], attention
