"""Records of steps and evaluations, the lines of ``training.jsonl``, with each step's speed from its lengths and time.

Only the time of steps counts: neither that of evaluations, of saving, nor of the planner before them.
"""

import json
import math
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from statistics import median
from typing import Any

import numpy as np
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
        tflops: 10¹² floating-point operations of the model a second, over all ranks.
        mfu: Those as a share of the dense half-precision peak of all devices; None where that is not known.
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


# Dense half-precision peaks from the makers' data sheets, in FLOP/s; the first name that is part of the device's holds.
PEAKS = {
    "B200": 2250e12,
    "H200": 989e12,
    "H100 PCIe": 756e12,
    "H100": 989e12,
    "A100": 312e12,
    "L40S": 362e12,
    "L4": 121e12,
    "A10G": 70e12,
    "A10": 125e12,
    "V100": 125e12,
    "T4": 65e12,
}


@dataclass(frozen=True)
class Work:
    """Floating-point operations of a model's forward pass; the backward pass has twice as many.

    Attributes:
        token: For a token in the encoder's matrices, two for each of their entries.
        pair: For a token and another that it attends to, scores and mixing, over all layers.
        answer: For a predicted token in the head, its dense layer and the vocabulary.
    """

    token: float
    pair: float
    answer: float

    @classmethod
    def of(cls, model: Any) -> "Work":
        """Counted over a language model that is not wrapped yet.

        Embeddings are looked up for nothing; layers that share their weights, as ALBERT's do, count once.
        """
        config = model.config
        tables = {
            id(value) for part in model.modules() if isinstance(part, torch.nn.Embedding) for value in part.parameters()
        }
        encoder = sum(
            getattr(value, "ds_numel", value.numel())  # ZeRO-3 has cut them up
            for value in model.base_model.parameters()
            if len(getattr(value, "ds_shape", value.shape)) > 1 and id(value) not in tables
        )
        width = config.hidden_size
        return cls(2.0 * encoder, 4.0 * config.num_hidden_layers * width, 2.0 * width * (width + config.vocab_size))

    def of_step(self, lengths: np.ndarray, predicted: int) -> float:
        """Of a training step, forward and backward; padding and what is computed twice do not count.

        Args:
            lengths: Tokens of each example; each attends to all of its own, also where a model's window is narrower.
            predicted: Predicted tokens.

        References:
            Chowdhery et al. 2022, PaLM, appendix B (model FLOPs utilisation).
        """
        sizes = lengths.astype(np.float64)
        return 3.0 * (self.token * sizes.sum() + self.pair * np.square(sizes).sum() + self.answer * predicted)


@dataclass
class Meter:
    """Measures the steps of this rank one by one.

    Attributes:
        work: The model's operations.
        device: Where it computes.
        processes: How many ranks.
    """

    work: Work
    device: torch.device
    processes: int
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

    def stop(self, lengths: np.ndarray, predicted: int) -> dict[str, Any]:
        """Fields of a :class:`StepRecord`; the step is over, on the device too. Empty if nothing was computed."""
        if not self._places:
            return {}
        seconds = max(time.monotonic() - self._started, 1e-9)
        rate = self.work.of_step(lengths, predicted) / seconds
        peak = device_peak(self.device)
        return {
            "tokens_per_second": round(int(lengths.sum()) / seconds, 1),
            "padding": round(1 - self._text / self._places, 4),
            "peak_memory": peak_memory(self.device),
            "tflops": float(f"{rate / 1e12:.4g}"),
            "mfu": float(f"{rate / peak / self.processes:.4g}") if peak else None,
        }


def device_peak(device: torch.device) -> float | None:
    """A GPU's peak in FLOP/s, if :data:`PEAKS` knows it."""
    if device.type != "cuda":
        return None
    name = torch.cuda.get_device_name(device)
    return next((peak for known, peak in PEAKS.items() if known in name), None)


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
    """A run's speed in one line: medians over its steps, and the most memory; empty without a measured step."""
    steps = [record for record in records if isinstance(record, StepRecord) and record.tokens_per_second is not None]
    found: dict[str, float] = {}
    for name in ("tokens_per_second", "padding", "tflops", "mfu"):
        values = [getattr(record, name) for record in steps if getattr(record, name) is not None]
        found |= {name: median(values)} if values else {}
    return found | ({"peak_memory": max(record.peak_memory or 0 for record in steps)} if steps else {})


def in_words(speed: dict[str, float]) -> str:
    """A summary as a line of text."""
    if not speed:
        return "not measured: no step computed anything"
    share = f", {speed['mfu']:.1%} of the device's peak" if speed.get("mfu") else ""
    return (
        f"{speed['tokens_per_second']:,.0f} tokens/s without evaluations and saving, {speed['padding']:.0%} padding, "
        f"at most {speed['peak_memory'] / 1e9:.1f} GB, {speed['tflops']:.3g} TFLOP/s{share}"
    )
