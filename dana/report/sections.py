"""Build the sections of a run's report: for each question an answer in sentences, tables and figures.

No sentence claims more than the verdict, and an undecided verdict gives its reasons.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from dana.core.studies import load_parts
from dana.report import figures, provenance, tables
from dana.report.page import Finding, Report, Section, Table, each, interval_text, number, p_text, percent
from dana.report.run import RunFrames
from dana.report.verdicts import (
    BETTER,
    INCOMPARABLE,
    RIVALS,
    SEED,
    UNDECIDED,
    WORSE,
    ArmComparison,
    compare_arms,
    main_arms,
)

UNSTABLE = 0.7  # mean rank correlation between fits; below it, another seed selects noticeably different text
FOLLOWS_LENGTH = 0.3  # rank correlation of score and length above which scores are said to follow length
MOST_QUESTIONS = 4  # in the headline with their reasons; if there are more, it counts verdicts
SELECTION_TABLES = ("planted", "kept_by_source")
# Sentences of the headline about an arm and its rivals.
CLAIMS = {
    BETTER: "{} is better than {}",
    WORSE: "{} is worse than {}",
    UNDECIDED: "{} against {} is undecided",
    INCOMPARABLE: "{} and {} were made differently",
}


@dataclass(frozen=True)
class Analysis:
    """Comparisons and tables of a run.

    Attributes:
        run: Data of the run.
        comparisons: All pairs of arms that are shown, with their verdicts.
        tables: Tables that the run has data for, by name.
    """

    run: RunFrames
    comparisons: tuple[ArmComparison, ...]
    tables: dict[str, Table]

    @property
    def questions(self) -> list[ArmComparison]:
        """Comparisons that get a verdict."""
        return [row for row in self.comparisons if row.asked]

    def get(self, *names: str) -> tuple[Table, ...]:
        """Return the tables of these names that exist."""
        return tuple(self.tables[name] for name in names if name in self.tables)


def analyse(run: RunFrames) -> Analysis:
    """Compare the arms of a run and make every table that it has data for."""
    scores, comparisons = run.scores, tuple(compare_arms(run.cells, run.floors))
    candidates = [provenance.step_table(run), provenance.setting_table(run), tables.difference_table(comparisons)]
    candidates.append(tables.variance_table(comparisons))
    if run.ranking is not None:
        candidates.append(tables.ranking_table(run.ranking))
    if run.choice is not None:
        candidates.append(tables.choice_table(run.choice))
    if scores is not None:
        candidates += [tables.histogram(scores), tables.separation_table(scores)]
        if "weight" in scores.units:
            candidates += [tables.source_table(scores), tables.planted_table(scores)]
    if run.evaluations is not None:
        candidates += [Table("evaluations", "Held-out losses.", run.evaluations), tables.loss_table(run.evaluations)]
    if run.cells:
        candidates += [tables.seed_table(run.cells), tables.result_table([*run.cells, *run.floors])]
    return Analysis(run, comparisons, {table.name: table for table in candidates if table is not None})


def build_report(run: RunFrames) -> Report:
    """Build the report of a run, one section per question."""
    analysis = analyse(run)
    study_sections = [section for _, build in load_parts("sections") for section in build(run)]
    sections = [build(analysis) for build in (_choice_section, _scores_section, _selection_section)] + study_sections
    sections += [build(analysis) for build in (_losses_section, _results_section, _cost_section, _steps_section)]
    name = run.path.resolve().name
    return Report(
        name, " ".join([verdict(analysis), *run.stale]), highlights(analysis), sections, provenance.versions(run)
    )


def _choice_section(analysis: Analysis) -> Section:
    title, choice = "Which selector tells this task from general text?", analysis.run.choice
    reasons = [] if choice is None else [f"By held-out task text: {choice.content['reason']}."]
    reasons += map(ranking_finding, analysis.get("ranking"))
    if not reasons:
        return Section(title, "This run compared none.", command="dana score --rank-only --task T --out DIR")
    return Section(title, "\n".join(reasons), (), analysis.get("choice", "ranking"))


def _scores_section(analysis: Analysis) -> Section:
    title = "How well do the scores separate task from general text?"
    if "separation" not in analysis.tables:
        return Section(title, "This run has no scores.", command="dana score --task T --general G --out DIR")
    histogram = figures.score_histogram(analysis.tables["score_histogram"].frame)
    finding = separation_finding(analysis.tables["separation"])
    return Section(title, finding, (histogram,), analysis.get("separation", "score_histogram"))


def _selection_section(analysis: Analysis) -> Section:
    title, scores = "Which text was selected?", analysis.run.scores
    if "kept_by_source" not in analysis.tables or scores is None:
        return Section(title, "This run has no weights.", command="dana weigh DIR --policy segments --beta 0.2")
    charts = [figures.source_bars(analysis.tables["kept_by_source"].frame)]
    if beta := scores.weights.get("beta"):
        charts.append(figures.amount_curve(pd.DataFrame(beta["curve"]), beta["beta"]))
    examples = (("nearest to the task", scores.relevant), ("most foreign to it", scores.foreign))
    non_empty = tuple(example for example in examples if example[1])
    return Section(title, selection_finding(analysis), tuple(charts), analysis.get(*SELECTION_TABLES), non_empty)


def _losses_section(analysis: Analysis) -> Section:
    title = "Did adaptation lower the loss on task text, and did it raise the loss on general text?"
    if "losses" not in analysis.tables:
        return Section(title, "This run has no adapted model.", command="dana adapt DIR --model M --steps N")
    frame = analysis.tables["evaluations"].frame
    curves = tuple(figures.loss_curves(frame, text) for text in ("task", "general"))
    return Section(title, losses_finding(analysis.tables["losses"]), curves, analysis.get("losses", "evaluations"))


def _results_section(analysis: Analysis) -> Section:
    title, command = "Did it help downstream?", "dana finetune --model {} --task T --out DIR/finetune/T/{}"
    if "results" not in analysis.tables:
        commands = f"{command.format('M', 'base')}, then {command.format('DIR/adapted', 'adapted')}"
        return Section(title, "This run has no fine-tuned model.", command=commands)
    frame = analysis.tables["seeds"].frame
    charts = [figures.forest(table.frame) for table in analysis.get("differences")]
    charts += [figures.seed_dots(frame, task) for task in frame["task"].unique()]
    drawings = tuple(figure for figure in charts if figure is not None)
    return Section(
        title, results_finding(analysis), drawings, analysis.get("differences", "variance", "results", "seeds")
    )


def _cost_section(analysis: Analysis) -> Section:
    findings = [provenance.cost_finding(table) for table in analysis.get("steps")] or ["The run has no manifest."]
    return Section("What did it cost?", findings[0], (), analysis.get("steps"))


def _steps_section(analysis: Analysis) -> Section:
    title, code = "How was this run made, and how can it be reproduced?", provenance.reproduction(analysis.run)
    how = "The run has no settings.yaml; the table below has the settings of each step."
    if code:
        how = "The lines below reproduce it; equal fingerprints mean equal settings and inputs."
    answer = f"In {len(analysis.run.stages)} steps, each with a manifest. {how}"
    return Section(title, answer, (), analysis.get("settings"), code=code)


def verdict(analysis: Analysis) -> str:
    """Write the headline: whether adaptation helped, or the last finding that the run has."""
    questions, available = analysis.questions, analysis.tables
    if questions:
        is_short = len(questions) <= MOST_QUESTIONS
        clauses = [*map(_task_verdicts, _by_task(questions))] if is_short else [_verdict_counts(questions)]
        return " ".join([*clauses, *_collapse_warning(analysis), *_data_warnings(analysis)])
    if "losses" in available:
        return losses_finding(available["losses"])
    if "kept_by_source" in available:
        return f"{_share_kept(available['kept_by_source'].frame)}."
    if "separation" in available:
        return "The general text is scored but not weighed yet."
    if "ranking" in available:
        return f"{available['ranking'].frame.query('chosen')['name'].iloc[0]} ranks best for this task."
    return "There is no comparison of arms yet."


def _by_task(questions: Sequence[ArmComparison]) -> list[list[ArmComparison]]:
    return [[row for row in questions if row.task == task] for task in dict.fromkeys(row.task for row in questions)]


def _verdict_counts(questions: Sequence[ArmComparison]) -> str:
    """Count the verdicts and name the decided questions."""
    clauses = []
    for verdict in CLAIMS:
        rows = [row for row in questions if row.verdict == verdict]
        examples = ", ".join(f"{row.arm} than {row.other} on {row.task}" for row in rows if verdict in (BETTER, WORSE))
        clauses += [f"{len(rows)} {verdict}{f' ({examples})' if examples else ''}"] if rows else []
    tasks = len(_by_task(questions))
    return f"Of {len(questions)} questions on {tasks} {'task' if tasks == 1 else 'tasks'}: {'; '.join(clauses)}."


def _task_verdicts(rows: Sequence[ArmComparison]) -> str:
    """Write the verdicts on one task, decided ones first; questions of an arm with equal reasons share a clause."""
    alike: dict[tuple[str, str, str], list[str]] = {}
    for row in sorted(rows, key=lambda row: list(CLAIMS).index(row.verdict)):
        alike.setdefault((row.verdict, row.arm, row.reasons or row.basis), []).append(row.other)
    claims = [
        f"{CLAIMS[verdict].format(arm, ' and '.join(others))} ({reason})"
        for (verdict, arm, reason), others in alike.items()
    ]
    return f"On {rows[0].task}, {'; '.join(claims)}." + _scores(rows)


def _scores(rows: Sequence[ArmComparison]) -> str:
    """Write the scores of the first arm, its rivals and the best floor, and whether it beats that."""
    floors = [row for row in rows if row.is_floor]
    if not floors:
        return ""
    beside = dict.fromkeys((row.other, row.other_score) for row in rows if row.arm == floors[0].arm)
    scores = [(floors[0].arm, floors[0].arm_score), *beside]
    losers = [row for row in floors if row.verdict != BETTER]
    verdicts = "".join(f" {row.arm} does not beat {row.other}, which needs no adaptation." for row in losers)
    metric = tables.metric_name(rows[0].metric)
    return f" {metric}: {', '.join(f'{name} {number(score, 3)}' for name, score in scores)}.{verdicts}"


def _collapse_warning(analysis: Analysis) -> list[str]:
    """Write a warning if any fine-tuned model collapsed."""
    if "results" not in analysis.tables:
        return []
    count, runs = analysis.tables["results"].frame[["degenerate", "n"]].sum()
    remedy = "try finetune.learning_rate=auto or more finetune.steps"
    return [f"Beware: {count} of {runs} fine-tuned models do not beat the largest class: {remedy}."] if count else []


def _data_warnings(analysis: Analysis) -> list[str]:
    """Write the warnings about the data of each task, with the scores of its first arm."""
    first = {cell.task: cell for cell in reversed(analysis.run.cells)}
    return [f"On {task} ({cell.arm}): {warning}" for task, cell in first.items() for warning in cell.warnings]


def highlights(analysis: Analysis) -> list[Finding]:
    """Choose at most four numbers: separation, recall, and paired differences on the first task."""
    findings = []
    if "separation" in analysis.tables:
        row = _row(analysis.tables["separation"].frame, "text", "task")
        if row is not None and np.isfinite(row["auroc_against_general"]):
            meaning = "AUROC of held-out task text against general text (chance 0.5)"
            findings.append(Finding(number(row["auroc_against_general"]), meaning))
    if "planted" in analysis.tables:
        recall = analysis.tables["planted"].frame.iloc[0]
        meaning = f"of the planted text was selected (chance {percent(recall['by_chance'])})"
        findings.append(Finding(percent(recall["value"]), meaning))
    main_questions = [row for row in analysis.questions if row.other in RIVALS]
    for row in main_questions:
        if row.task == main_questions[0].task:
            ends = "" if np.isnan(row.low) else f" ({interval_text(row.low, row.high, 3)})"
            meaning = f"{row.arm} − {row.other}, {tables.metric_name(row.metric)} on {row.task}{ends}: {row.verdict}"
            findings.append(Finding(number(row.mean, 3, sign=True), meaning))
    return findings[:4]


def ranking_finding(table: Table) -> str:
    """Describe the ranking: the chosen detector, the next best, and its stability."""
    frame = table.frame
    best, others = frame[frame["chosen"]].iloc[0], frame[~frame["chosen"]]
    by, words = ("recall", "recall") if tables.has_recall(frame) else ("f1_mean", "F1")
    text = f"{best['name']} has {words} {number(best[by])}."
    near_best = others[others["tied"]] if by == "recall" else others.head(0)
    if len(near_best):
        text += f" Within one standard error of the best: {', '.join(near_best['name'])}; the most stable is chosen."
    elif len(others):
        second = others.sort_values(by, ascending=False, kind="stable").iloc[0]
        text += f" Next is {second['name']} with {number(second[by])}."
    stable = best["stability"]
    if stable is not None and stable < UNSTABLE:
        text += f" Its scores correlate by only {number(stable, 2)} between fits: another seed would select other text."
    return text


def separation_finding(table: Table) -> str:
    """Describe how well scores separate task from general text, and whether they follow length."""
    clauses = []
    for group, words in (("task", "a held-out task unit"), ("planted", "a planted unit")):
        row = _row(table.frame, "text", group)
        if row is not None and np.isfinite(row["auroc_against_general"]):
            clauses.append(f"{words} scores as more relevant {percent(row['auroc_against_general'])} of the time")
    text = f"Against a general unit, {' and '.join(clauses)}. " if clauses else ""
    length = _row(table.frame, "text", "general")
    if length is not None and np.isfinite(length["spearman_score_length"]):
        value = length["spearman_score_length"]
        verb = "follow" if abs(value) >= FOLLOWS_LENGTH else "hardly follow"
        text += f"Scores of general text {verb} its length (Spearman {number(value, 2, sign=True)})."
    return text.strip()


def selection_finding(analysis: Analysis) -> str:
    """Describe the amount of selected text, its largest source, and recall and precision of planted text."""
    frame = analysis.tables["kept_by_source"].frame
    top = frame.iloc[0]
    of_kept, of_corpus = percent(top["share_of_kept_characters"]), percent(top["share_of_characters"])
    text = f"{_share_kept(frame)}. The largest part of it is {top['source']}: "
    text += f"{of_kept} of the selected text, {of_corpus} of the corpus."
    for table in analysis.get("planted"):
        recall, precision = each(table.frame)
        recall_text = f"{percent(recall.value)} were selected (chance {percent(recall.by_chance)})"
        precision_text = f"{percent(precision.value)} of the selected units (chance {percent(precision.by_chance)})"
        text += f" Of the planted units {recall_text}; they are {precision_text}."
    return text


def _share_kept(frame: pd.DataFrame) -> str:
    units, characters = frame["units"].sum(), max(frame["characters"].sum(), 1)
    share, text = frame["kept_units"].sum() / units, frame["kept_characters"].sum() / characters
    unit_noun = "units, counted by weight," if frame["partly_kept_units"].any() else "units"
    return f"{percent(share)} of {number(units, 0)} {unit_noun} were selected, {percent(text)} of the text"


def losses_finding(table: Table) -> str:
    """Describe the change of the losses on task and general text, ours first."""
    ours, text = next(iter(main_arms(table.frame["arm"])), None), []
    for name in ("task", "general"):
        rows = table.frame[table.frame["text"] == name]
        row = _row(rows, "arm", ours)
        row = rows.iloc[-1] if row is None else row
        if not np.isfinite(row["change"]):
            text.append(f"On {name} text no loss was measured.")
            continue
        others = [f"{other.arm} {number(other.change, sign=True)}" for other in each(rows) if other.arm != row["arm"]]
        changes = "; ".join([number(row["change"], sign=True), *others])
        path = f"from {number(row['before'])} to {number(row['after'])} nats"
        text.append(f"On {name} text the loss of {row['arm']} went {path} ({changes}).")
    return " ".join(text)


def results_finding(analysis: Analysis) -> str:
    """Describe each question on a line: difference, interval, p, verdict and reasons."""
    text = [] if analysis.questions else ["No task has two arms, so there is nothing to compare."]
    for row in analysis.questions:
        name, value = f"{row.arm} − {row.other} on {row.task}", number(row.mean, 4, sign=True)
        outcome = ": ".join(filter(None, [row.verdict, row.reasons]))
        if row.verdict == INCOMPARABLE:
            text.append(f"{name}: {outcome}.")
            continue
        interval, p = interval_text(row.low, row.high), f"p {_equals(row.p)}, {p_text(row.p_holm)} after Holm"
        text.append(f"{name}: {value} {tables.metric_name(row.metric)}, 95 % interval {interval}, {p}: {outcome}.")
    text += [f"{cell.arm} on {cell.task}: {warning}" for cell in analysis.run.cells for warning in cell.warnings]
    if any(row.unit != SEED for row in analysis.questions):
        text.append("Each adaptation has a selection of its own; selected text and losses are those of the first.")
    return "\n".join(text)


def _equals(p: float) -> str:
    text = p_text(p)
    return text if text.startswith("<") else f"= {text}"


def _row(frame: pd.DataFrame, key: str, value: str | None) -> Any:
    rows = frame[frame[key] == value]
    return rows.iloc[0] if len(rows) else None
