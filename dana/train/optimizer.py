"""AdamW and its learning rate."""

from typing import Any

import torch


def make_optimizer(model: torch.nn.Module, learning_rate: float, weight_decay: float) -> torch.optim.Optimizer:
    """Fused AdamW over what requires a gradient; biases and norms (vectors) do not decay."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups: list[dict[str, Any]] = [
        {
            "params": [parameter for parameter in parameters if parameter.ndim > 1],
            "weight_decay": weight_decay,
        },
        {"params": [parameter for parameter in parameters if parameter.ndim <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW([group for group in groups if group["params"]], lr=learning_rate, fused=True)


def learning_rate_at(step: int, steps: int, peak: float, warmup: float) -> float:
    """Linear warm-up to the peak, then linear decay towards 0; never 0 at a step that is taken.

    Args:
        step: From 0.
        steps: Steps of the run.
        peak: Highest rate.
        warmup: Share of the steps that rise.
    """
    rising = round(warmup * steps)
    if step < rising:
        return peak * (step + 1) / rising
    return peak * (steps - step) / (steps - rising)
