"""Train a model on weighted examples; yield a record of every step and evaluation."""

import math
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch

from dana.core.errors import DivergenceError, Preemption
from dana.core.launch import StopRequest
from dana.core.logging import get_logger, progress
from dana.core.rng import derive_seed, torch_seed
from dana.core.statistics import effective_sample_size
from dana.train.evaluation import HeldOut, HeldoutLoss, measure_loss
from dana.train.examples import ExampleSet
from dana.train.execution import gather_tensor, is_deepspeed, total
from dana.train.half_weights import HalfWeights, saves_casts
from dana.train.joint import joint_backward
from dana.train.layout import BatchLayout
from dana.train.objectives.base import Collator
from dana.train.objectives.batch import (
    ACCURACY,
    JointBatch,
    Pass,
    StepBatch,
    micro_loss,
    sum_by_kind,
)
from dana.train.operations import OperationCount, peak_of
from dana.train.passes import default_tokens
from dana.train.plan import Plan
from dana.train.planner import explain_out_of_memory
from dana.train.records import EvaluationRecord, Record, StepRecord, peak_memory
from dana.train.settings import AdaptSettings, TrainSettings
from dana.train.supervised import make_optimizer
from dana.train.training_state import TrainingState

log = get_logger(__name__)

MAX_SKIPPED_IN_A_ROW = 10  # so many steps in a row without a finite gradient end a run


@dataclass(frozen=True)
class StepOutcome:
    """The outcome of an optimizer step.

    Attributes:
        loss: The weighted loss over all ranks.
        plain_loss: Mean nats per predicted token; None if there was no such token, or all weights
            were 0.
        grad_norm: Gradient norm before clipping.
        other_losses: Mean nats of each further kind of loss of the objective, by name.
        skipped: True if the gradient was not finite and the model was not updated; False for a step
            with nothing to learn from.
    """

    loss: float = 0.0
    plain_loss: float | None = None
    grad_norm: float = 0.0
    other_losses: Mapping[str, float] | None = None
    skipped: bool = False


class Position(NamedTuple):
    """Where a run stands.

    Attributes:
        step: Optimizer steps taken.
        tokens: Tokens seen.
        examples: Examples seen.
        seconds: Seconds since the first step began.
    """

    step: int = 0
    tokens: int = 0
    examples: int = 0
    seconds: float = 0.0

    @classmethod
    def after(cls, records: Sequence[Record]) -> "Position":
        """Return where the run of these records stands."""
        for record in reversed(records):
            if isinstance(record, StepRecord):
                return cls(record.step, record.tokens, record.examples, record.seconds)
        return cls()


def prepare(
    model: Any, settings: TrainSettings, accelerator: Any, shape: BatchLayout | None = None
) -> TrainingState:
    """Make the optimizer, and wrap it and the model for the way this run was launched.

    Args:
        model: The model.
        settings: Settings of the run.
        accelerator: From :func:`dana.train.execution.make_accelerator`.
        shape: How micro-batches are laid out. None for a model that is only measured or saved: rows
            are padded, and no half-precision copy is kept.
    """
    is_trained = shape is not None
    if shape is None:
        padded = BatchLayout.from_config(model.config, default_tokens(settings))
        shape = padded.on(accelerator.device.type)
    module = settings.make_objective().module(model, shape.bf16)
    initial_rate = settings.learning_rate or 0.0  # each step sets its own
    optimizer = make_optimizer(
        module,
        initial_rate,
        settings.weight_decay,
        settings.betas,
        settings.eps,
        getattr(module, "rate_factors", {}),
    )
    if is_deepspeed(accelerator):
        # The recipe decides, and not Accelerate's YAML. DeepSpeed needs the first two, and this loop
        # makes passes and accumulates them by itself: hence 1.
        config = accelerator.state.deepspeed_plugin.deepspeed_config
        config["train_micro_batch_size_per_gpu"] = 1
        config["gradient_accumulation_steps"] = 1
        config["gradient_clipping"] = settings.clip
    module, optimizer = accelerator.prepare(module, optimizer)
    half = None
    if is_trained and saves_casts(model, accelerator, shape.bf16):
        half = HalfWeights(model)
    return TrainingState(module, optimizer, accelerator, shape, half)


