"""Build the sections of a run's report.

Each is a question and its answer in sentences, tables and figures.

No sentence claims more than the verdict, and an undecided verdict gives its reasons.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from dana.core.studies import load_parts
from dana.report import figures, provenance, tables
from dana.report.analysis import Analysis, analyse
from dana.report.choice import choice_section
from dana.report.classes import class_tables, turned_texts
from dana.report.gate import gate_text
from dana.report.headline import (
    headline,
    highlights,
    in_brackets,
    loss_change,
    notes,
    variance_finding,
)
from dana.report.label_worth import worth_lines
from dana.report.neighbours import filled_texts, nearest_texts
from dana.report.page import (
    ExampleGroup,
    ExamplesBySource,
    Report,
    Section,
    SourceExamples,
    Table,
    UnitExample,
    each,
    interval_text,
    number,
    percent,
)
from dana.report.pilot import pilot_section
from dana.report.run import ADAPTED, RunFrames
from dana.report.svg import Figure
from dana.report.tables import arm_name
from dana.report.verdicts import SEED, main_arms

# Mean rank correlation between fits, below which another seed selects noticeably different text.
UNSTABLE = 0.7
# Rank correlation of score and length above which scores are said to follow length.
FOLLOWS_LENGTH = 0.3


def build_report(run: RunFrames) -> Report:
    """Build the report of a run, one section per question: results first, method last."""
    analysis = analyse(run)
    sections = []
    if run.final:
        sections.append(choice_section(run.final, run.path.resolve().name))
    if analysis.is_of_vectors:
        sections.append(_probe_section(analysis))
    sections.append(_results_section(analysis))
    sections.append(_selection_section(analysis))
    sections.append(_losses_section(analysis))
    if (run.probes or run.retrieval is not None) and not analysis.is_of_vectors:
        sections.append(_probe_section(analysis))
    pilot = pilot_section(run)
    if pilot is not None:
        sections.append(pilot)
    for _, build_sections in load_parts("sections"):
        sections += build_sections(run)
    sections.append(_scores_section(analysis))
    sections.append(_choice_section(analysis))
    sections.append(_steps_section(analysis))
    if run.recipe:
        # The recipe asked for no more steps, and the notes name the next one.
        sections = [section for section in sections if not section.command]
    return Report(
        run.path.resolve().name,
        headline(analysis),
        highlights(analysis),
        sections,
        provenance.versions(run),
        notes=notes(analysis),
    )


def _choice_section(analysis: Analysis) -> Section:
    title = "Which selector tells target text from the pool?"
    choice = analysis.run.choice
    reasons = []
    if choice is not None:
        reasons.append(f"By held-out target text: {choice.notes['reason']}.")
    for table in analysis.get("ranking"):
        reasons.append(ranking_finding(table))
    if not reasons:
        command = "dana score --rank-only --task T --out DIR"
        return Section(title, "This run compared none.", command=command)
    return Section(title, "\n".join(reasons), tables=analysis.get("choice", "ranking"))


def _scores_section(analysis: Analysis) -> Section:
    title = "How well do the scores separate target from pool text?"
    if "separation" not in analysis.tables:
        command = "dana score --task T --pool G --out DIR"
        return Section(title, "This run has no scores.", command=command)
    histogram = figures.score_histogram(analysis.tables["score_histogram"].frame)
    finding = separation_finding(analysis.tables["separation"])
    return Section(title, finding, (histogram,), analysis.get("separation", "score_histogram"))


def _selection_section(analysis: Analysis) -> Section:
    title = "Which text was selected?"
    scores = analysis.run.scores
    if "selected_by_source" not in analysis.tables or scores is None:
        command = "dana weigh DIR --policy segments --beta 0.2"
        return Section(title, "This run has no weights.", command=command)
    charts: tuple[Figure, ...] = ()
    beta = scores.weights.get("beta")
    if beta:
        charts = (figures.amount_curve(pd.DataFrame(beta["curve"]), beta["beta"]),)
    examples = (
        ExampleGroup(
            "Passages from the whole selection, by score (lower is more like the task)",
            selected_passages(scores.weights),
        ),
        ExampleGroup("Single units nearest to the task", scores.relevant, folded=True),
        ExampleGroup("Single units most foreign to the task", scores.foreign, folded=True),
    )
    answer = selection_finding(analysis)
    share_like_task = likeness(scores.weights)
    if share_like_task:
        answer += f" {share_like_task}"
    return Section(title, answer, charts, analysis.get("selected_by_source"), examples)


def likeness(weights: Mapping[str, Any]) -> str:
    """Say how much of the selected text is like the task's, by held-out text.

    It is empty if nothing was estimated.

    Args:
        weights: Manifest of the weights.
    """
    shares = weights.get("in_domain")
    if not shares:
        return ""
    if "unknown" in shares:
        return f"How much of it is like the task is unknown: {shares['unknown']}."
    selected = shares["selected"]
    pool = shares["pool"]
    return (
        f"At most about {percent(selected['value'], 0)} of it ({percent(selected['low'], 0)} to "
        f"{percent(selected['high'], 0)}) scores like held-out text of the task, of the pool "
        f"{percent(pool['value'], 0)}; text of the same subject in another style does not."
    )


def selected_passages(weights: Mapping[str, Any]) -> ExamplesBySource:
    """Return the passages that stand for the whole selection: the best, the middle and the last.

    Args:
        weights: Manifest of the weights.
    """
    total = weights.get("counts", {}).get("selected_texts", 0)
    by_place: dict[str, list[UnitExample]] = {}
    for passage in weights.get("passages", []):
        note = (
            f"{passage['source']}, number {passage['rank']:,} of {total:,}, "
            f"score {number(passage['score'])}"
        )
        by_place.setdefault(passage["place"], []).append(UnitExample(passage["text"], note))
    return tuple(SourceExamples(place, tuple(units)) for place, units in by_place.items())


def _losses_section(analysis: Analysis) -> Section:
    title = "Did adaptation make target text easier to predict, and pool text harder?"
    if "losses" not in analysis.tables:
        command = "dana adapt DIR --model M --steps N"
        return Section(title, "This run has no adapted model.", command=command)
    losses = analysis.tables["losses"]
    if tables.predicts_classes(losses.frame):
        title = "Did training learn what it asked?"
    evaluations = analysis.tables["evaluations"].frame
    measured = losses.frame["text"].unique()
    curves = tuple(figures.loss_curves(evaluations, text) for text in measured)
    answer = [losses_finding(losses), *_known_before(analysis)]
    return Section(title, "\n".join(answer), curves, analysis.get("losses", "evaluations"))


def _known_before(analysis: Analysis) -> list[str]:
    """Return what was known of the selected text before adaptation, of the first arm that has it.

    Returns:
        One sentence, or none.
    """
    stages = analysis.run.stages
    steps = []
    for arm in main_arms(step.split("/")[1] for step in stages if step.startswith("arms/")):
        steps += [f"arms/{arm}/gate", f"arms/{arm}/adapted"]
    steps.append(ADAPTED)
    for step in steps:
        text = gate_text(stages.get(step, {}))
        if text:
            return [text]
    return []


def _results_section(analysis: Analysis) -> Section:
    title = "Did it help downstream?"
    if "results" not in analysis.tables:
        command = (
            "dana finetune --model M --task T --out DIR/finetune/T/base, then "
            "dana finetune --model DIR/adapted --task T --out DIR/finetune/T/adapted"
        )
        return Section(title, "This run has no fine-tuned model.", command=command)
    charts = [figures.forest(table.frame) for table in analysis.get("differences")]
    seeds = analysis.tables["seeds"].frame
    charts += [figures.seed_dots(seeds, task) for task in seeds["task"].unique()]
    drawings = tuple(figure for figure in charts if figure is not None)
    shown_tables = (
        *analysis.get("results", "differences"),
        *class_tables(analysis),
        *analysis.get("seeds"),
    )
    return Section(title, results_finding(analysis), drawings, shown_tables, turned_texts(analysis))


def _probe_section(analysis: Analysis) -> Section:
    title = "What do the models' vectors say before any fine-tuning?"
    drawings = []
    for table in analysis.get("probe"):
        for task in table.frame["task"].unique():
            drawings.append(figures.probe_curves(table.frame, task))
    shown = analysis.get("probe_differences", "probe", "retrieval")
    examples = nearest_texts(analysis.run) + filled_texts(analysis.run)
    return Section(title, probe_finding(analysis), tuple(drawings), shown, examples)


def _steps_section(analysis: Analysis) -> Section:
    title = "How was this run made, what did it cost, and how is it reproduced?"
    code = provenance.reproduction(analysis.run)
    cost = " ".join(map(provenance.cost_finding, analysis.get("steps")))
    hint = "The run has no recipe.yaml; the table below has the settings of each step."
    if code:
        hint = (
            "In the run's folder, the lines below reproduce it; equal fingerprints mean equal "
            "settings and inputs."
        )
    answer = f"In {len(analysis.run.stages)} steps, each with a manifest, and {cost} {hint}"
    return Section(title, answer, tables=analysis.get("steps", "settings"), code=code)


def ranking_finding(table: Table) -> str:
    """Describe the ranking: the chosen detector, the next best, and its stability."""
    frame = table.frame
    best = frame[frame["chosen"]].iloc[0]
    others = frame[~frame["chosen"]]
    if tables.has_recall(frame):
        measure = "recall"
        text = f"{best['name']} has recall {number(best['recall'])}."
        tied = list(others[others["tied"]]["name"])
    else:
        measure = "f1_mean"
        text = f"{best['name']} has F1 {number(best['f1_mean'])}."
        tied = []
    if tied:
        text += (
            f" Within one standard error of the best: {', '.join(tied)}; the most stable is chosen."
        )
    elif len(others):
        second = others.sort_values(measure, ascending=False, kind="stable").iloc[0]
        text += f" Next is {second['name']} with {number(second[measure])}."
    stability = best["stability"]
    if stability is not None and stability < UNSTABLE:
        text += (
            f" Its scores correlate by only {number(stability, 2)} between fits: another seed "
            "would select other text."
        )
    return text


def separation_finding(table: Table) -> str:
    """Describe how well scores separate target from pool text, and whether they follow length."""
    rows = {row.text: row for row in each(table.frame)}
    auroc = rows["target"].auroc_against_pool if "target" in rows else np.nan
    sentences = []
    if np.isfinite(auroc):
        sentences.append(
            "Against a pool unit, a held-out target unit scores as more relevant "
            f"{percent(auroc)} of the time."
        )
    correlation = rows["pool"].spearman_score_length if "pool" in rows else np.nan
    if np.isfinite(correlation):
        follow = "follow" if abs(correlation) >= FOLLOWS_LENGTH else "hardly follow"
        value = number(correlation, 2, sign=True)
        sentences.append(f"Scores of pool text {follow} its length (Spearman {value}).")
    return " ".join(sentences)


def selection_finding(analysis: Analysis) -> str:
    """Describe the amount of selected text and its largest source."""
    frame = analysis.tables["selected_by_source"].frame
    units = frame["units"].sum()
    characters = max(frame["characters"].sum(), 1)
    of_units = percent(frame["selected_units"].sum() / units)
    of_text = percent(frame["selected_characters"].sum() / characters)
    unit_noun = "units (sentences or windows of text)"
    if frame["partly_selected_units"].any():
        unit_noun += ", counted by weight,"
    top = frame.iloc[0]
    top_of_selected = percent(top["share_of_selected_characters"])
    top_of_pool = percent(top["share_of_characters"])
    return (
        f"{of_units} of {number(units, 0)} {unit_noun} were selected, {of_text} of the text. "
        f"The largest part of it is {top['source']}: {top_of_selected} of the selected text, "
        f"{top_of_pool} of the pool."
    )


def losses_finding(table: Table) -> str:
    """Describe how well target and pool text were predicted before and after, ours first."""
    by_class = tables.predicts_classes(table.frame)
    text = []
    for name in ("target", "pool"):
        if name not in set(table.frame["text"]):
            text.append(f"On {name} text no loss was measured.")
            continue
        row, others = loss_change(table, name)
        if by_class:
            ends = [f"{arm_name(other.arm)} {percent(other.right_after)}" for other in others]
            text.append(
                f"Of held-out {name} text the model predicted {percent(row.right_before)} right "
                f"before and {percent(row.right_after)} after{in_brackets(ends)}, where guessing "
                f"gets {percent(row.guessing)}."
            )
        else:
            ends = [
                f"{arm_name(other.arm)} {number(other.perplexity_after, 1)}" for other in others
            ]
            text.append(
                f"The perplexity of held-out {name} text went from "
                f"{number(row.perplexity_before, 1)} to {number(row.perplexity_after, 1)}"
                f"{in_brackets(ends)}."
            )
    if not by_class:
        unit = tables.loss_unit(table)
        text.append(f"Perplexity is among how many {unit}s a model hesitates; lower is better.")
    return " ".join(text)


def probe_finding(analysis: Analysis) -> str:
    """Describe the paired differences of frozen vectors, one line per pair and task.

    They are those with the most draws of labels.
    """
    text = []
    for table in analysis.get("probe_differences"):
        rows = list(each(table.frame))
        drawn = [row for row in rows if row.measure[0].isdigit()] or rows
        for task in dict.fromkeys(row.task for row in drawn):
            of_task = [row for row in drawn if row.task == task]
            largest = max(row.labels for row in of_task)
            text += [_probe_line(row) for row in of_task if row.labels == largest]
    text += worth_lines(analysis.run.probes)
    if analysis.is_of_vectors:
        text.append(
            "The verdict above is of linear models on all labels and these vectors; fine-tuning "
            "may change it."
        )
    else:
        text.append("No verdict rests on these numbers: they are of vectors as they are.")
    return "\n".join(text)


def _probe_line(row: Any) -> str:
    """Describe the difference of two arms by their frozen vectors."""
    value = number(row.mean, 3, sign=True)
    interval = interval_text(row.low, row.high, 3)
    return (
        f"{tables.pair_name(row)} on {row.task}, {row.measure}: {value} "
        f"{tables.metric_name(row.metric)}, 95 % interval {interval}."
    )


def results_finding(analysis: Analysis) -> str:
    """Describe each question on a line, its verdict and the reasons.

    The numbers are in the table.
    """
    questions = analysis.questions
    text = []
    if not questions:
        text.append("No task has two arms, so there is nothing to compare.")
    has_several_tasks = len({row.task for row in questions}) > 1
    for row in questions:
        name = f"{arm_name(row.arm)} against {arm_name(row.other)}"
        if has_several_tasks:
            name += f" on {row.task}"
        reasons = f" ({row.reasons})" if row.reasons else ""
        text.append(f"{name[:1].upper()}{name[1:]}: {row.verdict}{reasons}.")
    measured = [row for row in questions if row.n and not row.collapsed_models]
    if measured:
        variance = variance_finding(measured[0])
        if variance:
            text.append(variance)
    if any(row.unit != SEED for row in questions):
        text.append(
            "Each adaptation has a selection of its own; selected text and losses are those of the "
            "first."
        )
    return "\n".join(text)
