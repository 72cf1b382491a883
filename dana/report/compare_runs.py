"""Several runs to one page: each run's verdicts, its paired differences, and what it was made from."""

from collections.abc import Sequence
from operator import itemgetter
from typing import Any

import pandas as pd

from dana.report.files import flatten
from dana.report.page import Column, Finding, Report, Section, Table, decimals, number, text_columns
from dana.report.provenance import versions
from dana.report.run import RunFrames
from dana.report.sections import Analysis, analyse, verdict
from dana.report.tables import DIFFERENCE, INTERVAL, P_HOLM, SEEDS, metric_name
from dana.report.verdicts import BETTER, INCOMPARABLE, WORSE, measure_pair

DIGEST = 32  # letters of a digest or fingerprint, which differ wherever something else does
READ = ("files", "data")  # but for those of the texts that a run read


def named_runs(runs: Sequence[RunFrames]) -> dict[str, Analysis]:
    """What is made of each run, by the shortest ends of their paths that differ."""
    paths = [run.path.resolve().parts for run in runs]
    for length in range(1, max(map(len, paths)) + 1):
        names = ["/".join(path[-length:]) for path in paths]
        if len(set(names)) == len(names):
            break
    return dict(zip(names, map(analyse, runs), strict=True))


def compare_runs(runs: Sequence[RunFrames]) -> Report:
    """The page about several runs, the first of which the others are compared with."""
    named = named_runs(runs)
    found, first = [Finding(name, verdict(own)) for name, own in named.items()], next(iter(named))
    differences, between = difference_rows(named), between_rows(named)
    settings = setting_rows(named)
    sections = [
        Section("What did each run find?", _found(differences.frame), (), (differences,)),
        Section(f"Do the others differ from {first}?", _between(between.frame), (), (between,)),
        Section("How do they differ in what they were made from?", _settings(settings.frame), (), (settings,)),
    ]
    return Report(" and ".join(named), _headline(named), found, sections)


def _headline(named: dict[str, Analysis]) -> str:
    asked = [row.verdict for own in named.values() for row in own.asked]
    if not asked:
        return f"{len(named)} runs, none of which asks a question of fine-tuned models."
    better, worse = asked.count(BETTER), asked.count(WORSE)
    judged = f"{better} better, {worse} worse, {len(asked) - better - worse} open"
    return f"{len(named)} runs ask {len(asked)} questions: {judged}."


def difference_rows(named: dict[str, Analysis]) -> Table:
    """A row a task, question and run, and why the arm was not made as in the first run that has it."""
    rows: list[dict[str, Any]] = []
    first: dict[tuple[str, str], Any] = {}
    for run, own in named.items():
        cells = {(cell.task, cell.arm): cell for cell in own.run.cells}
        for row in own.asked:
            cell = cells[row.task, row.arm]
            unlike = "; ".join(cell.unlike(first.setdefault((row.task, row.arm), cell)))
            about = {"task": row.task, "metric": row.metric, "arm": row.arm, "other": row.other, "run": run}
            numbers = {name: getattr(row, name) for name in ("n", "mean", "low", "high", "p_holm", "verdict")}
            rows.append({**about, **numbers, "made_otherwise": unlike})
    asked = list(dict.fromkeys((row["task"], row["arm"], row["other"]) for row in rows))
    rows.sort(key=lambda row: asked.index((row["task"], row["arm"], row["other"])))
    otherwise = Column("made otherwise", lambda row: row.made_otherwise or "–", numeric=False)
    columns = (*text_columns("task"), DIFFERENCE, *text_columns("run", "verdict"), *NUMBERS, P_HOLM, otherwise)
    caption = (
        "Each run's own questions and verdicts. Made otherwise: how the arm's fine-tuning, test examples or adaptation "
        "differ from those of the first run that has the arm; where they do, the numbers do not compare."
    )
    return Table("run_differences", caption, pd.DataFrame(rows), columns)


MEAN = Column("mean", lambda row: f"{number(row.mean, 4, sign=True)} {metric_name(row.metric)}")
NUMBERS = (SEEDS, MEAN, INTERVAL)


def between_rows(named: dict[str, Analysis]) -> Table:
    """A row a task, arm and later run: the paired difference of its arm from the first run's, or why there is none."""
    (first, earlier), *later = named.items()
    rows, known = [], {(cell.task, cell.arm): cell for cell in earlier.run.cells}
    for run, own in later:
        for cell in own.run.cells:
            if (other := known.get((cell.task, cell.arm))) is not None:
                row = measure_pair(cell, other)
                about = {"task": row.task, "metric": row.metric, "arm": row.arm, "run": run, "other": first}
                numbers = {name: getattr(row, name) for name in ("n", "mean", "low", "high", "p")}
                rows.append({**about, **numbers, "not_compared": row.reasons})
    pair = Column("runs", lambda row: f"{row.run} − {row.other}", numeric=False)
    unlike = Column(INCOMPARABLE, lambda row: row.not_compared or "–", numeric=False)
    columns = (*text_columns("task", "arm"), pair, *NUMBERS, *decimals(4, "p"), unlike)
    caption = (
        "Differences of the same seed's scores between the same arm of two runs; interval and p as in a run's own "
        "report, but for Holm: these are for reading."
    )
    return Table("between_runs", caption, pd.DataFrame(rows), columns)


def setting_rows(named: dict[str, Analysis]) -> Table:
    """A row a step and setting in which the runs differ, a column a run."""
    told = {run: dict(_told(own.run)) for run, own in named.items()}
    keys = dict.fromkeys(key for values in told.values() for key in values)
    rows = []
    for key in keys:
        values = [own.get(key) for own in told.values()]
        if any(value != values[0] for value in values):
            rows.append([*key, *("–" if value is None else str(value) for value in values)])
    frame = pd.DataFrame(rows, columns=["step", "setting", *told])
    columns = tuple(Column(name, itemgetter(place), numeric=False) for place, name in enumerate(frame.columns))
    caption = "Only what differs; of texts that were read, the digest. A dash: the run has no such step or setting."
    return Table("run_settings", caption, frame, columns)


def _told(run: RunFrames) -> Any:
    """Settings by step and name; fingerprints, which follow from others, left out."""
    for place, manifest in run.stages.items():
        for key, value in flatten(manifest.get("depends_on", {})):
            is_digest = isinstance(value, str) and len(value) == DIGEST and " " not in value
            if not is_digest or not set(READ).isdisjoint(key.split(".")):
                yield (place, key), value
    yield from ((("packages", package), version) for package, version in versions(run).items())


def _found(frame: pd.DataFrame) -> str:
    if frame.empty:
        return "No run has fine-tuned arms to compare."
    tasks = frame["task"].nunique()
    return f"{len(frame)} questions on {tasks} {'task' if tasks == 1 else 'tasks'}, those of all runs side by side."


def _between(frame: pd.DataFrame) -> str:
    if frame.empty:
        return "They share no arm of a task."
    unlike = int((frame["not_compared"] != "").sum())
    return f"They share {len(frame)} arms of tasks; {unlike} of these were not made alike, and are not compared."


def _settings(frame: pd.DataFrame) -> str:
    if frame.empty:
        return "In nothing that is recorded."
    return f"In {len(frame)} of what is recorded: settings, texts, versions."
