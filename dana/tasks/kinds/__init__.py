"""Kinds of targets, a file each, by the names that cards give them; the contract is in base.py."""

from collections.abc import Sequence

from dana.core.config import require
from dana.tasks.kinds.base import Kind
from dana.tasks.kinds.multi_label import MultiLabel
from dana.tasks.kinds.regression import Regression
from dana.tasks.kinds.single_label import SingleLabel
from dana.tasks.kinds.token_labels import TokenLabels

KINDS: dict[str, type[Kind]] = {kind.name: kind for kind in (SingleLabel, MultiLabel, Regression, TokenLabels)}
DEFAULT = SingleLabel.name


def find_kind(name: str) -> type[Kind]:
    """A kind by name.

    Raises:
        ConfigError: If there is none of this name.
    """
    require(name in KINDS, "kind", name, f"one of {', '.join(KINDS)}")
    return KINDS[name]


def is_error(metric: str) -> bool:
    """Whether less of a metric is better."""
    return any(kind.metrics.get(metric) == "lower" for kind in KINDS.values())


def kind_of_model(labels: Sequence[str], problem_type: str | None, per_word: bool) -> Kind | None:
    """The kind that a model of transformers answers by; None if it is none of ours.

    Args:
        labels: Names of its logits.
        problem_type: As its configuration says; where it says nothing, one logit is a number and several are classes.
        per_word: Whether it gives every token a label.
    """
    several = len(labels) > 1
    if problem_type is None and not per_word:
        problem_type = (SingleLabel if several else Regression).problem_type
    for kind in KINDS.values():
        if kind.problem_type == problem_type and kind.per_word == per_word and kind.labelled == several:
            return kind(tuple(labels) if several else ())
    return None
