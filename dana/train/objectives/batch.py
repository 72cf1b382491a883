"""Compute the weighted loss of an optimizer step: the same sum for any cut into micro-batches and ranks.

Example i has weight λ_i, n_i predicted tokens, and s_i, the sum of their negative log-likelihoods
in nats. The loss of the step is, by denominator:

    batch         Σ λ_i s_i / n_i  /  number of examples     DANA, equation 1: small weights make a small step
    weight_sum    Σ λ_i s_i        /  Σ λ_i n_i              the scale of the weights cancels; weight 2 = a duplicate
    token_count   Σ λ_i s_i        /  Σ n_i                  small weights make a small step, long examples count more

Every form is Σ_i c_i s_i / Z with one denominator Z for the *whole* step. Z is computed before the
first backward pass. Each micro-batch on each rank contributes its Σ c_i s_i · world / Z: data
parallelism averages gradients over ranks.

References:
    DANA, equation 1, for ``batch``.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from dana.core.config import require
from dana.train import DENOMINATORS
from dana.train.examples import Batch
from dana.train.layout import BatchLayout, lay_out, micro_batches

if TYPE_CHECKING:
    import torch
    from torch import Tensor


IGNORED = -100  # label of positions without a loss, as in torch and transformers
# A kind of loss of which each value is 1 for a label that is predicted right, else 0; measured, not
# trained, so its coefficients are 0.
ACCURACY = "accuracy"
NATS = "nats"  # unit of a negative log-likelihood


@dataclass(frozen=True)
class LossScale:
    """Coefficients c_i and denominator Z of the step's loss Σ c_i l / Z, over token losses l.

    Attributes:
        coefficients: float64 of shape (examples,), c_i.
        total: Z; 0 if no label has a weight above 0.
    """

    coefficients: np.ndarray
    total: float


def loss_scale(weights: np.ndarray, counts: np.ndarray, denominator: str) -> LossScale:
    """Compute coefficients and denominator of an optimizer step.

    Args:
        weights: Shape (examples,), λ of every example of the step, on all ranks.
        counts: Shape (examples,), predicted tokens of each.
        denominator: One of :data:`DENOMINATORS`.

    Raises:
        ConfigError: If the denominator is unknown.
    """
    allowed = f"one of {', '.join(DENOMINATORS)}"
    require(denominator in DENOMINATORS, "denominator", denominator, allowed)
    weights = weights.astype(np.float64)
    if denominator == "batch":
        coefficients = np.divide(weights, counts, out=np.zeros_like(weights), where=counts > 0)
        total = float(weights.size)
    elif denominator == "weight_sum":
        coefficients = np.where(counts > 0, weights, 0.0)
        total = float((weights * counts).sum())
    else:
        coefficients = np.where(counts > 0, weights, 0.0)
        total = float(counts.sum())
    # A total below this bound has no inverse in float32. The step counts as one without weight.
    has_weight = coefficients.any() and total >= np.finfo(np.float32).tiny
    return LossScale(coefficients, total if has_weight else 0.0)


def micro_loss(
    losses: "Tensor", coefficients: "Tensor", total: float, world: int = 1, accumulation: int = 1
) -> "Tensor":
    """Compute a micro-batch's share of the step's loss, a scalar to call ``backward`` on.

    Args:
        losses: Shape (labels,), from :meth:`MicroBatch.losses`.
        coefficients: Shape (labels,), coefficient c of each token, from :func:`loss_scale`.
        total: Denominator Z of the step.
        world: Number of ranks over which gradients are averaged afterwards.
        accumulation: Number by which the caller's framework divides each micro-loss.
    """
    return (losses * coefficients).sum() * (world * accumulation / total)


def sum_by_kind(
    losses: "Tensor", coefficients: "Tensor", sizes: Sequence[int], total: float
) -> "Tensor":
    """Compute a share of the step's weighted loss, and the sum of the losses of each kind without weights.

    Args:
        losses: Shape (losses,), kind after kind.
        coefficients: Coefficient c of each.
        sizes: Number of losses of each kind.
        total: Denominator Z of the step.

    Returns:
        The share Σ c l / Z, and then the sums: float64 of shape (1 + kinds,). They are on the device
        of the losses, or on the CPU if that has no float64. Nothing here waits for the device.
    """
    import torch

    from dana.core.device import has_float64

    if not has_float64(losses.device):
        losses = losses.cpu()
    plain = losses.double()
    sums = [(plain * coefficients.to(plain.device)).sum() / total]
    for losses_of_kind in plain.split(list(sizes)):
        sums.append(losses_of_kind.sum())
    return torch.stack(sums)


@dataclass(frozen=True)
class MicroBatch:
    """Tensors of one forward pass; Σ coefficients · losses / Z is its share of the step's loss.

    Here each label has one loss. A subclass may add losses of other kinds behind these.

    Attributes:
        inputs: Arguments of the module's forward pass, with ``input_ids`` of shape (rows, width).
        labels: int64 of shape (labels,), the tokens to predict.
        owners: int64 of shape (labels,), index of the example that gives each label its weight.
        coefficients: float32 of shape (losses,), coefficient c of each loss, from
            :func:`loss_scale`.
    """

    inputs: dict[str, Any]
    labels: "Tensor"
    owners: "Tensor"
    coefficients: "Tensor"

    def pinned(self) -> "MicroBatch":
        """Copy all tensors to memory that a GPU copies from while the CPU goes on."""
        from accelerate.utils import recursively_apply
        from torch import Tensor

        return replace(self, **recursively_apply(Tensor.pin_memory, vars(self)))

    def to(self, device: "torch.device") -> "MicroBatch":
        """Copy all tensors to a device."""
        from accelerate.utils import send_to_device

        return replace(self, **send_to_device(vars(self), device, non_blocking=True))

    @property
    def sizes(self) -> list[int]:
        """Number of losses of each kind, in the order of :attr:`StepBatch.loss_counts`."""
        return [self.labels.numel()]

    def losses(self, module: "torch.nn.Module") -> "Tensor":
        """Compute the losses in nats, one per coefficient; those of the labels come first."""
        losses: Tensor = module(**self.inputs, labels=self.labels)
        return losses


class Pass(NamedTuple):
    """One forward pass of a rank.

    Attributes:
        rows: Indices of its examples in the step; empty on an idle rank.
        micro: Its tensors.
    """

    rows: np.ndarray
    micro: MicroBatch


@dataclass(frozen=True)
class StepBatch:
    """Inputs and labels of all examples of one step, over all ranks; every rank holds the same.

    Labels are at positions of the inputs. For other models (sequence to sequence) a subclass
    overrides :meth:`micro`, and :attr:`lengths` if the inputs are not the examples' tokens.

    Attributes:
        examples: The step's examples.
        inputs: int of shape (tokens,), input tokens of the model.
        labels: int of shape (tokens,), the token to predict at each position, or :data:`IGNORED`.
        owners: int64 of shape (tokens,), index of the example that gives each position its weight.
        counts: int64 of shape (examples,), labels of each example.
        scale: Coefficients of the losses and the step's denominator Z.
        loss_unit: What its losses are measured in; empty for one that has no name.
    """

    loss_unit: ClassVar[str] = NATS

    examples: Batch
    inputs: np.ndarray
    labels: np.ndarray
    owners: np.ndarray
    counts: np.ndarray
    scale: LossScale

    @classmethod
    def from_examples(
        cls,
        examples: Batch,
        inputs: np.ndarray,
        labels: np.ndarray,
        denominator: str,
        owners: np.ndarray | None = None,
    ) -> "StepBatch":
        """Count the labels and compute their loss scale; a label has the weight of its example, or of its owner."""
        if owners is None:
            owners = np.repeat(np.arange(len(examples)), np.diff(examples.offsets))
        counts = np.bincount(owners[labels != IGNORED], minlength=len(examples))
        scale = loss_scale(examples.weights, counts, denominator)
        return cls(examples, inputs, labels, owners, counts, scale)

    @property
    def lengths(self) -> np.ndarray:
        """Shape (examples,), tokens of each in the forward pass."""
        return np.diff(self.examples.offsets)

    def passes(
        self, layout: BatchLayout, rank: int = 0, world: int = 1, pinned: bool = False
    ) -> list[Pass]:
        """Make the passes of a rank, on the CPU.

        Args:
            layout: Layout and size of micro-batches.
            rank: Index of the rank.
            world: Number of ranks.
            pinned: Make them in memory that a GPU copies from without waiting.
        """
        passes = []
        for rows in micro_batches(self.lengths, layout, rank, world):
            micro = self.micro(rows, layout)
            passes.append(Pass(rows, micro.pinned() if pinned else micro))
        return passes

    def micro(self, rows: np.ndarray, layout: BatchLayout) -> MicroBatch:
        """Make the tensors of some of the step's examples.

        Without rows, it is the first example without labels: an idle rank still takes part in the
        forward and backward passes that the others wait for, and adds a gradient of zero.
        """
        import torch

        is_idle = not rows.size
        if is_idle:
            rows = np.array([0])
        positions, attention = lay_out(rows, self.examples.offsets, layout)
        is_token = positions >= 0  # positions of padding are negative
        flat = np.maximum(positions, 0)  # padding reads token 0, which is replaced below
        is_label = (self.labels[flat] != IGNORED) & is_token
        if is_idle:
            is_label[:] = False
        ids = np.where(is_token, self.inputs[flat], layout.pad).astype(np.int64)
        inputs = {
            "input_ids": torch.from_numpy(ids),
            "where": torch.from_numpy(np.flatnonzero(is_label)),
            **attention,
        }
        labels = self.labels[flat][is_label].astype(np.int64)
        owners = self.owners[flat][is_label]
        coefficients = self.scale.coefficients[owners].astype(np.float32)
        return MicroBatch(
            inputs,
            torch.from_numpy(labels),
            torch.from_numpy(owners),
            torch.from_numpy(coefficients),
        )

    def outputs(self, module: "torch.nn.Module", micro: MicroBatch) -> "Tensor":
        """Run the forward pass of a micro-batch, and return what the step's losses are computed from.

        Here these are the losses themselves.
        """
        return micro.losses(module)

    @property
    def loss_counts(self) -> dict[str, int]:
        """Number of losses of each kind in the step, over all ranks; ``tokens`` first."""
        return {"tokens": int(self.counts.sum())}

    @property
    def guess(self) -> float | None:
        """Accuracy of guessing the labels of the step; None where no accuracy is measured."""
        return None


@dataclass(frozen=True)
class JointBatch(StepBatch):
    """A step whose losses depend on the outputs of all its texts together, such as contrastive ones.

    Its module returns one vector for each row of :meth:`micro`, float32 of shape (rows, width).
    :mod:`dana.train.joint` collects the vectors of the step from all passes and ranks.
    """

    def outputs(self, module: "torch.nn.Module", micro: MicroBatch) -> "Tensor":
        vectors: Tensor = module(**micro.inputs)
        return vectors

    @abstractmethod
    def joint_losses(self, vectors: "Tensor") -> "Tensor":
        """Compute all losses of the step from all its vectors.

        Args:
            vectors: float32 of shape (rows of the step, width), in their order.

        Returns:
            Losses in nats by kind, in the order of :attr:`loss_counts`.
        """

    @abstractmethod
    def joint_coefficients(self) -> np.ndarray:
        """Return the coefficient c of each of :meth:`joint_losses`."""
