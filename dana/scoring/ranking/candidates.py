"""Choice of a selector: texts to held-out scores of several, a row each, and the best of them or the fusion of all.

Each selector is fitted as it will be deployed (:mod:`dana.selectors.build`), on folds of the task and the
samples of one half of the corpus, and scores pieces of held-out task documents and of the other half's documents. The
fusion weighs all by stacking.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from dana.core.errors import DataError
from dana.core.rng import derive_seed, generator
from dana.core.statistics import percentile_interval
from dana.corpus.unit_stream import Units
from dana.scoring.ranking.folds import Pieces, cut_like, folds_of, pieces_of, task_groups
from dana.scoring.ranking.measures import average_precisions, recalls_at
from dana.selectors.base import Selector
from dana.selectors.build import half_of

PIECES = "pieces"  # name of the sample of general text that selectors are compared on
RIDGE = 0.01  # strength of the pull towards equal weights; between .001 and .1 the outcome hardly changes
NEAR = 0.01  # average precision by which a single one must beat the fusion, and one with an encoder one without
LEAST = 0.02  # weight below which a selector is left out of the fusion
FUSION = "fusion"
BUDGETS = (0.05, 0.2)
SECONDS = ("fit_s", "score_s")


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
    groups, _ = task_groups(task)
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
        weights = stacking_weights(task[fold != number], general[dealt != number])[0]
        found[fold == number] = task[fold == number] @ weights
        others[dealt == number] = general[dealt == number] @ weights
    return HeldOutScores(found, others, sum(one.fit_s for one in scored), sum(one.score_s for one in scored))


def stacking_weights(task: np.ndarray, general: np.ndarray) -> tuple[np.ndarray, float, float]:
    """Fit a logistic model that tells task from general text, its weights drawn towards equal ones.

    Minimises the mean logistic loss, both classes of equal weight, plus RIDGE · Σ (w_k - mean w)². Equal weights are
    what little text supports; only where the scores say so does one selector count more.

    Args:
        task: Scores of task pieces, shape (pieces, selectors); higher = more foreign.
        general: Scores of general pieces, shape (pieces, selectors).

    Returns:
        Weights of shape (selectors,), none negative, summing to one, equal where no selector tells the two apart; by
        how much the log odds of being general text change for one unit of the weighted sum; and those where it is 0.

    References:
        Wolpert 1992, Stacked generalization. Breiman 1996, Stacked regressions (weights not negative).
    """
    from scipy.optimize import minimize
    from scipy.special import expit

    rows = np.concatenate([task, general])
    sign = np.concatenate([-np.ones(len(task)), np.ones(len(general))])
    share = np.where(sign < 0, 0.5 / len(task), 0.5 / len(general))
    count = rows.shape[1]

    def loss(parameters: np.ndarray) -> tuple[float, np.ndarray]:
        weights, intercept = parameters[:-1], parameters[-1]
        margin = sign * (rows @ weights + intercept)
        slope = -share * sign * expit(-margin)
        apart = weights - weights.mean()
        value = float(share @ np.logaddexp(0, -margin) + RIDGE * apart @ apart)
        return value, np.append(rows.T @ slope + 2 * RIDGE * apart, slope.sum())

    bounds = [(0.0, None)] * count + [(None, None)]
    found = minimize(loss, np.append(np.ones(count), 0.0), jac=True, bounds=bounds, method="L-BFGS-B").x
    total = float(found[:-1].sum())
    weights = found[:-1] / total if total > 1e-6 else np.full(count, 1 / count)
    return weights, total, float(found[-1])


@dataclass(frozen=True)
class Compared:
    """One selector's row, over pieces of held-out task text and of general text.

    Attributes:
        name: Its spec; ``fusion`` for the weighted sum of all.
        ap: Average precision, the task pieces weighted to a prevalence.
        ap_low: Lower end of its interval of 95 %, a bootstrap over documents.
        ap_high: Upper end.
        recall_5: Share of the task pieces below the 5 % quantile of the general ones.
        recall_20: The same at 20 %.
        auroc: Probability that a task piece scores lower than a general one, ties half.
        weight: Its weight in the fusion; None for the fusion.
        fit_s: Seconds a fit.
        score_s: Seconds to score a million units, encoding left out.
    """

    name: str
    ap: float
    ap_low: float
    ap_high: float
    recall_5: float
    recall_20: float
    auroc: float
    weight: float | None
    fit_s: float
    score_s: float


@dataclass(frozen=True)
class ChosenSelector:
    """The outcome.

    Attributes:
        rows: One a candidate, then the fusion.
        chosen: Spec of the selector to use.
        reason: Why, in words.
    """

    rows: list[Compared]
    chosen: str
    reason: str

    @property
    def notes(self) -> dict[str, Any]:
        """For a manifest: all but the seconds, so that the same seed gives the same bytes."""
        rows = [{key: value for key, value in asdict(row).items() if key not in SECONDS} for row in self.rows]
        return {"chosen": self.chosen, "reason": self.reason, "candidates": rows}

    def text(self) -> str:
        """The rows as aligned columns, best first, for people."""
        import pandas as pd

        frame = pd.DataFrame(map(asdict, self.rows)).sort_values("ap", ascending=False, kind="stable")
        return frame.to_string(index=False, float_format=lambda value: f"{value:.3f}", na_rep="")


def choose_selector(
    specs: Sequence[str], selectors: Sequence[Selector], texts: ComparedTexts, folds: int, prevalence: float, seed: int
) -> ChosenSelector:
    """Fit, score and choose.

    The choice is by average precision. The fusion is taken unless a single one is better by more than 0.01: the parts'
    errors differ, so where chance could make a difference the fusion is the likelier to be right, also against one
    that would cost less (docs/results/selectors.md). Its own scores are made with weights learned on the other folds.
    Of single ones within 0.01 of the best, the first that needs no encoder is taken.

    Args:
        specs: Of the candidates.
        selectors: They themselves, in a context that remembers vectors.
        texts: What they are fitted on and compared on.
        folds: Of the task's documents.
        prevalence: Share of task text that the average precision supposes.
        seed: Root seed.

    Raises:
        DataError: If a candidate cannot be fitted on these texts.
    """
    fold = folds_of(texts.task.groups, folds, derive_seed(seed, "ranking", "folds", 0))
    scored = [held_out_scores(selector, texts, fold, seed) for selector in selectors]
    sides = (np.stack([getattr(one, side) for one in scored], 1) for side in ("task", "general"))
    weights = stacking_weights(*sides)[0]
    if len(scored) > 1:
        scored.append(fused_scores(scored, fold, seed))
    shares = [*map(float, weights), None]
    rows = [
        _row(name, one, share, texts, prevalence, seed)
        for name, one, share in zip([*specs, FUSION], scored, shares, strict=False)
    ]
    cheap = [spec for spec, selector in zip(specs, selectors, strict=True) if "encoder" not in selector.takes]
    chosen, reason = _choose(rows, specs, weights, cheap)
    return ChosenSelector(rows, chosen, reason)


def _row(
    name: str, scored: HeldOutScores, weight: float | None, texts: ComparedTexts, prevalence: float, seed: int
) -> Compared:
    from sklearn.metrics import roc_auc_score

    groups = texts.task.groups, texts.general.groups
    ap = average_precisions(scored.task, scored.general, groups, prevalence, derive_seed(seed, "ranking", "bootstrap"))
    low, high = percentile_interval(ap[1:])
    recall_5, recall_20 = (recalls_at(scored.task, scored.general, budget) for budget in BUDGETS)
    is_task = np.repeat([1, 0], [scored.task.size, scored.general.size])
    auroc = float(roc_auc_score(is_task, -np.concatenate([scored.task, scored.general])))
    found = (float(ap[0]), low, high, recall_5, recall_20, auroc)
    return Compared(name, *found, weight, scored.fit_s, scored.score_s)


def _choose(
    rows: Sequence[Compared], specs: Sequence[str], weights: np.ndarray, cheap: Sequence[str]
) -> tuple[str, str]:
    """Spec of the selector to use, and why."""
    best = max(rows, key=lambda row: row.ap)
    near = [row for row in rows if row.ap >= best.ap - NEAR]
    if near[-1].name != FUSION:
        chosen = next((row for row in near if row.name in cheap), best)
        said = f", as good as {best.name} ({best.ap:.3f}), which needs an encoder"
        if chosen is best:
            others = sorted((row for row in rows if row is not best), key=lambda row: -row.ap)
            said = "".join(f"; the next, {row.name}, {row.ap:.3f}" for row in others[:1])
        return chosen.name, f"{chosen.name} has average precision {chosen.ap:.3f}{said}"
    chosen = near[-1]
    kept = [(spec, weight) for spec, weight in zip(specs, weights, strict=True) if weight >= LEAST]
    single = max((row for row in rows if row is not chosen), key=lambda row: row.ap)
    parts, shares = "+".join(spec for spec, _ in kept), "+".join(f"{weight:.3f}" for _, weight in kept)
    said = f"the fusion of {', '.join(f'{spec} ({weight:.0%})' for spec, weight in kept)} has average precision "
    said += f"{chosen.ap:.3f}; the best single one, {single.name}, {single.ap:.3f}"
    return f"{FUSION}:parts={parts},weights={shares}", said
