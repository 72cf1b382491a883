"""Look up kinds of labels by name; each kind is one file, their interface is in base.py."""

import math
from collections.abc import Sequence

import numpy as np

from dana.core.config import require
from dana.core.statistics import ALPHA
from dana.tasks.kinds.base import Kind
from dana.tasks.kinds.multi_label import MultiLabel
from dana.tasks.kinds.regression import Regression
from dana.tasks.kinds.single_label import SingleLabel
from dana.tasks.kinds.text_loss import TextLoss
from dana.tasks.kinds.token_labels import TokenLabels

LABELLED = (SingleLabel, MultiLabel, Regression, TokenLabels)
KINDS: dict[str, type[Kind]] = {kind.name: kind for kind in (*LABELLED, TextLoss)}
DEFAULT = SingleLabel.name


def find_kind(name: str) -> type[Kind]:
    """Return the kind of a name.

    Raises:
        ConfigError: If no kind has this name.
    """
    require(name in KINDS, "kind", name, f"one of {', '.join(kind.name for kind in LABELLED)}")
    return KINDS[name]


def is_error(metric: str) -> bool:
    """Return whether lower values of a metric are better."""
    return any(kind.metrics.get(metric) == "lower" for kind in KINDS.values())


def within_range(metric: str, interval: tuple[float, float], texts: int) -> tuple[float, float]:
    """Cut the interval of a mean score at the lowest and the highest score that a metric can have.

    With few folds an interval by Student's t reaches beyond them. Where all texts are right, or all
    wrong, their scores do not vary, and the interval would be a point. It then is that of a share
    by the binomial distribution (Clopper and Pearson).

    Args:
        metric: Name of the metric.
        interval: Its ends; NaN stays NaN.
        texts: Number of texts that were tested.
    """
    lowest, highest = 0.0, 1.0
    if is_error(metric):
        highest = math.inf
    elif metric in Regression.metrics:  # a correlation
        lowest = -1.0
    low, high = interval
    low, high = float(np.clip(low, lowest, highest)), float(np.clip(high, lowest, highest))
    is_share = (lowest, highest) == (0.0, 1.0)
    if not is_share or not math.isclose(low, high, abs_tol=1e-12):
        return low, high
    width = 1 - (ALPHA / 2) ** (1 / texts)
    if math.isclose(low, highest):
        return highest - width, highest
    if math.isclose(high, lowest, abs_tol=1e-12):
        return lowest, lowest + width
    return low, high


def kind_of_model(labels: Sequence[str], problem_type: str | None, per_word: bool) -> Kind | None:
    """Determine the kind of a transformers model; None if dana does not support it.

    Args:
        labels: Names of its logits.
        problem_type: From its configuration; without it, one logit is a number, and several are
            classes.
        per_word: Whether it labels every token.
    """
    has_labels = len(labels) > 1
    if problem_type is None and not per_word:
        default = SingleLabel if has_labels else Regression
        problem_type = default.problem_type
    for kind in LABELLED:
        if (
            kind.problem_type == problem_type
            and kind.per_word == per_word
            and kind.has_labels == has_labels
        ):
            return kind(tuple(labels) if has_labels else ())
    return None
