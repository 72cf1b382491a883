"""Write the first screen of a report: a headline, the numbers, and what to make of them.

No sentence claims more than the verdict. A collapsed, unlike or unfinished comparison has no number
here.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any

from dana.report import provenance
from dana.report.analysis import Analysis
from dana.report.gate import gate_text
from dana.report.page import Finding, Table, each, interval_text, number, percent
from dana.report.run import ADAPTED
from dana.report.tables import metric_name
from dana.report.verdicts import BETTER, INCOMPARABLE, UNDECIDED, WORSE, ArmComparison, main_arms
from dana.tasks.tables import REMEDY

NAMES = {"dana": "adapted", ADAPTED: "adapted", "base": "not adapted", "random": "random text"}
CLAIMS = {BETTER: "beats", WORSE: "loses to", UNDECIDED: "is undecided against"}
UNBEATEN = "does not beat"
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
    rows = analysis.questions
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
    scope = []
    if "planted" in analysis.tables:
        scope.append("planted text")
    if rows[0].one_adaptation:
        scope.append("one adaptation")
    measured = [row for row, flaw in zip(rows, flaws, strict=True) if not flaw]
    return f"{_outcome(measured)} on {rows[0].task}{_brackets(scope)}."


def _brackets(words: Sequence[str]) -> str:
    return f" ({', '.join(words)})" if words else ""


def _counts(rows: Sequence[ArmComparison], tasks: int) -> str:
    """Write one sentence of how many questions had each verdict."""
    parts = []
    for verdict in (*CLAIMS, INCOMPARABLE):
        count = sum(row.verdict == verdict for row in rows)
        if count:
            parts.append(f"{count} {verdict}")
    plural = "s" if tasks > 1 else ""
    return f"Of {len(rows)} questions on {tasks} task{plural}: {', '.join(parts)}."


def _outcome(rows: Sequence[ArmComparison]) -> str:
    """Write one sentence that names an arm's score and the outcome against each of its rivals."""
    rivals: dict[str, list[str]] = {}
    for row in sorted(rows, key=lambda row: list(CLAIMS).index(row.verdict)):
        claim = CLAIMS[row.verdict]
        if row.is_baseline and row.verdict != BETTER:
            claim = UNBEATEN
        rivals.setdefault(claim, []).append(f"{name(row.other)} {number(row.other_score, 2)}")
    claims = [f"{claim} {' and '.join(names)}" for claim, names in rivals.items()]
    subject = f"{name(rows[0].arm)} {number(rows[0].arm_score, 2)}"
    return f"{subject[0].upper()}{subject[1:]} {', '.join(claims)}"


def name(arm: str) -> str:
    """Name an arm for a reader who knows no arms: "adapted", "not adapted"."""
    return NAMES.get(arm, arm)


def _flaw(analysis: Analysis, row: ArmComparison) -> str:
    """Say why a comparison is no measurement; empty if it is one."""
    if row.verdict == INCOMPARABLE:
        return f"{row.arm} and {row.other} were made differently"
    results = [
        result
        for result in analysis.run.results
        if result.task == row.task and result.arm in (row.arm, row.other)
    ]
    arms = [result.arm for result in results if result.collapsed_seeds]
    return f"models of {' and '.join(arms)} on {row.task} collapsed" if arms else ""


def highlights(analysis: Analysis) -> list[Finding]:
    """Choose the first numbers: scores of the first task, if they may be compared, planted text, loss and time."""
    rows = analysis.questions
    tables = analysis.tables
    findings = []
    if rows and (analysis.run.missing or _flaw(analysis, rows[0])):
        findings.append(Finding("–", "no number: the comparison is unfinished or no measurement"))
    elif rows:
        first = rows[0]
        results = {
            result.arm: result
            for result in (*analysis.run.results, *analysis.run.baselines)
            if result.task == first.task
        }
        baselines = [row.other for row in rows if row.is_baseline and row.task == first.task]
        for when, arm in [
            ("before", first.other),
            ("after", first.arm),
            *(("baseline", baseline) for baseline in baselines[:1]),
        ]:
            ends = interval_text(*results[arm].interval, 3, sign=False)
            meaning = f"{when}: {name(arm)}, {metric_name(first.metric)} on {first.task} (95 % interval {ends})"
            findings.append(Finding(number(results[arm].estimate.mean), meaning))
        meaning = f"after − before, 95 % interval {interval_text(first.low, first.high, 3)}: {first.verdict}"
        findings.append(Finding(number(first.mean, 3, sign=True), meaning))
    if "planted" in tables:
        recall = tables["planted"].frame.iloc[0]
        meaning = f"of the text planted in the pool was selected (by chance {percent(recall['by_chance'])})"
        findings.append(Finding(percent(recall["value"]), meaning))
    if "losses" in tables:
        row, others = loss_change(tables["losses"], "target")
        meaning = f"nats a token: change of the loss on held-out target text{_brackets(others)}; lower is better"
        findings += (
            [Finding(number(row.change, sign=True), meaning)] if math.isfinite(row.change) else []
        )
    if "steps" in tables:
        seconds = analysis.run.wall_seconds or float(tables["steps"].frame["seconds"].sum())
        findings.append(Finding(provenance.duration(seconds), "wall time of all steps"))
    return findings


