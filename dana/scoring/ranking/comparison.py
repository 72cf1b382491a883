"""Compare detectors on held-out target text and choose one. DANA, section 3.1 and Table 1.

Texts are embedded once. Each detector is fitted through the selector that ``dana score`` deploys
and scores folds that it was not fitted on.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev
from typing import Any

import numpy as np

from dana.core.config import require
from dana.core.errors import DanaError, DataError, PluginError
from dana.core.logging import get_logger, monitor, progress, report_ticks
from dana.core.rng import derive_seed
from dana.core.statistics import percentile_interval
from dana.corpus.unit_stream import Units, draw
from dana.scoring.inputs import PoolText, TargetText
from dana.scoring.ranking.folds import folds_of, target_groups
from dana.scoring.ranking.measures import (
    Fold,
    against_chance,
    bootstrap_counts,
    is_below_chance,
    recalls,
    separations,
    stability,
)
from dana.scoring.settings import RankSettings, Selection
from dana.selectors.base import RememberedContext
from dana.selectors.detector import GEOMETRY_SAMPLE, DetectorSelector

log = get_logger(__name__)

HELD_OUT = 0.1  # the paper's 90/10 split
MIN_TARGET_UNITS = 20  # so that at least two units are held out
NEGATIVES = 2000  # pool units whose quantile is the threshold; its standard error is about 0.01

# One detector's row: name; recall with a 95 % interval over documents and whether it is within one
# standard error of the best (protocol `grouped` only); F1, AUROC and average precision averaged
# over fits; standard deviation of F1; stability (see `stability`); seconds of a fit and of scoring
# the held-out and the pool units; interval of AUROC and rank correlation of score and length
# (see `against_chance`).
Row = dict[str, Any]


@dataclass(frozen=True)
class RankingTexts:
    """The embedded texts on which detectors are ranked.

    Attributes:
        context: Context of the selectors; it holds the vectors.
        target: Target units to fit on and to hold out.
        groups: Group of each target unit, int64 of shape (target units,); a group is held out
            together.
        samples: Pool samples by name.
        draws: Bootstrap counts (:func:`dana.scoring.ranking.measures.bootstrap_counts`).
    """

    context: RememberedContext
    target: Units
    groups: np.ndarray
    samples: dict[str, Units]
    draws: tuple[np.ndarray, ...]

    @property
    def counts(self) -> dict[str, int]:
        """Counts for the manifest."""
        return {
            "target_units": len(self.target),
            "task_documents": len(set(self.target.doc_ids)),
            "target_groups": int(self.groups.max()) + 1,
            **{name: len(sample) for name, sample in self.samples.items()},
        }


def texts_to_rank(
    target: TargetText, pool: PoolText, selection: Selection, settings: RankSettings
) -> RankingTexts:
    """Draw the pool samples and embed them and the task.

    Args:
        target: Target text; at most ``max_target_units`` units are used.
        pool: Pool to draw the samples from.
        selection: How text is cut and embedded.
        settings: The protocol, which decides the samples.

    Raises:
        ConfigError: If a sample has fewer than two units.
        DataError: If the task has too few units.
    """
    units = target.units(selection)
    if len(units) < MIN_TARGET_UNITS:
        raise DataError(
            f"the target text has {len(units)} units; ranking needs at least "
            f"{MIN_TARGET_UNITS}, some of which it holds out"
        )
    groups = target_groups(units)
    requests = {}
    for name, size in _sample_sizes(len(units), selection, settings).items():
        requests[name] = (derive_seed(selection.seed, "general", name), size)
    samples = draw(pool.units(selection), requests)
    fewest = min(map(len, samples.values()))
    require(fewest >= 2, "pool", f"{fewest} units left for a sample", "a pool with more units")
    context = RememberedContext.from_context(selection.context(""))
    total = len(units) + sum(map(len, samples.values()))
    with progress(what="embedding", unit="units", total=total) as bar, report_ticks(bar):
        for part in (units, *samples.values()):
            context.embed(part.texts)
        bar.update(total - bar.n)
    seed = derive_seed(selection.seed, "ranking", "bootstrap")
    draws = bootstrap_counts(groups, samples["negatives"].document_numbers, seed)
    return RankingTexts(context, units, groups, samples, draws)


def _sample_sizes(
    target_units: int, selection: Selection, settings: RankSettings
) -> dict[str, int]:
    """Return the size of each pool sample by name, in the order in which they are drawn."""
    sizes_of_fit: dict[str, int] = {"geometry": GEOMETRY_SAMPLE}
    for spec in settings.specs():
        selector = DetectorSelector(spec, pool_share=selection.pool_share)
        sizes_of_fit.update(selector.samples(target_units))
    # The samples of the fit come first, so that they equal those of ``dana score``.
    order = ("contamination", "geometry", "background")
    sizes = {name: sizes_of_fit[name] for name in order if name in sizes_of_fit}
    sizes["negatives"] = NEGATIVES
    if settings.protocol == "paper":
        sizes["negatives"] = round(target_units * HELD_OUT)
    return sizes


def detector_origins(specs: Sequence[str]) -> dict[str, Any]:
    """Return class and version of each detector, for a fingerprint.

    See :func:`dana.core.registry.origin_of`.
    """
    return {spec: DetectorSelector(spec).detector_origin for spec in specs}


def compare_detectors(
    specs: Sequence[str], texts: RankingTexts, settings: RankSettings, budget: float, root: int
) -> tuple[list[Row], str, dict[str, str]]:
    """Fit and score the detectors and choose one.

    Args:
        specs: Specs of the detectors.
        texts: Texts of :func:`texts_to_rank`.
        settings: The protocol. With ``detectors`` all, a detector that fails is skipped with a
            warning.
        budget: Share of the pool units to select, β.
        root: Root seed.

    Returns:
        One row per detector, by decreasing recall, in protocol ``paper`` by decreasing F1; the name
        of the detector to use; and the error of each detector that was skipped.

    Raises:
        PluginError: If a detector that was named fails, or every detector fails.
    """
    by_unit = settings.protocol == "paper"
    rows: list[Row] = []
    replicates: dict[str, np.ndarray] = {}
    errors = settings.broken()
    for spec in monitor(specs, what="ranking", unit="detectors", total=len(specs)):
        # As dana score deploys it.
        selector = DetectorSelector(context=replace(texts.context, detector=spec))
        if by_unit:
            selector = replace(selector, pool_share=0.0)  # section 3.1 fits on the task alone
        try:
            row, replicates[spec] = _over_folds(selector, texts, settings, budget, root)
        except DanaError as error:
            if not settings.is_all:
                raise
            errors[spec] = str(error)
        else:
            rows.append({"name": spec, **row})
    for spec, reason in errors.items():
        log.warning("detector  %s is skipped: %s", spec, reason)
    if not rows:
        raise PluginError(f"no detector could be ranked: {'; '.join(errors.values())}")
    rows.sort(key=lambda row: (-row.get("recall", 0), -row["f1_mean"], row["name"]))
    candidates = [row for row in rows if not is_below_chance(row)] or rows
    if by_unit:
        return rows, choose_by_f1(candidates), errors
    if rows[0]["recall_low"] <= budget:
        log.warning(
            "ranking   no detector separates the task from this pool: "
            "recall at a budget of %g is %.2f, as by chance",
            budget,
            rows[0]["recall"],
        )
    near = within_one_error({row["name"]: replicates[row["name"]] for row in candidates})
    rows = [{**row, "tied": near.get(row["name"], False)} for row in rows]
    return rows, choose_by_recall(rows), errors


def _over_folds(
    selector: DetectorSelector,
    texts: RankingTexts,
    settings: RankSettings,
    budget: float,
    root: int,
) -> tuple[Row, np.ndarray]:
    """Cross-validate a detector over groups of documents.

    In protocol ``paper`` it is over tenths of the units.

    Returns:
        Its row, and its recall on every replicate, which is empty in protocol ``paper``.
    """
    by_unit = settings.protocol == "paper"
    negatives = texts.samples["negatives"]
    groups = texts.groups
    count = settings.folds
    if by_unit:
        groups = np.arange(len(texts.target))
        count = round(1 / HELD_OUT)
    folds: list[Fold] = []
    runs: list[tuple[float, float, float]] = []
    seconds: list[tuple[float, float]] = []
    for seed in range(settings.seeds):
        fold_of = folds_of(groups, count, derive_seed(root, "ranking", "folds", seed))
        folds_of_seed = []
        for number in range(int(fold_of.max()) + 1):
            inside = np.flatnonzero(fold_of != number)
            outside = np.flatnonzero(fold_of == number)
            parts = (texts.target.rows(outside), negatives)
            fit_seed = derive_seed(root, "ranking", "detector", seed, number)
            scores, spent = _fit_and_score(selector, texts, inside, parts, fit_seed)
            folds_of_seed.append(Fold(outside, *scores))
            seconds.append(spent)
        folds += folds_of_seed
        runs += separations(folds_of_seed, settings.prevalence)
    row = summarise(runs, [fold.pool for fold in folds], seconds)
    lengths = negatives.ends - negatives.starts
    row |= against_chance(folds, texts.groups, np.array(negatives.doc_ids), lengths)
    if by_unit:
        return row, np.empty(0)
    recall = recalls(folds, texts.draws, budget)
    low, high = percentile_interval(recall[1:])
    recall_columns = {
        "recall": float(recall[0]),
        "recall_low": low,
        "recall_high": high,
        "tied": False,
    }
    return {**recall_columns, **row}, recall


def _fit_and_score(
    selector: DetectorSelector,
    texts: RankingTexts,
    rows: np.ndarray,
    parts: Sequence[Units],
    seed: int,
) -> tuple[list[np.ndarray], tuple[float, float]]:
    """Fit on some rows of the task and score `parts`.

    Returns:
        The scores, and the seconds of fitting and of scoring.
    """
    sizes = selector.samples(rows.size)
    pool = {name: texts.samples[name].first(size) for name, size in sizes.items()}
    began = time.perf_counter()
    model = selector.fit(texts.target.rows(rows), pool, seed)
    ready = time.perf_counter()
    scores = [model.score(part) for part in parts]
    return scores, (ready - began, time.perf_counter() - ready)


def summarise(
    runs: Sequence[tuple[float, float, float]],
    pool: Sequence[np.ndarray],
    seconds: Sequence[tuple[float, float]],
) -> Row:
    """Average one detector's fits; the standard deviation of F1 has ddof 1, and is 0 with one fit.

    Args:
        runs: F1, AUROC and average precision of each fit.
        pool: Scores of one pool sample by each fit.
        seconds: Seconds of each fit and of its scoring.
    """
    f1, auroc, ap = zip(*runs, strict=True)
    fit_s, score_s = map(fmean, zip(*seconds, strict=True))
    return {
        "f1_mean": fmean(f1),
        "f1_std": stdev(f1) if len(f1) > 1 else 0.0,
        "auroc_mean": fmean(auroc),
        "ap_mean": fmean(ap),
        "stability": stability(pool),
        "fit_s": fit_s,
        "score_s": score_s,
    }


def choose_by_f1(rows: Sequence[Row]) -> str:
    """Choose by the paper's rule: the highest mean F1, then the highest AUROC, then by name."""
    by_name = sorted(rows, key=lambda row: row["name"])
    best = max(by_name, key=lambda row: (row["f1_mean"], row["auroc_mean"]))
    name: str = best["name"]
    return name


def within_one_error(replicates: Mapping[str, np.ndarray]) -> dict[str, bool]:
    """Test which recalls are within one standard error of the best.

    The error is that of the paired difference, by the bootstrap.

    Args:
        replicates: Recalls of :func:`recalls` by detector, over the same replicates.

    References:
        Breiman, Friedman, Olshen and Stone 1984, Classification and regression trees, section 3.4.3
        (the 1 SE rule).
    """
    best = max(replicates.values(), key=lambda recall: recall[0])
    is_near = {}
    for name, values in replicates.items():
        differences = best - values
        is_near[name] = bool(differences[0] <= np.std(differences[1:], ddof=1))
    return is_near


def choose_by_recall(rows: Sequence[Row]) -> str:
    """Choose the stablest detector within one standard error of the best recall.

    Of several, it is the one with the best recall, then the first name. Stability is rounded to two
    decimals. Time is ignored, because it differs from run to run.
    """
    by_name = sorted((row for row in rows if row["tied"]), key=lambda row: row["name"])
    best = max(by_name, key=lambda row: (round(row["stability"] or 0.0, 2), row["recall"]))
    name: str = best["name"]
    return name
