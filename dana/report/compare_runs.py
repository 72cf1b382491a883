"""Compare several runs on one page: their verdicts, paired differences and settings."""

from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Any

import pandas as pd

from dana.core.config import flatten
from dana.report.analysis import Analysis, analyse
from dana.report.arm_results import ArmResult
from dana.report.headline import headline
from dana.report.page import (
    Column,
    Finding,
    Report,
    Section,
    Table,
    number,
    plain_value,
    text_columns,
)
from dana.report.provenance import versions
from dana.report.run import RunFrames
from dana.report.tables import ARM, DIFFERENCE, INTERVAL, P_HOLM, SEEDS, P, metric_name
from dana.report.verdicts import BETTER, INCOMPARABLE, WORSE, measure_pair

# Letters of a digest. Digests are left out, because they only repeat that another setting differs.
DIGEST = 32
INPUT_KEYS = ("files", "data")  # keys whose digests are shown: those of the input texts
MEAN = Column("mean", lambda row: f"{number(row.mean, 3, sign=True)} {metric_name(row.metric)}")
NUMBERS = (SEEDS, MEAN, INTERVAL)


def named_runs(runs: Sequence[RunFrames]) -> dict[str, Analysis]:
    """Analyse each run; the keys are the shortest path suffixes that tell the runs apart."""
    paths = [run.path.resolve().parts for run in runs]
    for length in range(1, max(map(len, paths)) + 1):
        names = ["/".join(path[-length:]) for path in paths]
        if len(set(names)) == len(names):
            break
    return dict(zip(names, map(analyse, runs), strict=True))


def compare_runs(runs: Sequence[RunFrames]) -> Report:
    """Build the page that compares the other runs with the first."""
    analyses = named_runs(runs)
    findings = [Finding(name, headline(analysis)) for name, analysis in analyses.items()]
    differences = difference_rows(analyses)
    between = between_rows(analyses)
    settings = setting_rows(analyses)
    sections = [
        Section(
            question="What did each run find?",
            answer=_questions_finding(differences.frame),
            tables=(differences,),
        ),
        Section(
            question=f"Do the others differ from {next(iter(analyses))}?",
            answer=_between_finding(between.frame),
            tables=(between,),
        ),
        Section(
            question="Which settings and inputs differ?",
            answer=f"{len(settings.frame) or 'No'} recorded settings, inputs and versions differ.",
            tables=(settings,),
        ),
    ]
    return Report(" and ".join(analyses), _headline(analyses), findings, sections)


def _headline(analyses: dict[str, Analysis]) -> str:
    """Count the verdicts of all runs in a sentence."""
    verdicts = [row.verdict for analysis in analyses.values() for row in analysis.questions]
    if not verdicts:
        return f"{len(analyses)} runs without fine-tuned arms to compare."
    better = verdicts.count(BETTER)
    worse = verdicts.count(WORSE)
    undecided = len(verdicts) - better - worse
    return (
        f"{len(analyses)} runs ask {len(verdicts)} questions: {better} better, {worse} worse, "
        f"{undecided} open."
    )


def difference_rows(analyses: dict[str, Analysis]) -> Table:
    """Tabulate the questions of all runs: one row per task, question and run.

    The column ``made_otherwise`` names what differs from the first run that has the arm.
    """
    by_question: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    first_results: dict[tuple[str, str], ArmResult] = {}
    for run, analysis in analyses.items():
        results = {(result.task, result.arm): result for result in analysis.run.results}
        for row in analysis.questions:
            result = results[row.task, row.arm]
            first = first_results.setdefault((row.task, row.arm), result)
            by_question.setdefault((row.task, row.arm, row.other), []).append(
                {
                    "task": row.task,
                    "metric": row.metric,
                    "arm": row.arm,
                    "other": row.other,
                    "run": run,
                    "n": row.n,
                    "mean": row.mean,
                    "low": row.low,
                    "high": row.high,
                    "p_holm": row.p_holm,
                    "verdict": row.verdict,
                    "made_otherwise": "; ".join(result.unlike(first)),
                }
            )
    rows = [row for of_question in by_question.values() for row in of_question]
    otherwise = Column("made otherwise", lambda row: row.made_otherwise or "–", numeric=False)
    columns = (
        *text_columns("task"),
        DIFFERENCE,
        *text_columns("run", "verdict"),
        *NUMBERS,
        P_HOLM,
        otherwise,
    )
    caption = (
        "Questions and verdicts of each run. Made otherwise: how fine-tuning, test examples or "
        "adaptation of the arm differ from the first run that has this arm; where they do, do not "
        "compare the numbers."
    )
    return Table("run_differences", caption, pd.DataFrame(rows), columns)


