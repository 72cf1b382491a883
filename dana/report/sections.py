"""A report's sections: for each a question, an answer in numbers, tables and figures."""

import pandas as pd

from dana.core.studies import loaded
from dana.report import figures, findings
from dana.report.amount_curve import amount_curve
from dana.report.analysis import Analysis, analyse
from dana.report.cost import cost_finding
from dana.report.forest import forest
from dana.report.frames import RunFrames
from dana.report.map_figure import map_figure, map_finding
from dana.report.page import Report, Section
from dana.report.provenance import versions
from dana.report.reproduce import reproduction


def build_report(run: RunFrames) -> Report:
    """Everything a page says."""
    analysis = analyse(run)
    brought = [section for sections in loaded("sections") for section in sections(run)]
    sections = [
        _chosen(analysis, run),
        _separation(analysis),
        _kept(analysis, run),
        *brought,
        *_map(analysis, run),
        _losses(analysis),
        _results(analysis),
        _cost(analysis),
        _made(analysis, run),
    ]
    name, said = run.path.resolve().name, findings.verdict(analysis)
    return Report(name, said, findings.highlights(analysis), sections, versions(run))


def _missing(question: str, what: str, command: str) -> Section:
    return Section(question, what, command=command)


def _chosen(analysis: Analysis, run: RunFrames) -> Section:
    question = "What tells this task from general text?"
    said = []
    if run.choice is not None:
        said.append(f"By held-out task text: {run.choice.reason}.")
    if analysis.ranking is not None:
        said.append(findings.ranking_finding(analysis.ranking))
    if not said:
        return _missing(question, "No comparison here.", "dana rank --task T --general G --out DIR")
    return Section(question, "\n".join(said), (), (analysis.choice, analysis.ranking))


def _separation(analysis: Analysis) -> Section:
    question = "How well do the scores separate task from general text?"
    if analysis.separation is None or analysis.histogram is None:
        return _missing(question, "No scores here.", "dana score --task T --general G --out DIR")
    drawn = figures.score_histogram(analysis.histogram.frame)
    return Section(
        question, findings.separation_finding(analysis.separation), (drawn,), (analysis.separation, analysis.histogram)
    )


def _kept(analysis: Analysis, run: RunFrames) -> Section:
    question = "What was kept?"
    if analysis.kept is None or run.selected is None:
        return _missing(question, "No weights here.", "dana weigh DIR --policy segments --beta 0.2")
    beta = run.selected.weights.get("beta")
    drawn = [amount_curve(pd.DataFrame(beta["curve"]), beta["beta"])] if beta else []
    examples = (("nearest to the task", run.selected.relevant), ("most foreign to it", run.selected.foreign))
    return Section(
        question,
        findings.selection_finding(analysis),
        (figures.kept_bars(analysis.kept.frame), *drawn),
        (analysis.planted, analysis.kept),
        tuple((title, shown) for title, shown in examples if shown),
    )


def _map(analysis: Analysis, run: RunFrames) -> list[Section]:
    """Nothing where nothing is kept yet: the section before says how to."""
    question = "Where does the kept text lie?"
    if analysis.kept is None or run.selected is None:
        return []
    if run.selected.map is None or analysis.nearness is None:
        what = "The vectors of these texts are not stored here: selectors of words need none."
        return [_missing(question, what, "dana score --task T --general G --detector knn --out ANOTHER_DIR")]
    drawn = map_figure(run.selected.map)
    return [Section(question, map_finding(analysis.nearness), (drawn,), (analysis.nearness, analysis.points))]


def _losses(analysis: Analysis) -> Section:
    question = "Did adaptation lower the loss on task text, and what did it cost on general text?"
    if analysis.losses is None or analysis.evaluations is None:
        return _missing(question, "No adapted model here.", "dana adapt DIR --model M --steps N")
    frame = analysis.evaluations.frame
    drawn = tuple(figures.loss_curves(frame, text) for text in ("task", "general"))
    return Section(question, findings.losses_finding(analysis.losses), drawn, (analysis.losses, analysis.evaluations))


def _results(analysis: Analysis) -> Section:
    question = "Did it help downstream?"
    if analysis.results is None or analysis.seeds is None:
        commands = (
            "dana finetune --model M --task-card T --out DIR/finetune/T/base, then "
            "dana finetune --model DIR/adapted --task-card T --out DIR/finetune/T/adapted"
        )
        return _missing(question, "No fine-tuned model here.", commands)
    frame = analysis.seeds.frame
    drawn = [figures.seed_dots(frame, task) for task in frame["task"].unique()]
    if analysis.differences is not None and (overview := forest(analysis.differences.frame)):
        drawn.insert(0, overview)
    return Section(
        question,
        findings.results_finding(analysis),
        tuple(drawn),
        (analysis.differences, analysis.results, analysis.seeds),
    )


def _cost(analysis: Analysis) -> Section:
    said = "No step left a manifest." if analysis.cost is None else cost_finding(analysis.cost)
    return Section("What did it cost?", said, (), (analysis.cost,))


def _made(analysis: Analysis, run: RunFrames) -> Section:
    question, code = "How was this made, and how is it made again?", reproduction(run)
    said = f"In {len(analysis.steps.frame)} steps, each of which left a manifest."
    if code:
        said += " These lines make it again; where fingerprints agree, so do settings and inputs."
    else:
        said += " What its commands were told is not kept here; the settings below are what each step was made from."
    return Section(question, said, (), (analysis.steps, analysis.settings, analysis.inputs), code=code)
