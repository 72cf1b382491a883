"""Define the records of steps and evaluations, and write and read them as lines of ``training.jsonl``."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from statistics import median
from typing import Any

import torch

from dana.train.objectives.batch import ACCURACY


@dataclass(frozen=True)
class StepRecord:
    """One optimizer step.

    Attributes:
        step: Number of the step, from 1.
        tokens: Tokens seen so far, with special tokens, without padding.
        examples: Examples seen so far.
        loss: The weighted loss that was minimised, all kinds of loss included.
        plain_loss: Unweighted mean nats per predicted token; None if there was no such token, or
            all weights were 0.
        lr: Learning rate.
        grad_norm: Gradient norm before clipping.
        effective_sample_size: Effective sample size of this step's weights; the batch size if all
            are equal.
        seconds: Seconds since the first step began.
        kind: ``step``.
        other_losses: Unweighted mean nats of each further kind of loss, in the line under
            ``NAME_loss``; and ``accuracy``, the share of right predictions.
        skipped: True if the gradient was not finite and the model was not updated; in the line only
            if true.
        tokens_per_second: Tokens per second of this step over all ranks, with special tokens,
            without padding; None, and not in the line, if nothing was computed.
        peak_memory: Largest number of bytes allocated so far on this rank's GPU; None, and not in
            the line, on others.
        phase: Index of the phase; None, and not in the line, in a run without phases.
        passes: Forward passes of this rank.
        waiting: Share of the step's seconds in which it waited for its batch.
        mfu: Share of the GPUs' peak in bfloat16 that the step's operations are
            (:mod:`dana.train.operations`); None, and not in the line, where it is not known.
    """

    step: int
    tokens: int
    examples: int
    loss: float
    plain_loss: float | None
    lr: float
    grad_norm: float
    effective_sample_size: float
    seconds: float
    kind: str = "step"
    other_losses: Mapping[str, float] | None = None
    skipped: bool = False
    tokens_per_second: float | None = None
    peak_memory: int | None = None
    phase: int | None = None
    passes: int | None = None
    waiting: float | None = None
    mfu: float | None = None


@dataclass(frozen=True)
class EvaluationRecord:
    """Held-out losses in mean nats per predicted token, with standard errors; see :mod:`dana.train.evaluation`.

    Losses are None if no token can be predicted, standard errors also for a single example. The
    phase is that of the step before, and None, and not in the line, in a run without phases.
    Accuracies, and those of guessing, are in the line where the objective measures them.
    """

    step: int
    tokens: int
    target_loss: float | None
    target_loss_se: float | None
    pool_loss: float | None
    pool_loss_se: float | None
    kind: str = "evaluation"
    phase: int | None = None
    target_accuracy: float | None = None
    target_guess: float | None = None
    pool_accuracy: float | None = None
    pool_guess: float | None = None


Record = StepRecord | EvaluationRecord


def values_of(record: Record) -> dict[str, Any]:
    """Return a record's values by name, without optional ones that are unset; numbers that are not finite are None."""
    values: dict[str, Any] = {}
    for field in fields(record):
        value = getattr(record, field.name)
        is_optional = field.default is None or field.default is False
        if is_optional and value is field.default:
            continue
        if isinstance(value, float) and not math.isfinite(value):
            value = None
        values[field.name] = value
    for kind, loss in values.pop("other_losses", {}).items():
        name = kind if kind == ACCURACY else f"{kind}_loss"
        values[name] = loss if math.isfinite(loss) else None
    return values


def to_line(record: Record) -> str:
    """Format a record as a line of JSON, newline included."""
    return json.dumps(values_of(record), allow_nan=False) + "\n"


def from_line(line: str) -> Record:
    """Read a line of :func:`to_line`."""
    entries = json.loads(line)
    kind: type[Record] = StepRecord if entries["kind"] == "step" else EvaluationRecord
    values = {field.name: entries[field.name] for field in fields(kind) if field.name in entries}
    other_losses = {
        name.removesuffix("_loss"): value
        for name, value in entries.items()
        if (name.endswith("_loss") or name == ACCURACY) and name not in values
    }
    if other_losses:
        values["other_losses"] = other_losses
    return kind(**values)


def peak_memory(device: torch.device) -> int | None:
    """Return the largest number of bytes allocated on a GPU so far; None on other devices."""
    return torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None


def speed_of(records: list[Record]) -> dict[str, float]:
    """Return the medians of a run's steps and its peak memory, of what they recorded."""
    steps = [record for record in records if isinstance(record, StepRecord)]
    speed: dict[str, float] = {}
    for name in ("tokens_per_second", "passes", "waiting", "mfu"):
        values = [getattr(record, name) for record in steps]
        known = [value for value in values if value is not None]
        if known:
            speed[name] = median(known)
    peaks = [record.peak_memory for record in steps if record.peak_memory is not None]
    if peaks:
        speed["peak_memory"] = max(peaks)
    return speed


def speed_line(speed: Mapping[str, float]) -> str:
    """Say in a line how fast a run was, from :func:`speed_of`."""
    if "tokens_per_second" not in speed:
        return "not measured: no step computed anything"
    parts = [f"{speed['tokens_per_second']:,.0f} tokens/s without evaluations and saving"]
    if "passes" in speed:
        parts.append(f"{speed['passes']:g} pass(es) a step")
    if "waiting" in speed:
        parts.append(f"{speed['waiting']:.0%} of the time waiting for text")
    if "peak_memory" in speed:
        parts.append(f"at most {speed['peak_memory'] / 1e9:.1f} GB")
    if "mfu" in speed:
        parts.append(f"{speed['mfu']:.1%} of the GPU's peak")
    return ", ".join(parts)
