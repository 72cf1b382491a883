"""Read the frozen probes of a run, and compare arms by them over adaptations and test texts."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dana.core.errors import ArtifactError
from dana.core.files import paths_below
from dana.core.statistics import TwoLevel, two_level
from dana.report.arm_results import PREDICTIONS
from dana.report.files import read_columns, read_object, reading
from dana.tasks.kinds import find_kind, within_range
from dana.tasks.kinds.base import Kind

LINEAR = "linear"
NEIGHBOURS = "neighbours"
NEIGHBOURS_FILE = "neighbours.json"
ALL = "all"  # the size of all training texts
COLUMNS = ("method", "size", "draw", "id", "label", "prediction")


@dataclass(frozen=True)
class ProbeResult:
    """What probes of one size find in the vectors of one arm on one task.

    Attributes:
        task: Name of the task.
        arm: Name of the arm, or of a checkpoint.
        metric: Name of the metric.
        direction: ``higher`` or ``lower`` is better.
        method: ``linear`` or ``neighbours``.
        size: Number of labels as in the settings, or ``all``.
        labels: Number of labels; with folds, of the first.
        draws: Number of draws of labels.
        values: What each test text adds to the score, averaged over the draws of labels, of shape
            (adaptations, texts); with folds of shape (1, texts).
        ids: Ids of the test texts, ascending.
        folds: Fold of each text; None without folds.
        deviation: Standard deviation of the score over draws of labels; NaN with one draw.
    """

    task: str
    arm: str
    metric: str
    direction: str
    method: str
    size: str
    labels: int
    draws: int
    values: np.ndarray
    ids: np.ndarray
    folds: np.ndarray | None = None
    deviation: float = math.nan

    @property
    def name(self) -> str:
        """Name of the measure: "100 labels", "all 2,000 labels", "neighbours"."""
        if self.method != LINEAR:
            return self.method
        labels = f"{self.labels:,} labels"
        return f"all {labels}" if self.size == ALL else labels

    @property
    def estimate(self) -> TwoLevel:
        """Mean score and its error over adaptations, or folds, and test texts."""
        return two_level(self.values, len(self.values), self.folds)

    @property
    def interval(self) -> tuple[float, float]:
        """95 % interval of the mean, within the scores that the metric can have."""
        estimate = self.estimate
        return within_range(self.metric, estimate.interval, estimate.texts)

    def difference(self, other: "ProbeResult") -> TwoLevel | None:
        """Estimate the difference to another arm, text by text; None if they were not probed alike.

        A model that is the same in all adaptations, such as the base, is compared with each.
        """
        is_alike = self.draws == other.draws and np.array_equal(self.ids, other.ids)
        if self.folds is not None and other.folds is not None:
            is_alike = is_alike and np.array_equal(self.folds, other.folds)
        if not is_alike:
            return None
        units = max(len(self.values), len(other.values))
        if not {len(self.values), len(other.values)} <= {1, units}:
            return None
        differences = np.broadcast_to(self.values - other.values, (units, self.ids.size))
        return two_level(differences, units, self.folds)


def read_probes(path: Path) -> tuple[ProbeResult, ...]:
    """Read the probes of every arm on every task from ``probe/TASK/ARM/INDEX``.

    Of arms with different adaptations or folds only those that all have are read, so that arms stay
    paired; without folds, a model that is the same in all adaptations has one.

    Raises:
        ArtifactError: If a file is damaged.
    """
    arms: dict[tuple[str, str], dict[int, Path]] = {}
    for file in paths_below(path, "probe/*/*/*/probe.json"):
        task, arm, index = file.parts[-4:-1]
        if re.fullmatch(r"\d+", index):
            arms.setdefault((task, arm), {})[int(index)] = file
    results = []
    for task in dict.fromkeys(task for task, _ in arms):
        of_task = {arm: files for (name, arm), files in arms.items() if name == task}
        common = _common_indices(list(of_task.values()))
        for arm, files in of_task.items():
            paired = [file for index, file in sorted(files.items()) if index in common]
            results += _read_arm(arm, paired)
    return tuple(results)


def _common_indices(arms: Sequence[Mapping[int, Path]]) -> set[int]:
    """Return the adaptations, or folds, that all arms of a task have.

    Args:
        arms: Files of each arm by adaptation or fold.
    """
    has_folds = any(_has_fold(file) for files in arms for file in files.values())
    indices = []
    for files in arms:
        # Without folds, a model that is the same in all adaptations has one.
        if has_folds or len(files) > 1:
            indices.append(set(files))
    return set.intersection(*indices) if indices else {0}


def _has_fold(file: Path) -> bool:
    """Return whether a probe tested a fold."""
    return read_object(file).get("fold") is not None


def _read_arm(arm: str, files: Sequence[Path]) -> list[ProbeResult]:
    """Read the probes of all adaptations, or folds, of one arm."""
    if not files:
        return []
    contents = [read_object(file) for file in files]
    first = contents[0]
    with reading(files[0]):
        kind = find_kind(first["kind"])(tuple(first["labels"]))
        has_folds = first["fold"] is not None
        measures = [(LINEAR, row["size"], row["labels"], row["draws"]) for row in first["sizes"]]
        measures.append((NEIGHBOURS, ALL, first["train"], 1))
        head = (first["task"], arm, first["metric"], first["direction"])
    tables = [read_columns(file.with_name(PREDICTIONS), COLUMNS) for file in files]
    results = []
    for measure in measures:
        method, size, _, draws = measure
        parts = []
        for file, table in zip(files, tables, strict=True):
            is_method = pc.equal(table["method"].cast("string"), method)
            is_size = pc.equal(table["size"].cast("string"), size)
            rows = table.filter(pc.and_(is_method, is_size))
            with reading(file):
                parts.append(_predictions_by_draw(rows, kind, draws))
        results.append(_join(head, measure, parts, kind, has_folds, files[0]))
    return results


def _predictions_by_draw(
    rows: pa.Table, kind: Kind, draws: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sort the predictions of one probe by draw and id.

    Returns:
        Ids and labels of shape (texts,), and predictions of shape (draws, texts).
    """
    order = np.lexsort((rows["id"].to_numpy(), rows["draw"].to_numpy()))
    shape = (draws, -1)
    ids = rows["id"].to_numpy()[order].reshape(shape)
    labels = kind.labels_from(rows["label"])[order].reshape(shape)
    predicted = kind.labels_from(rows["prediction"])[order].reshape(shape)
    return ids[0], labels[0], predicted


