"""Execution planner: model, text and device in; layout, precision and size of micro-batches out, with a reason each.

What it chooses changes speed and memory; the step's loss is the same to rounding. Each choice is printed, is kept in
the manifest, and has an override in :class:`dana.train.settings.Execution`.

A run cannot go on where memory ends in the middle of a step: some gradients are summed already, and other ranks
wait in a collective operation. So the largest micro-batch of the run is tried beforehand on the model that is not
wrapped yet, where no rank waits for another, and the ranks agree on the smallest of what they can hold.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from dana.core.errors import ConfigError, DanaError
from dana.core.launch import first
from dana.core.logging import get_logger
from dana.core.rng import derive_seed, seeded
from dana.models.varlen import NAME, has_kernel, register
from dana.train.examples import Examples
from dana.train.execution import Precision, total
from dana.train.layout import BatchLayout, micro_batches
from dana.train.objectives.base import Collator
from dana.train.objectives.batch import StepBatch, micro_loss
from dana.train.plan import Plan
from dana.train.settings import TrainSettings

log = get_logger(__name__)


def choose_execution(
    model: Any, examples: Examples, collator: Collator, settings: TrainSettings, accelerator: Any
) -> tuple[BatchLayout, list[str]]:
    """Decide layout, precision and size, and set the model up for it; every rank decides what rank 0 does.

    Args:
        model: A model with the objective's heads, not wrapped yet.
        examples: What it will be trained on.
        collator: Makes training batches.
        settings: The run.
        accelerator: Device, precision and ranks.

    Returns:
        Layout and size of micro-batches, and a line for each decision.

    Raises:
        ConfigError: If a layout was asked for that the model cannot have.
        DanaError: If memory does not hold one example.
    """
    model, precision, asked = model.to(accelerator.device), Precision.of(accelerator), settings.execution
    layout, why = first(lambda: _layout(model, settings, precision))
    shape = BatchLayout.of(model.config, asked.micro_batch_tokens, layout, precision.is_ours)
    if layout == "unpadded":
        register()
        model.set_attn_implementation(NAME)
    plan = Plan.of(examples, settings)
    lengths, world = examples.lengths[plan[0].rows], accelerator.num_processes
    reasons = [
        f"batch     {lengths.size} examples a step = {world} rank(s) x {len(micro_batches(lengths, shape, 0, world))} "
        f"micro-batch(es) of at most {shape.budget} tokens, {len(plan)} steps",
        f"precision {precision.name}: {precision.reason}",
        f"layout    {layout}: {why}",
    ]
    module = settings.make_objective().module(model, shape.bf16)
    shape = largest_micro_batch(module, examples, collator, settings, accelerator, shape)
    if shape.budget < asked.micro_batch_tokens:
        whole = f"{asked.micro_batch_tokens} do not fit on every rank"
        reasons.append(f"memory    micro-batches of {shape.budget} tokens: {whole}")
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
        if precision.name != "no" and has_kernel(precision.device):
            return "unpadded", "this device has an attention kernel for rows without padding"
        return "padded", "this device has no attention kernel for rows without padding"
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


def ran_out(error: BaseException) -> bool:
    """Whether an error says that a device has no memory left, in the words of CUDA, cuBLAS or Metal."""
    told = isinstance(error, RuntimeError) and ("out of memory" in str(error) or "ALLOC_FAILED" in str(error))
    return told or isinstance(error, torch.OutOfMemoryError)


def can_run_out(device: torch.device) -> bool:
    """Whether too large a micro-batch is an error there: a CPU swaps, or its process is killed."""
    return device.type != "cpu"


@contextmanager
def no_memory_to_spare(what: str, budget: int) -> Iterator[None]:
    """Turn an out-of-memory error inside into one line that names the setting; other processes may use the device too.

    Raises:
        DanaError: On the rank that it happens to; the launcher ends the others.
    """
    try:
        yield
    except (torch.OutOfMemoryError, RuntimeError) as error:
        if not ran_out(error):
            raise
        raise DanaError(
            f"{what}: out of memory with execution.micro_batch_tokens={budget}; set it lower, and the same command "
            "goes on from the last checkpoint"
        ) from error


def largest_micro_batch(
    module: Any,
    examples: Examples,
    collator: Collator,
    settings: TrainSettings,
    accelerator: Any,
    shape: BatchLayout,
) -> BatchLayout:
    """A shape, its budget halved until a pass forward and back fits on every rank; collective.

    Args:
        module: From :meth:`dana.train.objectives.base.Objective.module`, not wrapped yet, on its device.
        examples: Of the run; the largest step has as many of the longest as a step can have.
        collator: Makes training batches.
        settings: The run.
        accelerator: Device, precision and ranks.
        shape: What is asked for.

    Raises:
        DanaError: If not even one example fits.
    """
    sharded = any(hasattr(value, "ds_id") for value in module.parameters())
    if not can_run_out(accelerator.device) or sharded:  # ZeRO-3 may have cut the model up already
        return shape
    batch, seed = largest_batch(examples, collator, settings), derive_seed(settings.seed, "probe")
    longest = int(batch.lengths.max())
    while total(accelerator, torch.tensor([float(not _holds(module, batch, shape, accelerator, seed))])).item():
        if shape.budget <= longest:
            raise DanaError(
                f"out of memory with a micro-batch of one example of {longest} tokens: set max_tokens lower, "
                "take a smaller model, or free the device"
            )
        shape = replace(shape, budget=max(longest, shape.budget // 2))
        log.warning("memory    a micro-batch of %d tokens is tried, the batch stays the same", shape.budget)
    return shape


def largest_batch(examples: Examples, collator: Collator, settings: TrainSettings) -> StepBatch:
    """The longest examples that could meet in one step, with as much to predict as any step has."""
    tokens = settings.batch_tokens
    many = settings.batch_size if tokens is None else tokens // int(examples.lengths.max()) + 1
    rows = np.sort(np.argsort(-examples.lengths, kind="stable")[:many])
    return collator.largest().step_batch(examples.take(rows), 0, "token_count")


def _holds(module: Any, batch: StepBatch, shape: BatchLayout, accelerator: Any, seed: int) -> bool:
    """Whether this rank holds one pass, besides the two moments of Adam and the gradients in transit."""
    world = accelerator.num_processes
    # One row more than the longest examples fill: shorter ones may fill the budget to the last token.
    fuller = replace(shape, budget=shape.budget + int(batch.lengths.max()))
    rows = micro_batches(batch.lengths, fuller, 0, world)[0]  # rank 0's first has most
    was_training = module.training
    try:
        room = [torch.empty_like(value) for value in module.parameters() for _ in range(2 + (world > 1))]
        module.train()
        micro = batch.micro(rows, shape).to(accelerator.device)
        with seeded(seed, accelerator.device), accelerator.autocast():
            losses = micro.losses(module)
        micro_loss(losses, micro.coefficients, batch.scale.total or 1.0).backward()
        del room
    except (torch.OutOfMemoryError, RuntimeError) as error:
        if not ran_out(error):
            raise
        return False
    finally:
        module.zero_grad(set_to_none=True)
        module.train(was_training)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
    return True
