"""Compare selectors on held-out target text and fit the best one or their fusion.

Each candidate is fitted as it will be deployed (:mod:`dana.selectors.build`), on folds of the task
and samples of one half of the pool. It scores pieces of held-out target documents and of the other
half's documents. The weights of the fusion come from stacking.
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
from dana.core.extras import install_command
from dana.core.logging import get_logger
from dana.core.registry import origin_of
from dana.core.rng import derive_seed, generator
from dana.core.statistics import percentile_interval
from dana.corpus.unit_stream import Units
from dana.encoders.base import has_vectors
from dana.scoring.ranking.folds import Pieces, folds_of, match_lengths, pieces_of, target_groups
from dana.scoring.ranking.measures import average_precisions, recalls_at
from dana.selectors.base import FittedSelector, RememberedContext, Selector, SelectorContext
from dana.selectors.build import create_selector, half_of, plain_selector
from dana.selectors.fusion import FusionSelector

log = get_logger(__name__)

PIECES = "pieces"  # sample of pool text on which selectors are compared
RIDGE = 0.01  # penalty on unequal weights; results hardly change between 0.001 and 0.1
# Lead in average precision that a single selector needs over the fusion, and a selector with an encoder
# over one without.
NEAR = 0.01
LEAST = 0.02  # smallest weight in the fusion
FUSION = "fusion"
WORDS = ["moore_lewis", "lexical"]  # compared by default where no vectors are installed
PIECE_UNITS = 8000  # size of the sample `pieces` in units, in runs of γ; half of it is compared on
MIN_TARGET_UNITS = 5  # one for each fold of the default; with more folds some stay empty


@dataclass(frozen=True)
class FittedAuto(FittedSelector):
    """The best selector, fitted.

    Attributes:
        spec: Spec of the selector.
        model: The fitted selector.
        notes: The comparison, for the manifest.
    """

    spec: str
    model: FittedSelector
    notes: dict[str, Any]

    def score_units(self, units: Units) -> np.ndarray:
        return self.model.score(units)

    def save(self, folder: Path) -> None:
        """Write the fitted selector and the comparison."""
        self.model.save(folder / "chosen")
        write_json(folder / "selector.json", {"spec": self.spec, "notes": self.notes})


@dataclass(frozen=True)
class AutoSelector(Selector):
    """Selector that scores with the best of several selectors, or with their fusion.

    Every candidate is cross-validated over groups of the target's documents, against pieces of pool
    documents that it was not fitted on (:func:`held_out_scores`). The choice is by average
    precision (:func:`choose_selector`); the best one is then fitted on the whole task.

    Attributes:
        selectors: Specs of selectors or detectors, joined by ``+``. Without the vectors of the run's
            encoder the default is ``moore_lewis+lexical``.
        folds: Number of folds of the target's documents.
        prevalence: Share of target text that average precision assumes; pieces are weighted to it.
        gamma: Units of a piece; the paper's segments have 15.
    """

    selectors: str = "moore_lewis+lexical+lda+svm"
    folds: int = 5
    prevalence: float = 0.1
    gamma: int = 15
    version: ClassVar[int] = 1
    cross_fits: ClassVar[bool] = True

    def __post_init__(self) -> None:
        # Refuses an empty or repeated spec, and auto or fusion among them.
        FusionSelector("+".join(self._specs))
        require(self.folds >= 2, "folds", self.folds, "at least 2")
        require(0 < self.prevalence < 1, "prevalence", self.prevalence, "in (0, 1)")
        require(self.gamma >= 1, "gamma", self.gamma, "at least 1")

    @property
    def _is_by_words(self) -> bool:
        """Whether the default has no vectors to read."""
        is_default = self.selectors == AutoSelector.selectors
        return is_default and not has_vectors(self.context.encoder)

    @property
    def _specs(self) -> list[str]:
        return WORDS if self._is_by_words else self.selectors.split("+")

    @cached_property
    def _fusion(self) -> FusionSelector:
        return FusionSelector("+".join(self._specs), context=self.context)

    def _candidates(self, context: SelectorContext) -> Sequence[Selector]:
        # Without cross-fitting: held_out_scores keeps both texts out of each fit itself.
        return [plain_selector(spec, context) for spec in self._specs]

    @property
    def takes(self) -> tuple[str, ...]:  # type: ignore[override]
        """Settings of the run that any candidate uses."""
        return self._fusion.takes

    def samples(self, target_units: int) -> Mapping[str, int]:
        """Return the size in units of each sample of the pool.

        They are those that a cross-fitted fusion of all candidates needs, and ``pieces``, on which
        the candidates are compared.
        """
        return {**self._fusion.samples(target_units), PIECES: PIECE_UNITS}

    def runs(self) -> Mapping[str, int]:
        return {PIECES: self.gamma}

    def learn(self, target: Units, pool: Mapping[str, Units], seed: int) -> FittedAuto:
        """Compare the candidates, log the comparison and its reason, and fit the best one."""
        allowed = f"at least {MIN_TARGET_UNITS} to choose by"
        require(len(target) >= MIN_TARGET_UNITS, "target", f"{len(target)} units", allowed)
        if self._is_by_words:
            log.warning(
                "selector  by words: vectors of %s need %s",
                self.context.encoder,
                install_command("offline"),
            )
        compared_texts = texts_to_compare(target, pool, self.gamma, seed)
        candidates = self._candidates(RememberedContext.from_context(self.context))
        rows, spec, reason = choose_selector(
            self._specs, candidates, compared_texts, self.folds, self.prevalence, seed
        )
        table = pd.DataFrame(rows).sort_values("ap", ascending=False, kind="stable")
        table_text = table.to_string(
            index=False, float_format=lambda value: f"{value:.3f}", na_rep=""
        )
        log.info("selectors on held-out target text\n%s", table_text)
        log.info("selector  %s", reason)
        best = create_selector(spec, self.context)
        sizes = best.samples(len(target))
        samples = {name: pool[name].first(size) for name, size in sizes.items()}
        model = best.fit(target, samples, seed)
        choice = {"chosen": spec, "reason": reason, "candidates": rows}
        return FittedAuto(spec, model, {"choice": choice})

    def load(self, folder: Path) -> FittedAuto:
        record = read_json(folder / "selector.json")
        best = create_selector(record["spec"], self.context)
        return FittedAuto(record["spec"], best.load(folder / "chosen"), record["notes"])

    def identity(self) -> dict[str, Any]:
        """Return the parameters and the candidates' identities."""
        candidates = []
        for candidate in self._candidates(self.context):
            candidates.append({**candidate.identity(), "code": origin_of(candidate)})
        numbers = {name: getattr(self, name) for name in ("folds", "prevalence", "gamma")}
        return {"selector": "AutoSelector", **numbers, "candidates": candidates}


