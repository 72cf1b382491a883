"""Say which classes a classifier knows, what it takes for what, and which texts adaptation turned right or wrong."""

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
WIDEST_MATRIX = (
    8  # classes of which each has a column; of more, the commonest confusions are listed
)
MOST_CONFUSIONS = 12
MOST_TURNED = 3  # texts shown that turned right, and as many that turned wrong
LONGEST_TEXT = 300  # characters of a text


def compared_results(analysis: Analysis, task: str) -> dict[str, ArmResult]:
    """Return the results that a task's classes are shown of: before and after adaptation, and a simple model.

    Returns:
        Results by ``before``, ``after`` and ``baseline``; what the run lacks is left out.
    """
    arms = {result.arm: result for result in analysis.run.results if result.task == task}
    rows = [row for row in analysis.questions if row.task == task]
    baselines = {result.arm: result for result in analysis.run.baselines if result.task == task}
    if rows:
        names = {"before": rows[0].other, "after": rows[0].arm}
    else:
        names = {"after": next(iter(main_arms(arms)), next(iter(arms), ""))}
    found = {when: arms[arm] for when, arm in names.items() if arm in arms}
    for row in rows:
        if row.is_baseline:
            found["baseline"] = baselines[row.other]
    return found


def class_tables(analysis: Analysis) -> list[Table]:
    """Tabulate the scores of each class, and the confusions of the model after adaptation, of every task."""
    rows: list[dict[str, Any]] = []
    confused = []
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
            confused.append(after)
    made = [_class_table(rows, names)] if rows else []
    return made + ([_confusion_table(confused)] if confused else [])


def _class_rows(task: str, found: Mapping[str, ArmResult]) -> list[dict[str, Any]]:
    """Make a row for each class of a task: its texts, and its F1 by model; the commonest class first."""
    after = found["after"].predictions
    classes = after.kind.labels
    actual = _members(after.labels, len(classes))
    scores = {when: _f1(result) for when, result in found.items()}
    predicted = _members(after.predicted, len(classes))
    right = (predicted & actual).sum(1)
    precision = (right / np.maximum(predicted.sum(1), 1)).mean(0)
    recall = (right / np.maximum(actual.sum(0), 1)).mean(0)
    counts = actual.sum(0)
    return [
        {
            "task": task,
            "label": classes[code],
            "texts": int(counts[code]),
            **{when: float(values[code]) for when, values in scores.items()},
            "precision": float(precision[code]),
            "recall": float(recall[code]),
        }
        for code in np.argsort(-counts, kind="stable").tolist()
    ]


def _members(values: np.ndarray, classes: int) -> np.ndarray:
    """Say which classes each label has, as bool of shape (..., classes)."""
    if values.dtype != object:
        return values[..., None] == np.arange(classes)
    members = np.zeros((values.size, classes), dtype=bool)
    for row, codes in zip(members, values.ravel(), strict=True):
        row[list(codes)] = True
    return members.reshape(*values.shape, classes)


def _f1(result: ArmResult) -> np.ndarray:
    """Compute the F1 of each class, the mean over models, of shape (classes,)."""
    parts = result.predictions
    classes = len(parts.kind.labels)
    actual = _members(parts.labels, classes)
    predicted = _members(parts.predicted, classes)
    right = (predicted & actual).sum(1)
    return (2 * right / np.maximum(predicted.sum(1) + actual.sum(0), 1)).mean(0)


def _class_table(rows: list[dict[str, Any]], names: Mapping[str, str]) -> Table:
    frame = pd.DataFrame(rows)
    columns = text_columns("task") if frame["task"].nunique() > 1 else ()
    columns += (*text_columns("label"), *decimals(0, "texts"))
    for when, name in names.items():
        columns += (_score_column(f"F1, {name}", when),)
    columns += decimals(2, "precision", "recall")
    after = names["after"]
    caption = (
        f"Test texts of each class, and its F1, the mean over models. Of the model {after}: precision, the share of "
        "what it calls so that is so; recall, the share of the class that it finds."
    )
    return Table("classes", caption, frame, columns, max_rows=MOST_CLASSES)


def _score_column(header: str, name: str) -> Column:
    return Column(header, lambda row: number(getattr(row, name), 2))


