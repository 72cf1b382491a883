"""Auto selector: several selectors compared on held-out task text, then the best of them or their fusion is fitted.

Each candidate is fitted as it will be deployed (:mod:`dana.selectors.build`), on folds of the task and the samples of
one half of the corpus, and scores pieces of held-out task documents and of the other half's documents. The fusion
weighs all by stacking.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from dana.core.artifacts import read_json, write_json
from dana.core.config import require
from dana.core.errors import DataError
from dana.core.logging import get_logger
from dana.core.registry import origin_of
from dana.core.rng import derive_seed, generator
from dana.core.statistics import percentile_interval
from dana.corpus.unit_stream import Units
from dana.scoring.ranking.folds import Pieces, folds_of, match_lengths, pieces_of, task_groups
from dana.scoring.ranking.measures import average_precisions, recalls_at
from dana.selectors.base import FittedSelector, RememberedContext, Selector, SelectorContext
from dana.selectors.build import create_selector, half_of, plain_selector
from dana.selectors.fusion import FusionSelector

log = get_logger(__name__)

PIECES = "pieces"  # name of the sample of general text that selectors are compared on
RIDGE = 0.01  # strength of the pull towards equal weights; between .001 and .1 the outcome hardly changes
NEAR = 0.01  # average precision by which a single one must beat the fusion, and one with an encoder one without
LEAST = 0.02  # weight below which a selector is left out of the fusion
FUSION = "fusion"
PIECE_UNITS = 8000  # general units that candidates are compared on, of both halves, in runs
MIN_TASK_UNITS = 5  # one a fold


@dataclass(frozen=True)
class FittedAuto(FittedSelector):
    """The chosen selector, fitted.

    Attributes:
        spec: Of the chosen one.
        fitted: What it learned.
        notes: The comparison, for the manifest.
    """

    spec: str
    fitted: FittedSelector
    notes: dict[str, Any]

    def score_units(self, units: Units) -> np.ndarray:
        """The chosen selector's scores."""
        return self.fitted.score(units)

    def save(self, folder: Path) -> None:
        """Write the fitted selector, and the comparison that it won."""
        self.fitted.save(folder / "chosen")
        write_json(folder / "selector.json", {"spec": self.spec, "notes": self.notes})


