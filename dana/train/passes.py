"""Choose how many tokens go through a model in one pass: on a GPU as many as its memory holds.

A GPU computes a pass of a few thousand tokens no sooner than one of many, so the passes are made as
large as they fit, up to :data:`MOST`. A pass of the longest examples is tried with the memory set
aside that training takes later. The number is kept in each checkpoint: a run that is resumed has
the same passes, as its dropout depends on the cut.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from dana.core.logging import messages
from dana.core.rng import torch_seed
from dana.models.folder import lacks_memory
from dana.train.examples import ExampleSet
from dana.train.execution import Precision
from dana.train.half_weights import saves_casts
from dana.train.layout import BatchLayout, micro_batches
from dana.train.objectives.base import Collator
from dana.train.objectives.batch import StepBatch
from dana.train.plan import Plan
from dana.train.settings import AUTO, TrainSettings
from dana.train.trial import trying

DEFAULT = 8192  # of a CPU, and where the launch cuts the model up
MOST = 65_536  # larger passes keep no GPU busier, of any model that people adapt; and one text more
LEAST = 1024
MOMENTS = 8  # bytes that AdamW keeps of each parameter from the first step on, two float32 numbers
HALVES = 8  # and half weights: they, their gradients, and these in float32
SPARE = 0.1  # of the device's memory, left for what is not in the trial: fragments, evaluations


def default_tokens(settings: TrainSettings) -> int:
    """Return the tokens of a pass where nothing is tried: those of the settings, or :data:`DEFAULT`."""
    tokens = settings.execution.micro_batch_tokens
    return tokens if isinstance(tokens, int) else max(DEFAULT, settings.max_tokens)


def is_tried(accelerator: Any) -> bool:
    """Return whether passes are tried on a device: on GPUs, unless the launch cuts the model up."""
    is_whole = accelerator.distributed_type.value not in ("DEEPSPEED", "FSDP")
    return bool(is_whole and accelerator.device.type == "cuda")


@dataclass(frozen=True)
class Trial:
    """What passes of a run are tried with, before Accelerate wraps the model.

    Attributes:
        model: The model with its heads and its attention, on its device.
        examples: Training examples.
        settings: Settings of the run.
        accelerator: Device and ranks.
        precision: Precision of the run.
        collator: Makes training batches.
    """

    model: Any
    examples: ExampleSet
    settings: TrainSettings
    accelerator: Any
    precision: Precision
    collator: Collator

    def longest_step(self) -> StepBatch:
        """Make a step of the longest examples, as many as the first step has."""
        count = Plan.from_settings(self.examples, self.settings)[0].rows.size
        rows = np.argsort(-self.examples.lengths_in(0), kind="stable")[:count]
        return self.collator.step_batch(self.examples.take(rows), 0, self.settings.denominator)

    def run_pass(self, batch: StepBatch, shape: BatchLayout) -> None:
        """Run the first micro-batch of a step forward and backward.

        The model, its gradients and the random generators are afterwards as before.
        """
        device = self.accelerator.device
        rows = micro_batches(batch.lengths, shape, 0, self.accelerator.num_processes)[0]
        module = trial_module(self.model, self.settings, shape.bf16, device)
        try:
            with trying(self.model, self.precision) as autocast:
                micro = batch.micro(rows, shape).to(device)
                with autocast:
                    outputs = batch.outputs(module, micro)
                outputs.float().sum().backward()
        finally:
            _release(device)


def trial_module(
    model: Any, settings: TrainSettings, bf16: bool, device: torch.device
) -> torch.nn.Module:
    """Make the module of the objective for a trial; a new head of it is not that of the run."""
    with messages(quiet=True), torch_seed(0):
        module: torch.nn.Module = settings.make_objective().module(model, bf16).to(device)
        return module


def choose_tokens(trial: Trial, shape: BatchLayout, known: int | None = None) -> tuple[int, str]:
    """Choose the tokens of a pass, the same on every rank: the least of what each can hold. Collective.

    Args:
        trial: What passes are tried with.
        shape: Layout of the passes; its budget is not used.
        known: What a run that is resumed chose before; None for a new one.

    Returns:
        The tokens, and where they come from.
    """
    settings = trial.settings
    accelerator = trial.accelerator
    if settings.execution.micro_batch_tokens != AUTO:
        return default_tokens(settings), "set by execution.micro_batch_tokens"
    if not is_tried(accelerator):
        return default_tokens(settings), f"default of {accelerator.device.type}"
    if known is not None:
        return known, "of this run before it stopped"
    batch = trial.longest_step()
    least = max(LEAST, settings.max_tokens)
    tokens = MOST + settings.max_tokens  # a step of so many tokens may hold a part of one more text
    saves = saves_casts(trial.model, accelerator, shape.bf16)
    spare = MOMENTS + HALVES if saves else MOMENTS
    with _set_aside(trial.model, spare, accelerator.device):
        while tokens > least and not _fits(trial, batch, replace(shape, budget=tokens)):
            tokens //= 2
    tokens = max(tokens, least)
    if accelerator.num_processes > 1:
        own = torch.tensor([tokens], device=accelerator.device)
        tokens = int(accelerator.gather(own).min())
    return tokens, "tried on this device"


@contextmanager
def _set_aside(model: torch.nn.Module, spare: int, device: torch.device) -> Iterator[None]:
    """Hold the memory that a training takes after its first passes, for as long as the block lasts.

    Args:
        model: The model that is trained.
        spare: Bytes a parameter.
        device: Its device.
    """
    trained = sum(value.numel() for value in model.parameters() if value.requires_grad)
    sizes = [spare * trained]
    if device.type == "cuda":
        _, total = torch.cuda.mem_get_info(device)
        sizes.append(int(SPARE * total))
    held: list[torch.Tensor] = []
    try:
        for size in sizes:
            held.append(torch.empty(size, dtype=torch.uint8, device=device))
    except RuntimeError as error:  # then no pass fits, and the first step says it
        if not lacks_memory(error):
            raise
    try:
        yield
    finally:
        held.clear()
        _release(device)
        if device.type == "cuda":  # the run reports its own
            torch.cuda.reset_peak_memory_stats(device)


def _fits(trial: Trial, batch: StepBatch, shape: BatchLayout) -> bool:
    """Return whether a forward and a backward pass fit into memory."""
    try:
        trial.run_pass(batch, shape)
    except RuntimeError as error:
        if not lacks_memory(error):
            raise
        return False
    return True


def _release(device: torch.device) -> None:
    """Give unused memory back to the device, so that the next trial does not find it in pieces."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