def between_rows(analyses: dict[str, Analysis]) -> Table:
    """Tabulate paired differences between runs: one row per task, arm and later run.

    A row gives the difference from the same arm of the first run, or the reasons why the two cannot
    be compared.
    """
    (first_run, first_analysis), *later = analyses.items()
    first_results = {(result.task, result.arm): result for result in first_analysis.run.results}
    rows = []
    for run, analysis in later:
        for result in analysis.run.results:
            other = first_results.get((result.task, result.arm))
            if other is None:
                continue
            row = measure_pair(result, other)
            rows.append(
                {
                    "task": row.task,
                    "metric": row.metric,
                    "arm": row.arm,
                    "run": run,
                    "other": first_run,
                    "n": row.n,
                    "mean": row.mean,
                    "low": row.low,
                    "high": row.high,
                    "p": row.p,
                    "not_compared": row.reasons,
                }
            )
    pair = Column("runs", lambda row: f"{row.run} − {row.other}", numeric=False)
    unlike = Column(INCOMPARABLE, lambda row: row.not_compared or "–", numeric=False)
    columns = (*text_columns("task"), ARM, pair, *NUMBERS, P, unlike)
    caption = (
        "Differences between the same arm and seed of two runs. Interval and p are as in the "
        "report of a run, but p is not adjusted for their number: no verdict follows from this "
        "table."
    )
    return Table("between_runs", caption, pd.DataFrame(rows), columns)


def setting_rows(analyses: dict[str, Analysis]) -> Table:
    """Tabulate the settings in which the runs differ, a row per setting and a column per run."""
    by_run = {run: dict(_step_settings(analysis.run)) for run, analysis in analyses.items()}
    rows = []
    for key in dict.fromkeys(key for settings in by_run.values() for key in settings):
        values = [settings.get(key) for settings in by_run.values()]
        if any(value != values[0] for value in values):
            rows.append([*key, *map(_value_or_dash, values)])
    frame = pd.DataFrame(rows, columns=["step", "setting", *by_run])
    # Names of runs need not be names of attributes, so cells are found by their place.
    columns = tuple(
        Column(name, itemgetter(index), numeric=False) for index, name in enumerate(frame.columns)
    )
    caption = (
        "Only what differs; of input texts, the digest. A dash: the run has no such step or "
        "setting."
    )
    return Table("run_settings", caption, frame, columns)


def _value_or_dash(value: Any) -> str:
    """Format the value of a setting; an en dash for one that a run does not have."""
    return "–" if value is None else plain_value(value)


def _step_settings(run: RunFrames) -> Iterator[tuple[tuple[str, str], Any]]:
    """Yield ((step, setting), value), without fingerprints, which follow from other settings."""
    for step, manifest in run.stages.items():
        for key, value in flatten(manifest.get("depends_on", {})):
            is_digest = isinstance(value, str) and len(value) == DIGEST and " " not in value
            is_of_input = not set(INPUT_KEYS).isdisjoint(key.split("."))
            if is_of_input or not is_digest:
                yield (step, key), value
    for package, version in versions(run).items():
        yield ("packages", package), version


def _questions_finding(frame: pd.DataFrame) -> str:
    """Count the questions of all runs in a sentence."""
    if frame.empty:
        return "No run has fine-tuned arms to compare."
    count = frame["task"].nunique()
    tasks = "task" if count == 1 else "tasks"
    return f"{len(frame)} questions on {count} {tasks}, all runs side by side."


def _between_finding(frame: pd.DataFrame) -> str:
    """Count the arms that the runs share in a sentence."""
    if frame.empty:
        return "The runs share no arm of a task."
    unlike = int((frame["not_compared"] != "").sum())
    return (
        f"The runs share {len(frame)} arms of tasks; {unlike} of them were made differently and "
        "are not compared."
    )
