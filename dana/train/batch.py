"""One optimizer step's examples, masked and scaled as a whole, then handed out as micro-batches."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dana.mlm.examples import Batch, Examples
from dana.mlm.layout import Arrangement, Rows
from dana.mlm.loss import Scale, scale, token_losses
from dana.mlm.masking import Masked, Masking, mask
from dana.train.plan import Step


@dataclass(frozen=True)
class Shape:
    """How micro-batches are laid out and passed through the model.

    Attributes:
        layout: One of :data:`dana.mlm.layout.LAYOUTS`.
        budget: Most tokens, padding included, of a micro-batch.
        width: Tokens of a packed row.
        static: Every packed micro-batch has the same shape, which compiled code needs.
        pad: Id of the padding token.
        first_position: Position id of an example's first token.
        bf16: Forward passes in bfloat16 by autocast; weights and losses stay in float32.
    """

    layout: str = "padded"
    budget: int = 8192
    width: int = 0
    static: bool = False
    pad: int = 0
    first_position: int = 0
    bf16: bool = False


@dataclass(frozen=True)
class MicroBatch:
    """Tensors of one forward pass.

    Attributes:
        input_ids: int64 of shape (rows, width).
        where: int64 of shape (hidden,), the hidden positions in the flattened batch.
        targets: int64 of shape (hidden,), what stood there.
        owners: int64 of shape (hidden,), which example of the step each belongs to.
        coefficients: float32 of shape (hidden,), c of :func:`dana.mlm.loss.scale`.
        attention: What else the model is given, see :meth:`dana.mlm.layout.Arrangement.attention`.
    """

    input_ids: Tensor
    where: Tensor
    targets: Tensor
    owners: Tensor
    coefficients: Tensor
    attention: dict[str, Any]

    def to(self, device: torch.device) -> "MicroBatch":
        """The same on a device."""

        def moved(value: Any) -> Any:
            return value.to(device, non_blocking=True) if isinstance(value, Tensor) else value

        attention = {name: moved(value) for name, value in self.attention.items()}
        return replace(self, **{name: moved(value) for name, value in vars(self).items()} | {"attention": attention})

    def logits(self, module: torch.nn.Module) -> Tensor:
        """A :class:`dana.mlm.heads.MaskedLogits`' answer, of shape (hidden, vocabulary)."""
        return module(self.input_ids, self.where, **self.attention)

    def losses(self, module: torch.nn.Module) -> Tensor:
        """Losses in nats, one for each of the coefficients; those of the hidden tokens come first."""
        return token_losses(self.logits(module), self.targets)


@dataclass(frozen=True)
class StepBatch:
    """All examples of one step on all ranks; every rank holds the same.

    Attributes:
        examples: The step's examples.
        masked: Their masks.
        scale: Their loss coefficients and the step's denominator.
    """

    examples: Batch
    masked: Masked
    scale: Scale

    @classmethod
    def of(cls, examples: Examples, step: Step, masking: Masking, denominator: str) -> "StepBatch":
        """Mask and scale a step of the plan."""
        taken = examples.take(step.rows)
        masked = mask(taken.tokens, taken.offsets, taken.ids, step.epochs, masking)
        return cls(taken, masked, scale(taken.weights, masked.counts, denominator))

    @property
    def questions(self) -> int:
        """What is asked besides the hidden tokens: nothing here."""
        return 0

    def micro(self, rows: Rows, shape: Shape) -> MicroBatch:
        """Tensors of some of the step's examples.

        No rows at all give the first example with nothing hidden: a rank with nothing to do still takes part
        in the forward and backward passes that the others wait for, and adds a gradient of zero.
        """
        width, least = (shape.width, shape.budget // shape.width) if shape.static else (0, 0)
        arranged = Arrangement.of(rows or [np.array([0])], self.examples.offsets, width, least)
        return self.fill(arranged, shape, idle=not rows)

    def fill(self, arranged: Arrangement, shape: Shape, idle: bool) -> MicroBatch:
        """Tensors of examples that were laid out; when idle, with nothing hidden."""
        real = arranged.places >= 0
        flat = np.where(real, arranged.places, 0)
        hidden = self.masked.hidden[flat] & real & (not idle)
        owners = arranged.example[hidden]
        return MicroBatch(
            torch.from_numpy(np.where(real, self.masked.inputs[flat], shape.pad).astype(np.int64)),
            torch.from_numpy(np.flatnonzero(hidden)),
            torch.from_numpy(self.examples.tokens[flat][hidden].astype(np.int64)),
            torch.from_numpy(owners),
            torch.from_numpy(self.scale.coefficients[owners].astype(np.float32)),
            arranged.attention(shape.layout, shape.first_position),
        )
