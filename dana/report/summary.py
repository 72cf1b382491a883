"""Summarise a run's scores and verdicts for programs, as JSON."""

import math
from typing import Any

from dana.report.analysis import Analysis
from dana.report.cells import FLOOR_TITLES, ArmResult
from dana.report.gate import gates
from dana.report.verdicts import ArmComparison

FLOOR_NAMES = {title: name for name, title in FLOOR_TITLES.items()}  # as in the settings


def summary(analysis: Analysis) -> dict[str, Any]:
    """Summarise the arms, floors and verdicts of a run's task as JSON values; of several, under ``tasks`` by name."""
    run, tasks = analysis.run, dict[str, dict[str, Any]]()
    for task in dict.fromkeys(cell.task for cell in run.cells):
        arms, floors = (
            [cell for cell in cells if cell.task == task] for cells in (run.cells, run.floors)
        )
        sizes = {
            cell.arm: {"n": len(cell.scores), "collapsed": len(cell.collapsed_seeds)}
            for cell in arms
        }
        folds = None if arms[0].predictions.folds is None else arms[0].adaptations
        tasks[task] = {"metric": arms[0].metric, "n": len(arms[0].predictions.ids), "folds": folds}
        tasks[task] |= {"arms": {cell.arm: {**_score(cell), **sizes[cell.arm]} for cell in arms}}
        tasks[task] |= {
            "floors": {FLOOR_NAMES.get(cell.arm, cell.arm): _score(cell) for cell in floors}
        }
        tasks[task] |= {
            "verdicts": [_verdict(row) for row in analysis.questions if row.task == task]
        }
    output = next(iter(tasks.values())) if len(tasks) == 1 else {"tasks": tasks}
    output |= {"gate": before} if (before := gates(run)) else {}
    return output | ({"stopped_early": run.stop} if run.stop else {})


def _verdict(row: ArmComparison) -> dict[str, Any]:
    measures = {
        "difference": _finite(row.mean),
        "interval": _ends(row.low, row.high),
        "p": _finite(row.p_holm),
    }
    measures |= {"level": row.level} if row.horizon else {}
    other = FLOOR_NAMES.get(row.other, row.other) if row.is_floor else row.other
    return {"a": row.arm, "b": other, **measures, "decision": row.verdict}


def _score(cell: ArmResult) -> dict[str, Any]:
    return {"mean": cell.estimate.mean, "interval": _ends(*cell.interval)}


def _ends(low: float, high: float) -> list[float] | None:
    return [low, high] if math.isfinite(low) else None


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
