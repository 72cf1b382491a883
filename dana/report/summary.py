"""Summarise a run's scores and verdicts for programs, as JSON."""

import math
from typing import Any

from dana.report.analysis import Analysis
from dana.report.arm_results import BASELINE_TITLES, ArmResult
from dana.report.gate import gates
from dana.report.verdicts import ArmComparison

BASELINE_NAMES = {title: name for name, title in BASELINE_TITLES.items()}  # as in the settings


def summary(analysis: Analysis) -> dict[str, Any]:
    """Summarise arms, baselines and verdicts of a run's task as JSON values; of several, under ``tasks`` by name."""
    run, tasks = analysis.run, dict[str, dict[str, Any]]()
    for task in dict.fromkeys(result.task for result in run.results):
        arms, baselines = (
            [result for result in results if result.task == task]
            for results in (run.results, run.baselines)
        )
        sizes = {
            result.arm: {"n": len(result.scores), "collapsed": len(result.collapsed_seeds)}
            for result in arms
        }
        folds = None if arms[0].predictions.folds is None else arms[0].adaptations
        tasks[task] = {"metric": arms[0].metric, "n": len(arms[0].predictions.ids), "folds": folds}
        tasks[task] |= {
            "arms": {result.arm: {**_score(result), **sizes[result.arm]} for result in arms}
        }
        tasks[task] |= {
            "baselines": {
                BASELINE_NAMES.get(result.arm, result.arm): _score(result) for result in baselines
            }
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
    other = BASELINE_NAMES.get(row.other, row.other) if row.is_baseline else row.other
    return {"a": row.arm, "b": other, **measures, "decision": row.verdict}


def _score(result: ArmResult) -> dict[str, Any]:
    return {"mean": result.estimate.mean, "interval": _ends(*result.interval)}


def _ends(low: float, high: float) -> list[float] | None:
    return [low, high] if math.isfinite(low) else None


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
