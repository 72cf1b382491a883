"""Comparison of detectors: embedded samples to a row a detector and the name of the one that is chosen.

Each detector is fitted through the selector that ``dana score`` deploys. DANA, section 3.1 and Table 1.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dana.core.errors import DanaError, PluginError
from dana.core.logging import get_logger, progress
from dana.core.rng import derive_seed
from dana.scoring.ranking.fits import Embedded, as_the_paper, over_folds
from dana.scoring.ranking.recall import Resampling
from dana.scoring.ranking.separation import Ranked, choose_by_f1, choose_by_recall, within_one_error
from dana.scoring.ranking.settings import RankSettings
from dana.scoring.settings import Selection
from dana.selectors.detector import DetectorSelector

log = get_logger(__name__)

RULES = {
    "grouped": "folds hold out whole documents with all that is nearly the same; recall is the share of held-out "
    "task units within the budget, that share of the general units which has the lowest scores, its interval of 95 % "
    "a bootstrap over documents; chosen is the stablest of those within one standard error of the best recall. Beside "
    "it: F1 with task as the positive class, at the 90th percentile of the scores of task units in the other folds; "
    "average precision at the prevalence named. Standard deviations are over fits that share text: no errors",
    "paper": "a tenth of the units is held out, by unit; task is the positive class; threshold = 90th percentile of "
    "the training scores; negatives = as many general units, disjoint from all that is fitted; chosen is the highest "
    "mean F1",
}


@dataclass(frozen=True)
class DetectorComparison:
    """The outcome.

    Attributes:
        rows: One a detector.
        chosen: Name of the detector to use.
        failed: Detectors that were left out, and why.
    """

    rows: list[Ranked]
    chosen: str
    failed: dict[str, str]


def detector_origins(specs: Sequence[str]) -> dict[str, Any]:
    """Name class and version of each detector, for a fingerprint; see :func:`dana.core.origin.origin_of`."""
    return {spec: DetectorSelector(spec).detector_origin for spec in specs}


def compare_detectors(
    specs: Sequence[str], embedded: Embedded, selection: Selection, settings: RankSettings, budget: float
) -> DetectorComparison:
    """Fit, score and choose.

    Args:
        specs: Of the detectors.
        embedded: Vectors of the task and of the general samples.
        selection: As in the scoring that the ranking is for.
        settings: The protocol; where it names no detector, one that fails is left out with a warning.
        budget: Share of the general units that will be kept, β.

    Raises:
        PluginError: If a detector that was asked for by name fails, or none is left.
    """
    grouped = settings.protocol == "grouped"
    rows: list[Ranked] = []
    recalls: list[np.ndarray] = []
    failed = settings.broken()
    if grouped:
        seed = derive_seed(selection.seed, "ranking", "bootstrap")
        resampling = Resampling.of(embedded.groups, embedded.documents, seed)
    with progress(what="ranking detectors", unit="fits", total=len(specs) * settings.fits) as bar:
        for spec in specs:
            selector = DetectorSelector(context=selection.context(spec))  # what is ranked is what is deployed
            try:
                if grouped:
                    row, found = over_folds(selector, embedded, settings, budget, resampling, selection.seed, bar)
                    recalls.append(found)
                else:
                    row = as_the_paper(selector, embedded, settings, selection.seed, bar)
            except DanaError as error:
                if not settings.is_all:
                    raise
                failed[spec] = str(error)
                continue
            rows.append(row)
    for spec, reason in failed.items():
        log.warning("detector  %s is left out: %s", spec, reason)
    if not rows:
        raise PluginError(f"no detector is left to rank: {'; '.join(failed.values())}")
    if not grouped:
        return DetectorComparison(rows, choose_by_f1(rows), failed)
    rows = [replace(row, tied=near) for row, near in zip(rows, within_one_error(recalls), strict=True)]
    _warn_of_chance(rows, budget)
    return DetectorComparison(rows, choose_by_recall(rows), failed)


def _warn_of_chance(rows: Sequence[Ranked], budget: float) -> None:
    best = max(rows, key=lambda row: row.recall or 0)
    if (best.recall_low or 0) <= budget:
        said = (
            "ranking   no detector tells the task from this general text: a budget of %g holds %.2f of it, as by chance"
        )
        log.warning(said, budget, best.recall)
