"""Compare several runs on one page: their verdicts, paired differences and settings."""

from collections.abc import Sequence
from operator import itemgetter
from typing import Any

import pandas as pd

from dana.core.config import flatten
from dana.report.analysis import Analysis, analyse
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

DIGEST = 32  # letters of a digest; digests are left out, because they only repeat that another setting differs
INPUT_KEYS = ("files", "data")  # keys whose digests are shown: those of the input texts


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
    findings, first = (
        [Finding(name, headline(analysis)) for name, analysis in analyses.items()],
        next(iter(analyses)),
    )
    differences, between = difference_rows(analyses), between_rows(analyses)
    settings = setting_rows(analyses)
    changes = f"{len(settings.frame) or 'No'} recorded settings, inputs and versions differ."
    sections = [
        Section(
            "What did each run find?", _questions_finding(differences.frame), (), (differences,)
        ),
        Section(
            f"Do the others differ from {first}?", _between_finding(between.frame), (), (between,)
        ),
        Section("Which settings and inputs differ?", changes, (), (settings,)),
    ]
    return Report(" and ".join(analyses), _headline(analyses), findings, sections)


def _headline(analyses: dict[str, Analysis]) -> str:
    verdicts = [row.verdict for analysis in analyses.values() for row in analysis.questions]
    if not verdicts:
        return f"{len(analyses)} runs without fine-tuned arms to compare."
    better, worse = verdicts.count(BETTER), verdicts.count(WORSE)
    tally = f"{better} better, {worse} worse, {len(verdicts) - better - worse} open"
    return f"{len(analyses)} runs ask {len(verdicts)} questions: {tally}."


def difference_rows(analyses: dict[str, Analysis]) -> Table:
    """Tabulate the questions of all runs: one row per task, question and run.

    The column ``made_otherwise`` names what differs from the first run that has the arm.
    """
    rows: list[dict[str, Any]] = []
    first: dict[tuple[str, str], Any] = {}
    for run, analysis in analyses.items():
        results = {(result.task, result.arm): result for result in analysis.run.results}
        for row in analysis.questions:
            result = results[row.task, row.arm]
            unlike = "; ".join(result.unlike(first.setdefault((row.task, row.arm), result)))
            head = {
                "task": row.task,
                "metric": row.metric,
                "arm": row.arm,
                "other": row.other,
                "run": run,
            }
            numbers = {
                name: getattr(row, name)
                for name in ("n", "mean", "low", "high", "p_holm", "verdict")
            }
            rows.append({**head, **numbers, "made_otherwise": unlike})
    order = list(dict.fromkeys((row["task"], row["arm"], row["other"]) for row in rows))
    rows.sort(key=lambda row: order.index((row["task"], row["arm"], row["other"])))
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
        "Questions and verdicts of each run. Made otherwise: how fine-tuning, test examples or adaptation of the arm "
        "differ from the first run that has this arm; where they do, do not compare the numbers."
    )
    return Table("run_differences", caption, pd.DataFrame(rows), columns)


MEAN = Column("mean", lambda row: f"{number(row.mean, 3, sign=True)} {metric_name(row.metric)}")
NUMBERS = (SEEDS, MEAN, INTERVAL)


def between_rows(analyses: dict[str, Analysis]) -> Table:
    """Tabulate paired differences between runs: one row per task, arm and later run.

    A row gives the difference from the same arm of the first run, or the reasons why the two cannot
    be compared.
    """
    (first, earlier), *later = analyses.items()
    rows, first_results = [], {(result.task, result.arm): result for result in earlier.run.results}
    for run, analysis in later:
        for result in analysis.run.results:
            if (other := first_results.get((result.task, result.arm))) is not None:
                row = measure_pair(result, other)
                head = {
                    "task": row.task,
                    "metric": row.metric,
                    "arm": row.arm,
                    "run": run,
                    "other": first,
                }
                numbers = {name: getattr(row, name) for name in ("n", "mean", "low", "high", "p")}
                rows.append({**head, **numbers, "not_compared": row.reasons})
    pair = Column("runs", lambda row: f"{row.run} − {row.other}", numeric=False)
    unlike = Column(INCOMPARABLE, lambda row: row.not_compared or "–", numeric=False)
    columns = (*text_columns("task"), ARM, pair, *NUMBERS, P, unlike)
    caption = (
        "Differences between the same arm and seed of two runs. Interval and p are as in the report of a run, but p is "
        "not adjusted for their number: no verdict follows from this table."
    )
    return Table("between_runs", caption, pd.DataFrame(rows), columns)


def setting_rows(analyses: dict[str, Analysis]) -> Table:
    """Tabulate the settings in which the runs differ: one row per step and setting, one column per run."""
    by_run = {run: dict(_step_settings(analysis.run)) for run, analysis in analyses.items()}
    keys, rows = dict.fromkeys(key for settings in by_run.values() for key in settings), []
    for key in keys:
        values = [settings.get(key) for settings in by_run.values()]
        if any(value != values[0] for value in values):
            rows.append([*key, *("–" if value is None else plain_value(value) for value in values)])
    frame = pd.DataFrame(rows, columns=["step", "setting", *by_run])
    columns = tuple(
        Column(name, itemgetter(index), numeric=False) for index, name in enumerate(frame.columns)
    )
    caption = "Only what differs; of input texts, the digest. A dash: the run has no such step or setting."
    return Table("run_settings", caption, frame, columns)


def _step_settings(run: RunFrames) -> Any:
    """Yield ((step, setting), value), without fingerprints, which follow from other settings."""
    for step, manifest in run.stages.items():
        for key, value in flatten(manifest.get("depends_on", {})):
            is_digest = isinstance(value, str) and len(value) == DIGEST and " " not in value
            if not is_digest or not set(INPUT_KEYS).isdisjoint(key.split(".")):
                yield (step, key), value
    yield from ((("packages", package), version) for package, version in versions(run).items())


def _questions_finding(frame: pd.DataFrame) -> str:
    if frame.empty:
        return "No run has fine-tuned arms to compare."
    tasks = frame["task"].nunique()
    return f"{len(frame)} questions on {tasks} {'task' if tasks == 1 else 'tasks'}, all runs side by side."


def _between_finding(frame: pd.DataFrame) -> str:
    if frame.empty:
        return "The runs share no arm of a task."
    unlike = int((frame["not_compared"] != "").sum())
    return f"The runs share {len(frame)} arms of tasks; {unlike} of them were made differently and are not compared."
