"""The training loop: plan, mask, forward on hidden positions, one exact weighted step, a record of it."""

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from dana.errors import DanaError
from dana.logging import get_logger, progress
from dana.mlm.examples import Examples
from dana.mlm.heads import MaskedLogits
from dana.mlm.loss import micro_loss, token_losses
from dana.mlm.masking import Masking
from dana.rng import derive_seed
from dana.train.batch import StepBatch
from dana.train.evaluation import evaluate
from dana.train.optimizer import learning_rate_at, make_optimizer
from dana.train.plan import Plan, micro_batches
from dana.train.settings import TrainSettings
from dana.train.torch_seed import seeded
from dana.weights import effective_sample_size

log = get_logger(__name__)


@dataclass(frozen=True)
class StepRecord:
    """One optimizer step.

    Attributes:
        step: From 1.
        tokens: Seen so far, special tokens included, padding not.
        examples: Seen so far.
        loss: The weighted loss that was minimised.
        plain_loss: Mean nats a hidden token, without weights.
        lr: Learning rate.
        grad_norm: Before clipping.
        effective_sample_size: Of this step's weights; the batch size when all are equal.
        seconds: Since the first step began.
        kind: Tells the lines of ``training.jsonl`` apart.
    """

    step: int
    tokens: int
    examples: int
    loss: float
    plain_loss: float
    lr: float
    grad_norm: float
    effective_sample_size: float
    seconds: float
    kind: str = "step"


@dataclass(frozen=True)
class EvaluationRecord:
    """Held-out losses, mean nats a hidden token, with standard errors; see :mod:`dana.train.evaluation`."""

    step: int
    tokens: int
    task_loss: float
    task_loss_se: float
    general_loss: float
    general_loss_se: float
    kind: str = "evaluation"


@dataclass(frozen=True)
class Prepared:
    """A model ready to train: wrapped for the launch, with its optimizer."""

    module: torch.nn.Module
    optimizer: Any
    accelerator: Any
    pad: int


def prepare(model: Any, settings: TrainSettings, accelerator: Any) -> Prepared:
    """Wrap a ``...ForMaskedLM`` model for the way this run was launched."""
    module = MaskedLogits(model)
    optimizer = make_optimizer(module, settings.learning_rate, settings.weight_decay)
    if accelerator.distributed_type.value == "DEEPSPEED":  # the recipe owns these, Accelerate's YAML does not
        accelerator.state.deepspeed_plugin.deepspeed_config |= {
            "train_micro_batch_size_per_gpu": 1,
            "gradient_accumulation_steps": 1,
            "gradient_clipping": settings.clip,
        }
    module, optimizer = accelerator.prepare(module, optimizer)
    return Prepared(module, optimizer, accelerator, model.config.pad_token_id or 0)


def adapt(
    prepared: Prepared,
    examples: Examples,
    masking: Masking,
    settings: TrainSettings,
    heldout: Mapping[str, Examples],
) -> Iterator[StepRecord | EvaluationRecord]:
    """Train, yielding a record after every step and every evaluation.

    Args:
        prepared: From :func:`prepare`; trained in place.
        examples: What to train on.
        masking: How tokens are hidden.
        settings: The run.
        heldout: Text never trained on, under ``task`` and ``general``.

    Raises:
        DanaError: If the loss stops being a finite number.
    """
    plan = Plan(examples.lengths, examples.ids, settings)
    evaluate_at = set(np.linspace(0, len(plan), settings.evaluations + 2).round().astype(int).tolist())
    tokens = seen = 0
    started = time.monotonic()
    yield _evaluate(prepared, heldout, masking, settings, 0, 0)
    with progress(what="train", unit="tokens", total=plan.tokens) as bar:
        for index in range(len(plan)):
            step = plan[index]
            batch = StepBatch.of(examples, step, masking, settings.denominator)
            rate = learning_rate_at(index, len(plan), settings.learning_rate, settings.warmup)
            loss, plain, norm = take_step(prepared, batch, rate, index, settings)
            tokens, seen = tokens + batch.examples.tokens.size, seen + len(batch.examples)
            bar.set_postfix(loss=f"{plain:.3f}", refresh=False)
            bar.update(batch.examples.tokens.size)
            size = effective_sample_size(batch.examples.weights)
            seconds = time.monotonic() - started
            yield StepRecord(index + 1, tokens, seen, loss, plain, rate, norm, size, round(seconds, 3))
            if index + 1 in evaluate_at:
                yield _evaluate(prepared, heldout, masking, settings, index + 1, tokens)


def take_step(
    prepared: Prepared, batch: StepBatch, rate: float, index: int, settings: TrainSettings
) -> tuple[float, float, float]:
    """One optimizer step over all ranks: weighted loss, plain loss, gradient norm.

    A step from which nothing can be learnt (all weights 0, or no token to hide) leaves the model as it is.
    """
    if batch.scale.total == 0:
        log.warning("step %d: nothing to learn from, skipped", index + 1)
        return 0.0, math.nan, 0.0
    accelerator, module, optimizer = prepared.accelerator, prepared.module, prepared.optimizer
    module.train()
    for group in optimizer.param_groups:
        group["lr"] = rate
    sums = torch.zeros(2, dtype=torch.float64)
    rank, world = accelerator.process_index, accelerator.num_processes
    micros = micro_batches(batch.examples.lengths, settings.micro_batch_tokens, rank, world)
    with seeded(derive_seed(settings.seed, "dropout", index, rank), accelerator.device):
        for number, rows in enumerate(micros):
            accelerator.sync_gradients = number == len(micros) - 1
            with nullcontext() if accelerator.sync_gradients else accelerator.no_sync(module):
                micro = batch.micro(rows, prepared.pad).to(accelerator.device)
                losses = token_losses(module(micro.input_ids, micro.attention_mask, micro.where), micro.targets)
                accumulation = accelerator.gradient_accumulation_steps
                accelerator.backward(micro_loss(losses, micro.coefficients, batch.scale.total, world, accumulation))
            weighted = (losses.detach().double() * micro.coefficients).sum() / batch.scale.total
            sums += torch.stack([weighted, losses.detach().double().sum()]).cpu()
    norm = float(accelerator.clip_grad_norm_(module.parameters(), settings.clip) or 0.0)
    optimizer.step()
    optimizer.zero_grad()
    weighted_loss, plain_sum = accelerator.reduce(sums.to(accelerator.device)).tolist()
    if not math.isfinite(weighted_loss):
        raise DanaError(
            f"step {index + 1}: loss is {weighted_loss}; try a lower learning_rate ({rate:.2g} at this step)"
        )
    return weighted_loss, plain_sum / int(batch.masked.counts.sum()), norm


def _evaluate(
    prepared: Prepared,
    heldout: Mapping[str, Examples],
    masking: Masking,
    settings: TrainSettings,
    step: int,
    tokens: int,
) -> EvaluationRecord:
    budget = settings.micro_batch_tokens
    task, general = (
        evaluate(prepared.module, heldout[name], masking, prepared.pad, budget, prepared.accelerator)
        for name in ("task", "general")
    )
    log.info("step %d: held-out loss: task %.4f, general %.4f nats", step, task.mean, general.mean)
    return EvaluationRecord(step, tokens, task.mean, task.standard_error, general.mean, general.standard_error)
