"""Records of steps and evaluations, the lines of ``training.jsonl``."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from statistics import median
from typing import Any

import torch


@dataclass(frozen=True)
class StepRecord:
    """One optimizer step.

    Attributes:
        step: From 1.
        tokens: Seen so far, special tokens included, padding not.
        examples: Seen so far.
        loss: The weighted loss that was minimised, further kinds of loss included.
        plain_loss: Mean nats a predicted token, without weights; None where the step had none, or all weights were 0.
        lr: Learning rate.
        grad_norm: Before clipping.
        effective_sample_size: Of this step's weights; the batch size when all are equal.
        seconds: Since the first step began.
        kind: Tells the lines of ``training.jsonl`` apart.
        other_losses: Mean nats, without weights, of each further kind of loss of the objective; in the line under
            ``NAME_loss``.
        skipped: True where the gradient was not finite and the model was left alone; else None, and not in the line.
        tokens_per_second: Of this step alone, over all ranks, special tokens included, padding not; None, and not in
            the line, where it computed nothing.
        peak_memory: The most bytes that tensors took so far on this rank's GPU; None, and not in the line, elsewhere.
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
    skipped: bool | None = None
    tokens_per_second: float | None = None
    peak_memory: int | None = None


@dataclass(frozen=True)
class EvaluationRecord:
    """Held-out losses, mean nats a predicted token, with standard errors; see :mod:`dana.train.evaluation`.

    None where there is nothing to measure, and for the standard error of a single example.
    """

    step: int
    tokens: int
    task_loss: float | None
    task_loss_se: float | None
    general_loss: float | None
    general_loss_se: float | None
    kind: str = "evaluation"


Record = StepRecord | EvaluationRecord


def values_of(record: Record) -> dict[str, Any]:
    """A record's values by name: what does not apply is left out, a number that is not finite is None."""
    optional = {field.name for field in fields(record) if field.default is None}
    values = {name: value for name, value in asdict(record).items() if value is not None or name not in optional}
    values |= {f"{kind}_loss": loss for kind, loss in values.pop("other_losses", {}).items()}
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in values.items()
    }


def to_line(record: Record) -> str:
    """A line of JSON, newline included."""
    return json.dumps(values_of(record), allow_nan=False) + "\n"


def from_line(line: str) -> Record:
    """What :func:`to_line` wrote."""
    values = json.loads(line)
    kind: type = StepRecord if values["kind"] == "step" else EvaluationRecord
    own = {field.name: values[field.name] for field in fields(kind) if field.name in values}
    others = {name: value for name, value in values.items() if name.endswith("_loss") and name not in own}
    if others:
        own["other_losses"] = {name.removesuffix("_loss"): value for name, value in others.items()}
    return kind(**own)


def peak_memory(device: torch.device) -> int | None:
    """The most bytes that tensors took on a GPU so far; None elsewhere."""
    return torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None


def speed_of(records: list[Record]) -> dict[str, float]:
    """A run's median tokens a second and the most memory, as far as its steps say."""
    steps = [record for record in records if isinstance(record, StepRecord)]
    speeds = [record.tokens_per_second for record in steps if record.tokens_per_second is not None]
    peaks = [record.peak_memory for record in steps if record.peak_memory is not None]
    return ({"tokens_per_second": median(speeds)} if speeds else {}) | ({"peak_memory": max(peaks)} if peaks else {})
