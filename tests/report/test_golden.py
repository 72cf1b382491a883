"""Pages and findings, word by word, as golden files; a failing test names the command that rewrites them."""

import json
import re
import shutil
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

from dana.core.artifacts import MANIFEST
from dana.report import headline, sections
from dana.report.analysis import analyse
from dana.report.arm_results import BASELINE_TITLES
from dana.report.page import to_markdown
from dana.report.provenance import cost_finding, reproduction, step_table
from dana.report.run import Candidates, RunFrames, read_run
from dana.report.sections import build_report
from dana.report.tables import ranking_table
from dana.report.verdicts import ArmComparison
from tests.golden import check_golden
from tests.report.conftest import (
    choice_notes,
    commit,
    edit_json,
    write_ranking,
    write_results,
    write_selection,
    write_training,
)

GOLDEN = Path(__file__).parent / "golden"


def test_golden_report(whole_run):
    """The page of a run with every part, a choice of beta included."""
    cuts = [(0.05, 70.5, 0.9), (0.2, 71.8, 0.8), (1.0, 79.0, 0.4)]
    curve = [
        {"share": cut[0], "perplexity": cut[1], "perplexity_random": 90.0, "in_domain": cut[2]}
        for cut in cuts
    ]
    shares = {
        "selected": {"value": 0.74, "low": 0.6, "high": 0.9},
        "pool": {"value": 0.2, "low": 0.1, "high": 0.3},
    }
    places = [("best", 1), ("middle", 20), ("last", 40)]
    passages = [
        {
            "place": place,
            "rank": rank,
            "source": "web",
            "score": rank / 10,
            "text": f"A {place} one.",
        }
        for place, rank in places
    ]
    edit_json(
        whole_run / "weights" / MANIFEST,
        beta={"beta": 0.2, "reason": "as well", "curve": curve},
        in_domain=shares,
        passages=passages,
        counts={"selected_texts": 40},
    )
    (whole_run / "recipe.yaml").write_text("# A comment.\ntask: <a & b>\nweigh:\n  beta: 0.2\n")
    report = replace(build_report(read_run(whole_run)), figure_folder="figures")
    check_golden(GOLDEN / "report.md", to_markdown(report))


def test_golden_report_of_a_choice_alone(tmp_path):
    """Missing parts name the commands that make them."""
    write_selection(tmp_path / "run", choice=choice_notes())
    for manifest in (tmp_path / "run").rglob(MANIFEST):
        edit_json(manifest, seconds=10.0, versions={"dana": "1.0"})
    check_golden(GOLDEN / "choice.md", to_markdown(build_report(read_run(tmp_path / "run"))))


FIVE_MEANS = zip("abcde", (0.9, 0.5, 0.7, 0.7, 0.7), strict=True)
FEWER_EPOCHS = [{"arms": {"random": 0.6, "dana": 0.8}, "epochs": 3, "max_train": 1500}]
FEWER_EPOCHS += [{"arms": {"base": 0.5}, "epochs": 2, "max_train": 1000}]
SCENARIOS = {
    "clear gain": [{"arms": {"base": 0.5, "random": 0.5, "dana": 0.7}}],
    "loss": [{"arms": {"base": 0.8, "random": 0.8, "dana": 0.5}}],
    "no difference": [{"arms": {"base": 0.7, "random": 0.7, "dana": 0.7}}],
    "five seeds": [{"arms": {"base": 0.5, "random": 0.5, "dana": 0.7}, "seeds": 5}],
    "six questions": [
        {"arms": {"base": 0.4, "random": 0.7, "auto": 0.7, "svm": 0.7, "lda": 0.7}, "seeds": 10}
    ],
    "five tasks": [
        {"task": task, "seeds": 12, "arms": {"base": 0.7, "dana": mean}}
        for task, mean in FIVE_MEANS
    ],
    "two tasks": [{"task": "first"}, {"task": "second", "arms": {"base": 0.8, "dana": 0.5}}],
    "a collapsed seed of base": [
        {"arms": {"base": 0.5, "random": 0.6, "dana": 0.8}, "collapsed_arm": "base"}
    ],
    "base with fewer epochs": FEWER_EPOCHS,
    "two selected arms": [
        {"arms": {"base": 0.6, "random": 0.7, "bm25": 0.8, "mine": 0.5}, "seeds": 16}
    ],
    "base alone": [{"arms": {"base": 0.6}}],
}


def run_verdict(run: Path) -> str:
    return headline.headline(analyse(read_run(run)))


def test_golden_findings(tmp_path):
    """Headline, numbers and findings of fine-tuning, by outcome."""
    blocks = []
    for name, parts in SCENARIOS.items():
        for part in parts:
            write_results(tmp_path / name, **part)
        analysis = analyse(read_run(tmp_path / name))
        lines = [f"# {name}", headline.headline(analysis), *headline.notes(analysis)]
        assert not lines[1].startswith(("No", "Un")) or not re.search(r"\d", lines[1])
        numbers = [(finding.value, finding.meaning) for finding in headline.highlights(analysis)]
        lines += [f"{value}  {meaning}" for value, meaning in numbers if "time" not in meaning]
        blocks.append("\n".join([*lines, sections.results_finding(analysis)]))
    check_golden(GOLDEN / "findings.txt", "\n\n".join(blocks) + "\n")


