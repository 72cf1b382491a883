"""Memory probe: a model and the run's longest examples in, the largest micro-batch that every rank holds out.

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

from dana.core.device import seeded
from dana.core.errors import DanaError
from dana.core.logging import get_logger
from dana.core.rng import derive_seed
from dana.train.examples import Examples
from dana.train.execution import total
from dana.train.layout import BatchLayout, micro_batches
from dana.train.objectives.base import Collator
from dana.train.objectives.batch import StepBatch, micro_loss
from dana.train.settings import TrainSettings

log = get_logger(__name__)


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
    least = max(longest, shape.width if shape.static else 0)
    while total(accelerator, torch.tensor([float(not _holds(module, batch, shape, accelerator, seed))])).item():
        if shape.budget <= least:
            raise DanaError(
                f"out of memory with a micro-batch of one example of {longest} tokens: set max_tokens lower, "
                "take a smaller model, or free the device"
            )
        shape = replace(shape, budget=max(least, shape.budget // 2))
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
    budget = shape.budget + (0 if shape.static else max(int(batch.lengths.max()), shape.width))
    rows = micro_batches(batch.lengths, budget, 0, world, shape.layout, shape.width)[0]  # rank 0's first has most
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
