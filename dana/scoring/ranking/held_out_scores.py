"""Held-out scores of selectors: task and general units to standardised scores of pieces that no fit has seen.

Each selector is fitted as it will be deployed (:mod:`dana.selectors.cross_fitting`), on folds of the task and the
samples of one half of the corpus, and scores pieces of held-out task documents and of the other half's documents.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dana.core.errors import DataError
from dana.core.logging import get_logger
from dana.core.rng import derive_seed, generator
from dana.corpus.unit_stream import Units
from dana.scoring.ranking.folds import groups_of, stretches
from dana.scoring.ranking.pieces import Pieces, cut_like, pieces_of
from dana.scoring.ranking.stacking import stacking_weights
from dana.selectors.base import Selector
from dana.selectors.cross_fitting import half_of

log = get_logger(__name__)

PIECES = "pieces"  # name of the sample of general text that selectors are compared on


@dataclass(frozen=True)
class ComparedTexts:
    """What is fitted on and compared.

    Attributes:
        task: All pieces of the task.
        general: Pieces of the half of the corpus that is not fitted on.
        samples: General samples of the other half, by name.
    """

    task: Pieces
    general: Pieces
    samples: Mapping[str, Units]


@dataclass(frozen=True)
class HeldOutScores:
    """Standardised scores of one selector; higher = more foreign.

    Attributes:
        task: Means of the task's pieces, shape (pieces,).
        general: Means of the general pieces, shape (pieces,).
        fit_s: Seconds a fit.
        score_s: Seconds to score a million units, encoding left out.
    """

    task: np.ndarray
    general: np.ndarray
    fit_s: float
    score_s: float


def texts_to_compare(task: Units, general: Mapping[str, Units], gamma: int, seed: int) -> ComparedTexts:
    """Cut the texts into pieces, and share the corpus out by halves.

    Args:
        task: The task's units.
        general: Samples of the whole corpus by name, one of them ``pieces``.
        gamma: Units in a segment.
        seed: Root seed; decides the halves.

    Raises:
        DataError: If the corpus has too few documents for two halves.
    """
    places = np.argsort(np.lexsort((task.numbers, task.of)))
    groups, was_cut = stretches(groups_of(task.texts, list(map(str, task.document_numbers))), places)
    if was_cut:
        log.warning(
            "selector  most of the task is one document, or near copies of one: stretches of it are held out, "
            "and they are like the rest of it, so the numbers flatter"
        )
    pieces = pieces_of(task, groups, gamma)
    half = {name: half_of(sample, seed) for name, sample in general.items()}
    fitted = {name: sample.rows(np.flatnonzero(half[name] == 0)) for name, sample in general.items() if name != PIECES}
    others = general[PIECES].rows(np.flatnonzero(half[PIECES] == 1))
    if len(others) < 2 or not all(map(len, fitted.values())):
        raise DataError(
            "the general text has too few documents to compare selectors on; name one, as --selector lexical"
        )
    cut = cut_like(pieces_of(others, others.document_numbers, gamma), pieces.lengths, seed)
    return ComparedTexts(pieces, cut, fitted)


def held_out_scores(selector: Selector, texts: ComparedTexts, fold: np.ndarray, root: int) -> HeldOutScores:
    """Scores of every task piece by the fit that left it out, standardised by the general units' of the same fit.

    Args:
        selector: In a context that remembers vectors.
        texts: What is fitted on and compared.
        fold: int64 of shape (task pieces,), the fold that holds each out.
        root: Root seed.
    """
    task, general = texts.task, texts.general
    samples = {name: texts.samples[name].first(size) for name, size in selector.samples(len(task.units)).items()}
    if "encoder" in selector.takes:
        for units in (task.units, general.units, *samples.values()):
            selector.settings.embed(units.texts)  # remembered, so that the seconds are without it
    found, others = np.zeros(len(task.units)), np.zeros(len(general.units))
    fit_s, score_s, folds = 0.0, 0.0, int(fold.max()) + 1
    for number in range(folds):
        inside, outside = (np.flatnonzero((fold[task.of] == number) == side) for side in (False, True))
        started = time.perf_counter()
        fitted = selector.fit(task.units.rows(inside), samples, derive_seed(root, "ranking", "candidate", number))
        fit_s += (time.perf_counter() - started) / folds
        started = time.perf_counter()
        scores = fitted.score(general.units)
        score_s += (time.perf_counter() - started) / folds
        mean, std = scores.mean(), scores.std() or 1.0
        found[outside] = (fitted.score(task.units.rows(outside)) - mean) / std
        others += (scores - mean) / std / folds
    return HeldOutScores(task.means(found), general.means(others), fit_s, score_s / len(general.units) * 1e6)


def fused_scores(scored: Sequence[HeldOutScores], fold: np.ndarray, root: int) -> HeldOutScores:
    """The weighted sum of all, the pieces of each fold by weights that were learned on the others.

    Args:
        scored: One a selector.
        fold: int64 of shape (task pieces,); general pieces are dealt into as many folds.
        root: Root seed.
    """
    task, general = (np.stack([getattr(one, side) for one in scored], 1) for side in ("task", "general"))
    folds = int(fold.max()) + 1
    dealt = generator(root, "ranking", "stacking").permutation(len(general)) % folds
    found, others = np.zeros(len(task)), np.zeros(len(general))
    for number in range(folds):
        weights = stacking_weights(task[fold != number], general[dealt != number]).weights
        found[fold == number] = task[fold == number] @ weights
        others[dealt == number] = general[dealt == number] @ weights
    return HeldOutScores(found, others, sum(one.fit_s for one in scored), sum(one.score_s for one in scored))
