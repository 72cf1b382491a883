"""Measures, before the first step, which way of running this model on this text on this device is the fastest.

What it chooses changes speed and memory; the step's loss is the same to rounding. Each choice is printed with its
reason, is kept in the manifest, and has an override in :class:`dana.train.settings.Execution`.
"""

import os
import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from dana.errors import ConfigError
from dana.logging import get_logger
from dana.mlm.examples import Examples
from dana.mlm.heads import RESERVED_POSITIONS, MaskedLogits
from dana.mlm.layout import LAYOUTS, micro_batches
from dana.mlm.loss import micro_loss, token_losses
from dana.mlm.masking import Masking
from dana.train.batch import Shape, StepBatch
from dana.train.plan import Plan, Step
from dana.train.settings import TrainSettings
from dana.train.wiring import attending, set_compiled, set_up

log = get_logger(__name__)

TOLERANCE = {torch.float32: 1e-4}  # of the largest logit; half precision rounds at 4e-3
HALF_TOLERANCE = 5e-2
SHORT = 500  # micro-batches: a shorter run is over before a measurement pays
BF16_PAYS = 1.2  # times as fast as float32
WORTH = 1.05  # another layout must be so much faster than padded rows
COMPILE_FROM = 1200.0  # seconds of training from which trying torch.compile (about a minute) can pay


@dataclass(frozen=True)
class Choice:
    """How the run will be executed.

    Attributes:
        shape: Layout and size of micro-batches.
        compiled: Whether the encoder is compiled.
        reasons: One line for each decision.
    """

    shape: Shape
    compiled: bool
    reasons: list[str]


