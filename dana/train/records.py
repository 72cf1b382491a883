"""What a run says of itself: a line of ``training.jsonl`` after every step and every evaluation."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from typing import Any


@dataclass(frozen=True)
class StepRecord:
    """One optimizer step.

    Attributes:
        step: From 1.
        tokens: Seen so far, special tokens included, padding not.
        examples: Seen so far.
        loss: The weighted loss that was minimised, next-sentence pairs included.
        plain_loss: Mean nats a hidden token, without weights.
        lr: Learning rate.
        grad_norm: Before clipping.
        effective_sample_size: Of this step's weights; the batch size when all are equal.
        seconds: Since the first step began.
        kind: Tells the lines of ``training.jsonl`` apart.
        next_sentence_loss: Mean nats a pair, without weights; None, and not in the line, where none is asked.
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
    next_sentence_loss: float | None = None


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
    """What a record knows, by name."""
    return {name: value for name, value in asdict(record).items() if value is not None}


def to_line(record: Record) -> str:
    """A line of JSON, newline included."""
    return json.dumps(values_of(record)) + "\n"


def from_line(line: str) -> Record:
    """What :func:`to_line` wrote."""
    values = json.loads(line)
    kind = StepRecord if values["kind"] == "step" else EvaluationRecord
    return kind(**{field.name: values[field.name] for field in fields(kind) if field.name in values})
