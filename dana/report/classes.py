"""Say which classes a classifier knows, and what it takes for what.

Also show texts that adaptation turned right or wrong.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from dana.report.analysis import Analysis
from dana.report.arm_results import ArmResult, Predictions
from dana.report.page import (
    Column,
    ExampleGroup,
    SourceExamples,
    Table,
    UnitExample,
    decimals,
    number,
    percent,
    text_columns,
)
from dana.report.tables import arm_name
from dana.report.unit_texts import beginning
from dana.report.verdicts import main_arms
from dana.tasks.kinds.multi_label import MultiLabel
from dana.tasks.kinds.single_label import SingleLabel

MOST_CLASSES = 30  # on the page; the file has all
# Classes of which each has a column; of more, the commonest confusions are listed.
WIDEST_MATRIX = 8
MOST_CONFUSIONS = 12
MOST_TURNED = 3  # texts shown that turned right, and as many that turned wrong
LONGEST_TEXT = 300  # characters of a text


def compared_results(analysis: Analysis, task: str) -> dict[str, ArmResult]:
    """Return the results whose classes are shown: before and after adaptation, and a simple model.

    Returns:
        Results by ``before``, ``after`` and ``baseline``; what the run lacks is left out.
    """
    arms = {result.arm: result for result in analysis.run.results if result.task == task}
    baselines = {result.arm: result for result in analysis.run.baselines if result.task == task}
    rows = [row for row in analysis.questions if row.task == task]
    if rows:
        names = {"before": rows[0].other, "after": rows[0].arm}
    else:
        candidates = [*main_arms(arms), *arms]
        names = {"after": candidates[0]} if candidates else {}
    found = {when: arms[arm] for when, arm in names.items() if arm in arms}
    for row in rows:
        if row.is_baseline:
            found["baseline"] = baselines[row.other]
    return found


def class_tables(analysis: Analysis) -> list[Table]:
    """Tabulate the scores of the classes of every task, and what the adapted model confuses."""
    rows: list[dict[str, Any]] = []
    with_confusions = []
    names: dict[str, str] = {}
    tasks = list(dict.fromkeys(result.task for result in analysis.run.results))
    for task in tasks:
        found = compared_results(analysis, task)
        after = found.get("after")
        if after is None or not isinstance(after.predictions.kind, SingleLabel | MultiLabel):
            continue
        names |= {when: arm_name(result.arm) for when, result in found.items()}
        rows += _class_rows(task, found)
        if isinstance(after.predictions.kind, SingleLabel):
            with_confusions.append(after)
    tables = []
    if rows:
        tables.append(_class_table(rows, names))
    if with_confusions:
        tables.append(_confusion_table(with_confusions))
    return tables


def _class_rows(task: str, found: Mapping[str, ArmResult]) -> list[dict[str, Any]]:
    """Make a row for each class of a task, the commonest first.

    Args:
        task: Name of the task.
        found: Results of :func:`compared_results`; F1 is of each, precision and recall are of
            ``after``.
    """
    after = found["after"].predictions
    classes = after.kind.labels
    right, predicted, actual = _counts(after)
    [texts] = actual
    precision = (right / np.maximum(predicted, 1)).mean(0)
    recall = (right / np.maximum(actual, 1)).mean(0)
    f1 = {when: _f1(result) for when, result in found.items()}
    rows = []
    for code in np.argsort(-texts, kind="stable").tolist():
        row: dict[str, Any] = {"task": task, "label": classes[code], "texts": int(texts[code])}
        for when, values in f1.items():
            row[when] = float(values[code])
        row["precision"] = float(precision[code])
        row["recall"] = float(recall[code])
        rows.append(row)
    return rows


def _f1(result: ArmResult) -> np.ndarray:
    """Compute the F1 of each class, the mean over models, of shape (classes,)."""
    right, predicted, actual = _counts(result.predictions)
    f1: np.ndarray = (2 * right / np.maximum(predicted + actual, 1)).mean(0)
    return f1


def _counts(predictions: Predictions) -> list[np.ndarray]:
    """Count the right predictions, the predictions and the texts of each class.

    Returns:
        Three arrays of shape (models, classes); that of the texts has one row.
    """
    kind = predictions.kind
    tallies, _ = kind.tallies(predictions.predicted, predictions.labels, "macro_f1")
    return [tally.sum(0) for tally in tallies]


def _class_table(rows: list[dict[str, Any]], names: Mapping[str, str]) -> Table:
    """Tabulate the classes.

    Args:
        rows: Rows of the classes.
        names: Name of the model ``before``, ``after`` and so on, for the reader.
    """
    frame = pd.DataFrame(rows)
    columns = [*text_columns("label"), *decimals(0, "texts")]
    columns += [_score_column(f"F1, {name}", when) for when, name in names.items()]
    columns += decimals(2, "precision", "recall")
    if frame["task"].nunique() > 1:
        columns = [*text_columns("task"), *columns]
    after = names["after"]
    caption = (
        f"Test texts of each class, and its F1, the mean over models. Of the model {after}: "
        "precision, the share of what it calls so that is so; recall, the share of the class that "
        "it finds."
    )
    return Table("classes", caption, frame, tuple(columns), max_rows=MOST_CLASSES)


def _score_column(header: str, name: str) -> Column:
    """Make a column of the scores that have a name in the frame."""
    return Column(header, lambda row: number(getattr(row, name), 2))


def _confusion_table(results: list[ArmResult]) -> Table:
    """Tabulate what is taken for what.

    It is a matrix if one task has few classes, else a list of the commonest confusions.
    """
    first = results[0]
    name = arm_name(first.arm)
    if len(results) == 1 and len(first.predictions.kind.labels) <= WIDEST_MATRIX:
        return _matrix(first, name)
    rows = []
    for result in results:
        rows += _confusion_rows(result)
    rows.sort(key=lambda row: -row["texts"])
    frame = pd.DataFrame(rows, columns=["task", "label", "taken_for", "texts", "share_of_class"])
    columns = (
        *text_columns("label", "taken_for"),
        *decimals(1, "texts"),
        Column("share of class", lambda row: percent(row.share_of_class, 0)),
    )
    if len(results) > 1:
        columns = (*text_columns("task"), *columns)
    caption = (
        f"What the model {name} takes for what, the commonest first: test texts, the mean over "
        "models."
    )
    return Table("confusions", caption, frame, columns, max_rows=MOST_CONFUSIONS)


def _confusion_rows(result: ArmResult) -> list[dict[str, Any]]:
    """Make a row for each class and each other class that it was taken for."""
    labels = result.predictions.kind.labels
    counts = _confusions(result)
    rows = []
    for actual, predicted in np.argwhere(counts > 0).tolist():
        if actual == predicted:
            continue
        count = float(counts[actual, predicted])
        rows.append(
            {
                "task": result.task,
                "label": labels[actual],
                "taken_for": labels[predicted],
                "texts": count,
                "share_of_class": count / counts[actual].sum(),
            }
        )
    return rows


def _confusions(result: ArmResult) -> np.ndarray:
    """Count the test texts of each class by predicted class.

    Returns:
        Means over models, of shape (classes, predicted classes).
    """
    predictions = result.predictions
    classes = len(predictions.kind.labels)
    cells = (predictions.labels * classes + predictions.predicted).ravel()
    counts = np.bincount(cells, minlength=classes**2).reshape(classes, classes)
    return counts / len(predictions.predicted)


def _matrix(result: ArmResult, name: str) -> Table:
    """Tabulate the confusions of one task, a column for each predicted class."""
    labels = result.predictions.kind.labels
    names = [f"predicted_{code}" for code in range(len(labels))]
    frame = pd.DataFrame(_confusions(result), columns=names)
    frame.insert(0, "label", labels)
    counts = map(_count_column, labels, names)
    columns = (*text_columns("label"), *counts)
    caption = (
        f"What the model {name} takes for what: in each row the test texts of a class, by the "
        "predicted class, the mean over models."
    )
    return Table("confusions", caption, frame, columns)


def _count_column(header: str, name: str) -> Column:
    """Make a column of mean counts, without a decimal that is zero."""
    return Column(header, lambda row: f"{getattr(row, name):.1f}".removesuffix(".0"))


def turned_texts(analysis: Analysis) -> tuple[ExampleGroup, ...]:
    """Choose test texts of the first task that adaptation turned right or wrong.

    Those come first whose share of right models changed most. Without the texts in the run's
    folder, or without a model before adaptation, there are none.
    """
    texts = analysis.run.texts
    if not texts or not analysis.questions:
        return ()
    found = compared_results(analysis, analysis.questions[0].task)
    if not {"before", "after"} <= found.keys():
        return ()
    before, after = found["before"].predictions, found["after"].predictions
    is_alike = np.array_equal(before.ids, after.ids)
    if not is_alike or not isinstance(after.kind, SingleLabel):
        return ()
    was_right = _majority(before) == after.labels
    is_right = _majority(after) == after.labels
    change = _right_share(after) - _right_share(before)
    groups = []
    for word, turned, order in (
        ("right", ~was_right & is_right, np.argsort(-change, kind="stable")),
        ("wrong", was_right & ~is_right, np.argsort(change, kind="stable")),
    ):
        rows = [row for row in order.tolist() if turned[row] and after.ids[row] in texts]
        units = _turned_units(rows[:MOST_TURNED], before, after, texts)
        if units:
            groups.append(SourceExamples(f"turned {word}: {int(turned.sum()):,}", units))
    title = f"Texts that most models answer otherwise after adaptation, of {after.labels.size:,}"
    return (ExampleGroup(title, tuple(groups)),)


def _turned_units(
    rows: list[int], before: Predictions, after: Predictions, texts: Mapping[str, str]
) -> tuple[UnitExample, ...]:
    """Show texts with their label and what most models predict before and after adaptation.

    Args:
        rows: Rows of the texts in the predictions.
        before: Predictions before adaptation, on the same texts.
        after: Predictions after it.
        texts: Texts by id.
    """
    classes = after.kind.labels
    old_answers = _majority(before)
    new_answers = _majority(after)
    units = []
    for row in rows:
        label = classes[after.labels[row]]
        old_answer = classes[old_answers[row]]
        new_answer = classes[new_answers[row]]
        note = f"{label}; before: {old_answer}, after: {new_answer}"
        units.append(UnitExample(beginning(texts[after.ids[row]], LONGEST_TEXT), note))
    return tuple(units)


def _majority(predictions: Predictions) -> np.ndarray:
    """Return the class that most models predict for each text; of equals the first."""
    classes = np.arange(len(predictions.kind.labels))
    majority: np.ndarray = (predictions.predicted[..., None] == classes).sum(0).argmax(1)
    return majority


def _right_share(predictions: Predictions) -> np.ndarray:
    """Return the share of models that are right about each text."""
    share: np.ndarray = (predictions.predicted == predictions.labels).mean(0)
    return share
