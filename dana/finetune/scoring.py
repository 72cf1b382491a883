"""Scores of predictions by our local ``evaluate`` modules."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from dana.finetune.card import METRICS


def score(predictions: np.ndarray, references: np.ndarray, labels: int) -> dict[str, float]:
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

    return evaluate.load(str(Path(__file__).parent / "metrics" / name), keep_in_memory=True)


def is_degenerate(predictions: np.ndarray) -> bool:
    """Whether one class was predicted throughout: the run collapsed, and its score says nothing."""
    return np.unique(predictions).size < 2
