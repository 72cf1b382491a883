"""Pages and findings, word by word, as golden files; a failing test names the command that rewrites them."""

import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from dana.core.artifacts import MANIFEST
from dana.report import sections
from dana.report.compare_runs import compare_runs
from dana.report.page import to_markdown
from dana.report.provenance import cost_finding, reproduction, step_table
from dana.report.run import Candidates, RunFrames, read_run
from dana.report.sections import analyse, build_report
from dana.report.tables import ranking_table
from tests.golden import check_golden
from tests.report.conftest import edit_json

GOLDEN = Path(__file__).parent / "golden"


def test_golden_report(whole_run):
    """The page of a run with every part, a choice of beta included."""
    cuts = [(0.05, 70.5, 0.9), (0.2, 71.8, 0.8), (1.0, 79.0, 0.4)]
    curve = [{"share": cut[0], "perplexity": cut[1], "perplexity_random": 90.0, "in_domain": cut[2]} for cut in cuts]
    edit_json(whole_run / "weights" / MANIFEST, beta={"beta": 0.2, "reason": "as well", "curve": curve})
    (whole_run / "settings.yaml").write_text("# A comment.\ntask: <a & b>\nweigh:\n  beta: 0.2\n")
    report = replace(build_report(read_run(whole_run)), figure_folder="figures")
    check_golden(GOLDEN / "report.md", to_markdown(report))


def test_golden_report_of_a_choice_alone(tmp_path, write):
    """Missing parts name the commands that make them."""
    write["choice"](tmp_path / "run")
    for manifest in (tmp_path / "run").rglob(MANIFEST):
        edit_json(manifest, seconds=10.0, versions={"dana": "1.0"})
    check_golden(GOLDEN / "choice.md", to_markdown(build_report(read_run(tmp_path / "run"))))


def test_golden_comparison(tmp_path, write):
    arms = {"base": 0.5, "random": 0.55, "dana": 0.7}
    write["results"](tmp_path / "one", arms=arms)
    write["results"](tmp_path / "two", arms={**arms, "dana": 0.8})
    write["results"](tmp_path / "one", "other", arms=arms)
    write["results"](tmp_path / "two", "other", arms=arms, epochs=9)
    runs = [read_run(tmp_path / name) for name in ("one", "two")]
    runs = [replace(run, stages={step: {**one, "versions": {}} for step, one in run.stages.items()}) for run in runs]
    check_golden(GOLDEN / "comparison.md", to_markdown(compare_runs(runs)))


SCENARIOS = {
    "clear gain": [{"arms": {"base": 0.5, "random": 0.5, "dana": 0.7}}],
    "loss": [{"arms": {"base": 0.8, "random": 0.8, "dana": 0.5}}],
    "no difference": [{"arms": {"base": 0.7, "random": 0.7, "dana": 0.7}}],
    "five seeds": [{"arms": {"base": 0.5, "random": 0.5, "dana": 0.7}, "seeds": 5}],
    "six questions": [{"arms": {"base": 0.4, "random": 0.7, "auto": 0.7, "svm": 0.7, "lda": 0.7}, "seeds": 10}],
    "five tasks": [
        {"task": task, "seeds": 12, "arms": {"base": 0.7, "dana": mean}}
        for task, mean in zip("abcde", (0.9, 0.5, 0.7, 0.7, 0.7), strict=True)
    ],
    "two tasks": [{"task": "first"}, {"task": "second", "arms": {"base": 0.8, "dana": 0.5}}],
    "a collapsed seed of base": [{"arms": {"base": 0.5, "random": 0.6, "dana": 0.8}, "collapsed_arm": "base"}],
    "base with fewer epochs": [
        {"arms": {"random": 0.6, "dana": 0.8}, "epochs": 3, "max_train": 1500},
        {"arms": {"base": 0.5}, "epochs": 2, "max_train": 1000},
    ],
    "two selected arms": [{"arms": {"base": 0.6, "random": 0.7, "bm25": 0.8, "mine": 0.5}, "seeds": 16}],
    "base alone": [{"arms": {"base": 0.6}}],
}


def test_golden_findings(tmp_path, write):
    """Headline, numbers and findings of fine-tuning, by outcome."""
    blocks = []
    for name, parts in SCENARIOS.items():
        for part in parts:
            write["results"](tmp_path / name, **part)
        analysis = analyse(read_run(tmp_path / name))
        lines = [f"# {name}", sections.verdict(analysis)]
        lines += [f"{finding.value}  {finding.meaning}" for finding in sections.highlights(analysis)]
        blocks.append("\n".join([*lines, sections.results_finding(analysis)]))
    check_golden(GOLDEN / "findings.txt", "\n\n".join(blocks) + "\n")


