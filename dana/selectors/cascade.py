"""A cheap look at everything, a good look at the best of it: most of the encoder's time saved, the loss audited.

A cheap detector (by default over static embeddings) scores every unit; only the best share of them is encoded by the
real encoder. The others get the score that units of their cheap score have on average, learned on a general sample by
isotonic regression, so that all scores are in one unit and a segment may hold both kinds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from dana.artifacts import read_json, write_json
from dana.config import require
from dana.logging import get_logger
from dana.schemas import Document
from dana.selectors.base import Units
from dana.selectors.detector import DetectorSelector, FittedDetectorSelector

log = get_logger(__name__)

AUDITED = (0.05, 0.1, 0.2)  # budgets at which the recall of the cascade is measured


@dataclass(frozen=True)
class CascadeSelector:
    """Two detectors over two encoders.

    Attributes:
        keep: Share of the general units that the real encoder sees.
        detector: Spec of both detectors.
        encoder: The real encoder's spec.
        first: The cheap encoder's spec.
        geometry: Of both.
        store: Folder of an embedding store for the real encoder, or None.
        store_dtype: How the store rounds.
    """

    keep: float = 0.3
    detector: str = "knn"
    encoder: str = "minilm"
    first: str = "static"
    geometry: str = "center+l2"
    store: str | None = None
    store_dtype: str = "float16"

    def __post_init__(self) -> None:
        require(0 < self.keep < 1, "keep", self.keep, "in (0, 1)")

    @cached_property
    def _cheap(self) -> DetectorSelector:
        return DetectorSelector(self.detector, self.first, self.geometry)

    @cached_property
    def _good(self) -> DetectorSelector:
        return DetectorSelector(self.detector, self.encoder, self.geometry, self.store, self.store_dtype)

    def samples(self, task_units: int) -> Mapping[str, int]:
        """What both detectors want, and ``audit``: units on which the two are compared."""
        return {**self._good.samples(task_units), "audit": 4000}

    def fit(self, task: Sequence[str], general: Mapping[str, Sequence[str]], seed: int) -> "FittedCascade":
        """Fit both, then learn on the audit sample what a cheap score means and what the short cut loses."""
        parts = {name: texts for name, texts in general.items() if name != "audit"}
        cheap, good = self._cheap.fit(task, parts, seed), self._good.fit(task, parts, seed)
        some = as_units(general["audit"])
        first, second = cheap.score(some), good.score(some)
        threshold = float(np.quantile(first, self.keep))
        knots, values = _isotonic(first, second)
        passed = first <= threshold
        recall = {f"{budget:g}": recall_at(second, passed, budget) for budget in AUDITED}
        log.info(
            "cascade   the encoder sees %.0f %%; of the best %s of an audit sample it sees %s",
            100 * self.keep,
            ", ".join(f"{budget:.0%}" for budget in AUDITED),
            ", ".join(f"{share:.1%}" for share in recall.values()),
        )
        audit = {"units": len(some), "recall": recall, "encoded": float(passed.mean())}
        return FittedCascade(self, cheap, good, threshold, knots, values, audit)

    def load(self, folder: Path) -> "FittedCascade":
        """See :class:`dana.selectors.base.Selector`."""
        about = read_json(folder / "selector.json")
        cheap, good = self._cheap.load(folder / "first"), self._good.load(folder / "second")
        knots, values = np.array(about["knots"]), np.array(about["values"])
        return FittedCascade(self, cheap, good, about["threshold"], knots, values, about["audit"])

    def identity(self) -> dict[str, Any]:
        """See :class:`dana.selectors.base.Selector`."""
        parts = {"first": self._cheap.identity(), "second": self._good.identity()}
        return {"selector": "cascade", "keep": self.keep, **parts}


@dataclass(frozen=True)
class FittedCascade:
    """Both fitted selectors and what joins them.

    Attributes:
        selector: Its parameters.
        cheap: The first look.
        good: The second.
        threshold: Highest cheap score that gets a second look.
        knots: Shape (knots,), cheap scores, ascending.
        values: Shape (knots,), the good score that is expected there.
        audit: Recall on the audit sample, by budget.
    """

    selector: CascadeSelector
    cheap: FittedDetectorSelector
    good: FittedDetectorSelector
    threshold: float
    knots: np.ndarray
    values: np.ndarray
    audit: dict[str, Any]

    @property
    def notes(self) -> dict[str, Any]:
        """For the manifest."""
        return {"audit": self.audit}

    def score(self, units: Units) -> np.ndarray:
        """See :class:`dana.selectors.base.FittedSelector`."""
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
        write_json(folder / "selector.json", {**self.selector.identity(), **joint, "audit": self.audit})


def as_units(texts: Sequence[str]) -> Units:
    """Texts alone, as units of one nameless document."""
    many = len(texts)
    zeros = np.zeros(many, dtype=np.int64)
    return Units(
        [Document("", "", "")], zeros, np.arange(many, dtype=np.int32), zeros, zeros, texts, zeros.astype(np.uint64)
    )


def recall_at(scores: np.ndarray, passed: np.ndarray, budget: float) -> float:
    """Share of the best units, by the real score, that the cheap look let through.

    Args:
        scores: Shape (units,), by the real encoder; lower is better.
        passed: Shape (units,), whether the cheap look let it through.
        budget: Share of the units that are the best.
    """
    best = np.argsort(scores, kind="stable")[: max(1, round(budget * scores.size))]
    return float(passed[best].mean())


def _isotonic(first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    from sklearn.isotonic import IsotonicRegression

    fitted = IsotonicRegression(out_of_bounds="clip").fit(first, second)
    return fitted.X_thresholds_, fitted.y_thresholds_
