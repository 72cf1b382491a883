"""Summarise a run's scores and verdicts for programs, as JSON."""

import math
from typing import Any

from dana.report.analysis import Analysis
from dana.report.arm_results import BASELINE_TITLES, ArmResult
from dana.report.gate import gates
from dana.report.headline import headline
from dana.report.label_worth import worth_lines
from dana.report.probes import LINEAR, ProbeResult
from dana.report.verdicts import ArmComparison

BASELINE_NAMES = {title: name for name, title in BASELINE_TITLES.items()}  # as in the settings
OF_MODEL = ("choice", "metric", "expected", "low", "high", "texts", "waiting")  # of choice.json


def summary(analysis: Analysis) -> dict[str, Any]:
    """Summarise the arms, baselines and verdicts of a run as JSON values.

    Returns:
        The summary of the run's task; of several tasks, summaries under ``tasks`` by name. Added
        are the ``headline``, and what the run has of ``probe`` (scores of linear models on frozen
        vectors), ``probe_verdicts`` (where no model was fine-tuned), ``label_worth`` (sentences),
        ``model`` (the choice that the run ends in), ``gate`` (text that was measured before
        adaptation) and ``stopped_early`` (why).
    """
    run = analysis.run
    names = dict.fromkeys(result.task for result in run.results)
    tasks = {name: _task_summary(analysis, name) for name in names}
    output: dict[str, Any] = {"tasks": tasks}
    if len(tasks) == 1:
        output = next(iter(tasks.values()))
    output["headline"] = headline(analysis)
    if run.probes:
        output["probe"] = [_probe_score(probe) for probe in run.probes if probe.method == LINEAR]
    if analysis.is_of_vectors:
        output["probe_verdicts"] = [
            {"task": row.task, **_verdict(row)} for row in analysis.first_questions
        ]
    worth = worth_lines(run.probes)
    if worth:
        output["label_worth"] = worth
    if run.final:
        output["model"] = {name: run.final[name] for name in OF_MODEL}
    gate = gates(run)
    if gate:
        output["gate"] = gate
    if run.stop:
        output["stopped_early"] = run.stop
    return output


def _task_summary(analysis: Analysis, task: str) -> dict[str, Any]:
    """Summarise the arms, baselines and verdicts of one task."""
    run = analysis.run
    results = [result for result in run.results if result.task == task]
    baselines = [baseline for baseline in run.baselines if baseline.task == task]
    first = results[0]
    arms = {}
    for result in results:
        counts = {"n": len(result.scores), "collapsed": len(result.collapsed_seeds)}
        arms[result.arm] = {**_score(result), **counts}
    return {
        "metric": first.metric,
        "n": len(first.predictions.ids),
        "folds": None if first.predictions.folds is None else first.adaptations,
        "arms": arms,
        "baselines": {_baseline_name(baseline.arm): _score(baseline) for baseline in baselines},
        "verdicts": [_verdict(row) for row in analysis.questions if row.task == task],
    }


def _probe_score(probe: ProbeResult) -> dict[str, Any]:
    """Summarise the score of a linear model on the vectors of an arm."""
    return {
        "task": probe.task,
        "arm": probe.arm,
        "labels": probe.labels,
        "metric": probe.metric,
        "mean": probe.estimate.mean,
        "interval": _ends(*probe.interval),
    }


def _baseline_name(title: str) -> str:
    """Return the name of a baseline as in the settings, by its title in the report."""
    return BASELINE_NAMES.get(title, title)


def _verdict(row: ArmComparison) -> dict[str, Any]:
    """Summarise a question and its verdict."""
    verdict = {
        "a": row.arm,
        "b": _baseline_name(row.other) if row.is_baseline else row.other,
        "difference": _finite(row.mean),
        "interval": _ends(row.low, row.high),
        "p": _finite(row.p_holm),
    }
    if row.horizon:
        verdict["level"] = row.level
    verdict["decision"] = row.verdict
    return verdict


def _score(result: ArmResult) -> dict[str, Any]:
    """Summarise the mean score of a result."""
    return {"mean": result.estimate.mean, "interval": _ends(*result.interval)}


def _ends(low: float, high: float) -> list[float] | None:
    """Return the ends of an interval; None, which JSON has, for NaN, which it has not."""
    return [low, high] if math.isfinite(low) else None


def _finite(value: float) -> float | None:
    """Return a number; None for NaN."""
    return value if math.isfinite(value) else None
