"""Training loop: a prepared model, examples and an objective's collator in, weighted steps and their records out."""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from dana.core.errors import DanaError, Preempted
from dana.core.launch import StopRequest
from dana.core.logging import get_logger, progress
from dana.core.rng import derive_seed, seeded
from dana.core.statistics import effective_sample_size
from dana.train.evaluation import HeldOut, measure_loss
from dana.train.examples import Examples
from dana.train.execution import is_deepspeed, total, whole
from dana.train.layout import BatchLayout, micro_batches
from dana.train.objectives.base import Collator
from dana.train.objectives.batch import StepBatch, micro_loss
from dana.train.plan import Plan
from dana.train.planner import no_memory_to_spare
from dana.train.records import EvaluationRecord, Record, StepRecord, peak_memory
from dana.train.settings import TrainSettings
from dana.train.supervised import make_optimizer

log = get_logger(__name__)

STRIKES = 10  # steps in a row without a finite gradient that end a run


@dataclass
class Prepared:
    """A model ready to train: wrapped for the launch, with its optimizer.

    Attributes:
        module: From :meth:`dana.train.objectives.base.Objective.module`, wrapped.
        optimizer: AdamW, wrapped.
        accelerator: From :func:`dana.train.execution.make_accelerator`.
        shape: How micro-batches are laid out, the same on every rank.
    """

    module: torch.nn.Module
    optimizer: Any
    accelerator: Any
    shape: BatchLayout

    @property
    def model(self) -> Any:
        """The transformers model in it."""
        return self.accelerator.unwrap_model(self.module).model


@dataclass(frozen=True)
class Taken:
    """The outcome of an optimizer step.

    Attributes:
        loss: The weighted loss over all ranks.
        plain_loss: Mean nats a predicted token; None where none was, or all weights were 0.
        grad_norm: Before clipping.
        other_losses: Mean nats of each further kind of loss that the objective has, by its name.
        skipped: True where the gradient was not finite and the model was left alone, else None.
    """

    loss: float = 0.0
    plain_loss: float | None = None
    grad_norm: float = 0.0
    other_losses: Mapping[str, float] | None = None
    skipped: bool | None = None


def prepare(model: Any, settings: TrainSettings, accelerator: Any, shape: BatchLayout) -> Prepared:
    """Wrap a model with the objective's heads for the way this run was launched."""
    module = settings.make_objective().module(model, shape.bf16)
    optimizer = make_optimizer(module, settings.learning_rate, settings.weight_decay, settings.betas, settings.eps)
    if is_deepspeed(accelerator):  # the recipe owns these, Accelerate's YAML does not
        accelerator.state.deepspeed_plugin.deepspeed_config |= {
            "train_micro_batch_size_per_gpu": 1,
            "gradient_accumulation_steps": 1,
            "gradient_clipping": settings.clip,
        }
    module, optimizer = accelerator.prepare(module, optimizer)
    return Prepared(module, optimizer, accelerator, shape)


def train(
    prepared: Prepared,
    examples: Examples,
    collator: Collator,
    settings: TrainSettings,
    heldout: HeldOut,
    before: Sequence[Record] = (),
) -> Iterator[Record]:
    """Train, yielding a record after every step and every evaluation.

    Args:
        prepared: From :func:`prepare`; trained in place.
        examples: What to train on.
        collator: Makes training batches.
        settings: The run.
        heldout: Text never trained on.
        before: Records of a run that goes on.

    Raises:
        DanaError: If no gradient is finite for :data:`STRIKES` steps in a row, or memory runs out.
        Preempted: If a signal asked to stop; the model is as the last record left it.
    """
    plan = Plan.of(examples, settings)
    last = next((record for record in reversed(before) if isinstance(record, StepRecord)), None)
    done, tokens, seen, seconds = (last.step, last.tokens, last.examples, last.seconds) if last else (0, 0, 0, 0.0)
    evaluated = {record.step for record in before if isinstance(record, EvaluationRecord)}
    in_a_row, started = 0, time.monotonic() - seconds
    with (
        StopRequest() as stop,
        ThreadPoolExecutor(1) as ahead,  # makes the next batch while this one is computed
        progress(what="train", unit="tokens", total=plan.tokens, initial=tokens) as bar,
    ):

        def read(index: int) -> StepBatch:
            step = plan[index]
            return collator.step_batch(examples.take(step.rows), step.epochs, settings.denominator)

        coming = ahead.submit(read, done) if done < len(plan) else None
        for index in range(done, len(plan) + 1):
            if index in evaluation_steps(settings, len(plan)) and index not in evaluated:
                yield _evaluate(prepared, heldout, index, tokens, stop)
            if coming is None:
                return
            if stop.on_any_rank(prepared.accelerator):
                raise Preempted(f"told to stop after step {index} of {len(plan)}")
            began = time.monotonic()
            batch = coming.result()
            coming = ahead.submit(read, index + 1) if index + 1 < len(plan) else None
            rate = settings.rate_at(index, len(plan))
            with no_memory_to_spare(f"step {index + 1}", prepared.shape.budget):
                taken = take_step(prepared, batch, rate, index, settings)
            took = time.monotonic() - began
            in_a_row = _warn_or_stop(index + 1, in_a_row, taken, rate)
            many = batch.examples.tokens.size
            tokens, seen = tokens + many, seen + len(batch.examples)
            bar.set_postfix(loss=taken.plain_loss, refresh=False)
            bar.update(many)
            yield StepRecord(
                step=index + 1,
                tokens=tokens,
                examples=seen,
                lr=rate,
                effective_sample_size=effective_sample_size(batch.examples.weights),
                seconds=round(time.monotonic() - started, 3),
                tokens_per_second=round(many / max(took, 1e-9), 1) if batch.scale.total else None,
                peak_memory=peak_memory(prepared.accelerator.device),
                **vars(taken),
            )


