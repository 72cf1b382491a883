"""One optimizer step's examples, masked and scaled as a whole, then handed out as padded micro-batches."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dana.mlm.examples import Examples
from dana.mlm.loss import Scale, scale
from dana.mlm.masking import Masked, Masking, mask
from dana.train.plan import Step


@dataclass(frozen=True)
class MicroBatch:
    """Tensors of one forward pass.

    Attributes:
        input_ids: int64 of shape (rows, width).
        attention_mask: Same shape, 1 on real tokens.
        where: int64 of shape (hidden,), the hidden positions in the flattened batch.
        targets: int64 of shape (hidden,), what stood there.
        owners: int64 of shape (hidden,), which example of the step each belongs to.
        coefficients: float32 of shape (hidden,), c of :func:`dana.mlm.loss.scale`.
    """

    input_ids: Tensor
    attention_mask: Tensor
    where: Tensor
    targets: Tensor
    owners: Tensor
    coefficients: Tensor

    def to(self, device: torch.device) -> "MicroBatch":
        """The same on a device."""
        return MicroBatch(*(value.to(device, non_blocking=True) for value in vars(self).values()))


@dataclass(frozen=True)
class StepBatch:
    """All examples of one step on all ranks; every rank holds the same.

    Attributes:
        examples: The step's examples.
        masked: Their masks.
        scale: Their loss coefficients and the step's denominator.
    """

    examples: Examples
    masked: Masked
    scale: Scale

    @classmethod
    def of(cls, examples: Examples, step: Step, masking: Masking, denominator: str) -> "StepBatch":
        """Mask and scale a step of the plan."""
        taken = examples.take(step.rows)
        masked = mask(taken.tokens, taken.offsets, taken.ids, step.epochs, masking)
        return cls(taken, masked, scale(taken.weights, masked.counts, denominator))

    def micro(self, rows: np.ndarray, pad: int) -> MicroBatch:
        """Padded tensors of some of the step's examples.

        No rows at all give the first example with nothing hidden: a rank with nothing to do still takes part
        in the forward and backward passes that the others wait for, and adds a gradient of zero.
        """
        idle = rows.size == 0
        rows = rows if not idle else np.array([0])
        lengths = self.examples.lengths[rows]
        columns = np.arange(lengths.max())
        real = columns < lengths[:, None]
        flat = np.where(real, self.examples.offsets[rows][:, None] + columns, 0)
        hidden = self.masked.hidden[flat] & real & (not idle)
        owners = rows[np.nonzero(hidden)[0]]
        return MicroBatch(
            torch.from_numpy(np.where(real, self.masked.inputs[flat], pad).astype(np.int64)),
            torch.from_numpy(real.astype(np.int64)),
            torch.from_numpy(np.flatnonzero(hidden)),
            torch.from_numpy(self.examples.tokens[flat][hidden].astype(np.int64)),
            torch.from_numpy(owners.astype(np.int64)),
            torch.from_numpy(self.scale.coefficients[owners].astype(np.float32)),
        )