@dataclass(frozen=True)
class ComparedTexts:
    """Texts on which selectors are fitted and compared.

    Attributes:
        target: All pieces of the task.
        pool: Pieces of one half of the pool, to compare on.
        samples: Samples of the other half by name, to fit on.
    """

    target: Pieces
    pool: Pieces
    samples: Mapping[str, Units]


@dataclass(frozen=True)
class HeldOutScores:
    """Standardised scores of one selector; higher = more foreign.

    Attributes:
        target: Mean score of each target piece, shape (pieces,).
        pool: Mean score of each pool piece, shape (pieces,).
    """

    target: np.ndarray
    pool: np.ndarray


def texts_to_compare(
    target: Units, pool: Mapping[str, Units], gamma: int, seed: int
) -> ComparedTexts:
    """Cut texts into pieces and split the pool into a half to fit on and a half to compare on.

    Args:
        target: The target's units.
        pool: Samples of the whole pool by name, one of them ``pieces``.
        gamma: Most units of a piece.
        seed: Seed of the run; decides the halves.

    Raises:
        DataError: If the pool has too few documents for two halves.
    """
    target_pieces = pieces_of(target, target_groups(target), gamma)
    samples = {}
    for name, sample in pool.items():
        if name != PIECES:
            samples[name] = sample.rows(np.flatnonzero(half_of(sample, seed) == 0))
    compared_units = pool[PIECES].rows(np.flatnonzero(half_of(pool[PIECES], seed) == 1))
    documents_to_compare = np.unique(compared_units.document_numbers).size
    if documents_to_compare < 2 or not all(map(len, samples.values())):
        raise DataError(
            "the pool has too few documents to compare selectors; "
            "choose one yourself: --selector lexical"
        )
    pool_pieces = pieces_of(compared_units, compared_units.document_numbers, gamma)
    pool_pieces = match_lengths(pool_pieces, target_pieces.lengths, seed)
    return ComparedTexts(target_pieces, pool_pieces, samples)


