"""Comparison of detectors: embedded samples to a row a detector and the name of the one that is chosen.

Texts are embedded once. Each detector is fitted through the selector that ``dana score`` deploys, and scores folds that
it was not fitted on. DANA, section 3.1 and Table 1.
"""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from statistics import fmean, stdev
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dana.core.config import require
from dana.core.errors import DanaError, DataError, PluginError
from dana.core.logging import get_logger, progress
from dana.core.rng import derive_seed, generator
from dana.core.statistics import percentile_interval
from dana.corpus.unit_stream import draw
from dana.encoders.base import Encoder, encode
from dana.scoring.inputs import GeneralCorpus, TaskText
from dana.scoring.ranking.folds import folds_of, task_groups
from dana.scoring.ranking.measures import Fold, Resampling, Separation, recalls, separation, separations, stability
from dana.scoring.ranking.settings import RankSettings
from dana.scoring.settings import Selection
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


@dataclass(frozen=True)
class Ranked:
    """One detector's row of the ranking. Times are seconds a fit, means over fits.

    Attributes:
        name: Its spec.
        recall: Share of held-out task units that would be kept at the budget; None in the paper's protocol.
        recall_low: Lower end of its interval of 95 % over documents.
        recall_high: Upper end.
        tied: Whether it is within one standard error of the best recall, so that the choice is open to it.
        f1_mean: Means over fits, see :class:`Separation`.
        f1_std: Standard deviation over fits (ddof 1). Fits share most of what they are fitted on: it is no error.
        auroc_mean: See f1_mean.
        auroc_std: See f1_std.
        ap_mean: See f1_mean.
        best_f1_mean: See f1_mean.
        stability: See :func:`stability`.
        fit_s: Fitting.
        score_s: Scoring what is held out, and the general units.
        n_seeds: Repetitions.
    """

    name: str
    recall: float | None
    recall_low: float | None
    recall_high: float | None
    tied: bool
    f1_mean: float
    f1_std: float
    auroc_mean: float
    auroc_std: float
    ap_mean: float
    best_f1_mean: float
    stability: float | None
    fit_s: float
    score_s: float
    n_seeds: int


@dataclass(frozen=True)
class Embedded:
    """Vectors of the task and of the general samples.

    Attributes:
        task: Shape (task units, dims).
        groups: int64 of shape (task units,): units of one number are held out together.
        samples: General samples by name, of shape (units, dims) each.
        documents: int64 of shape (negatives,): document of each unit of the sample ``negatives``; empty without it.
        counts: For the record.
        sample_ids: ``(doc_id, unit)`` of every sample, for the record.
    """

    task: Tensor
    groups: np.ndarray
    samples: dict[str, Tensor]
    documents: np.ndarray
    counts: dict[str, Any]
    sample_ids: dict[str, Any]


def embed(
    task: TaskText, general: GeneralCorpus, selection: Selection, settings: RankSettings, encoder: Encoder
) -> Embedded:
    """Draw the general samples, and encode them and the task.

    Args:
        task: Its units, at most ``max_task_units``.
        general: Where the samples come from.
        selection: How text is cut and embedded.
        settings: The protocol, which decides the samples.
        encoder: Built from the selection.

    Raises:
        ConfigError: If a sample has fewer than two units.
        DataError: If the task has too few units.
    """
    found = task.units(selection)
    split(len(found), seed=0)  # too few units fail before the encoder runs
    groups, was_cut = task_groups(found)
    asked: dict[str, int] = {"geometry": GEOMETRY_SAMPLE}
    for spec in settings.specs():
        asked.update(DetectorSelector(spec, general_share=selection.general_share).samples(len(found)))
    order = ("contamination", "geometry", "background")
    fitted: dict[str, int] = {name: asked[name] for name in order if name in asked}
    # The fit's samples first: they are those of the deployed fit. The paper's negatives are as many as the held-out.
    wanted = fitted | {"negatives": NEGATIVES}
    if settings.protocol == "paper":
        held_out = max(1, round(len(found) * HELD_OUT))
        wanted = fitted | {f"negatives/{seed}": held_out for seed in range(settings.seeds)}
    seeds = {name: derive_seed(selection.seed, "general", *name.split("/")) for name in wanted}
    samples = draw(general.units(selection), {name: (seeds[name], size) for name, size in wanted.items()})
    fewest = min(map(len, samples.values()))
    require(fewest >= 2, "general", f"{fewest} units left for a sample", "a corpus with more units")
    texts = [found.texts, *(sample.texts for sample in samples.values())]
    with progress(what="embedding", unit="units", total=sum(map(len, texts))) as bar:
        task_vectors, *vectors = [_encode(encoder, part, selection.encoder, bar) for part in texts]
    ids = {name: sample.ids for name, sample in samples.items()}
    counts = {
        "task_units": len(found),
        "task_documents": len(set(found.doc_ids)),
        "task_groups": int(groups.max()) + 1,
        "one_document_in_stretches": was_cut,
        **{name: len(sample) for name, sample in samples.items()},
    }
    documents = np.unique([doc_id for doc_id, _ in ids.get("negatives", [])], return_inverse=True)[1]
    return Embedded(task_vectors, groups, dict(zip(samples, vectors, strict=True)), documents, counts, ids)


