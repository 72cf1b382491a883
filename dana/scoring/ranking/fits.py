"""Cross-validation of a detector: vectors of task and general units to scores on held-out folds and a row of numbers.

Texts are embedded once; each fit and each score goes through :class:`dana.selectors.detector.DetectorSelector`.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dana.core.config import require
from dana.core.logging import get_logger, progress
from dana.core.rng import derive_seed
from dana.core.statistics import percentile_interval
from dana.corpus.unit_stream import Units, draw
from dana.encoders.base import Encoder, encode
from dana.scoring.inputs import GeneralCorpus, TaskText
from dana.scoring.ranking.folds import folds_of, groups_of, stretches
from dana.scoring.ranking.recall import Fold, Resampling, recalls, separations
from dana.scoring.ranking.separation import HELD_OUT, Ranked, separation, split, stability, summarise
from dana.scoring.ranking.settings import RankSettings
from dana.scoring.settings import Selection
from dana.selectors.detector import GEOMETRY_SAMPLE, DetectorSelector, FittedDetectorSelector

log = get_logger(__name__)

NEGATIVES = 2000  # general units whose quantile is the threshold: its standard error is a hundredth


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
    places = np.argsort(np.lexsort((found.numbers, found.of)))
    groups, was_cut = stretches(groups_of(found.texts, found.doc_ids), places)
    if was_cut:
        log.warning(
            "ranking   most of the task is one document, or near copies of one: stretches of it are held out, "
            "and they are like the rest of it, so the numbers flatter"
        )
    asked: dict[str, int] = {"geometry": GEOMETRY_SAMPLE}
    for spec in settings.specs():
        asked.update(DetectorSelector(spec, general_share=selection.general_share).samples(len(found)))
    order = ("contamination", "geometry", "background")
    fitted: dict[str, int] = {name: asked[name] for name in order if name in asked}
    wanted = {**fitted, **_negatives(settings, len(found))}  # the fit's first: they are those of the deployed fit
    seeds = {name: derive_seed(selection.seed, "general", *name.split("/")) for name in wanted}
    samples = draw(general.units(selection), {name: (seeds[name], size) for name, size in wanted.items()})
    samples = _share_out(samples, wanted)
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


def _negatives(settings: RankSettings, task_units: int) -> dict[str, int]:
    """Sizes of the samples of negatives by name; the paper's are as large as the held-out task, one a repetition."""
    if settings.protocol == "paper":
        return {f"negatives/{seed}": max(1, round(task_units * HELD_OUT)) for seed in range(settings.seeds)}
    return {"negatives": NEGATIVES}


def _share_out(samples: dict[str, Units], wanted: Mapping[str, int]) -> dict[str, Units]:
    """Where a small corpus leaves another sample fewer units than the geometry, it gets the last of these."""
    shared = dict(samples)
    for name in (name for name in samples if name != "geometry"):
        few, many = shared[name], shared["geometry"]
        moved = min(wanted[name] - len(few), (len(many) - len(few)) // 2)
        if moved > 0:
            stay, go = np.split(np.arange(len(many)), [len(many) - moved])
            shared[name], shared["geometry"] = Units.join([few, many.rows(go)]), many.rows(stay)
    return shared


def _encode(encoder: Encoder, texts: Sequence[str], spec: str, bar: progress, chunk: int = 1024) -> Tensor:
    parts = []
    for start in range(0, len(texts), chunk):
        parts.append(encode(encoder, texts[start : start + chunk], spec))
        bar.update(len(parts[-1]))
    return torch.cat(parts)


@dataclass
class _Clock:
    """Seconds spent fitting and scoring, a fit an entry."""

    fit: list[float] = field(default_factory=list)
    score: list[float] = field(default_factory=list)


def over_folds(
    selector: DetectorSelector,
    embedded: Embedded,
    settings: RankSettings,
    budget: float,
    resampling: Resampling,
    root: int,
    bar: progress,
) -> tuple[Ranked, np.ndarray]:
    """One detector, cross-validated over groups of documents: its row, and its recall on every bootstrap replicate.

    Args:
        selector: The detector, as it is deployed.
        embedded: What is fitted and scored.
        settings: Folds and repetitions.
        budget: Share of the general units that is kept, β.
        resampling: The bootstrap's documents, the same for every detector.
        root: Root seed.
        bar: Moved on by one a fit.
    """
    clock, folds, runs = _Clock(), [], []
    for seed in range(settings.seeds):
        fold = folds_of(embedded.groups, settings.folds, derive_seed(root, "ranking", "folds", seed))
        own = []
        for number in range(int(fold.max()) + 1):
            inside, outside = np.flatnonzero(fold != number), np.flatnonzero(fold == number)
            fitted = _fit(selector, embedded, inside, derive_seed(root, "ranking", "detector", seed, number), clock)
            parts = (embedded.task[torch.from_numpy(outside)], embedded.samples["negatives"])
            scores = _scores(fitted, parts, clock)
            own.append(Fold(outside, *scores))
            bar.update(1)
        folds += own
        runs += separations(own, settings.prevalence)
    stable = stability([fold.general for fold in folds])
    found = recalls(folds, resampling, budget)
    low, high = percentile_interval(found[1:])
    row = summarise(selector.settings.detector, runs, stable, clock.fit, clock.score, settings.seeds)
    return replace(row, recall=float(found[0]), recall_low=low, recall_high=high), found


def as_the_paper(
    selector: DetectorSelector, embedded: Embedded, settings: RankSettings, root: int, bar: progress
) -> Ranked:
    """One detector by the protocol of the paper: fitted on 90 % of the task units, compared on the other tenth."""
    clock, runs, samples = _Clock(), [], []
    alone = replace(selector, general_share=0.0)  # section 3.1 fits on the task alone
    for seed in range(settings.seeds):
        training, held_out = split(len(embedded.task), derive_seed(root, seed))
        fitted = _fit(alone, embedded, training, derive_seed(root, "ranking", "detector", seed), clock)
        rows = [embedded.task[torch.from_numpy(part)] for part in (training, held_out)]
        parts = [*rows, embedded.samples[f"negatives/{seed}"], embedded.samples["geometry"]]
        scores = _scores(fitted, parts, clock)
        training_scores, task, general, sample = scores
        runs.append(separation(training_scores, task, general, settings.prevalence))
        samples.append(sample)
        bar.update(1)
    return summarise(selector.settings.detector, runs, stability(samples), clock.fit, clock.score, settings.seeds)


def _fit(
    selector: DetectorSelector, embedded: Embedded, rows: np.ndarray, seed: int, clock: _Clock
) -> FittedDetectorSelector:
    general = {name: embedded.samples[name][:size] for name, size in selector.samples(rows.size).items()}
    started = time.perf_counter()
    fitted = selector.fit_embedded(embedded.task[torch.from_numpy(rows)], general, seed)
    clock.fit.append(time.perf_counter() - started)
    return fitted


def _scores(fitted: FittedDetectorSelector, parts: Sequence[Tensor], clock: _Clock) -> list[np.ndarray]:
    started = time.perf_counter()
    scores = [fitted.score_embedded(part) for part in parts]
    clock.score.append(time.perf_counter() - started)
    return scores
