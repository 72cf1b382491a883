"""Cost of a plug-in or PyOD detector: timed on a few rows, extrapolated, and logged before a long fit."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import log2
from typing import Any

import torch

from dana.core.logging import get_logger
from dana.core.registry import DETECTORS
from dana.detectors.base import background_units, fit_detector
from dana.detectors.build import as_detector
from dana.detectors.pyod import Convention, PyOD

log = get_logger(__name__)

TRIED = (128, 256)  # rows of the two trial fits
SCORED = (8, 40)  # rows of the two trial scorings after each; their difference is timed
REPEATED = 2  # each trial; the shorter counts
WARN_FROM = 20.0  # seconds


@dataclass(frozen=True)
class Cost:
    """Seconds, on this machine.

    Attributes:
        fit: Of one fit.
        row: Of scoring one row.
    """

    fit: float
    row: float


def announce(spec: str, rows: int, dims: int, fits: int, scored: int) -> Cost | None:
    """Log the expected time of a detector that is not built in, from 20 s on; None for a built-in one.

    Args:
        spec: The detector's.
        rows: It will be fitted on.
        dims: Of a row.
        fits: How often it will be fitted.
        scored: Rows to score after each fit.
    """
    if is_known(spec) or rows <= TRIED[-1]:
        return None
    cost = measure(as_detector(DETECTORS.create(spec)), rows, dims)
    whole = fits * (cost.fit + scored * cost.row)
    if whole > WARN_FROM:
        log.warning(
            "detector  %s is slow: about %.0f s a fit and %.2g s a row to score, %.0f min here; a million rows: %.1f h",
            spec,
            cost.fit,
            cost.row,
            whole / 60,
            cost.row * 1e6 / 3600,
        )
    return cost


def is_known(spec: str) -> bool:
    """Whether the spec names one of dana's own detectors, which need no warning."""
    detector = as_detector(DETECTORS.create(spec))
    return type(detector).__module__.startswith("dana.") and not isinstance(detector, (PyOD, Convention))


def measure(detector: Any, rows: int, dims: int) -> Cost:
    """Time fits on 128 and 256 rows and extrapolate by the power law between them, at most 2 (fit) and 1 (score).

    Processor time, so other work of the machine is not counted.

    Args:
        detector: Unfitted.
        rows: To extrapolate to.
        dims: Of the random rows that are timed.
    """
    random = torch.Generator().manual_seed(0)
    count = background_units(detector)
    made = torch.nn.functional.normalize(torch.randn(TRIED[-1] + SCORED[-1] + count, dims, generator=random), dim=1)
    some, background = made[: len(made) - count], made[len(made) - count :]
    fit = partial(fit_detector, detector, seed=0, background=background)
    _seconds(lambda: fit(some[: TRIED[0]]).score(some[:1]))  # imports and compiles, which is not timed
    fitting, scoring = [], []
    for size in TRIED:
        fitted = fit(some[:size])
        fitting.append(min(_seconds(partial(fit, some[:size])) for _ in range(REPEATED)))
        few, many = (min(_seconds(partial(fitted.score, some[-count:])) for _ in range(REPEATED)) for count in SCORED)
        scoring.append(max(0.0, many - few) / (SCORED[1] - SCORED[0]))
    return Cost(_grown(fitting, rows, 2.0), _grown(scoring, rows, 1.0))


def _seconds(act: Callable[[], Any]) -> float:
    started = time.process_time()
    with torch.inference_mode():
        act()
    return time.process_time() - started


def _grown(seconds: list[float], rows: int, most: float) -> float:
    small, large = (max(value, 1e-9) for value in seconds)
    power = min(most, max(0.0, log2(large / small) / log2(TRIED[1] / TRIED[0])))
    return large * (rows / TRIED[1]) ** power