def _warn_or_stop(step: int, in_a_row: int, taken: Taken, rate: float) -> int:
    """Log a step that was skipped for its gradient; returns how many were in a row.

    Raises:
        DanaError: After :data:`STRIKES` in a row: a bad example spoils one step, spoilt weights or a rate spoil all.
    """
    if not taken.skipped:
        return 0
    what = f"loss {taken.loss:.4g}, gradient norm {taken.grad_norm:.4g}"
    if in_a_row + 1 == STRIKES:
        raise DanaError(
            f"{STRIKES} steps in a row, up to step {step}, had no finite gradient ({what}); "
            f"try a lower learning_rate ({rate:.2g} at this step) or another precision"
        )
    log.warning("step %d: skipped, its gradient is not finite (%s)", step, what)
    return in_a_row + 1


def evaluation_steps(settings: TrainSettings, steps: int) -> set[int]:
    """After which steps held-out losses are measured: before the first, after the last, and evenly between."""
    if settings.eval_every:
        return {*range(0, steps, settings.eval_every), steps}
    return set(np.linspace(0, steps, settings.evaluations + 2).round().astype(int).tolist())


def take_step(prepared: Prepared, batch: StepBatch, rate: float, index: int, settings: TrainSettings) -> Taken:
    """One optimizer step over all ranks.

    A step with a loss of 0 whatever the model says (all weights 0, or no token to predict), or whose gradient is not
    finite, leaves the model as it is.
    """
    if batch.scale.total == 0:
        log.warning("step %d: nothing to learn from, skipped", index + 1)
        return Taken()
    accelerator, optimizer = prepared.accelerator, prepared.optimizer
    for group in optimizer.param_groups:
        group["lr"] = rate
    loss, *sums = total(accelerator, _backward(prepared, batch, index, settings)).tolist()
    clipped = accelerator.clip_grad_norm_(prepared.module.parameters(), settings.clip)
    norm = float(whole(clipped) if isinstance(clipped, torch.Tensor) else clipped or 0.0)
    sound = math.isfinite(loss) and math.isfinite(norm)
    if sound or accelerator.scaler is not None:  # a scaler skips by itself, and must see why
        optimizer.step()
    optimizer.zero_grad()
    means = {kind: part / many for (kind, many), part in zip(batch.asked.items(), sums, strict=True) if many}
    plain = means.pop("tokens", None)
    return Taken(loss, plain, norm, means or None, None if sound else True)


def _backward(prepared: Prepared, batch: StepBatch, index: int, settings: TrainSettings) -> torch.Tensor:
    """Gradients of this rank's micro-batches.

    Returns:
        Its weighted loss, and its sum of losses of each kind, float64 of shape (1 + kinds,).
    """
    accelerator, module, shape = prepared.accelerator, prepared.module, prepared.shape
    module.train()
    passes = []
    rank, world = accelerator.process_index, accelerator.num_processes
    cut = micro_batches(batch.lengths, shape, rank, world)
    with seeded(derive_seed(settings.seed, "dropout", index, rank), accelerator.device):
        for number, rows in enumerate(cut):
            accelerator.sync_gradients = number == len(cut) - 1
            with nullcontext() if accelerator.sync_gradients else accelerator.no_sync(module):
                micro = batch.micro(rows, shape).to(accelerator.device)
                losses = micro.losses(module)
                accumulation = accelerator.gradient_accumulation_steps
                accelerator.backward(micro_loss(losses, micro.coefficients, batch.scale.total, world, accumulation))
            passes.append((losses.detach(), micro.coefficients, micro.sizes))
    sums = torch.zeros(1 + len(batch.asked), dtype=torch.float64)
    for losses, coefficients, sizes in passes:  # only now: reading waits for the device
        plain = losses.cpu().double()
        weighted = (plain * coefficients.cpu()).sum() / batch.scale.total
        sums += torch.stack([weighted, *(part.sum() for part in plain.split(sizes))])
    return sums


def _evaluate(prepared: Prepared, heldout: HeldOut, step: int, tokens: int, stop: StopRequest) -> EvaluationRecord:
    def check_in() -> None:
        if stop.on_any_rank(prepared.accelerator):
            raise Preempted(f"told to stop while evaluating after step {step}")

    with no_memory_to_spare(f"evaluation after step {step}", prepared.shape.budget):
        how = (heldout.collator, prepared.shape, prepared.accelerator, check_in)
        task, general = (measure_loss(prepared.module, heldout.texts[name], *how) for name in ("task", "general"))
    log.info("step %d: held-out loss: task %s, general %s", step, task, general)
    return EvaluationRecord(step, tokens, *task, *general)
