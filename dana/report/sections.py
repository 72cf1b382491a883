"""A run's tables to the sections of its report: for each question an answer in sentences, tables and figures.

No sentence claims more than the verdict, and an undecided one says its reason.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from dana.core.studies import loaded
from dana.report import figures, provenance, tables
from dana.report.page import Finding, Report, Section, Table, each, interval_text, number, percent
from dana.report.run import RunFrames
from dana.report.verdicts import BETTER, INCOMPARABLE, RIVALS, UNDECIDED, WORSE, ArmComparison, compare_arms, own_arms

UNSTABLE = 0.7  # mean rank correlation between seeds; below it, another seed selects visibly other text
FOLLOWS_LENGTH = 0.3
MOST_TOLD = 4  # questions, with their reasons; of more the table has them
# What the headline says of an arm and those it is compared with.
CLAIMS = {
    BETTER: "{} is better than {}",
    WORSE: "{} is worse than {}",
    UNDECIDED: "{} against {} is undecided",
    INCOMPARABLE: "{} and {} were not made alike",
}


@dataclass(frozen=True)
class Analysis:
    """What is made of a run.

    Attributes:
        run: The run.
        comparisons: Of all pairs of arms that are shown, with their verdicts.
        tables: Those that the run allows, by name.
    """

    run: RunFrames
    comparisons: tuple[ArmComparison, ...]
    tables: dict[str, Table]

    @property
    def asked(self) -> list[ArmComparison]:
        """The questions of the report."""
        return [row for row in self.comparisons if row.asked]

    def some(self, *names: str) -> tuple[Table, ...]:
        """Tables of these names, as far as there are any."""
        return tuple(self.tables[name] for name in names if name in self.tables)


def analyse(run: RunFrames) -> Analysis:
    """Make every table that the run allows."""
    selected, comparisons = run.selected, tuple(compare_arms(run.cells))
    made = [provenance.step_table(run), provenance.setting_table(run), tables.difference_table(comparisons)]
    if run.ranking is not None:
        made.append(tables.ranking_table(run.ranking))
    if run.choice is not None:
        made.append(tables.choice_table(run.choice))
    if selected is not None:
        made += [tables.histogram(selected), tables.separation_table(selected)]
        if "weight" in selected.units:
            made += [tables.kept_table(selected), tables.planted_table(selected)]
    if run.evaluations is not None:
        made += [Table("evaluations", "Held-out losses.", run.evaluations), tables.loss_table(run.evaluations)]
    if run.cells:
        made += [tables.seed_table(run.cells), tables.result_table(run.cells)]
    return Analysis(run, comparisons, {table.name: table for table in made if table is not None})


def build_report(run: RunFrames) -> Report:
    """Everything a page says, a section a question."""
    known = analyse(run)
    of_studies = [section for _, of_study in loaded("sections") for section in of_study(run)]
    sections = [_chosen(known), _separated(known), _kept(known), *of_studies]
    sections += [_lowered(known), _helped(known), _cost(known), _made(known)]
    name = run.path.resolve().name
    return Report(name, verdict(known), highlights(known), sections, provenance.versions(run))


def _chosen(known: Analysis) -> Section:
    title, choice = "What tells this task from general text?", known.run.choice
    reasons = [] if choice is None else [f"By held-out task text: {choice.content['reason']}."]
    reasons += map(ranking_finding, known.some("ranking"))
    if not reasons:
        return Section(title, "No comparison here.", command="dana rank --task T --general G --out DIR")
    return Section(title, "\n".join(reasons), (), known.some("choice", "ranking"))


def _separated(known: Analysis) -> Section:
    title = "How well do the scores separate task from general text?"
    if "separation" not in known.tables:
        return Section(title, "No scores here.", command="dana score --task T --general G --out DIR")
    drawn = figures.score_histogram(known.tables["score_histogram"].frame)
    finding = separation_finding(known.tables["separation"])
    return Section(title, finding, (drawn,), known.some("separation", "score_histogram"))


def _kept(known: Analysis) -> Section:
    title, selected = "What was kept?", known.run.selected
    if "kept_by_source" not in known.tables or selected is None:
        return Section(title, "No weights here.", command="dana weigh DIR --policy segments --beta 0.2")
    drawn = [figures.kept_bars(known.tables["kept_by_source"].frame)]
    if beta := selected.weights.get("beta"):
        drawn.append(figures.amount_curve(pd.DataFrame(beta["curve"]), beta["beta"]))
    examples = (("nearest to the task", selected.relevant), ("most foreign to it", selected.foreign))
    shown = tuple(example for example in examples if example[1])
    return Section(title, selection_finding(known), tuple(drawn), known.some("planted", "kept_by_source"), shown)


def _lowered(known: Analysis) -> Section:
    title = "Did adaptation lower the loss on task text, and what did it cost on general text?"
    if "losses" not in known.tables:
        return Section(title, "No adapted model here.", command="dana adapt DIR --model M --steps N")
    frame = known.tables["evaluations"].frame
    drawn = tuple(figures.loss_curves(frame, text) for text in ("task", "general"))
    return Section(title, losses_finding(known.tables["losses"]), drawn, known.some("losses", "evaluations"))


def _helped(known: Analysis) -> Section:
    title, command = "Did it help downstream?", "dana finetune --model {} --task-card T --out DIR/finetune/T/{}"
    if "results" not in known.tables:
        commands = f"{command.format('M', 'base')}, then {command.format('DIR/adapted', 'adapted')}"
        return Section(title, "No fine-tuned model here.", command=commands)
    frame = known.tables["seeds"].frame
    drawn = [figures.forest(table.frame) for table in known.some("differences")]
    drawn += [figures.seed_dots(frame, task) for task in frame["task"].unique()]
    shown = tuple(figure for figure in drawn if figure is not None)
    return Section(title, results_finding(known), shown, known.some("differences", "results", "seeds"))


def _cost(known: Analysis) -> Section:
    findings = [provenance.cost_finding(table) for table in known.some("steps")] or ["No step left a manifest."]
    return Section("What did it cost?", findings[0], (), known.some("steps"))


def _made(known: Analysis) -> Section:
    title, code = "How was this made, and how is it made again?", provenance.reproduction(known.run)
    how = "What its commands were told is not kept here; the settings below are what each step was made from."
    if code:
        how = "These lines make it again; where fingerprints agree, so do settings and inputs."
    answer = f"In {len(known.run.stages)} steps, each of which left a manifest. {how}"
    return Section(title, answer, (), known.some("settings"), code=code)


def verdict(analysis: Analysis) -> str:
    """The page's first sentence: whether adaptation helped, or the most that this run can say."""
    asked, known = analysis.asked, analysis.tables
    if asked:
        told = len(asked) <= MOST_TOLD
        return " ".join([*(map(_judged, _by_task(asked)) if told else [_counted(asked)]), *_collapsed(analysis)])
    if "losses" in known:
        return losses_finding(known["losses"])
    if "kept_by_source" in known:
        return f"{_share_kept(known['kept_by_source'].frame)}."
    if "separation" in known:
        return "The general text is scored, and not weighed yet."
    if "ranking" in known:
        return f"{known['ranking'].frame.query('chosen')['name'].iloc[0]} ranks best for this task."
    return "There is no comparison of arms yet."


