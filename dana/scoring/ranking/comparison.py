"""Comparison of detectors: embedded samples to a row a detector and the name of the one that is chosen.

Texts are embedded once. Each detector is fitted through the selector that ``dana score`` deploys, and scores folds that
it was not fitted on. DANA, section 3.1 and Table 1.
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
from dana.core.rng import derive_seed, generator
from dana.core.statistics import percentile_interval
from dana.corpus.unit_stream import Units, draw
from dana.scoring.inputs import GeneralCorpus, TaskText
from dana.scoring.ranking.folds import folds_of, task_groups
from dana.scoring.ranking.measures import Fold, bootstrap_counts, recalls, separation, separations, stability
from dana.scoring.settings import RankSettings, Selection
from dana.selectors.base import RememberedContext
from dana.selectors.detector import GEOMETRY_SAMPLE, DetectorSelector

log = get_logger(__name__)

HELD_OUT = 0.1  # the paper's 90/10 split
MIN_TASK_UNITS = 20  # two held-out units: below that an F1 says nothing
NEGATIVES = 2000  # general units whose quantile is the threshold: its standard error is a hundredth

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

# One detector's row: its name; recall with an interval of 95 % over documents and whether it is within one standard
# error of the best (by folds only); means over fits of F1, AUROC and average precision, the F1's standard deviation,
# stability (see `stability`), and the seconds of a fit and of scoring what is held out and the general units.
Row = dict[str, Any]


@dataclass(frozen=True)
class RankedTexts:
    """The task and the general samples, embedded.

    Attributes:
        context: Of the selectors; it remembers the vectors.
        task: What is fitted on and held out.
        groups: int64 of shape (task units,): units of one number are held out together.
        samples: General samples by name.
        draws: Bootstrap replicates (:func:`dana.scoring.ranking.measures.bootstrap_counts`); of folds only.
    """

    context: RememberedContext
    task: Units
    groups: np.ndarray
    samples: dict[str, Units]
    draws: tuple[np.ndarray, ...]

    @property
    def counts(self) -> dict[str, int]:
        """For the record."""
        return {
            "task_units": len(self.task),
            "task_documents": len(set(self.task.doc_ids)),
            "task_groups": int(self.groups.max()) + 1,
            **{name: len(sample) for name, sample in self.samples.items()},
        }


def texts_to_rank(task: TaskText, general: GeneralCorpus, selection: Selection, settings: RankSettings) -> RankedTexts:
    """Draw the general samples, and encode them and the task.

    Args:
        task: Its units, at most ``max_task_units``.
        general: Where the samples come from.
        selection: How text is cut and embedded.
        settings: The protocol, which decides the samples.

    Raises:
        ConfigError: If a sample has fewer than two units.
        DataError: If the task has too few units.
    """
    units = task.units(selection)
    if len(units) < MIN_TASK_UNITS:
        raise DataError(
            f"the task has {len(units)} units; ranking holds some of them out and needs at least {MIN_TASK_UNITS}"
        )
    groups = task_groups(units)
    asked: dict[str, int] = {"geometry": GEOMETRY_SAMPLE}
    for spec in settings.specs():
        asked.update(DetectorSelector(spec, general_share=selection.general_share).samples(len(units)))
    # The fit's samples first: they are those of the deployed fit. The paper's negatives are as many as the held-out.
    order = ("contamination", "geometry", "background")
    wanted: dict[str, int] = {name: asked[name] for name in order if name in asked}
    if settings.protocol == "paper":
        wanted |= {f"negatives/{seed}": round(len(units) * HELD_OUT) for seed in range(settings.seeds)}
    else:
        wanted["negatives"] = NEGATIVES
    seeded = {name: (derive_seed(selection.seed, "general", *name.split("/")), size) for name, size in wanted.items()}
    samples = draw(general.units(selection), seeded)
    fewest = min(map(len, samples.values()))
    require(fewest >= 2, "general", f"{fewest} units left for a sample", "a corpus with more units")
    context = RememberedContext.of(selection.context(""))
    total = len(units) + sum(map(len, samples.values()))
    with progress(what="embedding", unit="units", total=total) as bar, report_ticks(bar):
        for part in (units, *samples.values()):
            context.embed(part.texts)
        bar.update(total - bar.n)
    draws: tuple[np.ndarray, ...] = ()
    if "negatives" in samples:
        seed = derive_seed(selection.seed, "ranking", "bootstrap")
        draws = bootstrap_counts(groups, samples["negatives"].document_numbers, seed)
    return RankedTexts(context, units, groups, samples, draws)


def detector_origins(specs: Sequence[str]) -> dict[str, Any]:
    """Name class and version of each detector, for a fingerprint; see :func:`dana.core.registry.origin_of`."""
    return {spec: DetectorSelector(spec).detector_origin for spec in specs}


def compare_detectors(
    specs: Sequence[str], texts: RankedTexts, settings: RankSettings, budget: float, root: int
) -> tuple[list[Row], str, dict[str, str]]:
    """Fit, score and choose.

    Args:
        specs: Of the detectors.
        texts: Of :func:`texts_to_rank`.
        settings: The protocol; where it names no detector, one that fails is left out with a warning.
        budget: Share of the general units that will be kept, β.
        root: Root seed.

    Returns:
        A row a detector, best recall first, without recall best F1 first; the name of the one to use; and those that
        were left out, and why.

    Raises:
        PluginError: If a detector that was asked for by name fails, or none is left.
    """
    grouped = settings.protocol == "grouped"
    rows: list[Row] = []
    replicates: dict[str, np.ndarray] = {}
    failed = settings.broken()
    for spec in monitor(specs, what="ranking", unit="detectors", total=len(specs)):
        selector = DetectorSelector(context=replace(texts.context, detector=spec))  # what is ranked is what is deployed
        try:
            if grouped:
                row, replicates[spec] = _over_folds(selector, texts, settings, budget, root)
            else:
                row = _as_the_paper(selector, texts, settings, root)
        except DanaError as error:
            if not settings.is_all:
                raise
            failed[spec] = str(error)
        else:
            rows.append({"name": spec, **row})
    for spec, reason in failed.items():
        log.warning("detector  %s is left out: %s", spec, reason)
    if not rows:
        raise PluginError(f"no detector is left to rank: {'; '.join(failed.values())}")
    rows.sort(key=lambda row: (-row.get("recall", 0), -row["f1_mean"], row["name"]))
    if not grouped:
        return rows, choose_by_f1(rows), failed
    if rows[0]["recall_low"] <= budget:
        chance = "no detector tells the task from this general text"
        log.warning("ranking   %s: a budget of %g holds %.2f of it, as by chance", chance, budget, rows[0]["recall"])
    near = within_one_error(replicates)
    rows = [{**row, "tied": near[row["name"]]} for row in rows]
    return rows, choose_by_recall(rows), failed


def _over_folds(
    selector: DetectorSelector, texts: RankedTexts, settings: RankSettings, budget: float, root: int
) -> tuple[Row, np.ndarray]:
    """One detector, cross-validated over groups of documents: its row, and its recall on every bootstrap replicate."""
    folds, runs, seconds = [], [], []
    for seed in range(settings.seeds):
        fold = folds_of(texts.groups, settings.folds, derive_seed(root, "ranking", "folds", seed))
        of_seed = []
        for number in range(int(fold.max()) + 1):
            inside, outside = np.flatnonzero(fold != number), np.flatnonzero(fold == number)
            parts = (texts.task.rows(outside), texts.samples["negatives"])
            fit_seed = derive_seed(root, "ranking", "detector", seed, number)
            scores, spent = _fit_and_score(selector, texts, inside, parts, fit_seed)
            of_seed.append(Fold(outside, *scores))
            seconds.append(spent)
        folds += of_seed
        runs += separations(of_seed, settings.prevalence)
    recall = recalls(folds, texts.draws, budget)
    low, high = percentile_interval(recall[1:])
    row = {"recall": float(recall[0]), "recall_low": low, "recall_high": high, "tied": False}
    return row | summarise(runs, [fold.general for fold in folds], seconds), recall


def _as_the_paper(selector: DetectorSelector, texts: RankedTexts, settings: RankSettings, root: int) -> Row:
    """One detector by the protocol of the paper: fitted on 90 % of the task units, compared on the other tenth."""
    runs, samples, seconds = [], [], []
    alone = replace(selector, general_share=0.0)  # section 3.1 fits on the task alone
    for seed in range(settings.seeds):
        inside, outside = split(len(texts.task), derive_seed(root, seed))
        general = (texts.samples[f"negatives/{seed}"], texts.samples["geometry"])
        parts = (texts.task.rows(inside), texts.task.rows(outside), *general)
        fit_seed = derive_seed(root, "ranking", "detector", seed)
        (training, held_out, negatives, sample), spent = _fit_and_score(alone, texts, inside, parts, fit_seed)
        runs.append(separation(training, held_out, negatives, settings.prevalence))
        samples.append(sample)
        seconds.append(spent)
    return summarise(runs, samples, seconds)


def _fit_and_score(
    selector: DetectorSelector, texts: RankedTexts, rows: np.ndarray, parts: Sequence[Units], seed: int
) -> tuple[list[np.ndarray], tuple[float, float]]:
    """Scores of `parts` by a fit on some rows of the task, and the seconds of the fit and of the scoring."""
    general = {name: texts.samples[name].first(size) for name, size in selector.samples(rows.size).items()}
    began = time.perf_counter()
    fitted = selector.fit(texts.task.rows(rows), general, seed)
    ready = time.perf_counter()
    scores = [fitted.score(part) for part in parts]
    return scores, (ready - began, time.perf_counter() - ready)


def split(units: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Row numbers of the 90 % that fits and of the held-out tenth."""
    order = generator(seed, "ranking", "split").permutation(units)
    held_out = round(units * HELD_OUT)
    return np.sort(order[held_out:]), np.sort(order[:held_out])


