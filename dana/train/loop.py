"""The training loop: plan, mask, forward on hidden positions, one exact weighted step, a record of it."""

import math
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from dana.errors import DanaError
from dana.logging import get_logger, progress
from dana.mlm.examples import Examples
from dana.mlm.heads import MaskedLogits, PairedLogits
from dana.mlm.layout import micro_batches, pieces
from dana.mlm.loss import micro_loss
from dana.mlm.masking import Masking
from dana.rng import derive_seed
from dana.train.batch import Shape, StepBatch
from dana.train.evaluation import evaluate
from dana.train.optimizer import learning_rate_at, make_optimizer
from dana.train.paired import PairedBatch
from dana.train.plan import Plan
from dana.train.records import EvaluationRecord, Progress, Record, StepRecord
from dana.train.settings import TrainSettings
from dana.train.stop import Preempted, StopRequest
from dana.train.torch_seed import seeded
from dana.weights import effective_sample_size

log = get_logger(__name__)


@dataclass
class Prepared:
    """A model ready to train: wrapped for the launch, with its optimizer.

    Attributes:
        module: :class:`dana.mlm.heads.MaskedLogits`, wrapped.
        optimizer: AdamW, wrapped.
        accelerator: From :func:`dana.train.accelerator.make_accelerator`.
        shape: How micro-batches are laid out, the same on every rank.
        pieces: Into how many this rank cuts each of them; doubled when its memory runs out.
    """

    module: torch.nn.Module
    optimizer: Any
    accelerator: Any
    shape: Shape
    pieces: int = 1


def prepare(model: Any, settings: TrainSettings, accelerator: Any, shape: Shape) -> Prepared:
    """Wrap a model for the way this run was launched: ``BertForPreTraining`` for pairs, else a ``...ForMaskedLM``."""
    module = (PairedLogits if settings.next_sentence else MaskedLogits)(model, shape.bf16)
    optimizer = make_optimizer(module, settings.learning_rate, settings.weight_decay)
    if accelerator.distributed_type.value == "DEEPSPEED":  # the recipe owns these, Accelerate's YAML does not
        accelerator.state.deepspeed_plugin.deepspeed_config |= {
            "train_micro_batch_size_per_gpu": 1,
            "gradient_accumulation_steps": 1,
            "gradient_clipping": settings.clip,
        }
    module, optimizer = accelerator.prepare(module, optimizer)
    return Prepared(module, optimizer, accelerator, shape)


def adapt(
    prepared: Prepared,
    examples: Examples,
    masking: Masking,
    settings: TrainSettings,
    heldout: Mapping[str, Examples],
    done: Progress | None = None,
) -> Iterator[Record]:
    """Train, yielding a record after every step and every evaluation.

    Args:
        prepared: From :func:`prepare`; trained in place.
        examples: What to train on.
        masking: How tokens are hidden.
        settings: The run.
        heldout: Text never trained on, under ``task`` and ``general``.
        done: How far the run had come when it was saved; nothing if None.

    Raises:
        DanaError: If the loss stops being a finite number.
        Preempted: If a signal asked to stop; the model is as the last record left it.
    """
    done = done or Progress()
    plan = Plan(examples.lengths, examples.ids, settings)
    tokens, seen, started = done.tokens, done.examples, time.monotonic() - done.seconds
    with (
        StopRequest() as stop,
        ThreadPoolExecutor(1) as ahead,  # masks the next step while this one is computed
        progress(what="train", unit="tokens", total=plan.tokens, initial=done.tokens) as bar,
    ):

        def read(index: int) -> StepBatch:
            kind = PairedBatch if settings.next_sentence else StepBatch
            return kind.of(examples, plan[index], masking, settings.denominator)

        coming = ahead.submit(read, done.step) if done.step < len(plan) else None
        for index in range(done.step, len(plan) + 1):
            if index in evaluation_steps(settings, len(plan)) and index != done.evaluated:
                yield _evaluate(prepared, heldout, masking, index, tokens, stop)
            if coming is None:
                return
            if stop.on_any_rank(prepared.accelerator):
                raise Preempted(f"told to stop after step {index} of {len(plan)}")
            batch = coming.result()
            coming = ahead.submit(read, index + 1) if index + 1 < len(plan) else None
            rate = learning_rate_at(index, len(plan), settings.learning_rate, settings.warmup)
            loss, plain, norm, pairs = take_step(prepared, batch, rate, index, settings)
            tokens, seen = tokens + batch.examples.tokens.size, seen + len(batch.examples)
            bar.set_postfix(loss=f"{plain:.3f}", refresh=False)
            bar.update(batch.examples.tokens.size)
            size = effective_sample_size(batch.examples.weights)
            seconds = round(time.monotonic() - started, 3)
            yield StepRecord(index + 1, tokens, seen, loss, plain, rate, norm, size, seconds, next_sentence_loss=pairs)


