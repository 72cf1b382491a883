"""Read the frozen probes of a run, and compare arms by them over adaptations and test texts."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc

from dana.core.errors import ArtifactError
from dana.core.statistics import TwoLevel, two_level
from dana.report.arm_results import PREDICTIONS
from dana.report.files import read_columns, read_object, reading
from dana.tasks.kinds import find_kind

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

    @property
    def name(self) -> str:
        """Name of the measure: "100 labels", "all 2,000 labels", "neighbours"."""
        if self.method != LINEAR:
            return self.method
        return f"all {self.labels:,} labels" if self.size == ALL else f"{self.labels:,} labels"

    @property
    def estimate(self) -> TwoLevel:
        """Mean score and its error over adaptations, or folds, and test texts."""
        return two_level(self.values, len(self.values), self.folds)

    def difference(self, other: "ProbeResult") -> TwoLevel | None:
        """Estimate the difference to another arm, text by text; None if they were not probed alike.

        A model that is the same in all adaptations, such as the base, is compared with each.
        """
        alike = np.array_equal(self.ids, other.ids) and self.draws == other.draws
        if self.folds is not None and other.folds is not None:
            alike = alike and np.array_equal(self.folds, other.folds)
        units = max(len(self.values), len(other.values))
        counts = {len(self.values), len(other.values)}
        if not alike or not counts <= {1, units}:
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
    for file in sorted(path.glob("probe/*/*/*/probe.json")):
        task, arm, index = file.parts[-4:-1]
        if re.fullmatch(r"\d+", index):
            arms.setdefault((task, arm), {})[int(index)] = file
    results = []
    for task in dict.fromkeys(task for task, _ in arms):
        files = {arm: found for (name, arm), found in arms.items() if name == task}
        has_folds = any(_has_fold(file) for found in files.values() for file in found.values())
        several = [set(found) for found in files.values() if has_folds or len(found) > 1]
        common = set.intersection(*several) if several else {0}
        for arm, found in files.items():
            parts = [file for index, file in sorted(found.items()) if index in common]
            results += _read_arm(arm, parts)
    return tuple(results)


def _has_fold(file: Path) -> bool:
    """Return whether a probe tested a fold."""
    return read_object(file).get("fold") is not None


def _read_arm(arm: str, files: Sequence[Path]) -> list[ProbeResult]:
    """Read the probes of all adaptations, or folds, of one arm."""
    metrics = [read_object(file) for file in files]
    results: list[ProbeResult] = []
    if not files:
        return results
    first = metrics[0]
    with reading(files[0]):
        kind = find_kind(first["kind"])(tuple(first["labels"]))
        has_folds = first["fold"] is not None
        rows = [(LINEAR, row["size"], row["labels"], row["draws"]) for row in first["sizes"]]
        rows.append((NEIGHBOURS, ALL, first["train"], 1))
        head = first["task"], arm, first["metric"], first["direction"]
    tables = [read_columns(file.with_name(PREDICTIONS), COLUMNS) for file in files]
    for method, size, labels, draws in rows:
        parts = []
        for file, table in zip(files, tables, strict=True):
            same_method = pc.equal(table["method"].cast("string"), method)
            same_size = pc.equal(table["size"].cast("string"), size)
            part = table.filter(pc.and_(same_method, same_size))
            with reading(file):
                order = np.lexsort((part["id"].to_numpy(), part["draw"].to_numpy()))
                shape = draws, -1
                ids = part["id"].to_numpy()[order].reshape(shape)[0]
                actual = kind.labels_from(part["label"])[order].reshape(shape)[0]
                predicted = kind.labels_from(part["prediction"])[order].reshape(shape)
            parts.append((ids, actual, predicted))
        results.append(_join(head, (method, size, labels, draws), parts, kind, has_folds, files[0]))
    return results


def _join(
    head: tuple[str, str, str, str],
    row: tuple[str, str, int, int],
    parts: list[tuple[np.ndarray, np.ndarray, np.ndarray]],
    kind: Any,
    has_folds: bool,
    file: Path,
) -> ProbeResult:
    """Join the predictions of adaptations, which share the test texts, or of folds, which do not."""
    metric = head[2]
    if has_folds:
        ids = np.concatenate([ids for ids, _, _ in parts])
        actual = np.concatenate([actual for _, actual, _ in parts])
        predicted = np.concatenate([predicted for _, _, predicted in parts], axis=1)
        folds = np.repeat(np.arange(len(parts)), [len(ids) for ids, _, _ in parts])
        order = np.argsort(ids, kind="stable")
        values = kind.influences(predicted, actual, metric).mean(0)[None]
        return ProbeResult(*head, *row, values[:, order], ids[order], folds[order])
    ids = parts[0][0]
    if any(not np.array_equal(ids, others) for others, _, _ in parts):
        raise ArtifactError(f"{file}: the test texts differ from those of the other adaptations")
    values = np.stack(
        [kind.influences(predicted, actual, metric).mean(0) for _, actual, predicted in parts]
    )
    return ProbeResult(*head, *row, values, ids)


def read_neighbours(path: Path) -> dict[str, list[dict[str, Any]]]:
    """Read the nearest labelled texts of a few test texts from the first probe of each arm, by arm.

    Only the first task of the first adaptation, or fold, is read: its texts are examples.

    Raises:
        ArtifactError: If a file is damaged.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    first_task = ""
    for file in sorted(path.glob(f"probe/*/*/0/{NEIGHBOURS_FILE}")):
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
    for file in sorted(path.glob("retrieval/*/retrieval.json")):
        with reading(file):
            for text, scores in read_object(file)["texts"].items():
                if scores is not None:
                    rows.append({"arm": file.parent.name, "text": text, **scores})
    return rows
