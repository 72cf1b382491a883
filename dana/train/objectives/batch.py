"""The batch of one optimizer step, labelled and scaled as a whole, then cut into micro-batches of tensors."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dana.train.objectives.loss import LossScale, loss_scale, token_losses
from dana.train.sequences.examples import Batch
from dana.train.sequences.layout import Arrangement, BatchLayout, Rows

if TYPE_CHECKING:
    import torch
    from torch import Tensor

IGNORED = -100  # the label, that of torch and transformers, of what is not asked


@dataclass(frozen=True)
class MicroBatch:
    """Tensors of one forward pass; Σ coefficients · losses / Z is its share of the step's loss.

    Attributes:
        inputs: The arguments of the module's forward pass, ``input_ids`` of shape (rows, width) among them.
        targets: int64 of shape (targets,), the tokens to predict.
        owners: int64 of shape (targets,), the step's example whose weight each counts with.
        coefficients: float32 of shape (losses,), c of :func:`dana.train.objectives.loss.loss_scale` for each loss.
    """

    inputs: dict[str, Any]
    targets: "Tensor"
    owners: "Tensor"
    coefficients: "Tensor"

    def to(self, device: "torch.device") -> "MicroBatch":
        """The same on a device."""
        from torch import Tensor

        def moved(value: Any) -> Any:
            if isinstance(value, dict):
                return {name: moved(part) for name, part in value.items()}
            return value.to(device, non_blocking=True) if isinstance(value, Tensor) else value

        return replace(self, **moved(vars(self)))

    def without_inputs(self) -> "MicroBatch":
        """The same without what only a forward pass needs, to be kept until the step's end."""
        return replace(self, inputs={})

    @property
    def places(self) -> int:
        """Token places of the forward pass, padding included."""
        return self.inputs["input_ids"].numel()

    @property
    def sizes(self) -> list[int]:
        """How many losses there are of each kind, in the order of :attr:`StepBatch.asked`."""
        return [self.targets.numel()]

    def logits(self, module: "torch.nn.Module") -> "Tensor":
        """Shape (targets, vocabulary)."""
        return module(**self.inputs)

    def losses(self, module: "torch.nn.Module") -> "Tensor":
        """Losses in nats, of the shape of the coefficients; those of the targets come first."""
        return token_losses(self.logits(module), self.targets)


@dataclass(frozen=True)
class StepBatch:
    """All examples of one step on all ranks, and what is asked of them; every rank holds the same.

    Here labels lie at places of the inputs. Where they do not (a sequence-to-sequence model), a subclass overrides
    :meth:`micro`, and :attr:`lengths` if the inputs are not the examples' tokens.

    Attributes:
        examples: The step's examples.
        inputs: int of shape (tokens,), what the model reads.
        labels: int of shape (tokens,), the token to predict at each place; :data:`IGNORED` where none is.
        owners: int64 of shape (tokens,), the example whose weight each place counts with.
        counts: int64 of shape (examples,), labels of each.
        scale: Coefficients of the losses and the step's denominator Z.
    """

    examples: Batch
    inputs: np.ndarray
    labels: np.ndarray
    owners: np.ndarray
    counts: np.ndarray
    scale: LossScale

    @classmethod
    def of(
        cls,
        examples: Batch,
        inputs: np.ndarray,
        labels: np.ndarray,
        denominator: str,
        owners: np.ndarray | None = None,
    ) -> "StepBatch":
        """Scale a labelled step; a label counts with the weight of its example, unless `owners` name another."""
        if owners is None:
            owners = np.repeat(np.arange(len(examples)), np.diff(examples.offsets))
        counts = np.bincount(owners[labels != IGNORED], minlength=len(examples))
        return cls(examples, inputs, labels, owners, counts, loss_scale(examples.weights, counts, denominator))

    @property
    def lengths(self) -> np.ndarray:
        """Shape (examples,), tokens of each in the forward pass."""
        return np.diff(self.examples.offsets)

    @property
    def asked(self) -> dict[str, int]:
        """How many losses the step has of each kind, on all ranks; ``tokens`` first."""
        return {"tokens": int(self.counts.sum())}

    def micro(self, rows: Rows, layout: BatchLayout) -> MicroBatch:
        """Tensors of some of the step's examples.

        No rows at all give the first example with nothing asked: a rank with nothing to do still takes part
        in the forward and backward passes that the others wait for, and adds a gradient of zero.
        """
        width, least = (layout.width, layout.budget // layout.width) if layout.static else (0, 0)
        arranged = Arrangement.of(rows or [np.array([0])], self.examples.offsets, width, least)
        return self.fill(arranged, layout, idle=not rows)

    def fill(self, arranged: Arrangement, layout: BatchLayout, idle: bool) -> MicroBatch:
        """Tensors of examples that were laid out; when idle, with nothing asked."""
        import torch

        real = arranged.places >= 0
        flat = np.where(real, arranged.places, 0)
        asked = (self.labels[flat] != IGNORED) & real & (not idle)
        owners = self.owners[flat][asked]
        inputs = {
            "input_ids": torch.from_numpy(np.where(real, self.inputs[flat], layout.pad).astype(np.int64)),
            "where": torch.from_numpy(np.flatnonzero(asked)),
            **arranged.attention(layout.layout, layout.first_position, layout.window),
        }
        return MicroBatch(
            inputs,
            torch.from_numpy(self.labels[flat][asked].astype(np.int64)),
            torch.from_numpy(owners),
            torch.from_numpy(self.scale.coefficients[owners].astype(np.float32)),
        )
