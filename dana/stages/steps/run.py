"""Hold the steps of an experiment in the order of their dependencies, records of finished steps, and the results."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import pandas as pd

from dana.core.artifacts import fingerprint, read_json, read_manifest, write_json, write_text
from dana.core.errors import ArtifactError, ConfigError, suggestion
from dana.core.logging import get_logger
from dana.core.text_table import csv_text
from dana.stages.steps.step import Step

log = get_logger(__name__)

RECORDS = "steps"
RESULTS = "results.csv"
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
        """Digest of each step's stage and settings, and of those of all steps that it depends on."""
        digests: dict[str, str] = {}
        by_name = {step.name: step for step in self.steps}
        for name in TopologicalSorter(
            {step.name: step.needs for step in self.steps}
        ).static_order():
            step = by_name[name]
            needs = {need: digests[need] for need in step.needs}
            digests[name] = fingerprint(
                {"stage": step.stage, "settings": step.arguments(digests), "needs": needs}
            )
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
        """Record that a step is done: fingerprint, output, seconds and when it ended, in seconds since 1970."""
        record = {
            "fingerprint": self.fingerprints[name],
            "made": output,
            "seconds": round(seconds, 3),
        }
        record |= {"ended": round(time.time(), 3)}
        write_json(self.file(name, ".json"), record)

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
        output = Path(record["made"])
        gone = output.is_relative_to(self.folder) and not output.exists()
        return "changed" if gone or record["fingerprint"] != current else "done"


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