def test_an_unfinished_run_has_no_number_on_its_first_screen_and_says_what_is_missing(whole_run):
    shutil.rmtree(whole_run / "finetune" / "toy" / "random")
    for index in ("0", "1"):
        commit(whole_run / "nested" / index / "scores", {"selector": "knn"})
    analysis = analyse(read_run(whole_run))
    assert (
        headline.headline(analysis)
        == "Unfinished: results are missing, so there is no verdict yet."
    )
    assert headline.highlights(analysis)[0].value == "–"
    assert "Missing: random is not fine-tuned on toy." in headline.notes(analysis)
    assert "Missing: 1 of 2 adaptations are fine-tuned on toy." in headline.notes(analysis)
    assert all(
        look == "grey"
        for name in ("results", "differences")
        for _, look in analysis.tables[name].rows()
    )


def test_every_headline_names_every_rival():
    run = SimpleNamespace(missing=(), results=())
    for verdicts, baseline, once in product(
        product(headline.CLAIMS, repeat=3), BASELINE_TITLES.values(), (True, False)
    ):
        arms = [
            (arm, True, 8, 0.7, 0.6, arm == baseline, "seed", once)
            for arm in ("base", "random", baseline)
        ]
        pairs = zip(arms, verdicts, strict=True)
        rows = [
            ArmComparison("my-task", "f1", "dana", *arm, verdict=verdict) for arm, verdict in pairs
        ]
        text = headline.headline(
            SimpleNamespace(first_questions=rows, is_of_vectors=False, tables={}, run=run)
        )
        assert ("one adaptation" in text) == once, text
        rivals = ("not adapted 0.60", "random text 0.60", f"{baseline} 0.60")
        for rival, verdict in zip(rivals, verdicts, strict=True):
            assert text.count(rival) == 1, text
            claims = [claim for claim in headline.CLAIMS.values() if claim in text.split(rival)[0]]
            last = max(claims, key=text.split(rival)[0].rindex)
            assert last == headline.CLAIMS[verdict], text


@pytest.mark.parametrize(
    ("of_base", "of_baseline", "advice", "uses_baseline"),
    [
        ("better", "better", "use the adapted model", False),
        (
            "better",
            "undecided",
            "that it is better than TF-IDF, which costs seconds, is not",
            False,
        ),
        ("better", "worse", "use TF-IDF, which is better and needs no adaptation", True),
        ("undecided", "undecided", "nothing is decided yet; more test texts would help", False),
        ("undecided", "worse", "use TF-IDF, which is better and needs no adaptation", True),
        ("worse", "undecided", "keep the model without adaptation", False),
    ],
)
def test_a_simple_model_is_advised_only_where_it_is_better_for_sure(
    of_base, of_baseline, advice, uses_baseline
):
    """The adapted model is ahead of TF-IDF by the same number in all of them."""
    row = ArmComparison(
        "t", "macro_f1", "dana", "base", n=8, text_share=1.0, unit_share=0.0, verdict=of_base
    )
    baseline = replace(
        row,
        other="TF-IDF",
        is_baseline=True,
        verdict=of_baseline,
        reasons="p = 0.2 is above 0.05; about 900 test texts would decide this one",
    )
    run = RunFrames(Path(), results=())
    text = headline.next_step(
        SimpleNamespace(first_questions=[row, baseline], is_of_vectors=False, run=run)
    )
    assert advice in text
    assert text.startswith("use TF-IDF") is uses_baseline
    if (of_base, of_baseline) == ("better", "undecided"):
        assert text.endswith("about 900 test texts would decide this one")


@pytest.mark.parametrize(
    ("of_random", "of_task", "advice"),
    [
        ("better", "better", "use the adapted model"),
        ("better", "worse", "keep the model of task, or adapt it on more text"),
        ("worse", "better", "random text did better, so try more or other text"),
        ("undecided", "better", "that the choice of text mattered is not shown"),
        ("better", "undecided", "nothing is decided yet"),
    ],
)
def test_of_an_arm_that_adds_chosen_text_what_it_is_added_to_decides_the_advice(
    of_random, of_task, advice
):
    row = ArmComparison("t", "macro_f1", "task+dana", "task+random", n=8, verdict=of_random)
    rows = [row, replace(row, other="task", verdict=of_task)]
    run = RunFrames(Path(), results=())
    analysis = SimpleNamespace(first_questions=rows, is_of_vectors=False, run=run)
    assert advice in headline.next_step(analysis)