def _join(
    head: tuple[str, str, str, str],
    measure: tuple[str, str, int, int],
    parts: list[tuple[np.ndarray, np.ndarray, np.ndarray]],
    kind: Kind,
    has_folds: bool,
    file: Path,
) -> ProbeResult:
    """Join the predictions of adaptations, which share the test texts, or of folds, which do not.

    Args:
        head: Task, arm, metric and direction.
        measure: Method, size, number of labels and of draws.
        parts: Ids, labels and predictions of each adaptation or fold.
        kind: Kind of label.
        has_folds: Whether the parts are folds.
        file: File to name in an error.
    """
    metric = head[2]
    if has_folds:
        ids = np.concatenate([ids for ids, _, _ in parts])
        actual = np.concatenate([actual for _, actual, _ in parts])
        predicted = np.concatenate([predicted for _, _, predicted in parts], axis=1)
        folds = np.repeat(np.arange(len(parts)), [len(ids) for ids, _, _ in parts])
        order = np.argsort(ids, kind="stable")
        of_draws = kind.influences(predicted, actual, metric)
        values = of_draws.mean(0)[None]
        deviation = _deviation(of_draws.mean(1))
        return ProbeResult(*head, *measure, values[:, order], ids[order], folds[order], deviation)
    ids = parts[0][0]
    if any(not np.array_equal(ids, others) for others, _, _ in parts):
        raise ArtifactError(f"{file}: the test texts differ from those of the other adaptations")
    by_adaptation = np.stack(
        [kind.influences(predicted, actual, metric) for _, actual, predicted in parts]
    )
    deviation = _deviation(by_adaptation.mean((0, 2)))
    return ProbeResult(*head, *measure, by_adaptation.mean(1), ids, deviation=deviation)


def _deviation(scores: np.ndarray) -> float:
    """Return the standard deviation of the scores of draws of labels; NaN of one."""
    return float(scores.std(ddof=1)) if len(scores) > 1 else math.nan


def read_neighbours(path: Path) -> dict[str, list[dict[str, Any]]]:
    """Read the nearest labelled texts of a few test texts from the first probe of each arm, by arm.

    Only the first task of the first adaptation, or fold, is read: its texts are examples.

    Raises:
        ArtifactError: If a file is damaged.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    first_task = ""
    for file in paths_below(path, f"probe/*/*/0/{NEIGHBOURS_FILE}"):
        task, arm = file.parts[-4:-2]
        first_task = first_task or task
        if task == first_task:
            with reading(file):
                found[arm] = read_object(file)["texts"]
    return found


def read_retrieval(path: Path) -> list[dict[str, Any]]:
    """Read how well each arm's vectors find a document by a sentence: a row per arm and text.

    Raises:
        ArtifactError: If a file is damaged.
    """
    rows = []
    for file in paths_below(path, "retrieval/*/retrieval.json"):
        with reading(file):
            for text, scores in read_object(file)["texts"].items():
                if scores is not None:
                    rows.append({"arm": file.parent.name, "text": text, **scores})
    return rows