class Planner:
    """Tries layouts on a model that is not wrapped yet.

    Args:
        model: A ``...ForMaskedLM`` model; only its device changes.
        examples: What it will be trained on.
        masking: How tokens are hidden.
        settings: The run.
        accelerator: Device, precision and ranks.
    """

    def __init__(
        self, model: Any, examples: Examples, masking: Masking, settings: TrainSettings, accelerator: Any
    ) -> None:
        self._model, self._accelerator, self._settings = model.to(accelerator.device), accelerator, settings
        self._module = MaskedLogits(model)
        self._plan = Plan(examples.lengths, examples.ids, settings)
        self._batch = StepBatch.of(examples, self._plan[0], masking, "token_count")
        by_length = np.argsort(examples.lengths, kind="stable")
        some = by_length[np.linspace(0, len(examples) - 1, min(8, len(examples))).astype(int)]
        self._some = StepBatch.of(examples, Step(some, np.zeros(some.size, dtype=np.int64)), masking, "token_count")

    def choose(self) -> Choice:
        """Decide layout and compilation; every rank decides what rank 0 does.

        Raises:
            ConfigError: If a layout was asked for that gives this model other losses.
        """
        execution, reasons = self._settings.execution, [self._batch_line()]
        shape = self._shape("packed" if execution.compile == "on" else "padded")
        shape = replace(shape, bf16=self._bf16_at_once(reasons))
        pairs = self._settings.next_sentence
        if execution.layout != "auto" or execution.compile == "on" or pairs:
            asked = shape.layout if execution.layout == "auto" else execution.layout
            shape = replace(self._shape(asked, static=execution.compile == "on"), bf16=shape.bf16)
            self._refuse_if_different(shape)
            why = "each next-sentence pair needs a row" if pairs else "as asked"
            reasons.append(f"layout    {asked}: {why}, {self._fill(shape):.0%} of its places are text")
            return self._agreed(Choice(shape, execution.compile == "on", reasons))
        micros = self._plan.tokens / execution.micro_batch_tokens
        if micros < SHORT or any(hasattr(value, "ds_id") for value in self._model.parameters()):
            short = f"the run is {micros:.0f} micro-batches long, too short to measure for"
            reasons.append(f"layout    padded, {self._fill(shape):.0%} text: {short}")
            return self._agreed(Choice(shape, False, reasons))
        speed, shape = self._fastest(shape.bf16, reasons)
        if self._accelerator.device.type == "cpu" and not self._launch_decides():
            speed, shape = self._try_bf16(speed, shape, reasons)
        compiled = False
        if execution.compile == "auto":
            shape, compiled = self._try_compiling(speed, shape, reasons)
        return self._agreed(Choice(shape, compiled, reasons))

    def difference(self, layout: str) -> float:
        """The largest difference to padded rows of any logit, as a share of the largest logit.

        Eight examples from the shortest to the longest, without dropout, in the run's own precision.
        """
        rows = [np.array([row]) for row in range(len(self._some.examples))]
        expected = self._answers(self._shape("padded"), rows)
        return float((self._answers(self._shape(layout), self._rows(layout)) - expected).abs().max()) / float(
            expected.abs().max()
        )

    def _answers(self, shape: Shape, rows: list[np.ndarray]) -> torch.Tensor:
        """Logits of the test examples, in the order of the examples."""
        micro = self._some.micro(rows, shape).to(self._accelerator.device)
        self._module.eval()
        with torch.no_grad(), self._accelerator.autocast(), attending(self._model, shape.layout):
            logits = micro.logits(self._module).float()
        return logits[torch.argsort(micro.owners, stable=True)]

    def _rows(self, layout: str) -> list[np.ndarray]:
        lengths = np.diff(self._some.examples.offsets)
        (rows,) = micro_batches(lengths, 1 << 30, 0, 1, layout, self._settings.max_tokens)
        return rows

    def _refuse_if_different(self, shape: Shape) -> None:
        problem = self._problem(shape.layout)
        if problem:
            raise ConfigError(
                f"execution.layout={shape.layout} is not for {self._model.config.model_type}: {problem}; "
                "execution.layout=padded always is"
            )

    def _problem(self, layout: str) -> str:
        """Why a layout is not for this model; empty if it is."""
        if layout == "padded":
            return ""
        try:
            found = self.difference(layout)
        except Exception as error:  # whatever an architecture makes of arguments that it does not know
            return str(error).partition("\n")[0][:120] or type(error).__name__
        tolerance = TOLERANCE.get(self._precision(), HALF_TOLERANCE)
        return "" if found <= tolerance else f"its answers differ by {found:.1e} (allowed {tolerance:.0e})"

    def _precision(self) -> torch.dtype:
        return torch.float32 if self._accelerator.mixed_precision == "no" else torch.bfloat16

    def _fastest(self, bf16: bool, reasons: list[str]) -> tuple[float, Shape]:
        speeds, shapes, lines = {}, {}, []
        for layout in LAYOUTS:
            problem = self._problem(layout)
            if problem:
                lines.append(f"{layout} refused ({problem})")
                continue
            shapes[layout] = replace(self._shape(layout), bf16=bf16)
            speeds[layout] = self._speed(shapes[layout])
            lines.append(f"{layout} {speeds[layout]:,.0f} tokens/s ({self._fill(shapes[layout]):.0%} text)")
        best = max(speeds, key=lambda layout: speeds[layout])
        if speeds[best] < WORTH * speeds["padded"]:
            best = "padded"
        reasons.append(f"layout    {best}: {', '.join(lines)}")
        return speeds[best], shapes[best]

    def _launch_decides(self) -> bool:
        """Whether Accelerate's configuration says in which precision to compute."""
        return bool(os.environ.get("ACCELERATE_MIXED_PRECISION")) or self._accelerator.mixed_precision != "no"

    def _bf16_at_once(self, reasons: list[str]) -> bool:
        """Precision where nothing needs to be measured: GPUs that have bfloat16 gain by it."""
        if self._launch_decides():
            reasons.append(f"precision {self._accelerator.mixed_precision}: as the launch says (no = fp32)")
            return False
        if self._accelerator.device.type == "cuda":
            supported = torch.cuda.is_bf16_supported(including_emulation=False)
            reasons.append(f"precision {'bf16' if supported else 'fp32'}: what this GPU has")
            return supported
        return False

    def _try_bf16(self, speed: float, shape: Shape, reasons: list[str]) -> tuple[float, Shape]:
        """On CPUs bfloat16 ranges from half as fast to twice as fast: only a measurement tells."""
        half = replace(shape, bf16=True)
        found = self._speed(half)
        pays = found >= BF16_PAYS * speed
        reasons.append(f"precision {'bf16' if pays else 'fp32'}: bf16 {found:,.0f} tokens/s against {speed:,.0f}")
        return (found, half) if pays else (speed, shape)

    def _try_compiling(self, eager: float, shape: Shape, reasons: list[str]) -> tuple[Shape, bool]:
        left = self._plan.tokens / eager / self._accelerator.num_processes
        problem = self._problem("packed")
        if problem or left < COMPILE_FROM:
            why = f"needs packed rows, {problem}" if problem else f"about {left / 60:.0f} minutes to train"
            reasons.append(f"compile   off: {why}")
            return shape, False
        packed, started = replace(self._shape("packed", static=True), bf16=shape.bf16), time.monotonic()
        try:
            set_compiled(self._model, True)
            speed = self._speed(packed)
        except Exception as error:  # no compiler, or one that cannot
            reasons.append(f"compile   off: {str(error).partition(chr(10))[0][:120]}")
            set_compiled(self._model, False)
            return shape, False
        spent = time.monotonic() - started
        pays = left > spent + left * eager / speed and speed > WORTH * eager
        verdict = f"{speed:,.0f} tokens/s compiled (after {spent:.0f} s) against {eager:,.0f}"
        reasons.append(f"compile   {'on' if pays else 'off'}: {verdict}")
        if not pays:
            set_compiled(self._model, False)
        return (packed, True) if pays else (shape, False)

    def _speed(self, shape: Shape) -> float:
        """Real tokens a second of forward and backward over a full micro-batch, the second time."""
        lengths = np.diff(self._batch.examples.offsets)
        rows = micro_batches(lengths, shape.budget, 0, 1, shape.layout, shape.width)[0]
        tokens = int(sum(lengths[row].sum() for row in rows))
        micro = self._batch.micro(rows, shape).to(self._accelerator.device)
        self._module.train()
        self._module.bf16 = shape.bf16
        with attending(self._model, shape.layout):
            for _ in range(2):
                started = time.monotonic()
                with self._accelerator.autocast():
                    losses = token_losses(micro.logits(self._module), micro.targets)
                micro_loss(losses, micro.coefficients, self._batch.scale.total or 1.0).backward()
                if self._accelerator.device.type == "cuda":
                    torch.cuda.synchronize()
                seconds = time.monotonic() - started
        self._model.zero_grad(set_to_none=True)
        self._module.bf16 = False
        return tokens / seconds

    def _shape(self, layout: str, static: bool = False) -> Shape:
        config, budget = self._model.config, self._settings.execution.micro_batch_tokens
        first = RESERVED_POSITIONS.get(config.model_type, 0)
        return Shape(layout, budget, self._settings.max_tokens, static, config.pad_token_id or 0, first)

    def _fill(self, shape: Shape) -> float:
        """Share of the places of the first step's forward passes that hold text."""
        lengths = np.diff(self._batch.examples.offsets)
        cut = micro_batches(lengths, shape.budget, 0, 1, shape.layout, shape.width)
        return lengths.sum() / sum(self._batch.micro(rows, shape).input_ids.numel() for rows in cut)

    def _batch_line(self) -> str:
        world, budget = self._accelerator.num_processes, self._settings.execution.micro_batch_tokens
        lengths = np.diff(self._batch.examples.offsets)
        many = len(micro_batches(lengths, budget, 0, world, "padded", 0))
        return (
            f"batch     {lengths.size} examples a step = {world} rank(s) x {many} micro-batch(es) of at most "
            f"{budget} tokens, {len(self._plan)} steps"
        )

    def _agreed(self, choice: Choice) -> Choice:
        """Rank 0's choice, on all ranks, with the model set up for it."""
        if self._accelerator.num_processes > 1:
            from accelerate.utils import broadcast_object_list

            (choice,) = broadcast_object_list([choice])
        for line in choice.reasons:
            log.info("%s", line)
        set_up(self._model, choice.shape, choice.compiled)
        return choice


def planned(choice: dict[str, Any]) -> Choice:
    """The choice that a checkpoint remembers: a resumed run goes on the way it began."""
    return Choice(Shape(**choice["shape"]), choice["compiled"], choice["reasons"])
