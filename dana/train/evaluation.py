"""Measure the held-out loss of a model: mean nats per predicted token, with its standard error over examples."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch

from dana.core.rng import derive_seed, hash_uniform
from dana.train.examples import Examples, ExampleSet
from dana.train.execution import total
from dana.train.joint import collect_vectors
from dana.train.layout import BatchLayout, micro_batches
from dana.train.objectives.base import Collator
from dana.train.objectives.batch import ACCURACY, NATS, JointBatch, StepBatch

SEED = 20211
Set = TypeVar("Set", bound=ExampleSet)
BASE_TOKENS = 20_000  # most tokens of the selected and of the random text of the base's test


class HeldoutLoss(NamedTuple):
    """Mean loss per predicted token, or per text, and its standard error over examples.

    Attributes:
        mean: None where no token can be predicted.
        standard_error: None for fewer than two examples.
        accuracy: Share of the labels that are predicted right; None where it is not measured.
        guess: Accuracy of guessing; None where none is measured.
        unit: What the loss is measured in; empty for a unit that has no name.
    """

    mean: float | None
    standard_error: float | None
    accuracy: float | None = None
    guess: float | None = None
    unit: str = NATS

    def __str__(self) -> str:
        if self.mean is None:
            return "nothing to measure"
        text = f"{self.mean:.4f} {self.unit}".rstrip()
        if self.accuracy is None or self.guess is None:
            return text
        return f"{text} ({self.accuracy:.1%} right, guessing {self.guess:.1%})"


def heldout_sample(examples: Set, max_tokens: int) -> Set:
    """Sample examples pseudo-randomly, by weight, the same on every call, up to `max_tokens` tokens; at least one.

    References:
        Efraimidis and Spirakis 2006, Weighted random sampling with a reservoir (the exponential keys).
    """
    keys = -np.log1p(-hash_uniform(derive_seed(SEED, "heldout"), examples.ids)) / examples.weights
    order = np.argsort(keys, kind="stable")
    fits = np.cumsum(examples.lengths[order]) <= max_tokens
    return examples.rows(order[: max(1, int(fits.sum()))])


@dataclass(frozen=True)
class HeldOut:
    """Held-out text of a run.

    Attributes:
        texts: Examples, under ``target`` and ``pool``, and from :meth:`with_selected` under
            ``selected`` and ``random``; their weights are not used.
        collator: From :meth:`dana.train.objectives.base.Objective.heldout_collator`.
    """

    texts: Mapping[str, ExampleSet]
    collator: Collator

    def with_selected(self, examples: Examples, evaluation_tokens: int) -> "HeldOut":
        """Add samples of the selected text and of pool text, the latter cut to lengths of the former."""
        limit = min(BASE_TOKENS, evaluation_tokens)
        selection = heldout_sample(examples.first_part, limit)
        pool = self.texts["pool"]
        assert isinstance(pool, Examples)
        # Less context predicts worse.
        sizes = np.minimum(pool.sizes, np.resize(selection.sizes, len(pool)))
        random = heldout_sample(replace(pool, sizes=sizes), limit)
        return replace(self, texts={**self.texts, "selected": selection, "random": random})

    def mean_losses(
        self, module: torch.nn.Module, shape: BatchLayout, accelerator: Any
    ) -> dict[str, float | None]:
        """Measure the mean loss of a model on each text by name, in nats a token (:func:`measure_loss`)."""
        means = {}
        for name, examples in self.texts.items():
            loss = measure_loss(module, examples, self.collator, shape, accelerator)
            means[name] = loss.mean
        return means


def measure_loss(
    module: torch.nn.Module,
    examples: ExampleSet,
    collator: Collator,
    shape: BatchLayout,
    accelerator: Any,
    check_in: Callable[[], None] = lambda: None,
) -> HeldoutLoss:
    """Measure the mean held-out loss of a model, arguments as in :func:`example_losses`."""
    step = heldout_step(examples, collator)
    sums, others = _sums(module, step, shape, accelerator, check_in)
    loss = _ratio(sums, step.counts)._replace(unit=step.loss_unit)
    if ACCURACY not in others:
        return loss
    accuracy = others[ACCURACY] / step.loss_counts[ACCURACY]
    return loss._replace(accuracy=accuracy, guess=step.guess)


def heldout_step(examples: ExampleSet, collator: Collator) -> StepBatch:
    """Make one step of all held-out examples."""
    batch = examples.take(np.arange(len(examples)))
    return collator.step_batch(batch, 0, "token_count")


def example_losses(
    module: torch.nn.Module,
    examples: ExampleSet,
    collator: Collator,
    shape: BatchLayout,
    accelerator: Any,
    check_in: Callable[[], None] = lambda: None,
) -> tuple[np.ndarray, np.ndarray]:
    """Measure the held-out losses of a model; the examples are spread over all ranks.

    Args:
        module: A prepared module, from :meth:`dana.train.objectives.base.Objective.module`.
        examples: Held-out examples; their weights are not used.
        collator: Makes their batch.
        shape: How micro-batches are laid out.
        accelerator: From :func:`dana.train.execution.make_accelerator`.
        check_in: Called before every forward pass, on all ranks together; may raise to end the
            evaluation.

    Returns:
        Of each example the sum of its losses, in nats, and the number of its predicted tokens;
        shape (examples,).
    """
    step = heldout_step(examples, collator)
    return _sums(module, step, shape, accelerator, check_in)[0], step.counts


def _sums(
    module: torch.nn.Module,
    step: StepBatch,
    shape: BatchLayout,
    accelerator: Any,
    check_in: Callable[[], None],
) -> tuple[np.ndarray, dict[str, float]]:
    """Sum the first kind of losses by example, and each further kind over all of them."""
    kinds = list(step.loss_counts)
    was_training = module.training
    module.eval()
    try:
        # Not inference_mode: ZeRO-3 keeps what it gathers here for the next training step.
        with torch.no_grad():
            if isinstance(step, JointBatch):
                vectors = collect_vectors(module, step, shape, accelerator, check_in)
                losses = step.joint_losses(vectors).cpu().double()
                first, *others = losses.split(list(step.loss_counts.values()))
                other_sums = [float(part.sum()) for part in others]
                return first.numpy(), dict(zip(kinds[1:], other_sums, strict=True))
            rank = accelerator.process_index
            world = accelerator.num_processes
            measured = []
            for rows in micro_batches(step.lengths, shape, rank, world):
                check_in()
                micro = step.micro(rows, shape)
                measured.append((micro, micro.to(accelerator.device).losses(module)))
            sums = torch.zeros(step.counts.size, dtype=torch.float64)
            further = torch.zeros(len(kinds), dtype=torch.float64)
            for micro, losses in measured:  # after all passes: reading waits for the device
                parts = losses.cpu().double().split(micro.sizes)
                sums.index_add_(0, micro.owners, parts[0])
                further += torch.stack([part.sum() for part in parts])
    finally:
        module.train(was_training)
    other_sums = total(accelerator, further)[1:].tolist()
    return total(accelerator, sums).cpu().numpy(), dict(zip(kinds[1:], other_sums, strict=True))


def _ratio(sums: np.ndarray, counts: np.ndarray) -> HeldoutLoss:
    """Compute Σ sums / Σ counts and its standard error over examples: tokens of an example are not independent.

    References:
        Cochran 1977, Sampling techniques, section 2.11 (ratio estimator).
    """
    total = int(counts.sum())
    if total == 0:
        return HeldoutLoss(None, None)
    mean = float(sums.sum() / total)
    if sums.size < 2:
        return HeldoutLoss(mean, None)
    deviations = sums - mean * counts
    spread = float(np.square(deviations).sum()) * sums.size / (sums.size - 1)
    return HeldoutLoss(mean, spread**0.5 / total)