@dataclass(frozen=True)
class AutoSelector(Selector):
    """Comparison of selectors on held-out task text; the best one, or the fusion of all, scores.

    Every candidate is cross-validated over groups of the task's documents, against pieces of general documents that it
    has not seen (by :func:`held_out_scores`); the choice is by average precision
    (:func:`choose_selector`). Then the chosen one is fitted on the whole task.

    Attributes:
        selectors: Specs of selectors or detectors, joined by ``+``.
        folds: Of the task's documents.
        prevalence: Share of task text in the corpus that the average precision supposes.
        gamma: Units in a piece; the paper's segments have 15.
    """

    selectors: str = "moore_lewis+lexical+lda+svm"
    folds: int = 5
    prevalence: float = 0.1
    gamma: int = 15
    version: ClassVar[int] = 1
    cross_fits: ClassVar[bool] = True

    def __post_init__(self) -> None:
        FusionSelector(self.selectors)  # checks the list
        require(self.folds >= 2, "folds", self.folds, "at least 2")
        require(0 < self.prevalence < 1, "prevalence", self.prevalence, "in (0, 1)")
        require(self.gamma >= 1, "gamma", self.gamma, "at least 1")

    @property
    def _specs(self) -> list[str]:
        return self.selectors.split("+")

    @cached_property
    def _fusion(self) -> FusionSelector:
        return FusionSelector(self.selectors, context=self.context)

    def _candidates(self, context: SelectorContext) -> Sequence[Selector]:
        return [plain_selector(spec, context) for spec in self._specs]

    @property
    def takes(self) -> tuple[str, ...]:  # type: ignore[override]
        """What any candidate uses of the run's settings."""
        return self._fusion.takes

    def samples(self, task_units: int) -> Mapping[str, int]:
        """What a fusion of all would want, twice, as it is cross-fitted; and ``pieces``, in runs of γ units."""
        return {**self._fusion.samples(task_units), PIECES: PIECE_UNITS}

    def runs(self) -> Mapping[str, int]:
        return {PIECES: self.gamma}

    def learn(self, task: Units, general: Mapping[str, Units], seed: int) -> FittedAuto:
        """Compare, log the table and the reason, and fit what was chosen."""
        require(len(task) >= MIN_TASK_UNITS, "task", f"{len(task)} units", f"at least {MIN_TASK_UNITS} to choose by")
        texts = texts_to_compare(task, general, self.gamma, seed)
        candidates = self._candidates(RememberedContext.of(self.context))
        rows, spec, reason = choose_selector(self._specs, candidates, texts, self.folds, self.prevalence, seed)
        table = pd.DataFrame(rows).sort_values("ap", ascending=False, kind="stable")
        shown = table.to_string(index=False, float_format=lambda value: f"{value:.3f}", na_rep="")
        log.info("selectors on held-out task text\n%s", shown)
        log.info("selector  %s", reason)
        chosen = create_selector(spec, self.context)
        wanted = chosen.samples(len(task))
        fitted = chosen.fit(task, {name: general[name].first(size) for name, size in wanted.items()}, seed)
        return FittedAuto(spec, fitted, {"choice": {"chosen": spec, "reason": reason, "candidates": rows}})

    def load(self, folder: Path) -> FittedAuto:
        about = read_json(folder / "selector.json")
        chosen = create_selector(about["spec"], self.context)
        return FittedAuto(about["spec"], chosen.load(folder / "chosen"), about["notes"])

    def identity(self) -> dict[str, Any]:
        """Its parameters, and the candidates' own."""
        candidates = [{**one.identity(), "code": origin_of(one)} for one in self._candidates(self.context)]
        numbers = {name: getattr(self, name) for name in ("folds", "prevalence", "gamma")}
        return {"selector": "AutoSelector", **numbers, "candidates": candidates}


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
    """

    task: np.ndarray
    general: np.ndarray


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
    pieces = pieces_of(task, task_groups(task), gamma)
    half = {name: half_of(sample, seed) for name, sample in general.items()}
    fitted = {name: sample.rows(np.flatnonzero(half[name] == 0)) for name, sample in general.items() if name != PIECES}
    others = general[PIECES].rows(np.flatnonzero(half[PIECES] == 1))
    if len(others) < 2 or not all(map(len, fitted.values())):
        raise DataError(
            "the general text has too few documents to compare selectors on; name one, as --selector lexical"
        )
    cut = match_lengths(pieces_of(others, others.document_numbers, gamma), pieces.lengths, seed)
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
    found, others = np.zeros(len(task.units)), np.zeros(len(general.units))
    folds = int(fold.max()) + 1
    for number in range(folds):
        inside, outside = (np.flatnonzero((fold[task.of] == number) == side) for side in (False, True))
        fitted = selector.fit(task.units.rows(inside), samples, derive_seed(root, "ranking", "candidate", number))
        scores = fitted.score(general.units)
        mean, std = scores.mean(), scores.std() or 1.0
        found[outside] = (fitted.score(task.units.rows(outside)) - mean) / std
        others += (scores - mean) / std / folds
    return HeldOutScores(task.means(found), general.means(others))


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
    return HeldOutScores(found, others)


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


# One selector's row, over pieces of held-out task text and of general text: its name, `fusion` for the weighted sum of
# all; average precision, the task pieces weighted to a prevalence, with an interval of 95 % by a bootstrap over
# documents; recall, the share of task pieces below a quantile of the general ones, at 5 and 20 %; AUROC; its weight in
# the fusion, None for the fusion.
Row = dict[str, Any]


def choose_selector(
    specs: Sequence[str], selectors: Sequence[Selector], texts: ComparedTexts, folds: int, prevalence: float, seed: int
) -> tuple[list[Row], str, str]:
    """Fit, score and choose; returns a row a candidate, then the fusion's, the spec of the chosen one, and why.

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
    return rows, *_choose(rows, specs, weights, cheap)


def _row(
    name: str, scored: HeldOutScores, weight: float | None, texts: ComparedTexts, prevalence: float, seed: int
) -> Row:
    from sklearn.metrics import roc_auc_score

    groups = texts.task.groups, texts.general.groups
    ap = average_precisions(scored.task, scored.general, groups, prevalence, derive_seed(seed, "ranking", "bootstrap"))
    low, high = percentile_interval(ap[1:])
    is_task = np.repeat([1, 0], [scored.task.size, scored.general.size])
    return {
        **{"name": name, "ap": float(ap[0]), "ap_low": low, "ap_high": high},
        "recall_5": recalls_at(scored.task, scored.general, 0.05),
        "recall_20": recalls_at(scored.task, scored.general, 0.2),
        "auroc": float(roc_auc_score(is_task, -np.concatenate([scored.task, scored.general]))),
        "weight": weight,
    }


def _choose(rows: Sequence[Row], specs: Sequence[str], weights: np.ndarray, cheap: Sequence[str]) -> tuple[str, str]:
    """Spec of the selector to use, and why."""
    best = max(rows, key=lambda row: row["ap"])
    near = [row for row in rows if row["ap"] >= best["ap"] - NEAR]
    if near[-1]["name"] == FUSION:
        chosen = near[-1]
        kept = [(part, weight) for part, weight in zip(specs, weights, strict=True) if weight >= LEAST]
        parts, shares = "+".join(part for part, _ in kept), "+".join(f"{weight:.3f}" for _, weight in kept)
        spec = f"{FUSION}:parts={parts},weights={shares}"
        name = f"the fusion of {', '.join(f'{part} ({weight:.0%})' for part, weight in kept)}"
    else:
        chosen = next((row for row in near if row["name"] in cheap), best)
        spec = name = chosen["name"]
    reason = f"{name} has average precision {chosen['ap']:.3f}"
    other = max((row for row in rows if row is not chosen), key=lambda row: row["ap"], default=None)
    if other is not None:
        reason += f"; the best other one, {other['name']}, {other['ap']:.3f}"
        if other["ap"] > chosen["ap"]:
            reason += f": a difference of at most {NEAR} does not count"
    return spec, reason