def evaluation_steps(settings: TrainSettings, steps: int) -> set[int]:
    """After which steps held-out losses are measured: before the first, after the last, and evenly between."""
    return set(np.linspace(0, steps, settings.evaluations + 2).round().astype(int).tolist())


def take_step(
    prepared: Prepared, batch: StepBatch, rate: float, index: int, settings: TrainSettings
) -> tuple[float, float, float, float | None]:
    """One optimizer step over all ranks: weighted loss, plain loss, gradient norm, next-sentence loss if asked.

    A step from which nothing can be learnt (all weights 0, or no token to hide) leaves the model as it is. One
    that runs out of memory is taken again in smaller micro-batches: the same step, because its loss is that of
    the whole batch however it is cut.

    Raises:
        DanaError: If the loss is not finite, or memory does not even hold one example.
    """
    if batch.scale.total == 0:
        log.warning("step %d: nothing to learn from, skipped", index + 1)
        return 0.0, math.nan, 0.0, None
    for group in prepared.optimizer.param_groups:
        group["lr"] = rate
    while True:
        try:
            sums = _backward(prepared, batch, index, settings)
            break
        except torch.OutOfMemoryError as error:
            _halve(prepared, len(batch.examples), error)
    accelerator = prepared.accelerator
    norm = accelerator.clip_grad_norm_(prepared.module.parameters(), settings.clip)
    prepared.optimizer.step()
    prepared.optimizer.zero_grad()
    weighted_loss, plain_sum, pair_sum = accelerator.reduce(sums).tolist()
    if not math.isfinite(weighted_loss):
        raise DanaError(
            f"step {index + 1}: loss is {weighted_loss}; try a lower learning_rate ({rate:.2g} at this step)"
        )
    pairs = pair_sum / batch.questions if batch.questions else None
    return weighted_loss, plain_sum / int(batch.masked.counts.sum()), float(norm or 0.0), pairs


def _backward(prepared: Prepared, batch: StepBatch, index: int, settings: TrainSettings) -> torch.Tensor:
    """Gradients of this rank's micro-batches.

    Returns:
        float64 of shape (3,): its weighted loss, its sum of token losses, its sum of pair losses.
    """
    accelerator, module, shape = prepared.accelerator, prepared.module, prepared.shape
    module.train()
    sums = torch.zeros(3, dtype=torch.float64, device=accelerator.device)
    rank, world = accelerator.process_index, accelerator.num_processes
    cut = micro_batches(np.diff(batch.examples.offsets), shape.budget, rank, world, shape.layout, shape.width)
    micros = [piece for rows in cut for piece in pieces(rows, prepared.pieces)]
    with seeded(derive_seed(settings.seed, "dropout", index, rank), accelerator.device):
        for number, rows in enumerate(micros):
            accelerator.sync_gradients = number == len(micros) - 1
            with nullcontext() if accelerator.sync_gradients else accelerator.no_sync(module):
                micro = batch.micro(rows, shape).to(accelerator.device)
                losses = micro.losses(module)
                accumulation = accelerator.gradient_accumulation_steps
                accelerator.backward(micro_loss(losses, micro.coefficients, batch.scale.total, world, accumulation))
            plain, hidden = losses.detach().double(), micro.targets.numel()
            weighted = (plain * micro.coefficients).sum() / batch.scale.total
            sums += torch.stack([weighted, plain[:hidden].sum(), plain[hidden:].sum()])  # read once a step: that waits
    return sums


def _halve(prepared: Prepared, examples: int, error: torch.OutOfMemoryError) -> None:
    """Cut this rank's micro-batches once more after memory ran out, and forget the gradients so far.

    The other ranks need not know: they meet in the last backward pass of the step, however many came before.

    Raises:
        DanaError: If it is too late or too little for that.
    """
    accelerator, shape = prepared.accelerator, prepared.shape
    alone = accelerator.num_processes == 1
    in_touch = accelerator.sync_gradients or not accelerator.distributed_type.value.startswith("MULTI_")
    if shape.static or prepared.pieces >= examples or (not alone and in_touch):
        size = shape.budget // prepared.pieces
        raise DanaError(f"out of memory with execution.micro_batch_tokens={size}: set it lower") from error
    prepared.pieces *= 2
    prepared.optimizer.zero_grad()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    log.warning("out of memory: micro-batches of %d tokens now, the same batch", shape.budget // prepared.pieces)


def _evaluate(
    prepared: Prepared,
    heldout: Mapping[str, Examples],
    masking: Masking,
    step: int,
    tokens: int,
    stop: StopRequest,
) -> EvaluationRecord:
    def check_in() -> None:
        if stop.on_any_rank(prepared.accelerator):
            raise Preempted(f"told to stop while evaluating after step {step}")

    task, general = (
        evaluate(prepared.module, heldout[name], masking, prepared.shape, prepared.accelerator, check_in)
        for name in ("task", "general")
    )
    log.info("step %d: held-out loss: task %.4f, general %.4f nats", step, task.mean, general.mean)
    return EvaluationRecord(step, tokens, task.mean, task.standard_error, general.mean, general.standard_error)
