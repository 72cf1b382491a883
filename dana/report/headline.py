"""Write the first screen of a report: a headline, the numbers, and what to make of them.

No sentence claims more than the verdict. A collapsed, unlike or unfinished comparison has no number
here.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd

from dana.core.statistics import ALPHA
from dana.report import provenance
from dana.report.analysis import Analysis
from dana.report.choice import choice_note
from dana.report.label_notes import label_notes
from dana.report.label_worth import BASE
from dana.report.page import Finding, Table, each, interval_text, number, percent
from dana.report.pilot import is_base_kept
from dana.report.run import is_control
from dana.report.tables import arm_name, loss_unit, metric_name, predicts_classes
from dana.report.verdicts import (
    BETTER,
    FOLD,
    INCOMPARABLE,
    UNDECIDED,
    WORSE,
    ArmComparison,
    main_arms,
)
from dana.tasks.tables import REMEDY

# What is claimed of an arm against its rivals, in the order of the headline.
CLAIMS = {
    BETTER: "is better than",
    WORSE: "is worse than",
    UNDECIDED: "cannot be told apart yet from",
}
# What a metric is, in brackets behind its name.
METRICS = {
    "macro_f1": "F1 averaged over the classes, each as much as any other; 1 is perfect",
    "micro_f1": "F1 over all labels together; 1 is perfect",
    "accuracy": "the share of texts that are answered right",
    "nats_per_token": (
        "how surprising the right token is, as the negative natural logarithm of its probability"
    ),
}
# Loss of MRR@10 by adaptation from which the page warns.
WORSE_SEARCH = 0.02
# Why a run has no verdict yet, by the table that says how far it came: the farthest first.
STAGES = {
    "results": "there is nothing to compare the results with",
    "losses": "a model is adapted, none is fine-tuned",
    "selected_by_source": "text is selected, no model is trained",
    "separation": "text is scored, not selected",
    "probe": "models are probed, none is fine-tuned",
    "ranking": "detectors are compared, no text is scored",
}


def headline(analysis: Analysis) -> str:
    """Write the headline: the outcome of the questions, or why there is none."""
    rows = analysis.first_questions
    if analysis.run.missing:
        return "Unfinished: results are missing, so there is no verdict yet."
    if not rows:
        reached = next(words for name, words in STAGES.items() if name in analysis.tables)
        return f"No verdict yet: {reached}."
    flaw = _flaw_of_headline(analysis)
    if flaw:
        return f"No verdict: {flaw}."
    if not _is_one_arm(rows):
        return _counts(rows)
    scope = []
    if analysis.is_of_vectors:
        scope.append("by a linear model on its vectors")
    if rows[0].one_adaptation:
        scope.append("one adaptation")
    if _is_nothing_adapted(analysis):
        score = number(rows[0].arm_score, 2)
        return (
            f"Nothing was adapted, as the pilot expects no gain: the model as it was has {score} "
            f"on {rows[0].task}{in_brackets(scope)}."
        )
    measured = [row for row in rows if not _flaw(analysis, row)]
    return f"{_outcome(measured)} on {rows[0].task}{in_brackets(scope)}."


def _is_nothing_adapted(analysis: Analysis) -> bool:
    """Return whether the arm is the base, because no objective was worth it in any pilot."""
    row = _against_start(analysis.first_questions)
    is_equal = row.other == BASE and row.low == row.mean == row.high == 0
    return is_equal and is_base_kept(analysis.run)


def _is_one_arm(rows: Sequence[ArmComparison]) -> bool:
    """Return whether all comparisons are of one arm on one task."""
    return len({(row.task, row.arm) for row in rows}) == 1


def _flaw_of_headline(analysis: Analysis) -> str:
    """Return the flaw because of which the headline has no verdict; empty if it has one.

    Of one arm that is a flaw of the first comparison, which is the main one; of several arms or
    tasks only a flaw of all.
    """
    rows = analysis.first_questions
    flaws = [_flaw(analysis, row) for row in rows]
    if all(flaws) or _is_one_arm(rows):
        return flaws[0]
    return ""


def in_brackets(words: Sequence[str]) -> str:
    """Put words in brackets, with a space before; empty without words."""
    return f" ({'; '.join(words)})" if words else ""


def _counts(rows: Sequence[ArmComparison]) -> str:
    """Write one sentence of how many comparisons had each verdict."""
    tasks = len({row.task for row in rows})
    parts = []
    for verdict in (*CLAIMS, INCOMPARABLE):
        count = sum(row.verdict == verdict for row in rows)
        if count:
            parts.append(f"{count} {verdict}")
    plural = "s" if tasks > 1 else ""
    return f"Of {len(rows)} comparisons on {tasks} task{plural}: {', '.join(parts)}."


def _outcome(rows: Sequence[ArmComparison]) -> str:
    """Write one sentence that names an arm's score and the outcome against each of its rivals."""
    claims = []
    for verdict, claim in CLAIMS.items():
        rivals = [row for row in rows if row.verdict == verdict]
        scores = [f"{arm_name(row.other)} {number(row.other_score, 2)}" for row in rivals]
        if scores:
            claims.append(f"{claim} {_listed(scores)}")
    subject = f"{arm_name(rows[0].arm)} {number(rows[0].arm_score, 2)}"
    return f"{subject[0].upper()}{subject[1:]} {_listed(claims)}"