def _by_task(asked: Sequence[ArmComparison]) -> list[list[ArmComparison]]:
    return [[row for row in asked if row.task == task] for task in dict.fromkeys(row.task for row in asked)]


def _counted(asked: Sequence[ArmComparison]) -> str:
    """How often each verdict was given, with the questions that are decided."""
    said = []
    for verdict in CLAIMS:
        rows = [row for row in asked if row.verdict == verdict]
        named = ", ".join(f"{row.arm} than {row.other} on {row.task}" for row in rows if verdict in (BETTER, WORSE))
        said += [f"{len(rows)} {verdict}{f' ({named})' if named else ''}"] if rows else []
    tasks = len(_by_task(asked))
    return f"Of {len(asked)} questions on {tasks} {'task' if tasks == 1 else 'tasks'}: {'; '.join(said)}."


def _judged(rows: Sequence[ArmComparison]) -> str:
    """What is decided on a task, then what is not, with its reasons; an arm's questions that share them in one."""
    alike: dict[tuple[str, str, str], list[str]] = {}
    for row in sorted(rows, key=lambda row: list(CLAIMS).index(row.verdict)):
        alike.setdefault((row.verdict, row.arm, row.reasons or f"{row.n} seeds"), []).append(row.other)
    claims = [
        f"{CLAIMS[verdict].format(arm, ' and '.join(others))} ({reason})"
        for (verdict, arm, reason), others in alike.items()
    ]
    return f"On {rows[0].task}, {'; '.join(claims)}."


def _collapsed(analysis: Analysis) -> list[str]:
    """A warning, if any model collapsed."""
    if "results" not in analysis.tables:
        return []
    count, runs = analysis.tables["results"].frame[["degenerate", "n"]].sum()
    return [f"Beware: {count} of {runs} fine-tuned models collapsed to (nearly) one class."] if count else []


