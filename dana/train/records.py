"""Records of steps and evaluations, the lines of ``training.jsonl``."""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any


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
        tokens_per_second: Of this step alone, evaluations and saving left out; this and what follows is of
            :class:`dana.train.speed.Speed`. What is None is not in the line.
        padding: Share of places without text.
        peak_memory: Bytes.
        tflops: 10¹² floating-point operations of the model a second.
        mfu: Those as a share of the devices' peak.
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
    tflops: float | None = None
    mfu: float | None = None


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


@dataclass(frozen=True)
class Progress:
    """How far a run has come.

    Attributes:
        step: Optimizer steps taken.
        tokens: Seen.
        examples: Seen.
        seconds: Of training.
        evaluated: The last step after which held-out losses were measured; -1 for none.
    """

    step: int = 0
    tokens: int = 0
    examples: int = 0
    seconds: float = 0.0
    evaluated: int = -1

    @classmethod
    def of(cls, records: Iterable[Record]) -> "Progress":
        """The progress that a run's records tell of."""
        done = cls()
        for record in records:
            if isinstance(record, EvaluationRecord):
                done = cls(done.step, done.tokens, done.examples, done.seconds, record.step)
            else:
                done = cls(record.step, record.tokens, record.examples, record.seconds, done.evaluated)
        return done


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
    if values["kind"] != "step":
        return EvaluationRecord(**{name: values[name] for name in _names(EvaluationRecord) if name in values})
    own = {name: values[name] for name in _names(StepRecord) if name in values}
    others = {name.removesuffix("_loss"): value for name, value in values.items() if name.endswith("_loss")}
    others.pop("plain")
    return StepRecord(**own, other_losses=others or None)


def _names(kind: type) -> list[str]:
    return [field.name for field in fields(kind)]
