"""Learning-rate schedules in closed form: a step and the length of the run in, the rate out."""

import math

SCHEDULES = ("linear", "cosine", "constant", "wsd")


def learning_rate_at(step: int, steps: int, peak: float, warmup: float) -> float:
    """The rate at a step of a linear schedule to 0 whose rise is a share of the steps; see :func:`rate_at`."""
    return rate_at(step, steps, peak, round(warmup * steps))


def rate_at(
    step: int,
    steps: int,
    peak: float,
    rising: int,
    schedule: str = "linear",
    floor: float = 0.0,
    cooldown: float = 0.2,
) -> float:
    """The rate at a step: a linear rise to the peak, then one of four ways on; never 0 at a step that is taken.

    With t the step, T the steps, W the rising ones, D = cooldown · T and f the floor, behind the rise the rate is the
    peak times

    - ``linear``: f + (1 - f) (T - t) / (T - W)
    - ``cosine``: f + (1 - f) (1 + cos(π (t - W) / (T - W))) / 2
    - ``constant``: 1
    - ``wsd`` (warm-up, stable, decay): 1 up to T - D, then f + (1 - f) (T - t) / D

    Args:
        step: From 0.
        steps: Steps of the run.
        peak: Highest rate.
        rising: How many steps rise.
        schedule: One of :data:`SCHEDULES`.
        floor: Where the rate falls to, as a share of the peak.
        cooldown: Share of the steps that fall under ``wsd``.

    References:
        Hu et al. 2024, MiniCPM, section 4 (wsd); Loshchilov and Hutter 2017, SGDR, equation 5 (cosine).
    """
    if step < rising:  # all of them in a run that is shorter: what it has of the rise is that of any longer run
        return peak * (step + 1) / rising
    if schedule == "cosine":
        left = (1 + math.cos(math.pi * (step - rising) / (steps - rising))) / 2
    elif schedule == "linear":
        left = (steps - step) / (steps - rising)
    else:
        falling = falling_steps(steps, rising, schedule, cooldown)
        left = min(1.0, (steps - step) / falling) if falling else 1.0
    return peak * (floor + (1 - floor) * left)


def falling_steps(steps: int, rising: int, schedule: str, cooldown: float) -> int:
    """How many of the last steps have a rate below the peak that depends on where the end is."""
    left = max(0, steps - rising)
    return {"wsd": min(round(cooldown * steps), left), "constant": 0}.get(schedule, left)
