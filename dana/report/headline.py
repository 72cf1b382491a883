"""Write the first screen of a report: a headline, the numbers, and what to make of them.

No sentence claims more than the verdict. A collapsed, unlike or unfinished comparison has no number
here.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any

from dana.core.statistics import ALPHA
from dana.report import provenance
from dana.report.analysis import Analysis
from dana.report.choice import choice_note
from dana.report.label_notes import label_notes
from dana.report.page import Finding, Table, each, interval_text, number, percent
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
# What a metric is, where its name stands first.
METRICS = {
    "macro_f1": "F1 averaged over the classes, each as much as any other; 1 is perfect",
    "micro_f1": "F1 over all labels together; 1 is perfect",
    "accuracy": "the share of texts that are answered right",
    "nats_per_token": "how surprising the right token is, as the negative natural logarithm of its probability",
}
# What a run has, last first, and its headline before anything is compared.
STAGES = {
    "results": "there is nothing to compare the results with",
    "losses": "a model is adapted, none is fine-tuned",
}
STAGES |= {
    "selected_by_source": "text is selected, no model is trained",
    "separation": "text is scored, not selected",
}
STAGES |= {"probe": "models are probed, none is fine-tuned"}
STAGES |= {"ranking": "detectors are compared, no text is scored"}


def headline(analysis: Analysis) -> str:
    """Write the headline: the outcome of the questions, or why there is none."""
    rows = analysis.first_questions
    if analysis.run.missing:
        return "Unfinished: results are missing, so there is no verdict yet."
    if not rows:
        reached = next(words for name, words in STAGES.items() if name in analysis.tables)
        return f"No verdict yet: {reached}."
    tasks = {row.task for row in rows}
    arms = {row.arm for row in rows}
    flaws = [_flaw(analysis, row) for row in rows]
    is_one_arm = len(tasks) == 1 and len(arms) == 1
    if all(flaws) or (is_one_arm and flaws[0]):
        return f"No verdict: {flaws[0]}."
    if not is_one_arm:
        return _counts(rows, len(tasks))
    scope = ["by a linear model on its vectors"] if analysis.is_of_vectors else []
    if "planted" in analysis.tables:
        scope.append("text to find was planted in the pool")
    if rows[0].one_adaptation:
        scope.append("one adaptation")
    measured = [row for row, flaw in zip(rows, flaws, strict=True) if not flaw]
    return f"{_outcome(measured)} on {rows[0].task}{_brackets(scope)}."


def _brackets(words: Sequence[str]) -> str:
    return f" ({'; '.join(words)})" if words else ""


def _counts(rows: Sequence[ArmComparison], tasks: int) -> str:
    """Write one sentence of how many comparisons had each verdict."""
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
        names = [f"{arm_name(row.other)} {number(row.other_score, 2)}" for row in rivals]
        if names:
            claims.append(f"{claim} {_listed(names)}")
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
    results = [
        result
        for result in analysis.run.results
        if result.task == row.task and result.arm in (row.arm, row.other)
    ]
    arms = [arm_name(result.arm) for result in results if result.collapsed_seeds]
    return f"models of {' and '.join(arms)} on {row.task} collapsed" if arms else ""


def highlights(analysis: Analysis) -> list[Finding]:
    """Choose the first numbers: differences if they may be compared, planted text, perplexity and time."""
    rows = analysis.first_questions
    tables = analysis.tables
    findings = []
    if rows and (analysis.run.missing or _flaw(analysis, rows[0])):
        findings.append(Finding("–", "no number: the comparison is unfinished or no measurement"))
    elif rows:
        findings += _differences(analysis)
    if "planted" in tables:
        recall = tables["planted"].frame.iloc[0]
        meaning = f"of the text planted in the pool was selected (by chance {percent(recall['by_chance'])})"
        findings.append(Finding(percent(recall["value"]), meaning))
    if "losses" in tables and not predicts_classes(tables["losses"].frame):
        row, others = loss_change(tables["losses"], "target")
        if row is not None:
            before = number(row.perplexity_before, 1)
            value = f"{before} → {number(row.perplexity_after, 1)}"
            ends = [
                f"{arm_name(other.arm)} {number(other.perplexity_after, 1)}" for other in others
            ]
            meaning = (
                f"perplexity of held-out target text before and after adaptation{_brackets(ends)}: "
                f"among how many {loss_unit(tables['losses'])}s the model hesitates; lower is better"
            )
            findings.append(Finding(value, meaning))
    if "steps" in tables:
        seconds = analysis.run.wall_seconds or float(tables["steps"].frame["seconds"].sum())
        findings.append(Finding(provenance.duration(seconds), "wall time of all steps"))
    return findings


def _differences(analysis: Analysis) -> Iterator[Finding]:
    """Yield what adaptation changed in the score of the first task, and how far it is from the best simple model."""
    first = analysis.first_questions[0]
    rows = [
        row for row in analysis.first_questions if (row.task, row.arm) == (first.task, first.arm)
    ]
    for row in rows:
        if row is first or row.is_baseline:
            ends = interval_text(row.low, row.high, 3)
            outcome = row.verdict
            if outcome == UNDECIDED and row.p <= ALPHA < row.p_holm:
                outcome += ", as several questions are asked at once"
            meaning = (
                f"{metric_name(row.metric)}, {arm_name(row.arm)} − {arm_name(row.other)} "
                f"(95 % interval {ends}): {outcome}"
            )
            yield Finding(number(row.mean, 3, sign=True), meaning)


def loss_change(table: Table, text: str) -> tuple[Any, list[Any]]:
    """Find the row of our arm's loss on ``target`` or ``pool`` text (None: not measured), and the other rows."""
    rows = {row.arm: row for row in each(table.frame) if row.text == text}
    if not rows:
        return None, []
    main = main_arms(rows)
    ours = main[0] if main else list(rows)[-1]
    return rows[ours], [row for arm, row in rows.items() if arm != ours]