def highlights(analysis: Analysis) -> list[Finding]:
    """At most four numbers: separation, recall, and two paired differences on the first task."""
    found = []
    if "separation" in analysis.tables:
        row = _row(analysis.tables["separation"].frame, "text", "task")
        if row is not None and np.isfinite(row["auroc_against_general"]):
            meaning = "AUROC of held-out task text against general text (chance 0.5)"
            found.append(Finding(number(row["auroc_against_general"]), meaning))
    if "planted" in analysis.tables:
        recall = analysis.tables["planted"].frame.iloc[0]
        meaning = f"of the planted text was found (chance {percent(recall['by_chance'])})"
        found.append(Finding(percent(recall["value"]), meaning))
    asked = [row for row in analysis.asked if row.other in RIVALS]
    for row in asked:
        if row.task == asked[0].task:
            ends = "" if np.isnan(row.low) else f" ({interval_text(row.low, row.high, 3)})"
            meaning = f"{row.arm} − {row.other}, {tables.metric_name(row.metric)} on {row.task}{ends}: {row.verdict}"
            found.append(Finding(number(row.mean, 3, sign=True), meaning))
    return found[:4]


def ranking_finding(table: Table) -> str:
    """Who was chosen, by how much, and whether another would do."""
    frame = table.frame
    best, others = frame[frame["chosen"]].iloc[0], frame[~frame["chosen"]]
    by, words = ("recall", "recall") if tables.has_recall(frame) else ("f1_mean", "F1")
    text = f"{best['name']} has {words} {number(best[by])}."
    tied = others[others["tied"]] if by == "recall" else others.head(0)
    if len(tied):
        text += f" Within one standard error of the best: {', '.join(tied['name'])}; the stablest of them is chosen."
    elif len(others):
        second = others.sort_values(by, ascending=False, kind="stable").iloc[0]
        text += f" Next is {second['name']} with {number(second[by])}."
    stable = best["stability"]
    if stable is not None and stable < UNSTABLE:
        text += f" Between fits its scores correlate by only {number(stable, 2)}: each would choose other text."
    return text


def separation_finding(table: Table) -> str:
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


def selection_finding(analysis: Analysis) -> str:
    """How much was kept, from where, and how much of what was planted."""
    frame = analysis.tables["kept_by_source"].frame
    top = frame.iloc[0]
    of_kept, of_corpus = percent(top["share_of_kept_characters"]), percent(top["share_of_characters"])
    text = f"{_share_kept(frame)}. The largest part of it is {top['source']}: "
    text += f"{of_kept} of the kept text, {of_corpus} of the corpus."
    for table in analysis.some("planted"):
        recall, precision = each(table.frame)
        found = f"{percent(recall.value)} were found ({percent(recall.by_chance)} by chance)"
        kept = f"{percent(precision.value)} of what was kept ({percent(precision.by_chance)} by chance)"
        text += f" Of the planted units {found}; they are {kept}."
    return text


def _share_kept(frame: pd.DataFrame) -> str:
    units, characters = frame["units"].sum(), max(frame["characters"].sum(), 1)
    share, text = frame["kept_units"].sum() / units, frame["kept_characters"].sum() / characters
    counted = "units, counted by weight," if frame["partly_kept_units"].any() else "units"
    return f"{percent(share)} of {number(units, 0)} {counted} was kept, {percent(text)} of the text"


def losses_finding(table: Table) -> str:
    """What our arm's losses did on both texts, beside the other arms'."""
    ours, text = next(iter(own_arms(table.frame["arm"])), None), []
    for name in ("task", "general"):
        rows = table.frame[table.frame["text"] == name]
        row = _row(rows, "arm", ours)
        row = rows.iloc[-1] if row is None else row
        if not np.isfinite(row["change"]):
            text.append(f"On {name} text there was nothing to measure.")
            continue
        others = [f"{other.arm} {number(other.change, sign=True)}" for other in each(rows) if other.arm != row["arm"]]
        changes = "; ".join([number(row["change"], sign=True), *others])
        path = f"from {number(row['before'])} to {number(row['after'])} nats"
        text.append(f"On {name} text {row['arm']} went {path} ({changes}).")
    return " ".join(text)


def results_finding(analysis: Analysis) -> str:
    """Each question's difference, a line each, with what it allows to be said and why no more."""
    text = [] if analysis.asked else ["No task has two arms, so there is nothing to compare."]
    for row in analysis.asked:
        name, value = f"{row.arm} − {row.other} on {row.task}", number(row.mean, 4, sign=True)
        judged = ": ".join(filter(None, [row.verdict, row.reasons]))
        if row.verdict == INCOMPARABLE:
            text.append(f"{name}: {judged}.")
            continue
        interval, p = interval_text(row.low, row.high), f"p = {number(row.p, 4)}, {number(row.p_holm, 4)} after Holm"
        text.append(f"{name}: {value} {tables.metric_name(row.metric)}, 95 % interval {interval}, {p}: {judged}.")
    if any(row.nested for row in analysis.asked):
        text.append(
            "Each seed has a selection and an adaptation of its own: its spread is that of the whole way. "
            "Where text and losses of one selection are shown, they are the first seed's."
        )
    return "\n".join(text)


def _row(frame: pd.DataFrame, key: str, value: str | None) -> Any:
    rows = frame[frame[key] == value]
    return rows.iloc[0] if len(rows) else None
