"""Cascade selector: a cheap encoder scores all units, the run's encoder rescores the best share.

A detector over the cheap encoder (by default static embeddings) scores every unit. Units below a
threshold are scored again by the same detector over the run's encoder. The others get the expected
score by the run's encoder at their cheap score, from an isotonic regression on a pool sample, so
that all scores have one scale. The recall lost by the cascade is measured on that sample and
written to the manifest.
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

AUDIT_BUDGETS = (0.05, 0.1, 0.2)  # budgets at which recall is measured


@dataclass(frozen=True)
class CascadeSelector(Selector):
    """Detector selector over a cheap encoder, and over the run's encoder for the best share.

    A parameter that is None takes the run's setting.

    Attributes:
        keep: Share of the pool units that the run's encoder rescores.
        detector: Spec of both detectors.
        encoder: Spec of the expensive encoder, which uses the cache of embeddings.
        first: Spec of the cheap encoder.
        geometry: Geometry spec of both.
        pool_share: Pool units added to the fit, as a share of the target's units.
    """

    keep: float = 0.3
    detector: str | None = None
    encoder: str | None = None
    first: str = "static"
    geometry: str | None = None
    pool_share: float | None = None
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

    def samples(self, target_units: int) -> Mapping[str, int]:
        """Return the samples of both detectors, and ``audit``, on which the two are compared."""
        return {**self._good.samples(target_units), "audit": 4000}

    def learn(self, target: Units, pool: Mapping[str, Units], seed: int) -> "FittedCascade":
        """Fit both detectors, then the map from cheap to expensive scores on the audit sample.

        The recall of the cascade is measured on that sample, too.
        """
        from sklearn.isotonic import IsotonicRegression

        cheap = self._cheap.fit(target, pool, seed)
        good = self._good.fit(target, pool, seed)
        audit = pool["audit"]
        cheap_scores = cheap.score(audit)
        good_scores = good.score(audit)
        threshold = float(np.quantile(cheap_scores, self.keep))
        isotonic = IsotonicRegression(out_of_bounds="clip").fit(cheap_scores, good_scores)
        mask = cheap_scores <= threshold
        recall = {f"{budget:g}": recall_at(good_scores, mask, budget) for budget in AUDIT_BUDGETS}
        recalls = []
        for budget, share in recall.items():
            recalls.append(f"{share:.1%} of the best {float(budget):.0%}")
        log.info(
            "cascade   the encoder scores %.0f %%; recall on the audit sample: %s",
            100 * self.keep,
            ", ".join(recalls),
        )
        audit_notes = {"units": len(audit), "recall": recall, "encoded": float(mask.mean())}
        return FittedCascade(
            selector=self,
            cheap=cheap,
            good=good,
            threshold=threshold,
            knots=isotonic.X_thresholds_,
            values=isotonic.y_thresholds_,
            notes={"audit": audit_notes},
        )

    def load(self, folder: Path) -> "FittedCascade":
        state = read_json(folder / "selector.json")
        return FittedCascade(
            selector=self,
            cheap=self._cheap.load(folder / "first"),
            good=self._good.load(folder / "second"),
            threshold=state["threshold"],
            knots=np.array(state["knots"]),
            values=np.array(state["values"]),
            notes={"audit": state["audit"]},
        )

    def identity(self) -> dict[str, Any]:
        parts = {"first": self._cheap.identity(), "second": self._good.identity()}
        return {"selector": "cascade", "keep": self.keep, **parts}


@dataclass(frozen=True)
class FittedCascade(FittedSelector):
    """Both fitted selectors, the threshold between them and the map from cheap to expensive scores.

    Attributes:
        selector: Its parameters.
        cheap: Fit over the cheap encoder.
        good: Fit over the run's encoder.
        threshold: Highest cheap score of a unit that the run's encoder rescores.
        knots: Cheap scores, ascending, shape (knots,).
        values: Expected score by `good` at each knot, shape (knots,).
        notes: Recall on the audit sample by budget, for the manifest.
    """

    selector: CascadeSelector
    cheap: FittedDetectorSelector
    good: FittedDetectorSelector
    threshold: float
    knots: np.ndarray
    values: np.ndarray
    notes: dict[str, Any]

    def score_units(self, units: Units) -> np.ndarray:
        cheap_scores = self.cheap.score(units)
        scores: np.ndarray = np.interp(cheap_scores, self.knots, self.values)
        rows = np.flatnonzero(cheap_scores <= self.threshold)
        if rows.size:
            scores[rows] = self.good.score(units.rows(rows))
        return scores

    def save(self, folder: Path) -> None:
        """Write both fits, the threshold and the score map."""
        self.cheap.save(folder / "first")
        self.good.save(folder / "second")
        state = {
            **self.selector.identity(),
            "threshold": self.threshold,
            "knots": self.knots.tolist(),
            "values": self.values.tolist(),
            **self.notes,
        }
        write_json(folder / "selector.json", state)


def recall_at(scores: np.ndarray, mask: np.ndarray, budget: float) -> float:
    """Compute the recall of the cascade.

    It is the share of the best units by the run's encoder that the threshold lets through.

    Args:
        scores: Scores by the run's encoder, shape (units,); lower is better.
        mask: Whether the cheap score is below the threshold, shape (units,).
        budget: Share of the units that count as the best.
    """
    count = max(1, round(budget * scores.size))
    best = np.argsort(scores, kind="stable")[:count]
    return float(mask[best].mean())
