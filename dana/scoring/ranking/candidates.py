"""Choice of a selector: held-out scores of several to a row each, and the best of them or the fusion of all."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from dana.core.rng import derive_seed
from dana.core.statistics import percentile_interval
from dana.scoring.ranking.folds import folds_of
from dana.scoring.ranking.held_out_scores import ComparedTexts, HeldOutScores, fused_scores, held_out_scores
from dana.scoring.ranking.precision import average_precisions, recalls_at
from dana.scoring.ranking.stacking import stacking_weights
from dana.selectors.base import Selector

NEAR = 0.01  # average precision by which a single one must beat the fusion, and one with an encoder one without
LEAST = 0.02  # weight below which a selector is left out of the fusion
FUSION = "fusion"
BUDGETS = (0.05, 0.2)
SECONDS = ("fit_s", "score_s")


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
    weights = stacking_weights(*sides).weights
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
