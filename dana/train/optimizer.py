"""AdamW; its learning rate is :mod:`dana.train.schedule`."""

from collections.abc import Sequence
from typing import Any

import torch


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
    groups: list[dict[str, Any]] = [
        {
            "params": [parameter for parameter in parameters if parameter.ndim > 1],
            "weight_decay": weight_decay,
        },
        {"params": [parameter for parameter in parameters if parameter.ndim <= 1], "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    return torch.optim.AdamW(groups, lr=learning_rate, betas=(betas[0], betas[1]), eps=eps, fused=True)
