"""Cascade selector: a cheap encoder scores all units, the run's encoder the best share of them; one scale for both.

A detector over the cheap encoder (by default static embeddings) scores every unit; units below a threshold are scored
by the same detector over the run's encoder. The others get the mean score by the run's encoder at their cheap score,
learned on a general sample by isotonic regression, so all scores are in one unit. The recall that is lost is measured
on that sample and written to the manifest.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from dana.core.artifacts import read_json, write_json
from dana.core.config import require
from dana.core.logging import get_logger
from dana.corpus.unit_stream import Units
from dana.selectors.base import FittedSelector, Selector
from dana.selectors.detector import DetectorSelector, FittedDetectorSelector

log = get_logger(__name__)

AUDITED = (0.05, 0.1, 0.2)  # budgets at which the recall of the cascade is measured


@dataclass(frozen=True)
class CascadeSelector(Selector):
    """The detector selector twice: over a cheap encoder for every unit, over the run's encoder for the best share.

    A parameter that is None is the run's.

    Attributes:
        keep: Share of the general units that the run's encoder sees.
        detector: Spec of both detectors.
        encoder: Spec of the expensive encoder, the one with the embedding store.
        first: Spec of the cheap encoder.
        geometry: Of both.
        general_share: General units fitted along with the task, as a share of its units.
    """

    keep: float = 0.3
    detector: str | None = None
    encoder: str | None = None
    first: str = "static"
    geometry: str | None = None
    general_share: float | None = None
    version: ClassVar[int] = 1
    takes: ClassVar[tuple[str, ...]] = DetectorSelector.takes

    def __post_init__(self) -> None:
        require(0 < self.keep < 1, "keep", self.keep, "in (0, 1)")

    @cached_property
    def _cheap(self) -> DetectorSelector:
        return DetectorSelector(context=replace(self.settings, encoder=self.first, store=None))

    @cached_property
    def _good(self) -> DetectorSelector:
        return DetectorSelector(context=self.settings)

    def samples(self, task_units: int) -> Mapping[str, int]:
        """What both detectors want, and ``audit``: units on which the two are compared."""
        return {**self._good.samples(task_units), "audit": 4000}

    def learn(self, task: Units, general: Mapping[str, Units], seed: int) -> "FittedCascade":
        """Fit both, then, on the audit sample, the map from cheap to expensive scores and the recall."""
        from sklearn.isotonic import IsotonicRegression

        cheap, good = self._cheap.fit(task, general, seed), self._good.fit(task, general, seed)
        some = general["audit"]
        first, second = cheap.score(some), good.score(some)
        threshold = float(np.quantile(first, self.keep))
        isotonic = IsotonicRegression(out_of_bounds="clip").fit(first, second)
        passed = first <= threshold
        recall = {f"{budget:g}": recall_at(second, passed, budget) for budget in AUDITED}
        seen = ", ".join(f"{share:.1%} of the best {float(budget):.0%}" for budget, share in recall.items())
        log.info("cascade   the encoder sees %.0f %%; of an audit sample %s", 100 * self.keep, seen)
        notes = {"audit": {"units": len(some), "recall": recall, "encoded": float(passed.mean())}}
        return FittedCascade(self, cheap, good, threshold, isotonic.X_thresholds_, isotonic.y_thresholds_, notes)

    def load(self, folder: Path) -> "FittedCascade":
        """See :meth:`dana.selectors.base.Selector.load`."""
        about = read_json(folder / "selector.json")
        cheap, good = self._cheap.load(folder / "first"), self._good.load(folder / "second")
        knots, values = np.array(about["knots"]), np.array(about["values"])
        return FittedCascade(self, cheap, good, about["threshold"], knots, values, {"audit": about["audit"]})

    def identity(self) -> dict[str, Any]:
        """See :meth:`dana.selectors.base.Selector.identity`."""
        parts = {"first": self._cheap.identity(), "second": self._good.identity()}
        return {"selector": "cascade", "keep": self.keep, **parts}


@dataclass(frozen=True)
class FittedCascade(FittedSelector):
    """Both fitted selectors, the threshold between them and the map from cheap to expensive scores.

    Attributes:
        selector: Its parameters.
        cheap: Over the cheap encoder.
        good: Over the run's encoder.
        threshold: Highest cheap score at which the run's encoder is asked.
        knots: Shape (knots,), cheap scores, ascending.
        values: Shape (knots,), the mean score by `good` at each knot.
        notes: For the manifest: recall on the audit sample, by budget.
    """

    selector: CascadeSelector
    cheap: FittedDetectorSelector
    good: FittedDetectorSelector
    threshold: float
    knots: np.ndarray
    values: np.ndarray
    notes: dict[str, Any]

    def score_units(self, units: Units) -> np.ndarray:
        """See :meth:`dana.selectors.base.FittedSelector.score`."""
        first = self.cheap.score(units)
        scores = np.interp(first, self.knots, self.values)
        passed = np.flatnonzero(first <= self.threshold)
        if passed.size:
            scores[passed] = self.good.score(units.rows(passed))
        return scores

    def save(self, folder: Path) -> None:
        """Write both, and the numbers that join them."""
        self.cheap.save(folder / "first")
        self.good.save(folder / "second")
        joint = {"threshold": self.threshold, "knots": self.knots.tolist(), "values": self.values.tolist()}
        write_json(folder / "selector.json", {**self.selector.identity(), **joint, **self.notes})


def recall_at(scores: np.ndarray, passed: np.ndarray, budget: float) -> float:
    """Share of the units with the lowest scores by the run's encoder whose cheap score is below the threshold.

    Args:
        scores: Shape (units,), by the run's encoder; lower is better.
        passed: Shape (units,), whether the cheap score is below the threshold.
        budget: Share of the units that count as the best.
    """
    best = np.argsort(scores, kind="stable")[: max(1, round(budget * scores.size))]
    return float(passed[best].mean())
