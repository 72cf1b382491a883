"""Execution planner: model, text and device in, the fastest layout, precision and compilation out, by measuring.

It measures before the first step. What it chooses changes speed and memory; the step's loss is the same to rounding.
Each choice is printed with its reason, is kept in the manifest, and has an override in
:class:`dana.train.settings.Execution`.
"""

import time
from dataclasses import dataclass, replace
from typing import Any

import torch

from dana.core.launch import first
from dana.core.logging import get_logger
from dana.train.examples import Examples
from dana.train.execution import Precision
from dana.train.layout import BatchLayout, micro_batches
from dana.train.layout_check import LayoutCheck
from dana.train.memory import Probe, ran_out
from dana.train.model_setup import attending, set_compiled, set_up
from dana.train.objectives.base import Collator
from dana.train.objectives.batch import micro_loss
from dana.train.plan import Plan
from dana.train.settings import TrainSettings

log = get_logger(__name__)

SHORT = 500  # micro-batches a rank: of a shorter run, trying layouts on eight of them is more than 2 %
WORTH = 1.05  # another layout must be so much faster than padded rows
MEASURING = 0.02  # share of a run that trying to compile it may cost
FIRST = 1024  # tokens that tell roughly how fast a model is
COMPILE_SECONDS = 20.0, 8.0  # torch.compile, forward and back, on two cores: at all, and for each layer


@dataclass(frozen=True)
class Choice:
    """How the run will be executed.

    Attributes:
        shape: Layout and size of micro-batches.
        compiled: Whether the encoder is compiled.
        reasons: One line for each decision.
    """

    shape: BatchLayout
    compiled: bool
    reasons: list[str]


