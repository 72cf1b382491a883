"""Batch of an optimizer step and its weighted loss: the same sum for any cut into micro-batches and ranks.

With weight λ_i, n_i predicted tokens and s_i = the sum of their negative log-likelihoods in nats, the loss of a
step's examples is, by denominator:

    batch         Σ λ_i s_i / n_i  /  number of examples     DANA, equation 3: small weights make a small step
    weight_sum    Σ λ_i s_i        /  Σ λ_i n_i              the scale of the weights cancels; weight 2 = a duplicate
    token_count   Σ λ_i s_i        /  Σ n_i                  small weights make a small step, long examples count more

Every form is a sum of token losses times a coefficient, over one number Z of the *whole* step:
Σ_i c_i s_i / Z. So Z is computed before the first backward pass, and each micro-batch on each rank
contributes its local Σ c_i s_i · world / Z, because data parallelism averages gradients over ranks.

References:
    DANA, equation 3, for ``batch``.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dana.core.config import require
from dana.train import DENOMINATORS
from dana.train.examples import Batch
from dana.train.layout import BatchLayout, lay_out

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@dataclass(frozen=True)
class LossScale:
    """Coefficients c_i and denominator Z that turn token losses l into the step's loss Σ c_i l / Z.

    Attributes:
        coefficients: float64 of shape (examples,), c_i.
        total: Z; 0 where no label has a weight above 0.
    """

    coefficients: np.ndarray
    total: float


def loss_scale(weights: np.ndarray, counts: np.ndarray, denominator: str) -> LossScale:
    """Coefficients and denominator of one whole optimizer step.

    Args:
        weights: Shape (examples,), λ of every example of the step, on all ranks.
        counts: Shape (examples,), predicted tokens of each.
        denominator: One of :data:`DENOMINATORS`.

    Raises:
        ConfigError: If the denominator is unknown.
    """
    require(denominator in DENOMINATORS, "denominator", denominator, f"one of {', '.join(DENOMINATORS)}")
    weights = weights.astype(np.float64)
    if denominator == "batch":
        coefficients = np.divide(weights, counts, out=np.zeros_like(weights), where=counts > 0)
        return LossScale(coefficients, float(weights.size) if coefficients.any() else 0.0)
    coefficients = np.where(counts > 0, weights, 0.0)
    counted = weights if denominator == "weight_sum" else np.ones_like(weights)
    return LossScale(coefficients, float((counted * counts).sum()) if coefficients.any() else 0.0)


def token_losses(logits: "Tensor", targets: "Tensor") -> "Tensor":
    """Negative log-likelihood in nats of shape (targets,), computed in float32.

    Args:
        logits: Shape (targets, vocabulary).
        targets: int64 of shape (targets,).
    """
    from torch.nn.functional import cross_entropy

    return cross_entropy(logits.float(), targets, reduction="none")


def micro_loss(
    losses: "Tensor", coefficients: "Tensor", total: float, world: int = 1, accumulation: int = 1
) -> "Tensor":
    """A micro-batch's share of the step's loss, a scalar to call ``backward`` on.

    Args:
        losses: Shape (targets,), from :func:`token_losses`.
        coefficients: Shape (targets,), each token's c of :func:`loss_scale`.
        total: The step's Z.
        world: Ranks over which gradients are averaged afterwards.
        accumulation: What the caller's framework divides each micro-loss by.
    """
    return (losses * coefficients).sum() * (world * accumulation / total)


IGNORED = -100  # the label, that of torch and transformers, of what is not asked


@dataclass(frozen=True)
class MicroBatch:
    """Tensors of one forward pass; Σ coefficients · losses / Z is its share of the step's loss.

    Attributes:
        inputs: The arguments of the module's forward pass, ``input_ids`` of shape (rows, width) among them.
        targets: int64 of shape (targets,), the tokens to predict.
        owners: int64 of shape (targets,), the step's example whose weight each counts with.
        coefficients: float32 of shape (losses,), c of :func:`dana.train.objectives.batch.loss_scale` for each loss.
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

    @property
    def sizes(self) -> list[int]:
        """How many losses there are of each kind, in the order of :attr:`StepBatch.asked`."""
        return [self.targets.numel()]

    def losses(self, module: "torch.nn.Module") -> "Tensor":
        """Losses in nats, of the shape of the coefficients; those of the targets come first."""
        return token_losses(module(**self.inputs), self.targets)


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

    def micro(self, rows: np.ndarray, layout: BatchLayout) -> MicroBatch:
        """Tensors of some of the step's examples.

        No rows at all give the first example with nothing asked: a rank with nothing to do still takes part
        in the forward and backward passes that the others wait for, and adds a gradient of zero.
        """
        import torch

        places, attention = lay_out(rows if rows.size else np.array([0]), self.examples.offsets, layout)
        real, flat = places >= 0, np.maximum(places, 0)
        asked = (self.labels[flat] != IGNORED) & real & bool(rows.size)
        owners = self.owners[flat][asked]
        inputs = {
            "input_ids": torch.from_numpy(np.where(real, self.inputs[flat], layout.pad).astype(np.int64)),
            "where": torch.from_numpy(np.flatnonzero(asked)),
            **attention,
        }
        return MicroBatch(
            inputs,
            torch.from_numpy(self.labels[flat][asked].astype(np.int64)),
            torch.from_numpy(owners),
            torch.from_numpy(self.scale.coefficients[owners].astype(np.float32)),
        )
