"""Kinds of targets by the names that cards give them."""

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


def make_kind(name: str, labels: Sequence[str]) -> Kind:
    """The kind of a task with these labels.

    Raises:
        ConfigError: If there is no such kind, or it cannot have these labels.
    """
    return find_kind(name)(tuple(labels))


def is_error(metric: str) -> bool:
    """Whether less of a metric is better."""
    return any(kind.metrics.get(metric) == "lower" for kind in KINDS.values())


def kind_of_model(labels: Sequence[str], problem_type: str | None, per_word: bool) -> Kind | None:
    """The kind that a model of transformers answers by; None if it is none of ours.

    Args:
        labels: Names of its logits.
        problem_type: As its configuration says.
        per_word: Whether it gives every token a label.
    """
    for kind in KINDS.values():
        if kind.opens(len(labels), problem_type, per_word):
            return kind(tuple(labels) if kind.labelled else ())
    return None
