"""What the tables say, in sentences. None claims more than its interval: "undecided" is a finding."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from dana.report.analysis import Analysis
from dana.report.outcomes import BETTER, UNDECIDED, WORSE, interval, own_arm
from dana.report.tables import Table, each, number, percent

UNSTABLE = 0.7  # mean rank correlation between seeds; below it, another seed selects visibly other text
FOLLOWS_LENGTH = 0.3
VERDICTS = {
    "base": {
        BETTER: "adaptation helped",
        WORSE: "adaptation hurt",
        UNDECIDED: "whether adaptation helped is undecided",
    },
    "random": {
        BETTER: "chosen text beat random text",
        WORSE: "chosen text did worse than random text",
        UNDECIDED: "whether chosen text beats random text is undecided",
    },
}


@dataclass(frozen=True)
class Finding:
    """A number for the top of the page.

    Attributes:
        value: Formatted.
        meaning: What it is the value of, and what it would be by chance.
    """

    value: str
    meaning: str


def verdict(analysis: Analysis) -> str:
    """The page's first sentence: whether adaptation helped, or the most that this run can say."""
    if analysis.differences is not None:
        frame = analysis.differences.frame
        said = [_judge(task, rows) for task, rows in frame.groupby("task", sort=False)]
        return " ".join(filter(None, [*said, _collapsed(analysis)]))
    if analysis.losses is not None:
        return losses(analysis.losses)
    if analysis.kept is not None:
        return f"{_kept(analysis.kept.frame)}."
    if analysis.separation is not None:
        return "The general text is scored, and not weighed yet."
    if analysis.ranking is not None:
        return f"{analysis.ranking.frame.query('chosen')['name'].iloc[0]} ranks best for this task."
    return "There is no comparison of arms yet."


def _judge(task: Any, rows: pd.DataFrame) -> str:
    own = rows[rows["arm"] == own_arm(rows["arm"])]
    said = [VERDICTS[row.other][row.verdict] for row in each(own) if row.other in VERDICTS]
    return f"On {task}, {'; '.join(said)} ({rows['n'].min()} seeds)." if said else ""


def _collapsed(analysis: Analysis) -> str:
    frame = analysis.results.frame if analysis.results is not None else pd.DataFrame({"degenerate": [], "n": []})
    if frame["degenerate"].sum() == 0:
        return ""
    count, runs = number(frame["degenerate"].sum(), 0), number(frame["n"].sum(), 0)
    return f"Beware: {count} of {runs} fine-tuned models collapsed to one class."


def highlights(analysis: Analysis) -> list[Finding]:
    """At most four numbers: separation, recall, and two paired differences on the first task."""
    found = []
    if analysis.separation is not None:
        row = _row(analysis.separation.frame, "text", "task")
        if row is not None and np.isfinite(row["auroc_against_general"]):
            meaning = "AUROC of held-out task text against general text (chance 0.5)"
            found.append(Finding(number(row["auroc_against_general"]), meaning))
    if analysis.planted is not None:
        recall = analysis.planted.frame.iloc[0]
        meaning = f"of the planted text was found (chance {percent(recall['by_chance'])})"
        found.append(Finding(percent(recall["value"]), meaning))
    if analysis.differences is not None:
        frame = analysis.differences.frame
        own = frame[(frame["task"] == frame["task"].iloc[0]) & (frame["arm"] == own_arm(frame["arm"]))]
        for row in each(own[own["other"].isin(["base", "random"])]):
            meaning = f"{row.arm} − {row.other}, {_metric(row)} on {row.task} ({interval(row.low, row.high, 3)})"
            found.append(Finding(number(row.mean, 3, sign=True), meaning))
    return found


def ranking(table: Table) -> str:
    """Who won, by how much, and whether another seed would agree."""
    frame = table.frame
    best = frame[frame["chosen"]].iloc[0]
    seeds = f" over {int(best['n_seeds'])} seeds" if "n_seeds" in frame else ""
    text = (
        f"{best['name']}: mean F1 {number(best['f1_mean'])} ± {number(best['f1_std'])}{seeds}, "
        f"AUROC {number(best['auroc_mean'])}."
    )
    others = frame[~frame["chosen"]].sort_values("f1_mean", ascending=False, kind="stable")
    if len(others):
        second = others.iloc[0]
        close = best["f1_mean"] - second["f1_mean"] < max(best["f1_std"], second["f1_std"])
        text += f" Next is {second['name']} with {number(second['f1_mean'])}"
        text += "; the gap is within the spread over seeds, so either would do." if close else "."
    stable = best["stability"]
    if stable is not None and stable < UNSTABLE:
        text += f" Between seeds its scores correlate by only {number(stable, 2)}: each would choose other text."
    return text