def _listed(words: Sequence[str]) -> str:
    """Join words as in a sentence: "a, b and c"."""
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def _flaw(analysis: Analysis, row: ArmComparison) -> str:
    """Say why a comparison is no measurement; empty if it is one."""
    if row.verdict == INCOMPARABLE:
        return f"{arm_name(row.arm)} and {arm_name(row.other)} were made differently"
    collapsed = []
    for result in analysis.run.results:
        is_compared = result.task == row.task and result.arm in (row.arm, row.other)
        if is_compared and result.collapsed_seeds:
            collapsed.append(arm_name(result.arm))
    if not collapsed:
        return ""
    return f"models of {' and '.join(collapsed)} on {row.task} collapsed"


def highlights(analysis: Analysis) -> list[Finding]:
    """Choose the first numbers: differences that count, perplexity and time."""
    rows = analysis.first_questions
    tables = analysis.tables
    findings = []
    if rows and (analysis.run.missing or _flaw(analysis, rows[0])):
        findings.append(Finding("–", "no number: the comparison is unfinished or no measurement"))
    elif rows:
        findings += _differences(analysis)
    if "losses" in tables and not predicts_classes(tables["losses"].frame):
        findings += _perplexity(tables["losses"])
    if "steps" in tables:
        seconds = analysis.run.wall_seconds or float(tables["steps"].frame["seconds"].sum())
        findings.append(Finding(provenance.duration(seconds), "wall time of all steps"))
    return findings


def _differences(analysis: Analysis) -> Iterator[Finding]:
    """Yield what adaptation changed in the score of the first task.

    The second finding, if any, is how far the score is from that of the best simple model.
    """
    first = analysis.first_questions[0]
    for row in analysis.first_questions:
        is_of_first = row.task == first.task and row.arm == first.arm
        if row is first or (is_of_first and row.is_baseline):
            interval = interval_text(row.low, row.high, 3)
            outcome = row.verdict
            if outcome == UNDECIDED and row.p <= ALPHA < row.p_holm:
                outcome += ", as several questions are asked at once"
            meaning = (
                f"{metric_name(row.metric)}, {arm_name(row.arm)} − {arm_name(row.other)} "
                f"(95 % interval {interval}): {outcome}"
            )
            yield Finding(number(row.mean, 3, sign=True), meaning)


def _perplexity(losses: Table) -> Iterator[Finding]:
    """Yield what adaptation changed in the perplexity of target text, if it was measured."""
    row, others = loss_change(losses, "target")
    if row is None:
        return
    ends = [f"{arm_name(other.arm)} {number(other.perplexity_after, 1)}" for other in others]
    value = f"{number(row.perplexity_before, 1)} → {number(row.perplexity_after, 1)}"
    meaning = (
        f"perplexity of held-out target text before and after adaptation{in_brackets(ends)}: "
        f"among how many {loss_unit(losses)}s the model hesitates; lower is better"
    )
    yield Finding(value, meaning)


