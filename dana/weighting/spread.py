"""Spread: how many units each group holds to the number of equally large groups that would be as varied."""

import numpy as np


def effective_number(amounts: np.ndarray) -> float:
    """The exponential of the entropy of the groups' shares: k where all hold the same, 1 where one holds all.

    Args:
        amounts: Of each group, float of shape (k,), not negative; not all 0.

    References:
        Hill 1973, Diversity and evenness: a unifying notation and its consequences (the number of order 1).
    """
    shares = amounts[amounts > 0] / amounts.sum()
    return float(np.exp(-(shares * np.log(shares)).sum()))