def ranking_finding(stability: float | None = 1.0, tied: bool = False, recall: bool = True) -> str:
    rows = [{"name": name, "f1_mean": f1, "stability": stability} for name, f1 in [("first", 0.9), ("second", 0.8)]]
    if recall:
        shares = {"recall": 0.7, "recall_low": 0.6, "recall_high": 0.8}
        rows = [{**row, **shares, "tied": tied or row["name"] == "first"} for row in rows]
    rows = [{**row, "auroc_mean": 0.9, "ap_mean": 0.9, "fit_s": 1.0, "score_s": 1.0} for row in rows]
    frame = pd.DataFrame(rows).assign(chosen=[True, False])
    return sections.ranking_finding(ranking_table(Candidates(frame, {"budget": 0.2})))


def test_golden_findings_before_fine_tuning(whole_run, tmp_path, write):
    lines = [ranking_finding(), ranking_finding(tied=True), ranking_finding(0.18), ranking_finding(None, recall=False)]
    write["ranking"](tmp_path / "alone")
    lines.append(sections.verdict(analyse(read_run(tmp_path / "alone"))))
    write["selection"](tmp_path / "alone")
    lines.append(sections.verdict(analyse(read_run(tmp_path / "alone"))))
    run = read_run(whole_run)
    run.scores.units["weight"] = 0.3
    lines.append(sections.selection_finding(analyse(run)))
    evaluations = run.evaluations.assign(task_loss=float("nan"))
    lines.append(sections.verdict(analyse(RunFrames(whole_run, evaluations=evaluations))))
    for seconds in (119, 120, 7199, 9000):
        stages = {"a": {"kind": "task", "seconds": seconds}, "b": {"kind": "scores", "seconds": 0}}
        lines.append(cost_finding(step_table(RunFrames(whole_run, stages=stages))))
    check_golden(GOLDEN / "other_findings.txt", "\n".join(lines) + "\n")


@pytest.mark.parametrize("is_grid", [False, True])
def test_golden_reproduction(is_grid):
    stages = {step: {"kind": step, "versions": {"dana": "1.0"}} for step in ("corpus", "scores", "weights", "adapted")}
    block = reproduction(RunFrames(Path("run"), stages=stages, settings="model: some/base\n", is_grid=is_grid))
    check_golden(GOLDEN / f"reproduction_{'grid' if is_grid else 'steps'}.sh", block + "\n")
    assert reproduction(RunFrames(Path("run"), stages=stages)) == ""


def lineage_verdict(run: Path) -> str:
    return sections.verdict(analyse(read_run(run)))


def write_model(run: Path, arm: str, parent: str, steps: int = 100) -> None:
    """Say in the manifest of an arm's model which weights it has and which it started from."""
    files = {"model.safetensors": {"digest": arm}}
    depends_on = {"model": {"model.safetensors": parent}, "settings": {"steps": steps}}
    edit_json(run / "arms" / arm / "adapted" / MANIFEST, files=files, depends_on=depends_on)


def write_finetuned(run: Path, arm: str, weights: str) -> None:
    file = run / "finetune" / "toy" / arm / MANIFEST
    depends_on = json.loads(file.read_text())["depends_on"]
    edit_json(file, depends_on={**depends_on, "model": {"model.safetensors": weights}})


def test_golden_lineage(tmp_path, write):
    """Only arms adapted alike from one model are compared, unless nothing is known of their origin."""
    write["results"](tmp_path, arms={"base": 0.5, "random": 0.6, "dana": 0.7})
    for arm in ("random", "dana"):
        write["training"](tmp_path / "arms" / arm / "adapted", 0.2)
        write_model(tmp_path, arm, "start")
        write_finetuned(tmp_path, arm, arm)
    write_finetuned(tmp_path, "base", "start")
    lines = ["# alike", lineage_verdict(tmp_path)]
    write_model(tmp_path, "random", "start", steps=50)
    lines += ["# random with fewer steps", lineage_verdict(tmp_path)]
    write_model(tmp_path, "random", "start")
    write_finetuned(tmp_path, "base", "other")
    lines += ["# another base", lineage_verdict(tmp_path)]
    write_finetuned(tmp_path, "base", "start")
    write_finetuned(tmp_path, "dana", "elsewhere")
    lines += ["# a model from elsewhere", lineage_verdict(tmp_path)]
    check_golden(GOLDEN / "lineage.txt", "\n".join(lines) + "\n")
