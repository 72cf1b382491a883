"""Loss on held-out text at masks that never change, so that two evaluations differ only in the model."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from dana.mlm.examples import Examples
from dana.mlm.layout import micro_batches
from dana.mlm.loss import token_losses
from dana.mlm.masking import Masking
from dana.rng import derive_seed, hash_uniform
from dana.train.batch import Shape, StepBatch
from dana.train.plan import Step

MASK_RATE = 0.15  # the same whatever a run trains with, so that losses compare
MASK_SEED = 20211


@dataclass(frozen=True)
class HeldoutLoss:
    """Mean negative log-likelihood a hidden token, in nats, and its standard error over examples."""

    mean: float
    standard_error: float


def sample(examples: Examples, most_tokens: int) -> Examples:
    """A fixed pseudo-random part of held-out examples, at most `most_tokens` long but never empty."""
    order = np.argsort(hash_uniform(derive_seed(MASK_SEED, "heldout"), examples.ids), kind="stable")
    fits = np.cumsum(examples.lengths[order]) <= most_tokens
    return examples.rows(order[: max(1, int(fits.sum()))])


def evaluate(
    module: torch.nn.Module,
    examples: Examples,
    masking: Masking,
    shape: Shape,
    accelerator: Any,
    check_in: Callable[[], None] = lambda: None,
) -> HeldoutLoss:
    """Held-out loss of a model, its examples spread over all ranks.

    Args:
        module: A prepared :class:`dana.mlm.heads.MaskedLogits`.
        examples: Held-out examples; their weights play no part.
        masking: The run's; its seed and rate are replaced by fixed ones.
        shape: How micro-batches are laid out.
        accelerator: From :func:`dana.train.accelerator.make_accelerator`.
        check_in: Called before every forward pass, on all ranks together; may raise to end the evaluation.
    """
    fixed = replace(masking, seed=MASK_SEED, rate=MASK_RATE)
    everything = Step(np.arange(len(examples)), np.zeros(len(examples), dtype=np.int64))
    step = StepBatch.of(examples, everything, fixed, "token_count")
    sums = torch.zeros(len(examples), dtype=torch.float64)
    was_training = module.training
    module.eval()
    try:
        with torch.no_grad():  # not inference_mode: ZeRO-3 keeps what it gathers here for the next training step
            ranks = accelerator.process_index, accelerator.num_processes
            for rows in micro_batches(examples.lengths, shape.budget, *ranks, shape.layout, shape.width):
                check_in()
                micro = step.micro(rows, shape).to(accelerator.device)
                losses = token_losses(micro.logits(module), micro.targets)
                sums.index_add_(0, micro.owners.cpu(), losses.double().cpu())
    finally:
        module.train(was_training)
    return _ratio(accelerator.reduce(sums.to(accelerator.device)).cpu().numpy(), step.masked.counts)


def _ratio(sums: np.ndarray, counts: np.ndarray) -> HeldoutLoss:
    """Σ sums / Σ counts and the standard error of that ratio: tokens of an example are not independent.

    References:
        Cochran 1977, Sampling techniques, section 2.11 (ratio estimator).
    """
    total = max(1, int(counts.sum()))
    mean = float(sums.sum() / total)
    if sums.size < 2:
        return HeldoutLoss(mean, float("nan"))
    deviations = sums - mean * counts
    spread = float(np.square(deviations).sum()) * sums.size / (sums.size - 1)
    return HeldoutLoss(mean, spread**0.5 / total)
