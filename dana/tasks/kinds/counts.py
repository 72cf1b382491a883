"""Right, predicted and true counts by class to accuracy, micro-F1 and macro-F1."""

import numpy as np


def micro_f1(right: np.ndarray, predicted: np.ndarray, true: np.ndarray) -> np.ndarray:
    """F1 of the counts of all classes together; 0 where nothing is there or predicted.

    Args:
        right: How many of a class were found, shape (..., classes).
        predicted: How often the class was predicted.
        true: How many of the class there are.

    Returns:
        Scores in [0, 1] of shape (...).
    """
    return 2 * right.sum(-1) / np.maximum(predicted.sum(-1) + true.sum(-1), 1)


def macro_f1(right: np.ndarray, predicted: np.ndarray, true: np.ndarray) -> np.ndarray:
    """Mean F1 over all classes, one that is neither there nor predicted counting 0; arguments as above."""
    return (2 * right / np.maximum(predicted + true, 1)).mean(-1)


def accuracy(right: np.ndarray, predicted: np.ndarray, true: np.ndarray) -> np.ndarray:
    """Share of right predictions, where each thing has one class and gets one; arguments as above."""
    return right.sum(-1) / true.sum(-1)
