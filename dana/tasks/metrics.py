"""Predicted and true labels to accuracy, macro-F1 and micro-F1 by local ``evaluate`` modules."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

METRICS = ("accuracy", "micro_f1", "macro_f1")
NEARLY_CONSTANT = 0.1


def score_predictions(predictions: np.ndarray, references: np.ndarray, labels: int) -> dict[str, float]:
    """Accuracy, micro-F1 and macro-F1, each in [0, 1], higher is better.

    With one label a text, micro-F1 over all labels is accuracy. Macro-F1 is over the full label set: one that
    is neither there nor predicted counts 0, so that every seed averages over the same classes.

    Args:
        predictions: int64 of shape (examples,).
        references: The same.
        labels: Size of the full label set.
    """
    found: dict[str, float] = {}
    for name in METRICS:
        found |= _module(name).compute(predictions=predictions, references=references, labels=list(range(labels)))
    return found


@cache
def _module(name: str) -> Any:
    """Loading takes a tenth of a second, and there is a score for every epoch of every seed."""
    import evaluate

    return evaluate.load(str(Path(__file__).parent / "evaluation_modules" / name), keep_in_memory=True)


def is_degenerate(predictions: np.ndarray, references: np.ndarray) -> bool:
    """Whether nearly everything was predicted to be one class, of texts that are not: the training collapsed.

    What is predicted besides the most frequent predicted class is set against what lies outside the most frequent
    true class. Below a tenth of it the model is a constant with a few stray predictions, and its score says nothing.
    Few predictions of a class that is rare are no collapse.

    Args:
        predictions: int64 of shape (examples,).
        references: The same.

    References:
        Mosbach, Andriushchenko and Klakow 2021, On the stability of fine-tuning BERT (runs that fail). Their mark,
        an accuracy not above the most frequent class's, passes strays that are right, and fails sound models of
        data where one class is nearly everything.
    """
    strays = _outside_largest(predictions)
    return strays == 0 or strays < NEARLY_CONSTANT * _outside_largest(references)


def _outside_largest(classes: np.ndarray) -> int:
    """How many lie outside the most frequent class."""
    return int(classes.size - np.unique(classes, return_counts=True)[1].max())
