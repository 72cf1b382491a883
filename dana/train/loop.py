"""Train a model on weighted examples, step by step, and yield a record of every step and evaluation."""

import math
import time
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from dana.core.errors import DanaError, Preemption
from dana.core.launch import StopRequest
from dana.core.logging import get_logger, progress
from dana.core.rng import derive_seed, torch_seed
from dana.core.statistics import effective_sample_size
from dana.train.evaluation import HeldOut, measure_loss
from dana.train.examples import Examples
from dana.train.execution import gather_tensor, is_deepspeed, total
from dana.train.layout import BatchLayout, micro_batches
from dana.train.objectives.base import Collator
from dana.train.objectives.batch import StepBatch, micro_loss
from dana.train.plan import Plan
from dana.train.planner import explain_out_of_memory
from dana.train.records import EvaluationRecord, Record, StepRecord, peak_memory
from dana.train.settings import AdaptSettings, TrainSettings
from dana.train.supervised import make_optimizer

log = get_logger(__name__)

MAX_SKIPPED_IN_A_ROW = 10  # so many steps in a row without a finite gradient end a run


@dataclass
class TrainingState:
    """Model and optimizer, wrapped by Accelerate for the way the run was launched.

    Attributes:
        module: From :meth:`dana.train.objectives.base.Objective.module`, wrapped.
        optimizer: AdamW, wrapped.
        accelerator: From :func:`dana.train.execution.make_accelerator`.
        shape: Layout of micro-batches, the same on every rank.
    """

    module: torch.nn.Module
    optimizer: Any
    accelerator: Any
    shape: BatchLayout

    @property
    def model(self) -> Any:
        """The transformers model, unwrapped."""
        return self.accelerator.unwrap_model(self.module).model


@dataclass(frozen=True)
class StepOutcome:
    """The outcome of an optimizer step.

    Attributes:
        loss: The weighted loss over all ranks.
        plain_loss: Mean nats per predicted token; None if there was no such token, or all weights
            were 0.
        grad_norm: Gradient norm before clipping.
        other_losses: Mean nats of each further kind of loss of the objective, by name.
        skipped: True if the gradient was not finite and the model was not updated.
    """

    loss: float = 0.0
    plain_loss: float | None = None
    grad_norm: float = 0.0
    other_losses: Mapping[str, float] | None = None
    skipped: bool = False


