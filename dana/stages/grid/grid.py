"""Hold the cells of an experiment in the order of their dependencies, records of finished cells, and the results."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import pandas as pd

from dana.core.artifacts import fingerprint, read_json, read_manifest, write_json, write_text
from dana.core.errors import ConfigError, suggestion
from dana.core.text_table import csv_text
from dana.stages.grid.cell import Cell

RECORDS = "cells"
RESULTS = "results.csv"
NOTES = ("metrics", "losses", "in_domain")  # parts of a manifest whose numbers are results
NOT_METRICS = {"adaptation", "seed", "seconds"}  # of a row of metrics.json


@dataclass(frozen=True)
class Grid:
    """The cells of one experiment.

    Attributes:
        folder: Of the experiment: records and logs go to ``cells/NAME.json`` and
            ``cells/NAME.log``, results to ``results.csv``.
        cells: In the order in which they are started as far as their dependencies allow, and listed
            in the results.

    Raises:
        ConfigError: If a dependency is no cell.
    """

    folder: Path
    cells: tuple[Cell, ...]

    def __post_init__(self) -> None:
        names = [cell.name for cell in self.cells]
        for cell in self.cells:
            for need in cell.needs:
                if need not in names:
                    raise ConfigError(
                        f"cell {cell.name}: depends on unknown cell {need!r}{suggestion(need, names)}"
                    )

    @cached_property
    def fingerprints(self) -> dict[str, str]:
        """Digest of each cell's stage and settings, and of those of all cells that it depends on."""
        digests: dict[str, str] = {}
        by_name = {cell.name: cell for cell in self.cells}
        for name in TopologicalSorter(
            {cell.name: cell.needs for cell in self.cells}
        ).static_order():
            cell = by_name[name]
            needs = {need: digests[need] for need in cell.needs}
            digests[name] = fingerprint(
                {"stage": cell.stage, "settings": cell.arguments(digests), "needs": needs}
            )
        return digests

    def file(self, name: str, suffix: str) -> Path:
        """Return the path of a cell's record (``.json``) or log (``.log``)."""
        return self.folder / RECORDS / f"{name}{suffix}"

    def record(self, name: str) -> Mapping[str, Any]:
        """Read the record of a cell; empty if there is none."""
        path = self.file(name, ".json")
        return read_json(path) if path.is_file() else {}

    def write_record(self, name: str, output: str, seconds: float) -> None:
        """Record that a cell is done: fingerprint, output, seconds and when it ended, in seconds since 1970."""
        record = {
            "fingerprint": self.fingerprints[name],
            "made": output,
            "seconds": round(seconds, 3),
        }
        record |= {"ended": round(time.time(), 3)}
        write_json(self.file(name, ".json"), record)

    def states(self) -> dict[str, str]:
        """Return the state of each cell: ``done``, ``changed`` (other settings, or output missing) or ``missing``."""
        current = self.fingerprints
        return {
            cell.name: self._state(self.record(cell.name), current[cell.name])
            for cell in self.cells
        }

    def _state(self, record: Mapping[str, Any], current: str) -> str:
        if not record:
            return "missing"
        output = Path(record["made"])
        gone = output.is_relative_to(self.folder) and not output.exists()
        return "changed" if gone or record["fingerprint"] != current else "done"


def write_metrics(grid: Grid, outputs: Mapping[str, str]) -> Path:
    """Write ``results.csv``: the metrics of all artifacts of a grid, in the order of its cells.

    Columns: ``cell``, its labels, ``stage``, ``metric``, ``seed`` (empty of one without seeds),
    ``value``, ``fingerprint`` and dana ``version`` of the artifact, and its path, ``artifact``: in
    the experiment's folder, or whole if it lies elsewhere.

    Metrics are the numbers in each row of ``seeds`` in the artifact's ``metrics.json``, seconds
    left out; of an artifact without one, those in ``metrics``, ``losses`` and ``in_domain`` of its
    manifest.

    Args:
        grid: The cells.
        outputs: What those that are done made, by cell.
    """
    rows = []
    for cell in grid.cells:
        path = Path(outputs.get(cell.name) or "-")
        if manifest := read_manifest(path):
            location = path.relative_to(grid.folder) if path.is_relative_to(grid.folder) else path
            origin = {
                "fingerprint": manifest["fingerprint"],
                "version": manifest["versions"]["dana"],
            }
            for metric, seed, value in _metrics(path, manifest):
                head = {
                    "cell": cell.name,
                    **cell.labels,
                    "stage": cell.stage,
                    "metric": metric,
                    "seed": seed,
                }
                rows.append({**head, "value": value, **origin, "artifact": location.as_posix()})
    labels = dict.fromkeys(label for cell in grid.cells for label in cell.labels)
    columns = [
        "cell",
        *labels,
        "stage",
        "metric",
        "seed",
        "value",
        "fingerprint",
        "version",
        "artifact",
    ]
    table = pd.DataFrame(rows, columns=columns)
    write_text(grid.folder / RESULTS, csv_text(table))
    return grid.folder / RESULTS


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