def train(
    state: TrainingState,
    examples: ExampleSet,
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
        DivergenceError: If no gradient is finite for :data:`MAX_SKIPPED_IN_A_ROW` steps in a row, or a
            held-out loss is not finite.
        DanaError: If memory runs out.
        Preemption: If a signal asked to stop; the model is in the state of the last record.
    """
    plan = Plan.from_settings(examples, settings)
    begin = Position.after(before)
    start_time = time.monotonic() - begin.seconds
    evaluated_steps = {record.step for record in before if isinstance(record, EvaluationRecord)}
    steps_to_evaluate = {*evaluation_steps(settings, len(plan)), *plan.phase_bounds}
    steps_to_evaluate -= evaluated_steps
    # The first phase needs no beginning, and the last bound is the end of the run.
    later_starts = plan.phase_bounds[1:-1]
    tokens_seen = begin.tokens
    examples_seen = begin.examples
    skipped_in_a_row = 0
    _log_amount(plan, begin.step)

    def load_step(index: int) -> tuple[StepBatch, list[Pass]]:
        step = plan[index]
        collator = collators[plan.phase_of(index)]
        examples_of_step = examples.take(step.rows, step.epochs)
        batch = collator.step_batch(examples_of_step, step.epochs, settings.denominator)
        return batch, passes_of(state, batch)

    with (
        StopRequest() as stop,
        ThreadPoolExecutor(1) as prefetcher,  # makes the next batch during the current step
        progress(what="train", unit="tokens", total=plan.tokens, initial=tokens_seen) as bar,
    ):

        def submit(index: int) -> Future[tuple[StepBatch, list[Pass]]] | None:
            return prefetcher.submit(load_step, index) if index < len(plan) else None

        share_of_peak = _share_of_peak(state, settings)
        next_batch = submit(begin.step)
        # One turn more than there are steps: the last one only evaluates.
        for index in range(begin.step, len(plan) + 1):
            if index in steps_to_evaluate:
                # An evaluation is of the phase of the step before it, that before all steps of the
                # first phase.
                step_before = max(0, index - 1)
                phase = _phase_in_records(plan, step_before)
                yield _evaluate(state, heldout, index, tokens_seen, phase, stop)
            if next_batch is None:  # all steps are taken
                return
            if stop.on_any_rank(state.accelerator):
                raise Preemption(f"stopped by a signal after step {index} of {len(plan)}")
            step_start = time.monotonic()
            batch, passes = next_batch.result()
            waited = time.monotonic() - step_start
            next_batch = submit(index + 1)
            rate = plan.rate_at(index)
            if index in later_starts:
                _begin_phase(state, settings, plan, index)
            with explain_out_of_memory(f"step {index + 1}", state.shape.budget):
                outcome = take_step(state, batch, rate, index, settings, passes)
            step_seconds = time.monotonic() - step_start
            skipped_in_a_row = skipped_in_a_row + 1 if outcome.skipped else 0
            if outcome.skipped:
                _warn_of_skipped(index + 1, skipped_in_a_row, outcome, rate)
            token_count = batch.examples.tokens.size
            tokens_seen += token_count
            examples_seen += len(batch.examples)
            bar.set_postfix(_bar_values(outcome, rate), refresh=False)
            bar.update(token_count)
            record = StepRecord(
                step=index + 1,
                tokens=tokens_seen,
                examples=examples_seen,
                loss=outcome.loss,
                plain_loss=outcome.plain_loss,
                lr=rate,
                grad_norm=outcome.grad_norm,
                effective_sample_size=effective_sample_size(batch.examples.weights),
                seconds=round(time.monotonic() - start_time, 3),
                other_losses=outcome.other_losses,
                skipped=outcome.skipped,
                peak_memory=peak_memory(state.accelerator.device),
                phase=_phase_in_records(plan, index),
            )
            if batch.scale.total:  # else nothing was computed, and there is no speed to record
                step_seconds = max(step_seconds, 1e-9)
                record = replace(
                    record,
                    tokens_per_second=round(token_count / step_seconds, 1),
                    passes=len(passes),
                    waiting=round(waited / step_seconds, 4),
                    mfu=share_of_peak(batch, step_seconds),
                )
            yield record


def _log_amount(plan: Plan, steps_done: int) -> None:
    """Log how much a run trains, unless all its steps are done."""
    if steps_done < len(plan):
        done = f", of which {steps_done:,} are done" if steps_done else ""
        log.info("training  %s tokens in %s steps%s", f"{plan.tokens:,}", f"{len(plan):,}", done)


def _share_of_peak(
    state: TrainingState, settings: TrainSettings
) -> Callable[[StepBatch, float], float | None]:
    """Return a function that computes which share of the GPUs' peak a step reached.

    It takes the batch and the seconds of the step. It returns None if the peak of this device or the
    operations of this model are not known.
    """
    peak = peak_of(state.accelerator.device)
    operation_count = None
    if peak is not None:
        has_own_head = settings.make_objective().has_own_head
        operation_count = OperationCount.of_model(state.model, has_own_head)

    def share(batch: StepBatch, seconds: float) -> float | None:
        if peak is None or operation_count is None:
            return None
        operations = operation_count.of_step(batch.lengths, int(batch.counts.sum()))
        reached: float = operations / (peak * state.accelerator.num_processes * seconds)
        return round(reached, 4)

    return share


def _bar_values(outcome: StepOutcome, rate: float) -> dict[str, float | None]:
    """Return what the progress bar shows of a step."""
    values = {"loss": outcome.plain_loss, "rate": rate}
    other_losses = outcome.other_losses or {}
    if ACCURACY in other_losses:
        values[ACCURACY] = other_losses[ACCURACY]
    return values


def _phase_in_records(plan: Plan, step: int) -> int | None:
    """Return the phase of a step, from 0; None in a run of one phase."""
    if len(plan.phases) == 1:
        return None
    return plan.phase_of(step)


def _begin_phase(state: TrainingState, settings: TrainSettings, plan: Plan, step: int) -> None:
    """Log that a later phase begins; if it asks for that, set Adam's moments and its count of steps to 0."""
    assert isinstance(settings, AdaptSettings)  # others have one phase
    index = plan.phase_of(step)
    phase = settings.phases[index]
    log.info("phase %d of %d begins after step %d: %s", index + 1, len(plan.phases), step, phase)
    if phase.optimizer == "reset":
        for entry in state.optimizer.state.values():
            for name, value in entry.items():
                if isinstance(value, torch.Tensor):
                    value.zero_()  # in place, which keeps its device and type
                else:
                    entry[name] = 0


def _warn_of_skipped(step: int, skipped_in_a_row: int, outcome: StepOutcome, rate: float) -> None:
    """Warn that a step was skipped, because its gradient is not finite.

    Args:
        step: Number of the step, from 1.
        skipped_in_a_row: Number of steps in a row that were skipped, with this one.
        outcome: Outcome of the step.
        rate: Learning rate of the step.

    Raises:
        DivergenceError: After :data:`MAX_SKIPPED_IN_A_ROW` in a row: a bad example ruins one step, bad
            weights or a high rate ruin all.
    """
    what = f"loss {outcome.loss:.4g}, gradient norm {outcome.grad_norm:.4g}"
    if skipped_in_a_row == MAX_SKIPPED_IN_A_ROW:
        raise DivergenceError(
            f"{MAX_SKIPPED_IN_A_ROW} steps in a row, up to step {step}, had no finite gradient "
            f"({what}); try a lower learning_rate ({rate:.2g} at this step) or another precision"
        )
    log.warning("step %d: skipped, its gradient is not finite (%s)", step, what)


def evaluation_steps(settings: TrainSettings, steps: int) -> set[int]:
    """Return the steps after which held-out losses are measured: 0, the last, and between them."""
    if settings.eval_every:
        return {*range(0, steps, settings.eval_every), steps}
    count = settings.evaluations + 2  # with that before the first step, and that after the last
    evenly_spaced = np.linspace(0, steps, count).round().astype(int)
    return set(evenly_spaced.tolist())


def passes_of(state: TrainingState, batch: StepBatch) -> list[Pass]:
    """Make this rank's passes of a step.

    For a GPU they are made in pinned memory, which it copies while the CPU goes on.
    """
    accelerator = state.accelerator
    is_pinned = accelerator.device.type == "cuda"
    rank = accelerator.process_index
    return batch.passes(state.shape, rank, accelerator.num_processes, is_pinned)


def take_step(
    state: TrainingState,
    batch: StepBatch,
    rate: float,
    index: int,
    settings: TrainSettings,
    passes: Sequence[Pass] | None = None,
) -> StepOutcome:
    """Take one optimizer step over all ranks.

    The model stays unchanged if there is nothing to learn from (all weights 0, or no token to
    predict), or if loss or gradient are not finite. Then the optimizer's step is left out: here, or
    under fp16 by the scaler. DeepSpeed has already taken it by then, so a run under it ends.

    Args:
        state: From :func:`prepare`; trained in place.
        batch: All examples of the step.
        rate: Learning rate.
        index: Number of the step, from 0; decides the dropout.
        settings: Settings of the run.
        passes: From :func:`passes_of`; None makes them.

    Raises:
        DivergenceError: Under DeepSpeed without a scaler, if loss or gradient are not finite.
    """
    if batch.scale.total == 0:
        log.warning("step %d: nothing to learn, no token of it has a weight above 0", index + 1)
        return StepOutcome()
    accelerator = state.accelerator
    optimizer = state.optimizer
    for group in optimizer.param_groups:
        group["lr"] = rate * group.get("rate_factor", 1.0)
    sums_of_rank = backward(state, batch, index, settings, passes)
    sums = total(accelerator, sums_of_rank)
    norm_before_clipping = accelerator.clip_grad_norm_(state.module.parameters(), settings.clip)
    if isinstance(norm_before_clipping, torch.Tensor):
        grad_norm = gather_tensor(norm_before_clipping).detach()
    else:  # of DeepSpeed, which may have none before its first step
        grad_norm = torch.tensor(norm_before_clipping or 0.0)
    # The sums are those of `backward`: the weighted loss, and a sum for each kind of losses.
    loss, *sums_of_kinds, norm = _numbers_of_step(sums, grad_norm)
    is_finite = math.isfinite(loss) and math.isfinite(norm)
    if not is_finite and is_deepspeed(accelerator) and accelerator.mixed_precision != "fp16":
        raise DivergenceError(
            f"step {index + 1}: loss {loss:.4g}, gradient norm {norm:.4g}, with which DeepSpeed has "
            f"changed the model; try a lower learning_rate ({rate:.2g} at this step), or another "
            "launch, which skips such a step. The last checkpoint is whole"
        )
    # fp16's scaler skips by itself, and adapts when it does.
    if is_finite or accelerator.scaler is not None:
        optimizer.step()
    optimizer.zero_grad()
    means: dict[str, float] = {}
    for (kind, count), summed in zip(batch.loss_counts.items(), sums_of_kinds, strict=True):
        if count:
            means[kind] = summed / count
    plain_loss = means.pop("tokens", None)
    return StepOutcome(
        loss=loss,
        plain_loss=plain_loss,
        grad_norm=norm,
        other_losses=means or None,
        skipped=not is_finite,
    )


def _numbers_of_step(sums: torch.Tensor, norm: torch.Tensor) -> list[float]:
    """Return a step's sums and its gradient norm as numbers: the only wait for the device in a step."""
    norm = norm.float().reshape(1).to(sums.device)
    numbers: list[float] = torch.cat([sums, norm.to(sums.dtype)]).tolist()
    return numbers


def backward(
    state: TrainingState,
    batch: StepBatch,
    index: int,
    settings: TrainSettings,
    passes: Sequence[Pass] | None = None,
) -> torch.Tensor:
    """Run the forward and backward passes of this rank's micro-batches.

    Args:
        state: From :func:`prepare`; gets the gradients.
        batch: All examples of the step.
        index: Number of the step, from 0; decides the dropout.
        settings: Settings of the run.
        passes: From :func:`passes_of`; None makes them.

    Returns:
        Weighted loss, and sum of the losses of each kind, of this rank: float64 of shape (1 +
        kinds,), on the device of the losses.
    """
    accelerator = state.accelerator
    module = state.module
    rank = accelerator.process_index
    module.train()
    seed = derive_seed(settings.seed, "dropout", index, rank)
    if passes is None:
        passes = passes_of(state, batch)
    half_weights: AbstractContextManager[None] = nullcontext()
    if state.half is not None:
        half_weights = state.half.in_place()
    with half_weights:
        if isinstance(batch, JointBatch):
            return joint_backward(state, batch, passes, seed)
        return _backward_by_pass(state, batch, passes, seed)


def _backward_by_pass(
    state: TrainingState, batch: StepBatch, passes: Sequence[Pass], seed: int
) -> torch.Tensor:
    """Run forward and backward passes one after another; see :func:`backward`."""
    accelerator = state.accelerator
    module = state.module
    world = accelerator.num_processes
    shares = []
    with torch_seed(seed, accelerator.device):
        for number, one_pass in enumerate(passes):
            is_last = number == len(passes) - 1
            # Set by hand, as this loop does without accelerator.accumulate: gradients are averaged
            # over ranks in the backward pass of the last one alone.
            accelerator.sync_gradients = is_last
            synchronisation: AbstractContextManager[None] = nullcontext()
            if not is_last:
                synchronisation = accelerator.no_sync(module)
            with synchronisation:
                micro = one_pass.micro.to(accelerator.device)
                losses = micro.losses(module)
                loss = micro_loss(
                    losses,
                    micro.coefficients,
                    batch.scale.total,
                    world,
                    accelerator.gradient_accumulation_steps,
                )
                state.backward(loss)
            shares.append(
                sum_by_kind(losses.detach(), micro.coefficients, micro.sizes, batch.scale.total)
            )
    return torch.stack(shares).sum(0)


def _evaluate(
    state: TrainingState,
    heldout: HeldOut,
    step: int,
    tokens: int,
    phase: int | None,
    stop: StopRequest,
) -> EvaluationRecord:
    """Measure and log the held-out losses after a step.

    Args:
        state: From :func:`prepare`.
        heldout: Held-out text; what it lacks is not measured.
        step: Optimizer steps taken.
        tokens: Tokens seen.
        phase: Phase of the step before; None in a run of one phase.
        stop: Asked before every forward pass.

    Raises:
        DivergenceError: If a loss is not finite.
        Preemption: If a signal asked to stop.
    """

    def check_in() -> None:
        if stop.on_any_rank(state.accelerator):
            raise Preemption(f"stopped by a signal while evaluating after step {step}")

    def measure(name: str) -> HeldoutLoss:
        text = heldout.texts.get(name)
        if text is None:
            return HeldoutLoss(None, None)
        return measure_loss(
            state.module, text, heldout.collator, state.shape, state.accelerator, check_in
        )

    with explain_out_of_memory(f"evaluation after step {step}", state.shape.budget):
        target = measure("target")
        pool = measure("pool")
    means = [loss.mean for loss in (target, pool) if loss.mean is not None]
    if not all(map(math.isfinite, means)):
        losses = f"target {target}, pool {pool}"
        raise DivergenceError(
            f"step {step}: the held-out loss is not finite ({losses}); try a lower learning_rate"
        )
    log.info("step %d: held-out loss: target %s, pool %s", step, target, pool)
    return EvaluationRecord(
        step=step,
        tokens=tokens,
        target_loss=target.mean,
        target_loss_se=target.standard_error,
        pool_loss=pool.mean,
        pool_loss_se=pool.standard_error,
        phase=phase,
        target_accuracy=target.accuracy,
        target_guess=target.guess,
        pool_accuracy=pool.accuracy,
        pool_guess=pool.guess,
    )
