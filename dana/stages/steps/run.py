"""Hold the steps of an experiment in the order of their dependencies, records of finished steps, and the results."""

import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from glob import has_magic, iglob
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import pandas as pd

from dana.core.artifacts import fingerprint, read_json, read_manifest, write_json, write_text
from dana.core.errors import ArtifactError, ConfigError, suggestion
from dana.core.logging import get_logger
from dana.core.storage import is_url
from dana.core.text_table import csv_text
from dana.stages.steps.step import Step

log = get_logger(__name__)

RECORDS = "steps"
RESULTS = "results.csv"
# Keys of settings that may hold a relative path outside of the run's folder.
PATHS = {
    "task",
    "card",
    "cards",
    "pool",
    "unlabelled",
    "data",
    "task_path",
    "model",
    "decontaminate",
    "store",
}
# Keys of settings that may be that folder. Under another key its name means something else, as that of
# the task does that dana init makes.
FOLDERS = {"out", "folder", "fold_folder"}
INSIDE = "./"  # before the output of a step that lies in the folder of the run
ARM = "arm"  # label of a result
LabelledMetric = tuple[dict[str, str], str, str, float]  # labels, metric, seed, value
NOTES = ("metrics", "losses", "in_domain")  # parts of a manifest whose numbers are results
NOT_METRICS = {"adaptation", "seed", "seconds"}  # of a row of metrics.json


@dataclass(frozen=True)
class Run:
    """The steps of one experiment.

    Attributes:
        folder: Of the experiment: records and logs go to ``steps/NAME.json`` and
            ``steps/NAME.log``, results to ``results.csv``.
        steps: In the order in which they are started as far as their dependencies allow, and listed
            in the results.

    Raises:
        ConfigError: If a dependency is no step.
    """

    folder: Path
    steps: tuple[Step, ...]

    def __post_init__(self) -> None:
        names = [step.name for step in self.steps]
        for step in self.steps:
            for need in step.needs:
                if need not in names:
                    raise ConfigError(
                        f"step {step.name}: depends on unknown step {need!r}{suggestion(need, names)}"
                    )

    @cached_property
    def fingerprints(self) -> dict[str, str]:
        """Digest of each step's stage and settings, and of those of all steps that it depends on.

        Paths are expressed from the folder, so that they are the same from another working directory,
        and after the folder was moved.
        """
        digests: dict[str, str] = {}
        by_name = {step.name: step for step in self.steps}
        for name in TopologicalSorter(
            {step.name: step.needs for step in self.steps}
        ).static_order():
            step = by_name[name]
            needs = {need: digests[need] for need in step.needs}
            settings = _from_folder(step.arguments(digests), self.folder)
            digests[name] = fingerprint({"stage": step.stage, "settings": settings, "needs": needs})
        return digests

    def file(self, name: str, suffix: str) -> Path:
        """Return the path of a step's record (``.json``) or log (``.log``)."""
        return self.folder / RECORDS / f"{name}{suffix}"

    def record(self, name: str) -> dict[str, Any]:
        """Read the record of a step; empty if there is none, or none that can be read.

        A step without a record is called, and reuses its artifact.
        """
        path = self.file(name, ".json")
        if not path.is_file():
            return {}
        try:
            record: dict[str, Any] = read_json(path)
        except ArtifactError as error:
            log.warning("record    %s; it is written again", error)
            return {}
        if not _is_record(record):
            log.warning("record    %s: is no record of a step; it is written again", path)
            return {}
        return record

    def write_record(self, name: str, output: str, seconds: float) -> None:
        """Record that a step is done: fingerprint, output, seconds and when it ended, in seconds since 1970.

        A path in the folder is recorded from there, and begins with ``./``.
        """
        place = Path(output).absolute()
        root = self.folder.absolute()
        # Not by Path.exists, which refuses the words of a step as too long for a name.
        is_there = bool(output) and os.path.exists(place)  # noqa: PTH110
        is_inside = is_there and place.is_relative_to(root)
        record = {
            "fingerprint": self.fingerprints[name],
            "made": f"{INSIDE}{place.relative_to(root)}" if is_inside else output,
            "seconds": round(seconds, 3),
            "ended": round(time.time(), 3),
        }
        write_json(self.file(name, ".json"), record)

    def output(self, name: str) -> str:
        """Return the output of a step that has a record."""
        made: str = self.record(name)["made"]
        if not made.startswith(INSIDE):
            return made
        return str(self.folder / made)

    def states(self) -> dict[str, str]:
        """Return the state of each step: ``done``, ``changed`` (other settings, or output missing) or ``missing``."""
        current = self.fingerprints
        return {
            step.name: self._state(self.record(step.name), current[step.name])
            for step in self.steps
        }

    def _state(self, record: Mapping[str, Any], current: str) -> str:
        if not record:
            return "missing"
        made = record["made"]
        is_gone = made.startswith(INSIDE) and not (self.folder / made).exists()
        return "changed" if is_gone or record["fingerprint"] != current else "done"