def notes(analysis: Analysis) -> list[str]:
    """List what is to do next, warnings, what the scores are, and what the numbers do not say."""
    run, rows = analysis.run, analysis.first_questions
    lines = [*run.stale, *(f"Missing: {reason}." for reason in run.missing)]
    if run.final:
        lines.append(choice_note(run.final, run.path.resolve().name))
    lines.append(f"Next: {next_step(analysis)}.")
    first = {result.task: result for result in (*run.baselines, *reversed(run.results))}
    for task, result in first.items():
        name = f"On {task} ({arm_name(result.arm)})"
        lines += [f"{name}: {warning}" for warning in result.warnings]
        lines += label_notes(result)
    flaws = [_flaw(analysis, row) for row in rows]
    lines += [
        f"No measurement: {flaw}." for flaw in dict.fromkeys(flaws[1:]) if flaw and flaw != flaws[0]
    ]
    if rows and not flaws[0]:
        metric = metric_name(rows[0].metric)
        meaning = METRICS.get(rows[0].metric)
        what = f"{metric} ({meaning})" if meaning else metric
        basis = rows[0].basis
        if rows[0].unit == FOLD:
            basis += " (parts of the texts, each tested by models that did not see it)"
        lines.append(f"The scores are {what}, over {rows[0].texts:,} test texts and {basis}.")
    return [*lines, *_looks(analysis)]


def variance_finding(row: ArmComparison) -> str:
    """Say what the squared error of a difference comes from, and more of what would lower it most."""
    if not row.error > 0:
        return ""
    parts = [
        f"{percent(row.unit_share, 0)} is from {row.unit}s",
        f"{percent(row.text_share, 0)} from test texts",
    ]
    if not math.isnan(row.seed_std):
        parts.insert(1, f"{percent(row.seed_share, 0)} from the fine-tunings of each")
    unknown = ", which it knows nothing of," if row.one_adaptation else ""
    error = f"Of the squared standard error of the first difference {', '.join(parts)}"
    return f"{error}: more {row.remedy}{unknown} would help most."


def _looks(analysis: Analysis) -> Iterator[str]:
    """Say whether the run stopped early, by which rule, and which p counted."""
    row = next((row for row in analysis.questions if row.horizon), None)
    if row is None:
        return
    ends = f"after {row.n} of {row.horizon} {row.unit}s"
    if stop := analysis.run.stop:
        yield f"Stopped early, {ends}: {stop}. A difference measured at a stop tends to be too large."
    rule = (
        f"p and interval allow for a look after each {row.unit} from the third on (O'Brien-Fleming)"
    )
    yield f"{rule}: {ends}, a p of this look alone of {row.level:.2g} or less decides a first question."


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
    if len({(row.task, row.arm) for row in rows}) > 1:
        return "read the verdict of each question below"
    row = rows[0]
    if row.verdict == INCOMPARABLE:
        return f"make both alike ({row.reasons})"
    if _flaw(analysis, row):
        return REMEDY.split(": ")[1].rstrip(".")
    return _advice(analysis, row)


def _advice(analysis: Analysis, row: ArmComparison) -> str:
    """Advise what to do after the verdicts of one arm on one task, against what it started from and others."""
    rows = analysis.first_questions
    baseline = next((rival for rival in rows if rival.is_baseline), None)
    if baseline is not None and baseline.verdict == WORSE:
        others = "more labelled texts, more training or a larger base"
        return f"use {baseline.other}, which is better and needs no adaptation, or try {others}"
    if row.verdict == WORSE:
        return "keep the model without adaptation, or adapt it on more text with mix={selected: 0.5, pool: 0.5}"
    if row.verdict == UNDECIDED:
        open_ = f"nothing is decided yet; more {row.remedy} would help most"
        return "; ".join([open_, *_plan(analysis, row)])
    advice = ["use the adapted model: dana finetune --save, then dana predict"]
    name = analysis.run.path.resolve().name
    if analysis.run.final:
        advice = [f"label new texts: dana predict {name} NEW.csv"]
        if analysis.is_of_vectors:
            advice.append(f"or go on: dana run {name} compares fine-tuned models, too")
    elif analysis.is_of_vectors:
        advice = ["use the adapted model, or go on: fine-tuning may change the outcome"]
    if baseline is not None and baseline.verdict == UNDECIDED:
        costs = f"that it is better than {baseline.other}, which costs seconds, is not shown"
        advice.append("; ".join([costs, *_plan(analysis, baseline)]))
    random = next((rival.verdict for rival in rows if rival.other == "random"), BETTER)
    if random == WORSE:
        advice.append("random text did better, so try more or other text")
    if random == UNDECIDED:
        advice.append("that the choice of text mattered is not shown, so try more or other text")
    return "; ".join(advice)


def _plan(analysis: Analysis, row: ArmComparison) -> list[str]:
    """List what would decide an undecided comparison, and how a run that stopped early goes on."""
    plan = [reason for reason in row.reasons.split("; ") if "would decide" in reason]
    if analysis.run.stop:
        plan.append("the rest runs with seeds.stop_early=false")
    return plan