def prepare(
    model: Any, settings: TrainSettings, accelerator: Any, shape: BatchLayout | None = None
) -> TrainingState:
    """Make the optimizer, and wrap both for the way this run was launched; without a shape rows are padded."""
    shape = shape or BatchLayout.of(model.config, settings.execution.micro_batch_tokens)
    module = settings.make_objective().module(model, shape.bf16)
    optimizer = make_optimizer(
        module, settings.learning_rate, settings.weight_decay, settings.betas, settings.eps
    )
    if is_deepspeed(accelerator):  # the recipe decides these, not Accelerate's YAML
        values = {"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1}
        accelerator.state.deepspeed_plugin.deepspeed_config |= {
            **values,
            "gradient_clipping": settings.clip,
        }
    module, optimizer = accelerator.prepare(module, optimizer)
    return TrainingState(module, optimizer, accelerator, shape)


def train(
    state: TrainingState,
    examples: Examples,
    collators: Sequence[Collator],
    settings: TrainSettings,
    heldout: HeldOut,
    before: Sequence[Record] = (),
) -> Generator[Record, None, None]:
    """Train, yielding a record after every step and every evaluation.

    Args:
        state: From :func:`prepare`; trained in place.
        examples: Training examples.
        collators: For each phase, what makes its training batches.
        settings: Settings of the run.
        heldout: Held-out text.
        before: Records of the run that is resumed.

    Raises:
        DanaError: If no gradient is finite for :data:`MAX_SKIPPED_IN_A_ROW` steps in a row, or
            memory runs out.
        Preemption: If a signal asked to stop; the model is in the state of the last record.
    """
    plan = Plan.of(examples, settings)
    last = next((record for record in reversed(before) if isinstance(record, StepRecord)), None)
    start, tokens, example_count = (last.step, last.tokens, last.examples) if last else (0, 0, 0)
    evaluated_steps = {record.step for record in before if isinstance(record, EvaluationRecord)}
    if start < len(plan):
        done = f", of which {start:,} are done" if start else ""
        log.info("training  %s tokens in %s steps%s", f"{plan.tokens:,}", f"{len(plan):,}", done)
    skipped_in_a_row, start_time = 0, time.monotonic() - (last.seconds if last else 0.0)
    with (
        StopRequest() as stop,
        ThreadPoolExecutor(1) as prefetcher,  # makes the next batch during the current step
        progress(what="train", unit="tokens", total=plan.tokens, initial=tokens) as bar,
    ):

        def load_step(index: int) -> StepBatch:
            step = plan[index]
            collator = collators[plan.phase_of(index)]
            return collator.step_batch(examples.take(step.rows), step.epochs, settings.denominator)

        next_batch = prefetcher.submit(load_step, start) if start < len(plan) else None
        for index in range(start, len(plan) + 1):
            if (
                index in {*evaluation_steps(settings, len(plan)), *plan.firsts}
                and index not in evaluated_steps
            ):
                yield replace(
                    _evaluate(state, heldout, index, tokens, stop),
                    phase=_phase_in_records(plan, index - 1),
                )
            if next_batch is None:
                return
            if stop.on_any_rank(state.accelerator):
                raise Preemption(f"stopped by a signal after step {index} of {len(plan)}")
            step_start, batch = time.monotonic(), next_batch.result()
            next_batch = prefetcher.submit(load_step, index + 1) if index + 1 < len(plan) else None
            rate, phase = plan.rate_at(index), _phase_in_records(plan, index)
            if index in plan.firsts[1:]:
                _begin_phase(state, settings, plan, index)
            with explain_out_of_memory(f"step {index + 1}", state.shape.budget):
                outcome = take_step(state, batch, rate, index, settings)
            step_seconds = time.monotonic() - step_start
            skipped_in_a_row = _warn_or_stop(index + 1, skipped_in_a_row, outcome, rate)
            token_count = batch.examples.tokens.size
            tokens, example_count = tokens + token_count, example_count + len(batch.examples)
            bar.set_postfix(loss=outcome.plain_loss, refresh=False)
            bar.update(token_count)
            size = effective_sample_size(batch.examples.weights)
            amounts: dict[str, Any] = {
                "tokens": tokens,
                "examples": example_count,
                "effective_sample_size": size,
            }
            speed = round(token_count / max(step_seconds, 1e-9), 1) if batch.scale.total else None
            amounts |= {
                "seconds": round(time.monotonic() - start_time, 3),
                "tokens_per_second": speed,
            }
            memory = peak_memory(state.accelerator.device)
            yield StepRecord(
                step=index + 1, lr=rate, **amounts, peak_memory=memory, phase=phase, **vars(outcome)
            )


def _phase_in_records(plan: Plan, step: int) -> int | None:
    """Return the phase of a step, from 0; None in a run of one."""
    return plan.phase_of(max(0, step)) if len(plan.phases) > 1 else None


def _begin_phase(state: TrainingState, settings: TrainSettings, plan: Plan, step: int) -> None:
    """Log that a later phase begins, and begin with new moments of Adam if its optimizer is to be reset."""
    assert isinstance(settings, AdaptSettings)  # others have one phase
    index = plan.phase_of(step)
    phase = settings.phases[index]
    log.info("phase %d of %d begins after step %d: %s", index + 1, len(plan.phases), step, phase)
    if phase.optimizer == "reset":
        for entry in state.optimizer.state.values():
            entry |= {
                name: value.zero_() if isinstance(value, torch.Tensor) else 0
                for name, value in entry.items()
            }


def _warn_or_stop(step: int, skipped_in_a_row: int, outcome: StepOutcome, rate: float) -> int:
    """Log a step that was skipped because its gradient was not finite; returns the number of such steps in a row.

    Raises:
        DanaError: After :data:`MAX_SKIPPED_IN_A_ROW` in a row: a bad example ruins one step, bad
            weights or a high rate ruin all.
    """
    if not outcome.skipped:
        return 0
    what = f"loss {outcome.loss:.4g}, gradient norm {outcome.grad_norm:.4g}"
    if skipped_in_a_row + 1 == MAX_SKIPPED_IN_A_ROW:
        problem = f"{MAX_SKIPPED_IN_A_ROW} steps in a row, up to step {step}, had no finite gradient ({what})"
        raise DanaError(
            f"{problem}; try a lower learning_rate ({rate:.2g} at this step) or another precision"
        )
    log.warning("step %d: skipped, its gradient is not finite (%s)", step, what)
    return skipped_in_a_row + 1


def evaluation_steps(settings: TrainSettings, steps: int) -> set[int]:
    """Return the steps after which held-out losses are measured: 0, the last one, and evenly between them."""
    if settings.eval_every:
        return {*range(0, steps, settings.eval_every), steps}
    return set(np.linspace(0, steps, settings.evaluations + 2).round().astype(int).tolist())


def take_step(
    state: TrainingState, batch: StepBatch, rate: float, index: int, settings: TrainSettings
) -> StepOutcome:
    """Take one optimizer step over all ranks.

    The model stays unchanged if the loss is 0 for any model (all weights 0, or no token to
    predict), or if the gradient is not finite.
    """
    if batch.scale.total == 0:
        log.warning("step %d: skipped, no token of it has a weight above 0", index + 1)
        return StepOutcome()
    accelerator, optimizer = state.accelerator, state.optimizer
    for group in optimizer.param_groups:
        group["lr"] = rate
    loss, *sums = total(accelerator, _backward(state, batch, index, settings)).tolist()
    clip_norm = accelerator.clip_grad_norm_(state.module.parameters(), settings.clip)
    norm = float(
        gather_tensor(clip_norm) if isinstance(clip_norm, torch.Tensor) else clip_norm or 0.0
    )
    finite = math.isfinite(loss) and math.isfinite(norm)
    if (
        finite or accelerator.scaler is not None
    ):  # fp16's scaler skips by itself, and adapts when it does
        optimizer.step()
    optimizer.zero_grad()
    counts = batch.loss_counts.items()
    means = {kind: part / count for (kind, count), part in zip(counts, sums, strict=True) if count}
    return StepOutcome(loss, means.pop("tokens", None), norm, means or None, not finite)


def _backward(
    state: TrainingState, batch: StepBatch, index: int, settings: TrainSettings
) -> torch.Tensor:
    """Run the forward and backward passes of this rank's micro-batches.

    Returns:
        Weighted loss, and sum of the losses of each kind, of this rank: float64 of shape (1 +
        kinds,).
    """
    accelerator, module, shape = state.accelerator, state.module, state.shape
    module.train()
    passes = []
    rank, world = accelerator.process_index, accelerator.num_processes
    micros = micro_batches(batch.lengths, shape, rank, world)
    with torch_seed(derive_seed(settings.seed, "dropout", index, rank), accelerator.device):
        for number, rows in enumerate(micros):
            accelerator.sync_gradients = number == len(micros) - 1
            with nullcontext() if accelerator.sync_gradients else accelerator.no_sync(module):
                micro = batch.micro(rows, shape).to(accelerator.device)
                losses, accumulation = micro.losses(module), accelerator.gradient_accumulation_steps
                accelerator.backward(
                    micro_loss(losses, micro.coefficients, batch.scale.total, world, accumulation)
                )
            passes.append((losses.detach(), micro.coefficients, micro.sizes))
    sums = torch.zeros(1 + len(batch.loss_counts), dtype=torch.float64)
    for (
        losses,
        coefficients,
        sizes,
    ) in passes:  # after all passes: reading a loss waits for the device
        plain = losses.cpu().double()
        weighted_sum = (plain * coefficients.cpu()).sum() / batch.scale.total
        sums += torch.stack([weighted_sum, *(part.sum() for part in plain.split(sizes))])
    return sums


def _evaluate(
    state: TrainingState, heldout: HeldOut, step: int, tokens: int, stop: StopRequest
) -> EvaluationRecord:
    def check_in() -> None:
        if stop.on_any_rank(state.accelerator):
            raise Preemption(f"stopped by a signal while evaluating after step {step}")

    with explain_out_of_memory(f"evaluation after step {step}", state.shape.budget):
        how = (heldout.collator, state.shape, state.accelerator, check_in)
        task, general = (
            measure_loss(state.module, heldout.texts[name], *how) for name in ("task", "general")
        )
    if not all(math.isfinite(loss.mean or 0.0) for loss in (task, general)):
        losses = f"task {task}, general {general}"
        raise DanaError(
            f"step {step}: the held-out loss is not finite ({losses}); try a lower learning_rate"
        )
    log.info("step %d: held-out loss: task %s, general %s", step, task, general)
    return EvaluationRecord(step, tokens, *task, *general)