def _from_folder(value: Any, folder: Path, key: str = "") -> Any:
    """Express the paths in a step's settings from a folder; names, URLs and absolute paths elsewhere stay.

    A text is a path if it leads into the folder, or is the folder and its key is one of
    :data:`FOLDERS`; or if its key is one of :data:`PATHS`, and a file or folder is there.

    Args:
        value: The settings, or a part of them.
        folder: The folder.
        key: The key that the value has, also as an item of a list.
    """
    if isinstance(value, dict):
        return {name: _from_folder(inner, folder, name) for name, inner in value.items()}
    if isinstance(value, list):
        return [_from_folder(inner, folder, key) for inner in value]
    if not isinstance(value, str) or not value or is_url(value):
        return value
    path = Path(value)
    root = folder.absolute() if path.is_absolute() else folder
    is_inside = root in path.parents or (path == root and key in FOLDERS)
    is_elsewhere = not path.is_absolute() and key in PATHS and _is_there(value)
    return os.path.relpath(value, folder) if is_inside or is_elsewhere else value


def _is_there(text: str) -> bool:
    """Return whether a text is the path of a file or folder, or a pattern that one fits."""
    return os.path.exists(text) or (has_magic(text) and any(iglob(text)))  # noqa: PTH110, PTH207


def _is_record(value: Any) -> bool:
    """Return whether a JSON value has the keys that :meth:`Run.write_record` writes."""
    if not isinstance(value, dict):
        return False
    has_words = all(isinstance(value.get(key), str) for key in ("fingerprint", "made"))
    return has_words and isinstance(value.get("seconds"), int | float)


def write_metrics(run: Run, outputs: Mapping[str, str]) -> Path:
    """Write ``results.csv``: the metrics of all artifacts of a run, in the order of its steps.

    Columns: ``step``, its labels, ``stage``, ``metric``, ``seed`` (empty of one without seeds),
    ``value``, ``fingerprint`` and dana ``version`` of the artifact, and its path, ``artifact``: in
    the experiment's folder, or whole if it lies elsewhere.

    Metrics are the numbers in each row of ``seeds`` in the artifact's ``metrics.json``, seconds
    left out; of an artifact without one, those in ``metrics``, ``losses`` and ``in_domain`` of its
    manifest. Each baseline of an artifact of baselines is an ``arm`` with its one score.

    Args:
        run: The steps.
        outputs: What those that are done made, by step.
    """
    rows = []
    for step in run.steps:
        path = Path(outputs.get(step.name) or "-")
        if manifest := read_manifest(path):
            location = path.relative_to(run.folder) if path.is_relative_to(run.folder) else path
            origin = {
                "fingerprint": manifest["fingerprint"],
                "version": manifest["versions"]["dana"],
            }
            metrics: list[LabelledMetric] = [({}, *metric) for metric in _metrics(path, manifest)]
            if manifest["kind"] == "baselines":
                metrics += _baselines(path)
            for labels, metric, seed, value in metrics:
                head = {
                    "step": step.name,
                    **step.labels,
                    **labels,
                    "stage": step.stage,
                    "metric": metric,
                    "seed": seed,
                }
                rows.append({**head, "value": value, **origin, "artifact": location.as_posix()})
    of_steps = [label for step in run.steps for label in step.labels]
    of_rows = [label for row in rows for label in ("task", ARM) if label in row]
    columns_of_labels = dict.fromkeys([*of_steps, *of_rows])
    columns = [
        "step",
        *columns_of_labels,
        "stage",
        "metric",
        "seed",
        "value",
        "fingerprint",
        "version",
        "artifact",
    ]
    table = pd.DataFrame(rows, columns=columns)
    write_text(run.folder / RESULTS, csv_text(table))
    return run.folder / RESULTS


def _baselines(path: Path) -> Iterator[LabelledMetric]:
    """Yield (labels, metric, seed, value) of each baseline in a folder of them; the seed is empty."""
    for file in sorted(path.glob("*/metrics.json")):
        metrics = read_json(file)
        yield {"task": metrics["task"], ARM: file.parent.name}, "score", "", metrics["mean"]


def _metrics(path: Path, manifest: Mapping[str, Any]) -> Iterator[tuple[str, str, float]]:
    """Yield (metric, seed, value); the seed is empty for an artifact without seeds."""
    file = path / "metrics.json"
    if file.is_file():
        rows = {str(row["seed"]): row for row in read_json(file)["seeds"]}
    else:
        rows = {
            "": pd.json_normalize({note: manifest.get(note) for note in NOTES}).to_dict("records")[
                0
            ]
        }
    for seed, row in rows.items():
        for name, value in row.items():
            if (
                isinstance(value, int | float)
                and not isinstance(value, bool)
                and name not in NOT_METRICS
            ):
                yield name, seed, value