class Planner:
    """Tries layouts on a model that is not wrapped yet.

    Args:
        model: A model with the objective's heads; only its device changes.
        examples: What it will be trained on.
        collator: Makes training batches.
        settings: The run.
        accelerator: Device, precision and ranks.
    """

    def __init__(
        self, model: Any, examples: Examples, collator: Collator, settings: TrainSettings, accelerator: Any
    ) -> None:
        self._model, self._accelerator, self._settings = model.to(accelerator.device), accelerator, settings
        objective = settings.make_objective()
        self._layouts = objective.layouts
        self._module: Any = objective.module(model)
        self._plan = Plan.of(examples, settings)
        first = self._plan[0]
        self._batch = collator.step_batch(examples.take(first.rows), first.epochs, "token_count")
        self._test = LayoutCheck(self._module, examples, collator, settings, accelerator.device)
        self._probe = Probe.of(self._module, examples, collator, settings, accelerator)

    def choose(self) -> Choice:
        """Decide layout, precision, compilation and size; every rank decides what rank 0 does.

        Raises:
            ConfigError: If a layout was asked for that gives this model other losses.
            DanaError: If memory does not hold one example.
        """
        execution, reasons = self._settings.execution, [self._batch_line()]
        precision = Precision.of(self._accelerator)
        reasons.append(f"precision {precision.name}: {precision.reason}")
        bf16 = precision.is_ours
        if execution.layout != "auto" or execution.compile == "on" or len(self._layouts) == 1:
            shape, compiled = self._as_asked(bf16, reasons), execution.compile == "on"
        else:
            shape, compiled = self._measured(bf16, reasons)
        return self._agreed(Choice(shape, compiled, reasons))

    def again(self, before: Choice) -> Choice:
        """The choice of a run that goes on: as it began, but for what is asked otherwise now.

        The size of a micro-batch is what is asked now, if memory holds it: a run that ran out goes on smaller.

        Raises:
            ConfigError: If a layout is asked for that gives this model other losses.
        """
        execution = self._settings.execution
        wanted = "packed" if execution.compile == "on" else before.shape.layout
        layout = wanted if execution.layout == "auto" else execution.layout
        compiled = execution.compile == "on" or (
            execution.compile == "auto" and before.compiled and layout == before.shape.layout
        )
        if layout != before.shape.layout:
            self._test.refuse_if_different(layout)
        bf16 = Precision.of(self._accelerator).is_ours
        shape = replace(self._shape(layout, static=compiled), bf16=bf16)
        changed = (layout, compiled) != (before.shape.layout, before.compiled)
        reasons = [*before.reasons, *([f"resumed   {layout}, compile {compiled}: as asked now"] if changed else [])]
        return self._agreed(Choice(shape, compiled, reasons))

    def _as_asked(self, bf16: bool, reasons: list[str]) -> BatchLayout:
        execution = self._settings.execution
        static = execution.compile == "on"
        first = "packed" if static else self._layouts[0]
        layout = first if execution.layout == "auto" else execution.layout
        self._test.refuse_if_different(layout)
        shape = replace(self._shape(layout, static), bf16=bf16)
        why = f"the only one of objective {self._settings.objective}" if len(self._layouts) == 1 else "as asked"
        reasons.append(f"layout    {layout}: {why}, {self._fill(shape):.0%} of its places are text")
        return shape

    def _measured(self, bf16: bool, reasons: list[str]) -> tuple[BatchLayout, bool]:
        padded = replace(self._shape("padded"), bf16=bf16)
        micros = self._plan.tokens / padded.budget / self._accelerator.num_processes
        if micros < SHORT or any(hasattr(value, "ds_id") for value in self._model.parameters()):
            short = f"the run is {micros:.0f} micro-batches long, too short to measure for"
            reasons.append(f"layout    padded, {self._fill(padded):.0%} text: {short}")
            return padded, False
        padded = self._probe.largest(padded)
        self._announce(padded)
        speed, shape = self._fastest(padded, reasons)
        if self._settings.execution.compile == "auto":
            return self._try_compiling(speed, shape, reasons)
        return shape, False

    def _announce(self, padded: BatchLayout) -> None:
        """Log what will be tried, and how long that and the run take, estimated by a first small pass."""
        rate = max(self._speed(replace(padded, budget=min(padded.budget, FIRST))), 1e-9)
        left = self._plan.tokens / rate / self._accelerator.num_processes
        takes = 2 * len(self._layouts) * min(padded.budget, self._batch.examples.tokens.size) / rate
        what = ", ".join(self._layouts)
        log.info("planner   tries %s rows: about %.0f s, of about %.0f minutes to train", what, takes, left / 60)

    def _fastest(self, padded: BatchLayout, reasons: list[str]) -> tuple[float, BatchLayout]:
        speeds, shapes, lines = {}, {}, []
        for layout in self._layouts:
            problem = self._test.problem(layout)
            if problem:
                lines.append(f"{layout} refused ({problem})")
                continue
            shapes[layout] = replace(padded, layout=layout)
            speeds[layout] = self._speed(shapes[layout])
            lines.append(f"{layout} {speeds[layout]:,.0f} tokens/s ({self._fill(shapes[layout]):.0%} text)")
        best = max(speeds, key=lambda layout: speeds[layout])
        if speeds[best] < WORTH * speeds["padded"]:
            best = "padded"
        reasons.append(f"layout    {best}: {', '.join(lines)}")
        return speeds[best], shapes[best]

    def _try_compiling(self, eager: float, shape: BatchLayout, reasons: list[str]) -> tuple[BatchLayout, bool]:
        left = self._plan.tokens / eager / self._accelerator.num_processes
        at_all, a_layer = COMPILE_SECONDS
        takes = at_all + a_layer * getattr(self._model.config, "num_hidden_layers", 12)
        problem = self._test.problem("packed") if "packed" in self._layouts else "not of this objective"
        run = f"about {left / 60:.0f} minutes to train"
        if problem or takes > MEASURING * left:
            why = f"needs packed rows, {problem}" if problem else f"{run}, trying takes about {takes:.0f} s"
            reasons.append(f"compile   off: {why}")
            return shape, False
        log.info("planner   tries torch.compile: about %.0f s, of %s", takes, run)
        packed, started = replace(shape, layout="packed", static=True), time.monotonic()
        try:
            set_compiled(self._model, True)
            speed = self._speed(packed)
        except Exception as error:  # no compiler, or one that cannot
            reasons.append(f"compile   off: {str(error).partition(chr(10))[0][:120]}")
            set_compiled(self._model, False)
            return shape, False
        spent = time.monotonic() - started
        pays = left > spent + left * eager / max(speed, 1e-9) and speed > WORTH * eager
        verdict = f"{speed:,.0f} tokens/s compiled (after {spent:.0f} s) against {eager:,.0f}"
        reasons.append(f"compile   {'on' if pays else 'off'}: {verdict}")
        if not pays:
            set_compiled(self._model, False)
        return (packed, True) if pays else (shape, False)

    def _speed(self, shape: BatchLayout) -> float:
        """Real tokens a second of a full micro-batch, forward and back, the second time; 0 if it does not fit."""
        lengths = self._batch.lengths
        rows = micro_batches(lengths, shape.budget, 0, 1, shape.layout, shape.width)[0]
        tokens, seconds = int(sum(lengths[row].sum() for row in rows)), float("inf")
        self._module.train()
        self._module.bf16 = shape.bf16
        try:
            micro = self._batch.micro(rows, shape).to(self._accelerator.device)
            with attending(self._model, shape.layout):
                for _ in range(2):
                    started = time.monotonic()
                    with self._accelerator.autocast():
                        losses = micro.losses(self._module)
                    micro_loss(losses, micro.coefficients, self._batch.scale.total or 1.0).backward()
                    if self._accelerator.device.type == "cuda":
                        torch.cuda.synchronize()
                    seconds = time.monotonic() - started
        except (torch.OutOfMemoryError, RuntimeError) as error:
            if not ran_out(error):
                raise
            seconds = float("inf")
        finally:
            self._model.zero_grad(set_to_none=True)
            self._module.bf16 = False
        return tokens / seconds

    def _shape(self, layout: str, static: bool = False) -> BatchLayout:
        return self._settings.batch_layout(self._model.config, layout, static)

    def _fill(self, shape: BatchLayout) -> float:
        """Share of the places of the first step's forward passes that hold text."""
        lengths = self._batch.lengths
        cut = micro_batches(lengths, shape.budget, 0, 1, shape.layout, shape.width)
        return lengths.sum() / sum(self._batch.micro(rows, shape).places for rows in cut)

    def _batch_line(self) -> str:
        world, budget = self._accelerator.num_processes, self._settings.execution.micro_batch_tokens
        lengths = self._batch.lengths
        many = len(micro_batches(lengths, budget, 0, world, "padded", 0))
        return (
            f"batch     {lengths.size} examples a step = {world} rank(s) x {many} micro-batch(es) of at most "
            f"{budget} tokens, {len(self._plan)} steps"
        )

    def _agreed(self, choice: Choice) -> Choice:
        """Rank 0's choice, on all ranks, in a size that all of them hold, with the model set up for it."""
        choice = first(lambda: choice)
        set_up(self._model, choice.shape, choice.compiled)
        shape = self._probe.largest(choice.shape)
        asked, reasons = self._settings.execution.micro_batch_tokens, choice.reasons
        if shape.budget < asked:
            reasons = [*reasons, f"memory    micro-batches of {shape.budget} tokens: {asked} do not fit on every rank"]
        for line in reasons:
            log.info("%s", line)
        return Choice(shape, choice.compiled, reasons)


def planned(choice: dict[str, Any]) -> Choice:
    """The choice that a checkpoint remembers."""
    return Choice(BatchLayout(**choice["shape"]), choice["compiled"], choice["reasons"])