def _confusion_table(results: list[ArmResult]) -> Table:
    """Tabulate what is taken for what: a matrix of few classes of one task, else the commonest confusions."""
    first = results[0]
    name = arm_name(first.arm)
    if len(results) == 1 and len(first.predictions.kind.labels) <= WIDEST_MATRIX:
        return _matrix(first, name)
    rows = []
    for result in results:
        labels = result.predictions.kind.labels
        counts = _confusions(result)
        for actual, predicted in np.argwhere(counts > 0).tolist():
            if actual != predicted:
                count = float(counts[actual, predicted])
                share = count / counts[actual].sum()
                row = {"task": result.task, "label": labels[actual], "taken_for": labels[predicted]}
                rows.append({**row, "texts": count, "share_of_class": share})
    rows.sort(key=lambda row: -row["texts"])
    frame = pd.DataFrame(rows, columns=["task", "label", "taken_for", "texts", "share_of_class"])
    columns = text_columns("task") if len(results) > 1 else ()
    columns += text_columns("label", "taken_for") + decimals(1, "texts")
    columns += (Column("share of class", lambda row: percent(row.share_of_class, 0)),)
    caption = f"What the model {name} takes for what, the commonest first: test texts, the mean over models."
    return Table("confusions", caption, frame, columns, max_rows=MOST_CONFUSIONS)


def _confusions(result: ArmResult) -> np.ndarray:
    """Count the test texts of each class by predicted class, the mean over models, of shape (classes, classes)."""
    parts = result.predictions
    classes = len(parts.kind.labels)
    cells = (parts.labels * classes + parts.predicted).ravel()
    counts = np.bincount(cells, minlength=classes**2).reshape(classes, classes)
    return counts / len(parts.predicted)


def _matrix(result: ArmResult, name: str) -> Table:
    labels = result.predictions.kind.labels
    counts = _confusions(result)
    frame = pd.DataFrame(counts, columns=[f"predicted_{code}" for code in range(len(labels))])
    frame.insert(0, "label", labels)
    columns = text_columns("label")
    for code, label in enumerate(labels):
        columns += (_count_column(label, f"predicted_{code}"),)
    caption = (
        f"What the model {name} takes for what: in each row the test texts of a class, by the predicted class, the "
        "mean over models."
    )
    return Table("confusions", caption, frame, columns)


def _count_column(header: str, name: str) -> Column:
    return Column(header, lambda row: f"{getattr(row, name):.1f}".removesuffix(".0"))


def turned_texts(analysis: Analysis) -> tuple[ExampleGroup, ...]:
    """Choose test texts of the first task that adaptation turned right or wrong, by the share of models.

    Without the texts in the run's folder, or without a model before adaptation, there are none.
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
    answers = [_answers(parts) for parts in (before, after)]
    is_right = [codes == after.labels for codes in answers]
    shares = [(parts.predicted == parts.labels).mean(0) for parts in (before, after)]
    change = shares[1] - shares[0]
    turned_right = ~is_right[0] & is_right[1]
    turned_wrong = is_right[0] & ~is_right[1]
    labels = after.kind.labels
    groups = []
    for word, turned, order in (
        ("right", turned_right, np.argsort(-change, kind="stable")),
        ("wrong", turned_wrong, np.argsort(change, kind="stable")),
    ):
        rows = [row for row in order.tolist() if turned[row] and after.ids[row] in texts]
        units = tuple(
            UnitExample(
                beginning(texts[after.ids[row]], LONGEST_TEXT),
                f"{labels[after.labels[row]]}; before: {labels[answers[0][row]]}, "
                f"after: {labels[answers[1][row]]}",
            )
            for row in rows[:MOST_TURNED]
        )
        if units:
            groups.append(SourceExamples(f"turned {word}: {int(turned.sum()):,}", units))
    title = f"Texts that most models answer otherwise after adaptation, of {after.labels.size:,}"
    return (ExampleGroup(title, tuple(groups)),)


def _answers(parts: Predictions) -> np.ndarray:
    """Return the class that most models predict for each text; of equals the first."""
    classes = np.arange(len(parts.kind.labels))
    return (parts.predicted[..., None] == classes).sum(0).argmax(1)