def loss_change(table: Table, text: str) -> tuple[Any, list[str]]:
    """Find the row of our arm's loss on ``task`` or ``pool`` text, and list the changes by the other arms."""
    rows = [row for row in each(table.frame) if row.text == text]
    ours = next(
        (row for arm in main_arms(row.arm for row in rows) for row in rows if row.arm == arm),
        rows[-1],
    )
    return ours, [f"{row.arm} {number(row.change, sign=True)}" for row in rows if row is not ours]


def notes(analysis: Analysis) -> list[str]:
    """List what the numbers do not say: warnings, what they are averaged over, what the base knows, what to do next."""
    run, rows = analysis.run, analysis.questions
    first = {result.task: result for result in reversed(run.results)}
    lines = [*run.stale, *(f"Missing: {reason}." for reason in run.missing)]
    lines += [
        f"On {task} ({result.arm}): {warning}"
        for task, result in first.items()
        for warning in result.warnings
    ]
    flaws = [_flaw(analysis, row) for row in rows]
    lines += [
        f"No measurement: {flaw}." for flaw in dict.fromkeys(flaws[1:]) if flaw and flaw != flaws[0]
    ]
    if rows and not flaws[0]:
        lines.append(
            f"Averaged over {rows[0].basis} and {rows[0].texts:,} test texts.{_variance(rows[0])}"
        )
    return [*lines, *_looks(analysis), *_familiarity(analysis), f"Next: {next_step(analysis)}."]


def _variance(row: ArmComparison) -> str:
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
    return f" Of the squared standard error {', '.join(parts)}: more {row.remedy}{unknown} would help most."


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


def _familiarity(analysis: Analysis) -> list[str]:
    """Return the pre-adaptation diagnostics of the first arm that has any."""
    steps = analysis.run.stages
    arms = main_arms(step.split("/")[1] for step in steps if step.startswith("arms/"))
    folders = [f"arms/{arm}/{name}" for arm in arms for name in ("gate", "adapted")]
    texts = (gate_text(steps[step]) for step in (*folders, "adapted") if step in steps)
    return list(filter(None, texts))[:1]


def next_step(analysis: Analysis) -> str:
    """Advise what to do after this outcome."""
    rows = analysis.questions
    if analysis.run.missing:
        return "run the same command again, which makes only what is missing"
    if not rows:
        return "make what the first section names"
    if len({(row.task, row.arm) for row in rows}) > 1:
        return "read the verdict of each question below"
    row, baseline = rows[0], next((row for row in rows if row.is_baseline), None)
    if row.verdict == INCOMPARABLE:
        return f"make both alike ({row.reasons})"
    if _flaw(analysis, row):
        return REMEDY.split(": ")[1].rstrip(".")
    if baseline is not None and baseline.verdict != BETTER:
        others = "more labelled texts, more training or a larger base"
        return f"use {baseline.other}, which needs no adaptation, or try {others}"
    if row.verdict == UNDECIDED:
        notes = ["the rest runs with seeds.stop_early=false"] if analysis.run.stop else []
        return "; ".join([f"more {row.remedy}", *row.reasons.split("; ")[1:], *notes])
    if row.verdict == WORSE:
        return "keep the model without adaptation, or adapt it on more text with mix={selected: 0.5, pool: 0.5}"
    random = next((rival.verdict for rival in rows if rival.other == "random"), BETTER)
    if random != BETTER:
        reason = (
            "random text did better"
            if random == WORSE
            else "that the choice of text mattered is not shown"
        )
        return f"use the adapted model; {reason}, so try more or other text"
    return "use the adapted model: dana finetune --save, then dana predict"
