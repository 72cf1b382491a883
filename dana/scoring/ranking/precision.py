"""Average precision at a prevalence: scores of task and general pieces to a number with bootstrap replicates."""

import numpy as np

from dana.core.rng import generator
from dana.core.statistics import draw_groups

REPLICATES = 200


def average_precisions(
    task: np.ndarray, general: np.ndarray, groups: tuple[np.ndarray, np.ndarray], prevalence: float, seed: int
) -> np.ndarray:
    """Average precision of ranking by low score, shape (replicates + 1,); the first is that of the data as they are.

    Args:
        task: Scores of task pieces, higher = more foreign.
        general: Scores of general pieces.
        groups: Of either, int64; pieces of one number are drawn together.
        prevalence: Share of task text that the pieces are weighted to.
        seed: Of the bootstrap; the same seed draws the same groups, so that selectors are compared on the same draws.
    """
    from sklearn.metrics import average_precision_score

    is_task = np.repeat([True, False], [task.size, general.size])
    relevance = -np.concatenate([task, general])
    found = []
    for replicate in range(REPLICATES + 1):
        random = generator(seed, "precision", replicate)
        counts = [np.ones(side.size) if replicate == 0 else draw_groups(random, side, 1)[0] for side in groups]
        shares = [
            share * count / max(count.sum(), 1)
            for share, count in zip((prevalence, 1 - prevalence), counts, strict=True)
        ]
        found.append(average_precision_score(is_task, relevance, sample_weight=np.concatenate(shares)))
    return np.array(found)


def recalls_at(task: np.ndarray, general: np.ndarray, budget: float) -> float:
    """Share of task scores below the β-quantile of the general ones; those equal to it count half."""
    threshold = np.quantile(general, budget)
    return float((task < threshold).mean() + 0.5 * (task == threshold).mean())
