"""Train a model in one process with a given loss: optimizer, training loop, and batches of similar length.

Head warm-up, fine-tuning, the classifier selector and plug-ins use this loop; pretraining on
weighted text over several ranks is in :mod:`dana.train.loop`.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from operator import itemgetter
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from dana.core.errors import DivergenceError
from dana.train.half_weights import HalfWeights

B = TypeVar("B")


def make_optimizer(
    model: torch.nn.Module,
    learning_rate: float,
    weight_decay: float,
    betas: Sequence[float] = (0.9, 0.999),
    eps: float = 1e-8,
    rate_factors: Mapping[str, float] | None = None,
) -> torch.optim.Optimizer:
    """Make a fused AdamW over the parameters that require a gradient; vectors (biases, norms) have no weight decay.

    Each of its groups has a ``rate_factor``, by which the training multiplies the learning rate.

    Args:
        model: The model to train.
        learning_rate: Learning rate of the first step.
        weight_decay: Weight decay of matrices.
        betas: Decay rates of the running means of the gradient and of its square.
        eps: Added to the denominator.
        rate_factors: Rate factors of parameters, by the prefix of their names; others have 1.
    """
    members: dict[tuple[float, bool], list[torch.nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        rate_factor = 1.0
        for prefix, factor in (rate_factors or {}).items():
            if name.startswith(prefix):
                rate_factor = factor
        is_vector = parameter.ndim <= 1
        members.setdefault((rate_factor, is_vector), []).append(parameter)
    groups: list[dict[str, Any]] = []
    for (rate_factor, is_vector), parameters in sorted(members.items(), key=itemgetter(0)):
        groups.append(
            {
                "params": parameters,
                "weight_decay": 0.0 if is_vector else weight_decay,
                "rate_factor": rate_factor,
            }
        )
    return torch.optim.AdamW(
        groups, lr=learning_rate, betas=(betas[0], betas[1]), eps=eps, fused=True
    )


def train_supervised(
    optimizer: torch.optim.Optimizer,
    batches: Iterable[B],
    losses: Callable[[B], Iterable[Tensor]],
    rate: Callable[[int], float],
    name: str,
    clip: float | None = 1.0,
    half: HalfWeights | None = None,
) -> Iterator[float]:
    """Take an optimizer step per batch, and yield its loss. The caller puts the model into training mode.

    Args:
        optimizer: Holds the parameters; its learning rate is set before each step.
        batches: Inputs of `losses`, one per step.
        losses: Computes the loss of a batch as scalars that sum to it. Each is differentiated
            before the next is computed, so one graph is in memory at a time. A batch without any
            leaves the parameters unchanged.
        rate: Returns the learning rate of a step, from 0.
        name: Name of the training in an error.
        clip: Largest gradient norm; None for no clipping.
        half: The weights in bfloat16, of a model that computes in it, to cast them once a step.

    Raises:
        DivergenceError: If a loss is not finite; the parameters are those of the step before.
    """
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for step, batch in enumerate(batches):
        total = 0.0
        learning_rate = rate(step)
        with half.in_place() if half is not None else nullcontext():
            for part in losses(batch):
                part.backward()
                if half is not None:
                    half.collect()
                total += part.item()
        if not math.isfinite(total):
            raise DivergenceError(
                f"{name}, step {step + 1}: the loss is {total}; lower learning_rate={learning_rate}"
            )
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(parameters, clip)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate
        optimizer.step()
        optimizer.zero_grad()
        yield total


def batches_by_length(
    lengths: Sequence[int] | np.ndarray, size: int, random: np.random.Generator, together: int = 32
) -> list[np.ndarray]:
    """Shuffle the rows of an epoch into batches of similar length, so that little of a batch is padding.

    Args:
        lengths: Tokens of each row.
        size: Rows per batch.
        random: Shuffles the rows, and finally the batches.
        together: The shuffled rows of so many batches are sorted by length before they are cut.
    """
    lengths = np.asarray(lengths)
    order = random.permutation(lengths.size)
    batches = []
    for start in range(0, order.size, size * together):
        bucket = order[start : start + size * together]
        bucket = bucket[np.argsort(lengths[bucket], kind="stable")]
        for first in range(0, bucket.size, size):
            batches.append(bucket[first : first + size])
    return [batches[index] for index in random.permutation(len(batches))]
