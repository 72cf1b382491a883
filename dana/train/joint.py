"""Train on a loss over the vectors of a whole step, the same for any cut into passes and ranks.

The vectors of all passes are collected from all ranks, every rank computes the loss of all of them,
and its gradient flows back into the passes of the rank. Where the passes of a step fit into the
memory of one, they keep their graphs until then. Where they do not, each pass runs twice: once for
its vectors, and once, with the same dropout, to carry the gradient of its vectors back.

References:
    Gao et al. 2021, Scaling Deep Contrastive Learning Batch Size under Memory Limited Setup, section 3.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dana.core.device import tensor_on
from dana.core.rng import derive_seed, torch_seed
from dana.train.layout import BatchLayout, micro_batches
from dana.train.objectives.batch import JointBatch, Pass, micro_loss, sum_by_kind
from dana.train.training_state import TrainingState


def joint_backward(
    state: TrainingState, batch: JointBatch, passes: Sequence[Pass], seed: int
) -> Tensor:
    """Run the forward and backward passes of this rank; collective.

    Args:
        state: From :func:`dana.train.loop.prepare`; gets the gradients.
        batch: All texts of the step.
        passes: This rank's, from :meth:`~dana.train.objectives.batch.StepBatch.passes`.
        seed: Seed of dropout in this step on this rank.

    Returns:
        Weighted loss, and sum of the losses of each kind; of the first rank, else 0: float64 of
        shape (1 + kinds,).
    """
    module = state.module
    accelerator = state.accelerator
    rank = accelerator.process_index
    world = accelerator.num_processes
    keeps_graphs = len(passes) == 1 or (
        world == 1 and _padded_tokens(batch, passes) <= state.shape.budget
    )

    def run_pass(number: int) -> Tensor:
        rows, micro = passes[number]
        with torch_seed(derive_seed(seed, "pass", number), accelerator.device):
            vectors: Tensor = module(**micro.to(accelerator.device).inputs)
        return vectors[: rows.size]

    with nullcontext() if keeps_graphs else torch.no_grad():
        parts = [run_pass(number) for number in range(len(passes))]
    rows = np.concatenate([one.rows for one in passes])
    own = torch.cat(parts)
    everything = _collect(own.detach(), rows, batch.lengths.size, accelerator)
    if keeps_graphs:
        own_rows = tensor_on(rows, own.device)
        vectors = everything.index_copy(0, own_rows, own)
    else:
        vectors = everything.requires_grad_()
    losses = batch.joint_losses(vectors)
    coefficients = tensor_on(batch.joint_coefficients().astype(np.float32), losses.device)
    accumulation = accelerator.gradient_accumulation_steps
    loss = micro_loss(losses, coefficients, batch.scale.total, world, accumulation)
    accelerator.sync_gradients = True
    if keeps_graphs:
        state.backward(loss)
    else:
        (gradient,) = torch.autograd.grad(loss, vectors)
        for number, one in enumerate(passes):
            accelerator.sync_gradients = number == len(passes) - 1
            with nullcontext() if accelerator.sync_gradients else accelerator.no_sync(module):
                part = run_pass(number)
                own_gradient = gradient[tensor_on(one.rows, gradient.device)]
                state.backward((part * own_gradient).sum())
    sizes = list(batch.loss_counts.values())
    sums = sum_by_kind(losses.detach(), coefficients, sizes, batch.scale.total)
    return sums if rank == 0 else torch.zeros_like(sums)


def collect_vectors(
    module: torch.nn.Module,
    batch: JointBatch,
    shape: BatchLayout,
    accelerator: Any,
    check_in: Callable[[], None],
) -> Tensor:
    """Compute the vectors of a step without gradients, the same on every rank; collective.

    Args:
        module: A prepared module, in evaluation mode.
        batch: All texts of the step.
        shape: How micro-batches are laid out.
        accelerator: From :func:`dana.train.execution.make_accelerator`.
        check_in: Called before every forward pass, on all ranks together.

    Returns:
        float32 of shape (texts, width).
    """
    micros = micro_batches(
        batch.lengths, shape, accelerator.process_index, accelerator.num_processes
    )
    parts = []
    for rows in micros:
        check_in()
        inputs = batch.micro(rows, shape).to(accelerator.device).inputs
        parts.append(module(**inputs)[: rows.size])
    return _collect(torch.cat(parts), np.concatenate(micros), batch.lengths.size, accelerator)


def _collect(own: Tensor, rows: np.ndarray, count: int, accelerator: Any) -> Tensor:
    """Collect the vectors of all ranks, shape (count, width), from those of this rank's rows."""
    everything = own.new_zeros(count, own.shape[1])
    everything[tensor_on(rows, own.device)] = own
    collected: Tensor = accelerator.reduce(everything)
    return collected


def _padded_tokens(batch: JointBatch, passes: Sequence[Pass]) -> int:
    """Count the tokens of all passes, padding included."""
    return sum(int(batch.lengths[one.rows].max()) * one.rows.size for one in passes)