def test_a_flaw_of_one_task_of_two_stands_in_the_notes(tmp_path):
    write_results(tmp_path / "run", "first", collapsed_arm="base", arms={"base": 0.5, "dana": 0.8})
    write_results(tmp_path / "run", "second", arms={"base": 0.5, "dana": 0.8})
    analysis = analyse(read_run(tmp_path / "run"))
    assert headline.headline(analysis) == "Of 2 comparisons on 2 tasks: 1 better, 1 undecided."
    notes = "\n".join(headline.notes(analysis))
    assert "No measurement: " in notes
    assert "The scores are macro-F1" in notes


def test_what_the_base_made_of_the_selected_text_is_below_the_first_screen(whole_run):
    losses = {"selected": 2.1, "selected_se": 0.1, "random": 3.4, "random_se": None}
    edit_json(whole_run / "arms" / "dana" / "adapted" / MANIFEST, base_losses=losses)
    report = build_report(read_run(whole_run))
    words = "the model finds the selected text easier than random text"
    assert words not in " ".join([report.verdict, *report.notes])
    assert [words in section.answer for section in report.sections].count(True) == 1


RECALL = {"recall": 0.7, "recall_low": 0.6, "recall_high": 0.8}


def ranking_finding(
    stability: float | None = 1.0, tied: bool = False, recall: dict[str, float] = RECALL
) -> str:
    columns = {
        "name": ["first", "second"],
        "f1_mean": [0.9, 0.8],
        "chosen": [True, False],
        "tied": [True, tied],
    }
    measures = dict.fromkeys(("auroc_mean", "ap_mean", "fit_s", "score_s"), 0.9)
    frame = pd.DataFrame({**columns, **measures, **recall, "stability": stability})
    return sections.ranking_finding(ranking_table(Candidates(frame, {"budget": 0.2})))


def test_golden_findings_before_fine_tuning(shared_run, tmp_path):
    lines = [
        ranking_finding(),
        ranking_finding(tied=True),
        ranking_finding(0.18),
        ranking_finding(None, recall={}),
    ]
    write_ranking(tmp_path)
    lines.append(run_verdict(tmp_path))
    write_selection(tmp_path)
    lines.append(run_verdict(tmp_path))
    run = read_run(shared_run)
    run.scores.units["weight"] = 0.3
    lines.append(sections.selection_finding(analyse(run)))
    evaluations = run.evaluations.assign(target_loss=float("nan"))
    lines.append(headline.headline(analyse(RunFrames(tmp_path, evaluations=evaluations))))
    for seconds in (119, 120, 7199, 9000):
        stages = {"a": {"kind": "task", "seconds": seconds}, "b": {"kind": "scores", "seconds": 0}}
        lines.append(cost_finding(step_table(RunFrames(tmp_path, stages=stages))))
    check_golden(GOLDEN / "other_findings.txt", "\n".join(lines) + "\n")


@pytest.mark.parametrize("is_run", [False, True])
def test_golden_reproduction(is_run):
    stages = {
        step: {"kind": step, "versions": {"dana": "1.0"}}
        for step in ("pool", "scores", "weights", "adapted")
    }
    stages["weights"]["given"] = {"weigh.beta": 0.3, "weigh.budget": None}
    block = reproduction(
        RunFrames(Path("run"), stages=stages, recipe="model: some/base\n", is_run=is_run)
    )
    check_golden(GOLDEN / f"reproduction_{'run' if is_run else 'steps'}.sh", block + "\n")
    assert reproduction(RunFrames(Path("run"), stages=stages)) == ""


def set_lineage(run: Path, weights: dict[str, str], steps: dict[str, int]) -> None:
    """Say which weights arms were fine-tuned from, and for how many steps they were adapted."""
    for arm, count in steps.items():
        depends_on = {"model": {"model.safetensors": "start"}, "settings": {"steps": count}}
        manifest = run / "arms" / arm / "adapted" / MANIFEST
        edit_json(manifest, weight_digests={"model.safetensors": arm}, depends_on=depends_on)
    for arm, digest in weights.items():
        file = run / "finetune" / "toy" / arm / MANIFEST
        depends_on = json.loads(file.read_text())["depends_on"]
        edit_json(file, depends_on={**depends_on, "model": {"model.safetensors": digest}})


def test_golden_lineage(tmp_path):
    """Only arms adapted alike from one model are compared, unless nothing is known of their origin."""
    write_results(tmp_path, arms={"base": 0.5, "random": 0.6, "dana": 0.7})
    weights, lines = {"base": "start", "random": "random", "dana": "dana"}, []
    for arm in ("random", "dana"):
        write_training(tmp_path / "arms" / arm / "adapted", 0.2)
    for name, changes, steps in (
        ("alike", {}, 100),
        ("random with fewer steps", {}, 50),
        ("another base", {"base": "other"}, 100),
        ("a model from elsewhere", {"dana": "elsewhere"}, 100),
    ):
        set_lineage(tmp_path, {**weights, **changes}, {"random": steps, "dana": 100})
        lines += [f"# {name}", run_verdict(tmp_path)]
    check_golden(GOLDEN / "lineage.txt", "\n".join(lines) + "\n")