def _encode(encoder: Encoder, texts: Sequence[str], spec: str, bar: progress, chunk: int = 1024) -> Tensor:
    parts = []
    for start in range(0, len(texts), chunk):
        parts.append(encode(encoder, texts[start : start + chunk], spec))
        bar.update(len(parts[-1]))
    return torch.cat(parts)


def detector_origins(specs: Sequence[str]) -> dict[str, Any]:
    """Name class and version of each detector, for a fingerprint; see :func:`dana.core.registry.origin_of`."""
    return {spec: DetectorSelector(spec).detector_origin for spec in specs}


def compare_detectors(
    specs: Sequence[str], embedded: Embedded, selection: Selection, settings: RankSettings, budget: float
) -> tuple[list[Ranked], str, dict[str, str]]:
    """Fit, score and choose.

    Args:
        specs: Of the detectors.
        embedded: Vectors of the task and of the general samples.
        selection: As in the scoring that the ranking is for.
        settings: The protocol; where it names no detector, one that fails is left out with a warning.
        budget: Share of the general units that will be kept, β.

    Returns:
        A row a detector; the name of the one to use; and those that were left out, and why.

    Raises:
        PluginError: If a detector that was asked for by name fails, or none is left.
    """
    grouped = settings.protocol == "grouped"
    rows: list[Ranked] = []
    replicates: list[np.ndarray] = []
    failed = settings.broken()
    if grouped:
        seed = derive_seed(selection.seed, "ranking", "bootstrap")
        resampling = Resampling.of(embedded.groups, embedded.documents, seed)
    with progress(what="ranking detectors", unit="fits", total=len(specs) * settings.fits) as bar:
        for spec in specs:
            selector = DetectorSelector(context=selection.context(spec))  # what is ranked is what is deployed
            try:
                if grouped:
                    row, found = _over_folds(selector, embedded, settings, budget, resampling, selection.seed, bar)
                    replicates.append(found)
                else:
                    row = _as_the_paper(selector, embedded, settings, selection.seed, bar)
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
        return rows, choose_by_f1(rows), failed
    rows = [replace(row, tied=near) for row, near in zip(rows, within_one_error(replicates), strict=True)]
    best = max(rows, key=lambda row: row.recall or 0)
    if (best.recall_low or 0) <= budget:
        chance = "no detector tells the task from this general text"
        log.warning("ranking   %s: a budget of %g holds %.2f of it, as by chance", chance, budget, best.recall)
    return rows, choose_by_recall(rows), failed


def _over_folds(
    selector: DetectorSelector,
    embedded: Embedded,
    settings: RankSettings,
    budget: float,
    resampling: Resampling,
    root: int,
    bar: progress,
) -> tuple[Ranked, np.ndarray]:
    """One detector, cross-validated over groups of documents: its row, and its recall on every bootstrap replicate."""
    folds, runs, seconds = [], [], []
    for seed in range(settings.seeds):
        fold = folds_of(embedded.groups, settings.folds, derive_seed(root, "ranking", "folds", seed))
        of_seed = []
        for number in range(int(fold.max()) + 1):
            inside, outside = np.flatnonzero(fold != number), np.flatnonzero(fold == number)
            parts = (embedded.task[torch.from_numpy(outside)], embedded.samples["negatives"])
            fit_seed = derive_seed(root, "ranking", "detector", seed, number)
            scores, spent = _fit_and_score(selector, embedded, inside, parts, fit_seed)
            of_seed.append(Fold(outside, *scores))
            seconds.append(spent)
            bar.update(1)
        folds += of_seed
        runs += separations(of_seed, settings.prevalence)
    stable = stability([fold.general for fold in folds])
    found = recalls(folds, resampling, budget)
    low, high = percentile_interval(found[1:])
    row = summarise(selector.settings.detector, runs, stable, seconds, settings.seeds)
    return replace(row, recall=float(found[0]), recall_low=low, recall_high=high), found