def loss_change(table: Table, text: str) -> tuple[Any, list[Any]]:
    """Find the losses on a text: the row of our arm, and the rows of the other arms.

    Args:
        table: Table of losses.
        text: ``target`` or ``pool``.

    Returns:
        Our row, None if the loss was not measured, and the others.
    """
    rows = {row.arm: row for row in each(table.frame) if row.text == text}
    if not rows:
        return None, []
    main = main_arms(rows)
    # Where all are controls, the last in the order of arms.
    ours = main[0] if main else list(rows)[-1]
    return rows[ours], [row for arm, row in rows.items() if arm != ours]


def notes(analysis: Analysis) -> list[str]:
    """List what is to do next, warnings, what the scores are, and what the numbers do not say."""
    run = analysis.run
    lines = [*run.stale]
    lines += [f"Missing: {reason}." for reason in run.missing]
    if run.final:
        lines.append(choice_note(run.final, run.path.resolve().name))
    lines.append(f"Next: {next_step(analysis)}.")
    lines += search_notes(run.retrieval)
    # One result of each task: of the first arm, or of a baseline where no arm has any.
    first_results = {result.task: result for result in run.baselines}
    for result in reversed(run.results):
        first_results[result.task] = result
    for task, result in first_results.items():
        name = f"On {task} ({arm_name(result.arm)})"
        lines += [f"{name}: {warning}" for warning in result.warnings]
        lines += label_notes(result)
    return [*lines, *_measurement_notes(analysis), *_looks(analysis)]


def search_notes(retrieval: pd.DataFrame | None) -> list[str]:
    """Warn where adapting made the vectors worse for search, whatever it did for the labels.

    Of the target text, or else of the pool's: how well a sentence finds the rest of its document.

    Args:
        retrieval: See :attr:`dana.report.run.RunFrames.retrieval`.
    """
    if retrieval is None:
        return []
    lines = []
    for text in ("target", "pool"):
        scores = retrieval[retrieval["text"] == text].set_index("arm")["mrr_10"]
        adapted = {
            str(arm): float(score) for arm, score in scores.items() if not is_control(str(arm))
        }
        if BASE not in scores or not adapted:
            continue
        before = float(scores[BASE])
        for arm, after in adapted.items():
            if after < before - WORSE_SEARCH:
                lines.append(
                    f"For search by vectors keep the model without adaptation: a sentence finds the "
                    f"rest of its document with an MRR@10 of {number(after)} after adaptation "
                    f"({arm_name(arm)}), {number(before)} before, on {text} text."
                )
        break
    return lines


def _measurement_notes(analysis: Analysis) -> list[str]:
    """Say which questions have no measurement, and what the scores of the first measured one are."""
    rows = analysis.first_questions
    if not rows:
        return []
    lines = []
    told = _flaw_of_headline(analysis)
    flaws = [_flaw(analysis, row) for row in rows]
    for flaw in dict.fromkeys(flaws):
        if flaw and flaw != told:
            lines.append(f"No measurement: {flaw}.")
    measured = [row for row, flaw in zip(rows, flaws, strict=True) if not flaw]
    if measured and not told:
        first = measured[0]
        scores = metric_name(first.metric)
        if first.metric in METRICS:
            scores += f" ({METRICS[first.metric]})"
        basis = first.basis
        if first.unit == FOLD:
            basis += " (parts of the texts, each tested by models that did not see it)"
        lines.append(f"The scores are {scores}, over {first.texts:,} test texts and {basis}.")
    return lines


def variance_finding(row: ArmComparison) -> str:
    """Say what the squared error of a difference comes from, and what would lower it most.

    It is empty without an error.
    """
    if math.isnan(row.error) or row.error == 0:
        return ""
    parts = [
        f"{percent(row.unit_share, 0)} is from {row.unit}s",
        f"{percent(row.text_share, 0)} from test texts",
    ]
    if not math.isnan(row.seed_std):
        parts.insert(1, f"{percent(row.seed_share, 0)} from the fine-tunings of each")
    unmeasured = ""
    if row.one_adaptation:
        unmeasured = ", which it knows nothing of,"
    error = f"Of the squared standard error of the first difference {', '.join(parts)}"
    return f"{error}: more {row.remedy}{unmeasured} would help most."


def _looks(analysis: Analysis) -> Iterator[str]:
    """Say whether the run stopped early, by which rule, and which p counted."""
    row = next((row for row in analysis.questions if row.horizon), None)
    if row is None:
        return
    now = f"after {row.n} of {row.horizon} {row.unit}s"
    if analysis.run.stop:
        yield (
            f"Stopped early, {now}: {analysis.run.stop}. A difference measured at a stop tends to "
            "be too large."
        )
    yield (
        f"p and interval allow for a look after each {row.unit} from the third on "
        f"(O'Brien-Fleming): {now}, a p of this look alone of {row.level:.2g} or less decides a "
        "first question."
    )


