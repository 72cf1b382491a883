"""Supervised training: batches and the loss of each in, updated parameters and the losses out; the batches' order.

Head warm-up, fine-tuning, the classifier selector and plug-ins that tune a model train by this loop; pretraining on
weighted text over several ranks is :mod:`dana.train.loop`.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from dana.core.errors import DanaError

B = TypeVar("B")


def make_optimizer(
    model: torch.nn.Module,
    learning_rate: float,
    weight_decay: float,
    betas: Sequence[float] = (0.9, 0.999),
    eps: float = 1e-8,
) -> torch.optim.Optimizer:
    """Fused AdamW over what requires a gradient; biases and norms (vectors) do not decay.

    Args:
        model: What to train.
        learning_rate: Of the first step.
        weight_decay: Share of a matrix's values lost a step, times the learning rate.
        betas: How much of the old a step keeps in the running mean of the gradient, and of its square.
        eps: Added to the root of the latter.
    """
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    matrices = [parameter for parameter in parameters if parameter.ndim > 1]
    vectors = [parameter for parameter in parameters if parameter.ndim <= 1]
    groups: list[dict[str, Any]] = [
        {"params": part, "weight_decay": decay} for part, decay in ((matrices, weight_decay), (vectors, 0.0)) if part
    ]
    return torch.optim.AdamW(groups, lr=learning_rate, betas=(betas[0], betas[1]), eps=eps, fused=True)


def train_supervised(
    optimizer: torch.optim.Optimizer,
    batches: Iterable[B],
    losses: Callable[[B], Iterable[Tensor]],
    rate: Callable[[int], float],
    name: str,
    clip: float | None = 1.0,
) -> Iterator[float]:
    """Take an optimizer step a batch, and yield its loss. The caller puts the model into training mode.

    Args:
        optimizer: Holds the parameters; its learning rate is set anew for each step.
        batches: Whatever `losses` understands, in order, made as they are needed.
        losses: The loss of a batch, as scalars that sum to it; each is differentiated before the next is computed, so
            that only one graph is in memory. A batch without any leaves the parameters as they are.
        rate: The learning rate of a step, from 0.
        name: Names the training in an error.
        clip: Largest norm of the gradient; None leaves it as it is.

    Raises:
        DanaError: If a loss is not finite; the parameters are those of the step before.
    """
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for step, batch in enumerate(batches):
        total, now = 0.0, rate(step)
        for part in losses(batch):
            part.backward()
            total += part.item()
        if not math.isfinite(total):
            raise DanaError(f"{name}, step {step + 1}: the loss is {total}; lower learning_rate={now}")
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(parameters, clip)
        for group in optimizer.param_groups:
            group["lr"] = now
        optimizer.step()
        optimizer.zero_grad()
        yield total


def batches_by_length(
    lengths: Sequence[int] | np.ndarray, size: int, random: np.random.Generator, together: int = 32
) -> list[np.ndarray]:
    """Rows of each step of an epoch, at random but alike in length, so that little of a batch is padding.

    Args:
        lengths: Tokens of each row.
        size: Rows a step.
        random: Shuffles the rows, and then the steps; between, rows of `together` steps are sorted by length.
        together: How many steps.
    """
    lengths, steps = np.asarray(lengths), []
    shuffled = random.permutation(lengths.size)
    for start in range(0, shuffled.size, size * together):
        bucket = shuffled[start : start + size * together]
        bucket = bucket[np.argsort(lengths[bucket], kind="stable")]
        steps += [bucket[at : at + size] for at in range(0, bucket.size, size)]
    return [steps[place] for place in random.permutation(len(steps))]
