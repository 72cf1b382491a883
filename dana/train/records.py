"""Records of steps and evaluations, the lines of ``training.jsonl``, with each step's speed from its lengths and time.

Only the time of steps counts: neither that of evaluations, of saving, nor of the planner before them.
"""

import json
import math
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
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
        tokens_per_second: Of this step alone, over all ranks, special tokens included, padding not. This and what
            follows is not in the line where it is None.
        padding: Share of the places of this rank's forward passes that hold no text.
        peak_memory: Bytes: on GPUs the most that this step's tensors took on this rank's; elsewhere the most that this
            process took so far.
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
    padding: float | None = None
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
    values: dict[str, Any] = {}
    for name, value in asdict(record).items():
        if name == "other_losses":
            values |= {f"{kind}_loss": loss for kind, loss in (value or {}).items()}
        elif value is not None or name not in optional:
            values[name] = value
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
    fitting = {field.name: values[field.name] for field in fields(kind) if field.name in values}
    if kind is StepRecord:
        others = {name: value for name, value in values.items() if name.endswith("_loss") and name != "plain_loss"}
        fitting["other_losses"] = {name.removesuffix("_loss"): value for name, value in others.items()} or None
    return kind(**fitting)


@dataclass
class Meter:
    """Measures the steps of this rank one by one.

    Attributes:
        device: Where it computes.
    """

    device: torch.device
    _text: int = field(default=0, init=False)
    _places: int = field(default=0, init=False)
    _started: float = field(default=0.0, init=False)

    def start(self) -> None:
        """A step begins."""
        self._text = self._places = 0
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
        self._started = time.monotonic()

    def saw(self, places: int, text: int) -> None:
        """A forward pass had so many places, and so many tokens of text in them."""
        self._places, self._text = self._places + places, self._text + text

    def stop(self, tokens: int) -> dict[str, Any]:
        """Fields of a :class:`StepRecord` of so many tokens; it is over, on the device too. Empty if none was seen."""
        if not self._places:
            return {}
        seconds = max(time.monotonic() - self._started, 1e-9)
        return {
            "tokens_per_second": round(tokens / seconds, 1),
            "padding": round(1 - self._text / self._places, 4),
            "peak_memory": peak_memory(self.device),
        }


def peak_memory(device: torch.device) -> int:
    """Bytes, see :class:`StepRecord`; 0 where the system does not tell."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    try:
        import resource
    except ImportError:  # Windows
        return 0
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else 1024 * most  # kilobytes everywhere but there


def summary(records: list[Record]) -> dict[str, float]:
    """A run's speed: medians over its steps, and the most memory; empty without a measured step."""
    steps = [record for record in records if isinstance(record, StepRecord) and record.tokens_per_second is not None]
    if not steps:
        return {}
    speed = {name: median(getattr(record, name) for record in steps) for name in ("tokens_per_second", "padding")}
    return {**speed, "peak_memory": max(record.peak_memory or 0 for record in steps)}


def in_words(speed: dict[str, float]) -> str:
    """A summary as a line of text."""
    if not speed:
        return "not measured: no step computed anything"
    rate = f"{speed['tokens_per_second']:,.0f} tokens/s without evaluations and saving"
    return f"{rate}, {speed['padding']:.0%} padding, at most {speed['peak_memory'] / 1e9:.1f} GB"
