"""Compute the learning rate of a step in closed form: a warm-up, then one of :data:`SCHEDULES`."""

import math

SCHEDULES = ("linear", "cosine", "1-sqrt", "inverse-sqrt", "constant", "wsd")


def learning_rate_at(step: int, steps: int, peak: float, warmup: float) -> float:
    """Return the rate of a step under linear decay to 0; `warmup` is a share of the steps. See :func:`rate_at`."""
    return rate_at(step, steps, peak, round(warmup * steps))


def rate_at(
    step: int,
    steps: int,
    peak: float,
    warmup_steps: int,
    schedule: str = "linear",
    floor: float = 0.0,
    cooldown: float = 0.2,
) -> float:
    """Return the learning rate of a step: linear warm-up to the peak, then one of six schedules; never 0.

    With step t, T steps, W warm-up steps, D = cooldown · T and floor f, the rate after the warm-up
    is the peak times

    - ``linear``: f + (1 - f) (T - t) / (T - W)
    - ``cosine``: f + (1 - f) (1 + cos(π (t - W) / (T - W))) / 2
    - ``1-sqrt``: f + (1 - f) (1 - √((t - W) / (T - W)))
    - ``inverse-sqrt``: f + (1 - f) √(W / (t + 1)), with W at least 1: it does not depend on T
    - ``constant``: 1
    - ``wsd`` (warm-up, stable, decay): 1 up to T - D, then f + (1 - f) (T - t) / D

    Args:
        step: Index of the step, from 0.
        steps: Number of steps of the run.
        peak: Highest rate.
        warmup_steps: Number of steps with a rising rate.
        schedule: One of :data:`SCHEDULES`.
        floor: Final rate, as a share of the peak.
        cooldown: Share of the steps in the decay of ``wsd``.

    References:
        Hu et al. 2024, MiniCPM, section 4 (wsd); Loshchilov and Hutter 2017, SGDR, equation 5 (cosine);
        Hägele et al. 2024, Scaling Laws and Compute-Optimal Training Beyond Fixed Training Durations, section 3
        (1-sqrt); Vaswani et al. 2017, Attention is all you need, equation 3 (inverse-sqrt).
    """
    if step < warmup_steps:
        return peak * (step + 1) / warmup_steps
    if schedule == "cosine":
        fraction = (1 + math.cos(math.pi * (step - warmup_steps) / (steps - warmup_steps))) / 2
    elif schedule == "1-sqrt":
        fraction = 1 - math.sqrt((step - warmup_steps) / (steps - warmup_steps))
    elif schedule == "inverse-sqrt":
        fraction = math.sqrt(max(warmup_steps, 1) / (step + 1))
    elif schedule == "linear":
        fraction = (steps - step) / (steps - warmup_steps)
    elif schedule == "wsd":
        falling = min(round(cooldown * steps), steps - warmup_steps)
        fraction = min(1.0, (steps - step) / falling) if falling else 1.0
    else:
        fraction = 1.0
    return peak * (floor + (1 - floor) * fraction)
