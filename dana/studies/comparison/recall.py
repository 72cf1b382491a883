"""Planted recall: document scores to the share of plants found, with what chance and the best possible would find."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dana.core.rng import generator
from dana.core.statistics import draw_counts, percentile_interval
from dana.studies.comparison.settings import COUNTED
from dana.weighting.settings import parse_amount

REPLICATES = 500
Rows = list[tuple[str, float]]


@dataclass(frozen=True)
class DocumentBudget:
    """How many documents of a ranking are kept.

    Attributes:
        amount: In (0, 1] for a share, else a positive count.
        kind: ``share`` (of the documents), ``documents`` or ``tokens`` (words between white space).
    """

    amount: float
    kind: str

    @classmethod
    def parse(cls, text: str) -> "DocumentBudget":
        """Read ``0.05``, ``300 documents`` or ``2e4 tokens``.

        Raises:
            ConfigError: If it is none of these.
        """
        return cls(*parse_amount(text, "budgets", COUNTED))

    def count(self, words: np.ndarray) -> int:
        """Documents kept, at least one.

        Args:
            words: Words of each document, best first.
        """
        if self.kind == "tokens":
            return max(1, int(np.searchsorted(np.cumsum(words), self.amount, side="right")))
        most = self.amount * words.size if self.kind == "share" else self.amount
        return max(1, min(words.size, round(most)))


def planted_precision(scores: np.ndarray, planted: np.ndarray, count: int) -> float:
    """Share of plants among the `count` documents with the lowest scores, ties broken at random (its expectation).

    Args:
        scores: float64 of shape (documents,), higher = more foreign.
        planted: bool of shape (documents,).
        count: How many documents are looked at, at least 1.
    """
    threshold = np.partition(scores, count - 1)[count - 1]
    below, tied = scores < threshold, scores == threshold
    found = planted[below].sum() + (count - below.sum()) * planted[tied].mean()
    return float(found / count)


def ranking_measures(scores: np.ndarray, planted: np.ndarray) -> Rows:
    """Precision at R (R = number of plants), AUROC and average precision of the plants against all others.

    Args:
        scores: float64 of shape (documents,), higher = more foreign.
        planted: bool of shape (documents,), at least one of each kind.
    """
    from sklearn.metrics import average_precision_score, roc_auc_score

    return [
        ("precision_at_r", planted_precision(scores, planted, int(planted.sum()))),
        ("auroc", float(roc_auc_score(planted, -scores))),
        ("average_precision", float(average_precision_score(planted, -scores))),
        ("chance", float(planted.mean())),
    ]


def budget_measures(scores: np.ndarray, planted: np.ndarray, count: int) -> Rows:
    """Precision and recall of the plants among the `count` best documents, each with its ceiling.

    The best precision of `count` documents is min(1, plants / count), the best recall min(1, count / plants).
    """
    plants = int(planted.sum())
    precision = planted_precision(scores, planted, count)
    return [
        ("precision", precision),
        ("precision_ceiling", min(1.0, plants / count)),
        ("recall", precision * count / plants),
        ("recall_ceiling", min(1.0, count / plants)),
    ]


def precision_interval(scores: Sequence[np.ndarray], planted: np.ndarray, seed: int = 0) -> tuple[float, float]:
    """95 % percentile interval of the mean precision at R, by a bootstrap over the documents of the pool.

    Every replicate draws documents with replacement, the same for all rankings, so what seeds have in common is not
    averaged away. R is the number of plants drawn; ties stand in the order of the pool.

    Args:
        scores: One ranking of the same pool a seed, each of shape (documents,).
        planted: Shape (documents,), bool.
        seed: Of the draws.
    """
    draws = generator(seed, "comparison", "interval")
    drawn = draw_counts(draws, np.ones(planted.size), REPLICATES)
    means = np.zeros(REPLICATES)
    for values in scores:
        order = np.argsort(values, kind="stable")
        times = drawn[:, order]
        found = np.cumsum(times * planted[order], axis=1)
        plants = found[:, -1]
        reached = np.cumsum(times, axis=1)
        at = np.minimum((reached < plants[:, None]).sum(1), planted.size - 1)
        means += found[np.arange(REPLICATES), at] / np.maximum(reached[np.arange(REPLICATES), at], 1)
    return percentile_interval(means / len(scores))