def separation(table: Table) -> str:
    """How often task beats general, and whether length explains it."""
    said = []
    for group, words in (("task", "a held-out task unit"), ("planted", "a planted unit")):
        row = _row(table.frame, "text", group)
        if row is not None and np.isfinite(row["auroc_against_general"]):
            said.append(f"{words} scores as more relevant {percent(row['auroc_against_general'])} of the time")
    text = f"Against a general unit, {' and '.join(said)}. " if said else ""
    length = _row(table.frame, "text", "general")
    if length is not None and np.isfinite(length["spearman_score_length"]):
        value = length["spearman_score_length"]
        verb = "follow" if abs(value) >= FOLLOWS_LENGTH else "hardly follow"
        text += f"Scores of general text {verb} its length (Spearman {number(value, 2, sign=True)})."
    return text.strip()


def selection(analysis: Analysis) -> str:
    """How much was kept, from where, and how much of what was planted."""
    if analysis.kept is None:
        return "The general text is scored, and not weighed yet."
    frame = analysis.kept.frame
    top = frame.iloc[0]
    text = (
        f"{_kept(frame)}. The largest part of it is {top['source']}: "
        f"{percent(top['share_of_kept_characters'])} of the kept text, "
        f"{percent(top['share_of_characters'])} of the corpus."
    )
    if analysis.planted is not None:
        recall, precision = each(analysis.planted.frame)
        text += (
            f" Of the planted units {percent(recall.value)} were found "
            f"({percent(recall.by_chance)} by chance); they are {percent(precision.value)} "
            f"of what was kept ({percent(precision.by_chance)} by chance)."
        )
    return text


def _kept(frame: pd.DataFrame) -> str:
    units, characters = frame["units"].sum(), max(frame["characters"].sum(), 1)
    share, text = frame["kept_units"].sum() / units, frame["kept_characters"].sum() / characters
    counted = "units, counted by weight," if frame["partly_kept_units"].any() else "units"
    return f"{percent(share)} of {number(units, 0)} {counted} was kept, {percent(text)} of the text"


def losses(table: Table) -> str:
    """What our arm's losses did on both texts, beside the other arms'."""
    ours, text = own_arm(table.frame["arm"]), []
    for name, rows in table.frame.groupby("text", sort=False):
        row = _row(rows, "arm", ours)
        row = rows.iloc[-1] if row is None else row
        others = [f"{other.arm} {number(other.change, sign=True)}" for other in each(rows) if other.arm != row["arm"]]
        changes = "; ".join([number(row["change"], sign=True), *others])
        path = f"from {number(row['before'])} to {number(row['after'])} nats"
        text.append(f"On {name} text {row['arm']} went {path} ({changes}).")
    text.sort(key=lambda said: "On general" in said)
    return " ".join(text)


def results(analysis: Analysis) -> str:
    """Our arm's paired differences, with what they allow to be said."""
    if analysis.differences is None or analysis.results is None:
        return "No two arms share a task and a seed, so there is nothing to compare."
    frame = analysis.differences.frame
    text = []
    for row in each(frame[frame["arm"] == own_arm(frame["arm"])]):
        if row.other in ("base", "random"):
            judged = "undecided, the interval holds zero" if row.verdict == UNDECIDED else row.verdict
            text.append(
                f"{row.arm} − {row.other} on {row.task}: {number(row.mean, 4, sign=True)} {_metric(row)}, "
                f"95 % interval {interval(row.low, row.high)}, n = {row.n} seeds, "
                f"p = {number(row.p, 4)}: {judged}."
            )
    collapsed = analysis.results.frame
    collapsed = collapsed[collapsed["degenerate"] > 0]
    if len(collapsed):
        arms = ", ".join(f"{row.arm} on {row.task} {row.degenerate} of {row.n}" for row in each(collapsed))
        text.append(f"Degenerate seeds, which predict one class throughout: {arms}.")
    return " ".join(text)


def making(table: Table) -> str:
    """How long it took."""
    if table.frame.empty:
        return "No step left a manifest."
    return f"{len(table.frame)} steps, {number(table.frame['seconds'].sum() / 60, 1)} minutes together."


def _metric(row: Any) -> str:
    return row.metric.replace("_", "-")


def _row(frame: pd.DataFrame, key: str, value: str) -> Any:
    rows = frame[frame[key] == value]
    return rows.iloc[0] if len(rows) else None