def _as_the_paper(
    selector: DetectorSelector, embedded: Embedded, settings: RankSettings, root: int, bar: progress
) -> Ranked:
    """One detector by the protocol of the paper: fitted on 90 % of the task units, compared on the other tenth."""
    runs, samples, seconds = [], [], []
    alone = replace(selector, general_share=0.0)  # section 3.1 fits on the task alone
    for seed in range(settings.seeds):
        rows = split(len(embedded.task), derive_seed(root, seed))
        parts = [embedded.task[torch.from_numpy(part)] for part in rows]
        parts += [embedded.samples[f"negatives/{seed}"], embedded.samples["geometry"]]
        fit_seed = derive_seed(root, "ranking", "detector", seed)
        (training, task, general, sample), spent = _fit_and_score(alone, embedded, rows[0], parts, fit_seed)
        runs.append(separation(training, task, general, settings.prevalence))
        samples.append(sample)
        seconds.append(spent)
        bar.update(1)
    return summarise(selector.settings.detector, runs, stability(samples), seconds, settings.seeds)


def _fit_and_score(
    selector: DetectorSelector, embedded: Embedded, rows: np.ndarray, parts: Sequence[Tensor], seed: int
) -> tuple[list[np.ndarray], tuple[float, float]]:
    """Scores of `parts` by a fit on some rows of the task, and the seconds of the fit and of the scoring."""
    general = {name: embedded.samples[name][:size] for name, size in selector.samples(rows.size).items()}
    began = time.perf_counter()
    fitted = selector.fit_embedded(embedded.task[torch.from_numpy(rows)], general, seed)
    ready = time.perf_counter()
    scores = [fitted.score_embedded(part) for part in parts]
    return scores, (ready - began, time.perf_counter() - ready)


def split(units: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Row numbers of the 90 % that fits and of the held-out tenth.

    Raises:
        DataError: If there are fewer than 20 units.
    """
    if units < MIN_TASK_UNITS:
        raise DataError(
            f"the task has {units} units; ranking holds some of them out and needs at least {MIN_TASK_UNITS}"
        )
    order = generator(seed, "ranking", "split").permutation(units)
    held_out = round(units * HELD_OUT)
    return np.sort(order[held_out:]), np.sort(order[:held_out])


def summarise(
    name: str, runs: Sequence[Separation], stable: float | None, seconds: Sequence[tuple[float, float]], seeds: int
) -> Ranked:
    """Mean and standard deviation (ddof 1; 0 with one fit) of one detector's fits; no recall yet.

    Args:
        name: Of the detector.
        runs: A fit each.
        stable: See :func:`stability`.
        seconds: Of each fit and of its scoring.
        seeds: Repetitions.
    """
    f1, auroc = [run.f1 for run in runs], [run.auroc for run in runs]
    f1_std, auroc_std = (stdev(values) if len(runs) > 1 else 0.0 for values in (f1, auroc))
    ap, best_f1 = fmean(run.ap for run in runs), fmean(run.best_f1 for run in runs)
    fit_s, score_s = map(fmean, zip(*seconds, strict=True))
    means = (fmean(f1), f1_std, fmean(auroc), auroc_std, ap, best_f1)
    return Ranked(name, None, None, None, False, *means, stable, fit_s, score_s, seeds)


def choose_by_f1(ranked: Sequence[Ranked]) -> str:
    """The paper's rule: the highest mean F1; a tie goes to the higher AUROC, then to the earlier name."""
    return max(sorted(ranked, key=lambda row: row.name), key=lambda row: (row.f1_mean, row.auroc_mean)).name


def within_one_error(replicates: Sequence[np.ndarray]) -> list[bool]:
    """Which recalls are within one standard error of the best, by the bootstrap of the paired difference.

    Args:
        replicates: One array a detector, what :func:`recalls` gives, over the same
            replicates.

    References:
        Breiman, Friedman, Olshen and Stone 1984, Classification and regression trees, section 3.4.3 (the 1 SE rule).
    """
    best = max(replicates, key=lambda found: found[0])
    return [bool(best[0] - found[0] <= np.std((best - found)[1:], ddof=1)) for found in replicates]


def choose_by_recall(ranked: Sequence[Ranked]) -> str:
    """Of the detectors within one standard error of the best recall, the stablest; then the best, then by name.

    Stability counts to two decimals. Seconds do not decide: they differ from run to run, and the choice must not.
    """
    tied = sorted((row for row in ranked if row.tied), key=lambda row: row.name)
    return max(tied, key=lambda row: (round(row.stability or 0.0, 2), row.recall)).name


def sorted_rows(ranked: Sequence[Ranked]) -> list[dict]:
    """Plain rows, best recall first; without recall, best F1 first."""
    return [asdict(row) for row in sorted(ranked, key=lambda row: (-(row.recall or 0), -row.f1_mean, row.name))]
