"""Execution planner: model, text and device in; layout and precision of micro-batches out, with a reason each.

What it chooses changes speed and memory; the step's loss is the same to rounding. Each choice is printed, is kept in
the manifest, and has an override in :class:`dana.train.settings.Execution`.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from dana.core.errors import ConfigError, DanaError
from dana.core.launch import first
from dana.core.logging import get_logger
from dana.models.varlen import NAME, has_kernel, register
from dana.train.examples import Examples
from dana.train.execution import Precision
from dana.train.layout import BatchLayout, micro_batches
from dana.train.plan import Plan
from dana.train.settings import TrainSettings

log = get_logger(__name__)


def choose_execution(
    model: Any, examples: Examples, settings: TrainSettings, accelerator: Any
) -> tuple[BatchLayout, list[str]]:
    """Decide layout and precision, and set the model up for it; every rank decides what rank 0 does.

    Args:
        model: A model with the objective's heads, not wrapped yet.
        examples: What it will be trained on.
        settings: The run.
        accelerator: Device, precision and ranks.

    Returns:
        Layout and size of micro-batches, and a line for each decision.

    Raises:
        ConfigError: If a layout was asked for that the model cannot have.
    """
    model, precision, asked = model.to(accelerator.device), Precision.of(accelerator), settings.execution
    ours = precision.name == "bf16" and not precision.launched  # Accelerate does not see to it
    source = "as the launch says (no = fp32)" if precision.launched else f"what this {precision.device.type} device has"
    layout, why = first(lambda: _layout(model, settings, precision))
    shape = BatchLayout.of(model.config, asked.micro_batch_tokens, layout, ours)
    if layout == "unpadded":
        register()
        model.set_attn_implementation(NAME)
    plan = Plan.of(examples, settings)
    lengths, world = examples.lengths[plan[0].rows], accelerator.num_processes
    reasons = [
        f"batch     {lengths.size} examples a step = {world} rank(s) x {len(micro_batches(lengths, shape, 0, world))} "
        f"micro-batch(es) of at most {shape.budget} tokens, {len(plan)} steps",
        f"precision {precision.name}: {source}",
        f"layout    {layout}: {why}",
    ]
    for line in reasons:
        log.info("%s", line)
    return shape, reasons


def _layout(model: Any, settings: TrainSettings, precision: Precision) -> tuple[str, str]:
    """The layout of a run, and why it is that one.

    Unpadded rows keep examples apart by position ids and by the attention implementation; which architectures leave
    both to their caller, transformers says by the support of flash attention. Not MPNet and DeBERTa, whose attention
    computes distances.

    Raises:
        ConfigError: If one was asked for that the model cannot have.
    """
    layout, layouts = settings.execution.layout, settings.make_objective().layouts
    kind, able = model.config.model_type, getattr(model, "_supports_flash_attn", False)
    if layout == "auto":
        if "unpadded" not in layouts:
            return layouts[0], f"the first of objective {settings.objective}"
        if not able:
            return "padded", f"the only one for {kind}"
        kernel = precision.name != "no" and has_kernel(precision.device)
        why = f"this device has {'an' if kernel else 'no'} attention kernel for rows without padding"
        return ("unpadded" if kernel else "padded"), why
    if layout != "padded" and not able:
        raise ConfigError(
            f"execution.layout={layout} is not for {kind}: its attention cannot be told where an example begins; "
            "execution.layout=padded always is"
        )
    return layout, "as asked"


def checkpoint_gradients(model: Any) -> None:
    """Make a model compute its layers again in the backward pass, with the same dropout: the same gradients.

    Raises:
        ConfigError: If it cannot.
    """
    enable = getattr(model, "activation_checkpointing_enable", model.gradient_checkpointing_enable)  # its later name
    try:
        enable({"use_reentrant": False})
    except ValueError as error:
        raise ConfigError(f"execution.gradient_checkpointing=true: {model.config.model_type} cannot") from error


@contextmanager
def no_memory_to_spare(what: str, budget: int) -> Iterator[None]:
    """Turn an out-of-memory error inside, of CUDA, cuBLAS or Metal, into one line that names the setting.

    Raises:
        DanaError: On the rank that it happens to; the launcher ends the others.
    """
    try:
        yield
    except RuntimeError as error:
        if not (isinstance(error, torch.OutOfMemoryError) or re.search("out of memory|ALLOC_FAILED", str(error))):
            raise
        raise DanaError(
            f"{what}: out of memory with execution.micro_batch_tokens={budget}; set it lower, and the same command "
            "goes on from the last checkpoint"
        ) from error
