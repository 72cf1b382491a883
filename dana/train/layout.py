"""Layout of micro-batches: lengths of a step's examples in, rows of a forward pass out; losses are the same in each.

padded     one example a row, rows of similar length together, filled up to the longest
packed     several examples a row of fixed width; each attends to itself only, positions start again
unpadded   all examples in one row without any padding; attention knows where each begins (see varlen.py)
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

BUSY = 1024  # tokens that keep a processor busy; smaller passes cost more than their padding
SIMILAR = 0.75  # of the longest in a padded micro-batch, which others should reach

Rows = list[np.ndarray]  # for each row of a forward pass, the examples that lie in it end to end


@dataclass(frozen=True)
class BatchLayout:
    """How micro-batches are laid out and passed through the model.

    Attributes:
        layout: One of :data:`LAYOUTS`.
        budget: Most tokens, padding included, of a micro-batch.
        width: Tokens of a packed row.
        static: Every packed micro-batch has the same shape, which compiled code needs.
        pad: Id of the padding token.
        first_position: Position id of an example's first token.
        bf16: Forward passes in bfloat16 by autocast; weights and losses stay in float32.
        window: How far from its own place a token sees in the layers that have a sliding window; 0 for none.
    """

    layout: str = "padded"
    budget: int = 8192
    width: int = 0
    static: bool = False
    pad: int = 0
    first_position: int = 0
    bf16: bool = False
    window: int = 0

    @classmethod
    def of(cls, config: Any, budget: int, width: int, layout: str = "padded", static: bool = False) -> "BatchLayout":
        """The layout of a run's micro-batches for a model's configuration, in float32."""
        from dana.models.heads import RESERVED_POSITIONS, window_of

        first = RESERVED_POSITIONS.get(config.model_type, 0)
        return cls(layout, budget, width, static, config.pad_token_id or 0, first, window=window_of(config))


def micro_batches(lengths: np.ndarray, budget: int, rank: int, world: int, layout: str, width: int) -> list[Rows]:
    """Cut a step into one rank's micro-batches, as many on every rank.

    Args:
        lengths: Shape (examples,), tokens of each example of the step.
        budget: Most tokens, padding included, of a micro-batch; a single example may be longer.
        rank: This rank.
        world: How many there are.
        layout: One of :data:`LAYOUTS`.
        width: Tokens of a packed row.

    Returns:
        Indices into the step's examples, longest first. The ranks' lists are disjoint, hold every example,
        and are equally many; one may be empty where rows are fewer than ranks.
    """
    order = np.argsort(-lengths, kind="stable")
    if layout == "packed":
        rows = best_fit(lengths, width)
        size = max(1, budget // width) * world
        return [rows[start : start + size][rank::world] for start in range(0, len(rows), size)]
    batches: list[Rows] = []
    start = 0
    if layout == "unpadded":
        seen = np.cumsum(lengths[order])
        while start < order.size:
            before = seen[start - 1] if start else 0
            stop = max(start + world, int(np.searchsorted(seen, before + budget * world, side="right")))
            mine = order[start:stop][rank::world]
            batches.append([mine] if mine.size else [])
            start = stop
        return batches
    while start < order.size:
        stop = min(start + _alike(lengths[order[start:]], budget, world), order.size)
        batches.append([order[place : place + 1] for place in range(start, stop)][rank::world])
        start = stop
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


def best_fit(lengths: np.ndarray, width: int) -> Rows:
    """Pack examples into rows: longest first, each into the fullest row that still has room for it.

    References:
        Krell et al. 2021, Efficient sequence packing without cross-contamination (best-fit decreasing).
    """
    rows: list[list[int]] = []
    with_room: list[list[int]] = [[] for _ in range(width + 1)]  # rows by the room they have left
    for example in np.argsort(-lengths, kind="stable").tolist():
        length = int(lengths[example])
        room = next((room for room in range(length, width + 1) if with_room[room]), None)
        if room is None:
            row, room = len(rows), max(width, length)
            rows.append([])
        else:
            row = with_room[room].pop()
        rows[row].append(example)
        with_room[room - length].append(row)
    return [np.array(row) for row in rows]


@dataclass(frozen=True)
class Arrangement:
    """Where every token of a forward pass comes from.

    Attributes:
        places: int64 of shape (rows, width), indices into the step's flat tokens, -1 where there is padding.
        example: int64 of the same shape, the step's example at each place, -1 on padding.
        position: int64 of the same shape, the token's position in its example.
        lengths: int64 of shape (examples here,), in the order in which they lie.
    """

    places: np.ndarray
    example: np.ndarray
    position: np.ndarray
    lengths: np.ndarray

    @classmethod
    def of(cls, rows: Rows, offsets: np.ndarray, width: int = 0, least_rows: int = 0) -> "Arrangement":
        """Lay examples out.

        Args:
            rows: Examples of each row.
            offsets: Shape (examples + 1,), where the step's examples begin in its flat tokens.
            width: Least width; more where a row needs it.
            least_rows: Rows to have at least; empty ones are padding.
        """
        order = np.concatenate(rows)
        lengths = np.diff(offsets)[order]
        row_of = np.repeat(np.arange(len(rows)), [row.size for row in rows])
        ends = np.cumsum(lengths)
        first_of_row = np.concatenate([[0], np.cumsum([row.size for row in rows])])[:-1]
        row_start = (ends - lengths)[first_of_row]
        widths = np.bincount(row_of, weights=lengths, minlength=len(rows)).astype(np.int64)
        shape = max(len(rows), least_rows), max(width, int(widths.max()))
        position = np.arange(int(ends[-1])) - np.repeat(ends - lengths, lengths)
        row = np.repeat(row_of, lengths)
        column = np.arange(int(ends[-1])) - row_start[row]

        def grid(values: np.ndarray, padding: int) -> np.ndarray:
            filled = np.full(shape, padding, dtype=np.int64)
            filled[row, column] = values
            return filled

        places = grid(np.repeat(offsets[order], lengths) + position, -1)
        return cls(places, grid(np.repeat(order, lengths), -1), grid(position, 0), lengths)

    def attention(self, layout: str, first_position: int, window: int = 0) -> dict[str, Any]:
        """What the model's forward pass needs to keep examples apart.

        Args:
            layout: One of :data:`LAYOUTS`.
            first_position: The position id of an example's first token in this architecture.
            window: How far a token sees in layers with a sliding window; 0 if there are none. With some, the packed
                mask is two, under transformers' names of those kinds of layers; other layouts leave it to the model.
        """
        import torch

        if layout == "padded":
            return {"attention_mask": torch.from_numpy((self.example >= 0).astype(np.int64))}
        positions = torch.from_numpy(np.where(self.example >= 0, self.position + first_position, first_position))
        if layout == "packed":  # padding attends to padding: a row of nothing would be 0 / 0
            example = torch.from_numpy(self.example)
            together: Any = example[:, None, :, None] == example[:, None, None, :]
            if window:  # places of one example lie side by side: their distance in the row is that in the text
                place = torch.arange(example.shape[1])
                near = (place[:, None] - place).abs() <= window
                together = {"full_attention": together, "sliding_attention": together & near}
            return {"attention_mask": together, "position_ids": positions}
        bounds = torch.from_numpy(np.concatenate([[0], np.cumsum(self.lengths)]).astype(np.int32))
        longest = int(self.lengths.max())
        return {
            "position_ids": positions,
            "cu_seq_lens_q": bounds,
            "cu_seq_lens_k": bounds,
            "max_length_q": longest,
            "max_length_k": longest,
        }
