"""Speed of each step: tokens a second, padding, peak memory and model FLOPs utilisation, from its lengths and time.

Only the time of steps counts: neither that of evaluations, of saving, nor of the planner before them.
"""

import sys
import time
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import numpy as np
import torch

from dana.train.records import Record, StepRecord

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


@dataclass(frozen=True)
class Speed:
    """Of one step.

    Attributes:
        tokens_per_second: Over all ranks, special tokens included, padding not.
        padding: Share of the places of this rank's forward passes that hold no text.
        peak_memory: Bytes: on GPUs the most that this step's tensors took on this rank's; elsewhere the most that this
            process took so far.
        tflops: 10¹² floating-point operations of the model a second, over all ranks.
        mfu: Those as a share of the dense half-precision peak of all devices; None where that is not known.
    """

    tokens_per_second: float
    padding: float
    peak_memory: int
    tflops: float
    mfu: float | None


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

    def stop(self, lengths: np.ndarray, predicted: int) -> Speed | None:
        """The step is over, on the device too; None if nothing was computed."""
        if not self._places:
            return None
        seconds = max(time.monotonic() - self._started, 1e-9)
        rate = self.work.of_step(lengths, predicted) / seconds
        peak = device_peak(self.device)
        return Speed(
            round(int(lengths.sum()) / seconds, 1),
            round(1 - self._text / self._places, 4),
            peak_memory(self.device),
            float(f"{rate / 1e12:.4g}"),
            float(f"{rate / peak / self.processes:.4g}") if peak else None,
        )


def device_peak(device: torch.device) -> float | None:
    """A GPU's peak in FLOP/s, if :data:`PEAKS` knows it."""
    if device.type != "cuda":
        return None
    name = torch.cuda.get_device_name(device)
    return next((peak for known, peak in PEAKS.items() if known in name), None)


def peak_memory(device: torch.device) -> int:
    """Bytes, see :class:`Speed`; 0 where the system does not tell."""
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
