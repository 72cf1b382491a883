"""Say before a run what differences its labelled texts can decide, in the metric of the task's card."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from dana.core.rng import generator
from dana.core.statistics import smallest_difference
from dana.report.tables import metric_name
from dana.tasks.card import TaskCard
from dana.tasks.examples import read_splits, subset
from dana.tasks.kinds.base import Kind
from dana.tasks.kinds.single_label import SingleLabel

QUESTIONS = 2  # adapted against base, and against random
MOST_DRAWN = 2_000  # texts of a simulation
DRAWS = 10  # simulations
RIGHT = 0.6  # share of texts whose label a simulated model knows
REDRAWN = 0.3  # share of texts whose prediction differs between two simulated models, by its draw


def describe_power(
    task: TaskCard,
    data: str | None,
    count: int,
    quick_count: int | None,
    is_folded: bool,
    is_probed: bool,
    max_train: int | None = None,
) -> list[str]:
    """Say in lines how many texts of a task are tested, and what differences of two models that can decide.

    Args:
        task: The task.
        data: Folder of its data.
        count: Number of adaptations, or folds, of the whole run.
        quick_count: Number of them in a run that ends after the probe; None for a whole run.
        is_folded: Whether each adaptation tests a fold of its own.
        is_probed: Whether the run probes texts.
        max_train: Number of training texts; None for all.

    Raises:
        DataError: If the data is missing or does not fit the card.
    """
    kind = task.label_kind
    units = count if quick_count is None else quick_count
    splits = [read_splits(task, data, fold) for fold in (range(count) if is_folded else [None])]
    labels = [[example.label for example in split["test"]] for split in splits]
    counted = labels[:units] if is_folded else labels
    tested = [label for part in counted for label in part]
    what = f"{len(task.labels)} labels" if task.labels else task.metric
    train = len(subset(splits[0]["train"], max_train))
    if is_folded:
        lines = [
            f"{task.name}: {len(tested):,} texts are tested, in {units} of {count} folds, each by "
            f"models of about {train:,} others; {what}"
        ]
    else:
        lines = [f"{task.name}: {train:,} texts to train on, {len(tested):,} to test on; {what}"]
    if not task.labels:
        return lines
    folds = units if is_folded else 1
    has_probe = is_probed and not kind.per_word
    ratio = spread_ratio(kind, tested, task.metric)
    if has_probe:
        by_probe = ratio * smallest_difference(len(tested), folds, units, probe=True)
        lines.append(describe_difference(by_probe, task.metric, "the probe"))
    if quick_count is None or not has_probe:
        by_tuning = ratio * smallest_difference(len(tested), folds, units, QUESTIONS)
        lines.append(describe_difference(by_tuning, task.metric, "fine-tuning"))
    else:
        lines.append(
            "--quick ends after the probe: fine-tuned models are compared by dana run without it"
        )
    return lines


def describe_difference(difference: float, metric: str, means: str) -> str:
    """Format the smallest difference of two models that can be decided; none is as large as 1.

    Args:
        difference: The difference.
        metric: Metric of the card.
        means: What compares the models.
    """
    if difference >= 1:
        return f"too few texts or folds to decide any difference by {means}"
    return f"a difference of about {difference:.2g} {metric_name(metric)} can be decided by {means}"


def spread_ratio(kind: Kind, labels: Sequence[Any], metric: str) -> float:
    """Return how much more a difference in a metric varies over texts than one in accuracy.

    Macro-F1 gives each class the same weight, so that a text of a rare class moves it more. The ratio
    is that of two simulated models that know most labels and err as often on every class.

    Args:
        kind: Kind of the labels.
        labels: Labels of the tested texts.
        metric: Metric of the card.

    Returns:
        The ratio of the standard deviations; 1 where it is not known.
    """
    if kind.name != SingleLabel.name or metric != "macro_f1" or len(labels) < 2:
        return 1.0
    random = generator(0, "power")
    variances = {metric: 0.0, "accuracy": 0.0}
    for _ in range(DRAWS):
        actual = random.permutation(kind.gather(labels))[:MOST_DRAWN]
        first = _draw_predictions(actual, random)
        is_redrawn = random.random(len(actual)) < REDRAWN
        second = np.where(is_redrawn, _draw_predictions(actual, random), first)
        for name in variances:
            of_texts = kind.influences(np.stack([first, second]), actual, name)
            variances[name] += float((of_texts[1] - of_texts[0]).var())
    if not variances["accuracy"]:
        return 1.0
    return float(np.sqrt(variances[metric] / variances["accuracy"]))


def _draw_predictions(actual: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Draw predictions that are right with :data:`RIGHT`, else a label as frequent as among the texts."""
    is_right = random.random(len(actual)) < RIGHT
    return np.where(is_right, actual, random.permutation(actual))