def summarise(
    runs: Sequence[tuple[float, float, float]], general: Sequence[np.ndarray], seconds: Sequence[tuple[float, float]]
) -> Row:
    """Means over one detector's fits, and the standard deviation of F1 (ddof 1; 0 with one fit).

    Args:
        runs: F1, AUROC and average precision of each fit.
        general: Scores of one general sample by each fit.
        seconds: Of each fit and of its scoring.
    """
    f1, auroc, ap = zip(*runs, strict=True)
    fit_s, score_s = map(fmean, zip(*seconds, strict=True))
    spread = stdev(f1) if len(f1) > 1 else 0.0
    means = {"f1_mean": fmean(f1), "f1_std": spread, "auroc_mean": fmean(auroc), "ap_mean": fmean(ap)}
    return {**means, "stability": stability(general), "fit_s": fit_s, "score_s": score_s}


def choose_by_f1(rows: Sequence[Row]) -> str:
    """The paper's rule: the highest mean F1; a tie goes to the higher AUROC, then to the earlier name."""
    return max(sorted(rows, key=lambda row: row["name"]), key=lambda row: (row["f1_mean"], row["auroc_mean"]))["name"]


def within_one_error(replicates: Mapping[str, np.ndarray]) -> dict[str, bool]:
    """Which recalls are within one standard error of the best, by the bootstrap of the paired difference.

    Args:
        replicates: What :func:`recalls` gives, by detector, over the same replicates.

    References:
        Breiman, Friedman, Olshen and Stone 1984, Classification and regression trees, section 3.4.3 (the 1 SE rule).
    """
    best = max(replicates.values(), key=lambda recall: recall[0])
    return {name: bool(best[0] - one[0] <= np.std((best - one)[1:], ddof=1)) for name, one in replicates.items()}


def choose_by_recall(rows: Sequence[Row]) -> str:
    """Of the detectors within one standard error of the best recall, the stablest; then the best, then by name.

    Stability counts to two decimals. Seconds do not decide: they differ from run to run, and the choice must not.
    """
    tied = sorted((row for row in rows if row["tied"]), key=lambda row: row["name"])
    return max(tied, key=lambda row: (round(row["stability"] or 0.0, 2), row["recall"]))["name"]