def held_out_scores(
    selector: Selector, texts: ComparedTexts, fold: np.ndarray, seed: int
) -> HeldOutScores:
    """Score every target piece with the fit that excluded it.

    Scores are standardised by those of the pool by the same fit.

    Args:
        selector: Selector in a context that remembers vectors.
        texts: Texts to fit on and to score.
        fold: Fold that holds each target piece out, int64 of shape (target pieces,).
        seed: Seed of the run.

    Returns:
        Scores; those of pool pieces are averaged over the fits.
    """
    target = texts.target
    pool = texts.pool
    sizes = selector.samples(len(target.units))
    samples = {name: texts.samples[name].first(size) for name, size in sizes.items()}
    target_scores = np.zeros(len(target.units))
    pool_scores = np.zeros(len(pool.units))
    folds = int(fold.max()) + 1
    for number in range(folds):
        piece_of_unit = target.of
        is_held_out = fold[piece_of_unit] == number
        fitted_rows = np.flatnonzero(~is_held_out)
        held_out_rows = np.flatnonzero(is_held_out)
        fit_seed = derive_seed(seed, "ranking", "candidate", number)
        model = selector.fit(target.units.rows(fitted_rows), samples, fit_seed)
        scores = model.score(pool.units)
        mean = scores.mean()
        std = scores.std() or 1.0
        held_out_units = target.units.rows(held_out_rows)
        target_scores[held_out_rows] = (model.score(held_out_units) - mean) / std
        pool_scores += (scores - mean) / std / folds
    return HeldOutScores(target.means(target_scores), pool.means(pool_scores))


def _side_by_side(candidates: Sequence[HeldOutScores]) -> tuple[np.ndarray, np.ndarray]:
    """Return the scores of target and of pool pieces, each of shape (pieces, selectors)."""
    target = np.stack([candidate.target for candidate in candidates], 1)
    pool = np.stack([candidate.pool for candidate in candidates], 1)
    return target, pool


def fused_scores(candidates: Sequence[HeldOutScores], fold: np.ndarray, seed: int) -> HeldOutScores:
    """Sum the selectors' scores, with weights for each fold that come from the other folds.

    Args:
        candidates: Scores of each selector.
        fold: Fold of each target piece, int64 of shape (target pieces,); pool pieces are dealt into
            as many folds.
        seed: Seed of the run.

    Returns:
        Weighted sums. Each piece, of target and of pool, is scored with the weights of the folds
        that it is not in.
    """
    target, pool = _side_by_side(candidates)
    folds = int(fold.max()) + 1
    pool_fold = generator(seed, "ranking", "stacking").permutation(len(pool)) % folds
    target_scores = np.zeros(len(target))
    pool_scores = np.zeros(len(pool))
    for number in range(folds):
        weights, _, _ = stacking_weights(target[fold != number], pool[pool_fold != number])
        target_scores[fold == number] = target[fold == number] @ weights
        pool_scores[pool_fold == number] = pool[pool_fold == number] @ weights
    return HeldOutScores(target_scores, pool_scores)


def stacking_weights(target: np.ndarray, pool: np.ndarray) -> tuple[np.ndarray, float, float]:
    """Fit a logistic regression of target against pool text.

    Its weights are shrunk towards equal weights: it minimises the mean logistic loss, both classes
    of equal weight, plus RIDGE · Σ (w_k - mean w)². With little text the weights stay near equal.

    Args:
        target: Scores of target pieces, shape (pieces, selectors); higher = more foreign.
        pool: Scores of pool pieces, shape (pieces, selectors).

    Returns:
        A tuple of: weights of shape (selectors,), not negative, with sum one, and equal if no
        selector separates the two; slope; intercept. The last two give the log odds of being pool
        text as a function of the weighted sum.

    References:
        Wolpert 1992, Stacked generalization. Breiman 1996, Stacked regressions (weights not
        negative).
    """
    from scipy.optimize import minimize
    from scipy.special import expit

    rows = np.concatenate([target, pool])
    sign = np.concatenate([-np.ones(len(target)), np.ones(len(pool))])
    share = np.where(sign < 0, 0.5 / len(target), 0.5 / len(pool))
    count = rows.shape[1]

    def loss(parameters: np.ndarray) -> tuple[float, np.ndarray]:
        weights = parameters[:-1]
        intercept = parameters[-1]
        margin = sign * (rows @ weights + intercept)
        apart = weights - weights.mean()
        value = float(share @ np.logaddexp(0, -margin) + RIDGE * apart @ apart)
        # Derivative of the loss with respect to the log odds of each piece.
        derivative = -share * sign * expit(-margin)
        weight_gradient = rows.T @ derivative + 2 * RIDGE * apart
        return value, np.append(weight_gradient, derivative.sum())

    bounds = [(0.0, None)] * count + [(None, None)]
    start = np.append(np.ones(count), 0.0)
    solution = minimize(loss, start, jac=True, bounds=bounds, method="L-BFGS-B").x
    total = float(solution[:-1].sum())
    weights = np.full(count, 1 / count)
    if total > 1e-6:
        weights = solution[:-1] / total
    return weights, total, float(solution[-1])


# Row of one selector, measured on the compared pieces. "name": its spec, or "fusion" for the weighted
# sum of all. "ap", "ap_low", "ap_high": average precision at the prevalence and its 95 % interval by a
# bootstrap over documents. "recall_5", "recall_20": share of target pieces that score below the 5 % or
# 20 % quantile of the pool pieces' scores. "auroc". "weight": that in the fusion; None for the fusion
# itself.
Row = dict[str, Any]


