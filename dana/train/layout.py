"""Layout of micro-batches: lengths of a step's examples in, rows of a forward pass out; losses are the same in each.

padded     one example a row, rows of similar length together, filled up to the longest
unpadded   all examples in one row without any padding; attention knows where each begins (see varlen.py)
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

BUSY = 1024  # tokens that keep a processor busy; smaller passes cost more than their padding
SIMILAR = 0.75  # of the longest in a padded micro-batch, which others should reach


@dataclass(frozen=True)
class BatchLayout:
    """How micro-batches are laid out and passed through the model.

    Attributes:
        layout: One of :data:`dana.train.LAYOUTS`.
        budget: Most tokens, padding included, of a micro-batch; a single example may be longer.
        pad: Id of the padding token.
        first_position: Position id of an example's first token.
        bf16: Forward passes in bfloat16 by autocast; weights and losses stay in float32.
    """

    layout: str = "padded"
    budget: int = 8192
    pad: int = 0
    first_position: int = 0
    bf16: bool = False

    @classmethod
    def of(cls, config: Any, budget: int, layout: str = "padded", bf16: bool = False) -> "BatchLayout":
        """The layout of a run's micro-batches for a model's configuration."""
        from dana.models.heads import RESERVED_POSITIONS

        return cls(layout, budget, config.pad_token_id or 0, RESERVED_POSITIONS.get(config.model_type, 0), bf16)


def micro_batches(lengths: np.ndarray, layout: BatchLayout, rank: int = 0, world: int = 1) -> list[np.ndarray]:
    """Cut a step into one rank's micro-batches, as many on every rank.

    Args:
        lengths: Shape (examples,), tokens of each example of the step.
        layout: Says how many tokens a micro-batch may have.
        rank: This rank.
        world: How many there are.

    Returns:
        Indices into the step's examples, longest first. The ranks' lists are disjoint, hold every example,
        and are equally many; one may be empty where examples are fewer than ranks.
    """
    order = np.argsort(-lengths, kind="stable")
    lengths, batches, start = lengths[order], [], 0
    ends = np.cumsum(lengths)
    while start < order.size:
        if layout.layout == "padded":
            count = _alike(lengths[start:], layout.budget, world)
        else:
            most = ends[start] - lengths[start] + layout.budget * world
            count = max(world, int(np.searchsorted(ends, most, side="right")) - start)
        batches.append(order[start : start + count][rank::world])
        start += count
    return batches


def _alike(lengths: np.ndarray, budget: int, world: int) -> int:
    """How many of the next examples, longest first, share a padded micro-batch on every rank.

    As many as the budget holds, but none much shorter than the first once there is enough to keep a processor
    busy: their padding would cost more than another pass.
    """
    longest = int(lengths[0])
    most = max(1, budget // longest) * world
    enough = max(1, BUSY // longest) * world
    similar = int(np.searchsorted(-lengths, -SIMILAR * longest, side="right"))
    return min(most, max(enough, similar))


def lay_out(examples: np.ndarray, offsets: np.ndarray, layout: BatchLayout) -> tuple[np.ndarray, dict[str, Any]]:
    """Lay examples out for a forward pass.

    Args:
        examples: Of the step, at least one.
        offsets: Shape (examples of the step + 1,), where each begins in the step's flat tokens.
        layout: One example a row, or all in one.

    Returns:
        int64 of shape (rows, width), places in the flat tokens, -1 where there is padding; and the model's arguments
        that keep the examples apart.
    """
    import torch

    lengths, starts = np.diff(offsets)[examples], offsets[:-1][examples]
    column = np.arange(lengths.max())
    real = column < lengths[:, None]
    places = np.where(real, starts[:, None] + column, -1)
    if layout.layout == "padded":
        return places, {"attention_mask": torch.from_numpy(real.astype(np.int64))}
    positions = torch.from_numpy(np.broadcast_to(column, real.shape)[real] + layout.first_position)
    bounds = torch.from_numpy(np.append(0, np.cumsum(lengths)).astype(np.int32))
    apart = {"cu_seq_lens_q": bounds, "cu_seq_lens_k": bounds, "max_length_q": column.size, "max_length_k": column.size}
    return places[real][None], {"position_ids": positions[None], **apart}