def next_step(analysis: Analysis) -> str:
    """Advise what to do after this outcome."""
    rows = analysis.first_questions
    if analysis.run.missing:
        return "run the same command again, which makes only what is missing"
    if not rows:
        if analysis.run.final:
            return f"label new texts: dana predict {analysis.run.path.resolve().name} NEW.csv"
        if analysis.run.recipe:
            return f"go on: dana run {analysis.run.path.resolve().name}"
        return "make what is missing; the sections below name the commands"
    if not _is_one_arm(rows):
        return "read the verdict of each question below"
    row = rows[0]
    if row.verdict == INCOMPARABLE:
        return f"make both alike ({row.reasons})"
    if _flaw(analysis, row):
        return REMEDY
    return _advice(analysis)


def _advice(analysis: Analysis) -> str:
    """Advise what to do after the verdicts of one arm on one task."""
    rows = analysis.first_questions
    row = _against_start(rows)
    baseline = next((rival for rival in rows if rival.is_baseline), None)
    if baseline is not None and baseline.verdict == WORSE:
        return (
            f"use {baseline.other}, which is better and needs no adaptation, or try more labelled "
            "texts, more training or a larger base"
        )
    if _is_nothing_adapted(analysis):
        return (
            "adapting is not worth it here; with more labelled texts, more training or a larger "
            "base an objective may pay; a fixed one (objective in recipe.yaml) is adapted in any "
            "case"
        )
    if row.verdict == WORSE:
        kept = f"the model of {row.other}"
        if row.other == BASE:
            kept = "the model without adaptation"
        return f"keep {kept}, or adapt it on more text with mix={{selected: 0.5, pool: 0.5}}"
    if row.verdict == UNDECIDED:
        advice = [f"nothing is decided yet; more {row.remedy} would help most"]
        advice += _plan(analysis, row)
        return "; ".join(advice)
    advice = _use_of_model(analysis)
    if baseline is not None and baseline.verdict == UNDECIDED:
        advice.append(f"that it is better than {baseline.other}, which costs seconds, is not shown")
        advice += _plan(analysis, baseline)
    against_random = [rival.verdict for rival in rows if _read_random_text(rival.other)]
    if WORSE in against_random:
        advice.append("random text did better, so try more or other text")
    if UNDECIDED in against_random:
        advice.append("that the choice of text mattered is not shown, so try more or other text")
    return "; ".join(advice)


def _against_start(rows: Sequence[ArmComparison]) -> ArmComparison:
    """Return the comparison of an arm with what it adds chosen text to: base, or NAME of NAME+dana.

    Where there is none, it is the first comparison.
    """
    for row in rows:
        if not row.is_baseline and not _read_random_text(row.other):
            return row
    return rows[0]


def _read_random_text(arm: str) -> bool:
    """Return whether an arm was adapted on random text: ``random``, or NAME+random."""
    return arm == "random" or arm.endswith("+random")


def _use_of_model(analysis: Analysis) -> list[str]:
    """Advise how to use an adapted model that is better than the one it started from."""
    if analysis.run.final:
        name = analysis.run.path.resolve().name
        if analysis.run.final.get("waiting"):
            return [f"go on: dana run {name} tests the candidates for the model that are left"]
        advice = [f"label new texts: dana predict {name} NEW.csv"]
        if analysis.is_of_vectors:
            advice.append(f"or go on: dana run {name} compares fine-tuned models, too")
        return advice
    if analysis.is_of_vectors:
        return ["use the adapted model, or go on: fine-tuning may change the outcome"]
    return ["use the adapted model: dana finetune --save, then dana predict"]


def _plan(analysis: Analysis, row: ArmComparison) -> list[str]:
    """List what would decide an undecided comparison, and how a run that stopped early goes on."""
    # Of the reasons, those that say how many more units or texts would decide.
    plan = [reason for reason in row.reasons.split("; ") if "would decide" in reason]
    if analysis.run.stop:
        plan.append("the rest runs with seeds.stop_early=false")
    return plan