def choose_selector(
    specs: Sequence[str],
    selectors: Sequence[Selector],
    texts: ComparedTexts,
    folds: int,
    prevalence: float,
    seed: int,
) -> tuple[list[Row], str, str]:
    """Fit and score the candidates and choose one, or their fusion, by average precision.

    The fusion is chosen unless a single selector leads by more than :data:`NEAR`: its parts make
    different errors, so of nearly equal ones it is likelier to be the best
    (docs/results/selectors.md). Every piece's fused score uses weights from the other folds. Of
    single selectors within :data:`NEAR` of the best, the first that needs no encoder is chosen.

    Args:
        specs: Specs of the candidates.
        selectors: The candidates, in a context that remembers vectors.
        texts: Texts to fit on and to compare on.
        folds: Number of folds of the target's documents.
        prevalence: Share of target text that average precision assumes.
        seed: Seed of the run.

    Returns:
        One row per candidate and one for the fusion, the spec to use, and the reason.

    Raises:
        DataError: If a candidate cannot be fitted on these texts.
    """
    fold = folds_of(texts.target.groups, folds, derive_seed(seed, "ranking", "folds", 0))
    candidates = [held_out_scores(selector, texts, fold, seed) for selector in selectors]
    target, pool = _side_by_side(candidates)
    weights, _, _ = stacking_weights(target, pool)
    rows = []
    cheap = []  # specs of the selectors that need no encoder
    for spec, selector, scores, weight in zip(specs, selectors, candidates, weights, strict=True):
        rows.append(_row(spec, scores, float(weight), texts, prevalence, seed))
        if "encoder" not in selector.takes:
            cheap.append(spec)
    if len(candidates) > 1:
        fusion = fused_scores(candidates, fold, seed)
        rows.append(_row(FUSION, fusion, None, texts, prevalence, seed))
    spec, reason = _choose(rows, specs, weights, cheap)
    return rows, spec, reason


def _row(
    name: str,
    scores: HeldOutScores,
    weight: float | None,
    texts: ComparedTexts,
    prevalence: float,
    seed: int,
) -> Row:
    """Measure how the scores of a selector, or of the fusion, separate target from pool text."""
    from sklearn.metrics import roc_auc_score

    groups = (texts.target.groups, texts.pool.groups)
    ap_seed = derive_seed(seed, "ranking", "bootstrap")
    precisions = average_precisions(scores.target, scores.pool, groups, prevalence, ap_seed)
    low, high = percentile_interval(precisions[1:])  # after that of the data, of the bootstrap
    is_target = np.repeat([1, 0], [scores.target.size, scores.pool.size])
    relevance = -np.concatenate([scores.target, scores.pool])
    return {
        "name": name,
        "ap": float(precisions[0]),
        "ap_low": low,
        "ap_high": high,
        "recall_5": recalls_at(scores.target, scores.pool, 0.05),
        "recall_20": recalls_at(scores.target, scores.pool, 0.2),
        "auroc": float(roc_auc_score(is_target, relevance)),
        "weight": weight,
    }


def _choose(
    rows: Sequence[Row], specs: Sequence[str], weights: np.ndarray, cheap: Sequence[str]
) -> tuple[str, str]:
    """Choose a selector by average precision; return its spec and the reason."""
    best = max(rows, key=lambda row: row["ap"])
    near = {row["name"]: row for row in rows if row["ap"] >= best["ap"] - NEAR}
    near_cheap = [name for name in near if name in cheap]
    if FUSION in near:
        choice = near[FUSION]
        spec, name = _describe_fusion(specs, weights)
    else:
        choice = near[near_cheap[0]] if near_cheap else best
        spec = choice["name"]
        name = spec
    reason = f"{name} has average precision {choice['ap']:.3f}"
    others = [row for row in rows if row is not choice]
    if others:
        other = max(others, key=lambda row: row["ap"])
        reason += f"; the best other one, {other['name']}, {other['ap']:.3f}"
        if other["ap"] > choice["ap"]:
            reason += f": a difference of at most {NEAR} does not count"
    return spec, reason


def _describe_fusion(specs: Sequence[str], weights: np.ndarray) -> tuple[str, str]:
    """Return the spec of a fusion, and a description.

    Parts of little weight are left out, and FusionSelector scales the other weights to sum to 1.
    """
    parts = []
    shares = []
    descriptions = []
    for part, weight in zip(specs, weights, strict=True):
        if weight >= LEAST:
            parts.append(part)
            shares.append(f"{weight:.3f}")
            descriptions.append(f"{part} ({weight:.0%})")
    spec = f"{FUSION}:parts={'+'.join(parts)},weights={'+'.join(shares)}"
    return spec, f"the fusion of {', '.join(descriptions)}"
