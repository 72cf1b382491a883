"""The commands that make a run again: run here, they leave the same fingerprints."""

import json
import shlex
from pathlib import Path

import pandas as pd
import pytest

from dana.cli.main import main
from dana.core.artifacts import MANIFEST
from dana.report.provenance import reproduction, setting_table
from dana.report.run import RunFrames, read_run
from dana.stages.report import report_stage
from tests.toy_task import write_checkpoint, write_task

HASHING = "--encoder hashing:dims=32,words=1"


@pytest.fixture
def by_hand(tmp_path):
    """A run by single commands: scores, weights, an adapted model, fine-tuned beside its base."""
    write_task(tmp_path / "cards")
    write_checkpoint(tmp_path / "model")
    words = ["iron", "zinc", "lead", "word20", "word21", "word22", "word23", "word24"]
    rows = [{"id": f"p{n}", "text": " ".join([*words[n % 7 :], *words[: n % 5], f"{n}."])} for n in range(60)]
    (tmp_path / "pool.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    run, finetune = tmp_path / "run", "--set finetune.preset=quick finetune.epochs=1"
    card = tmp_path / "cards" / "toy.yaml"
    for line in (
        f"score --task {card} --general {tmp_path}/pool.jsonl --out {run} {HASHING} --detector knn",
        f"weigh {run} --beta 0.3 --gamma 3",
        f"adapt {run} --model {tmp_path}/model --steps 2 --batch-size 4 --max-tokens 24",
        f"finetune --model {run}/adapted --task-card {card} --seeds 2 --out {run}/finetune/toy/adapted {finetune}",
        f"finetune --model {tmp_path}/model --task-card {card} --seeds 2 --out {run}/finetune/toy/base {finetune}",
    ):
        assert main(shlex.split(line)) == 0
    return run


def fingerprints(run):
    manifests = sorted(file for file in run.rglob(MANIFEST) if "seeds" not in file.as_posix())
    return {file.relative_to(run).parts[:-2]: json.loads(file.read_text())["fingerprint"] for file in manifests}


def run_block(block, folder, monkeypatch):
    """The lines of a block, as a shell would run them in a folder."""
    monkeypatch.chdir(folder)
    recipe = block.split("<<'RECIPE'\n")[1].split("\nRECIPE\n")[0]
    (folder / "recipe.yaml").write_text(recipe + "\n")
    for line in block.split("\nRECIPE\n")[1].splitlines():
        assert line.startswith("#") or main(shlex.split(line)[1:]) == 0


@pytest.mark.slow
def test_the_commands_make_the_run_again(by_hand, tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    run_block(reproduction(read_run(by_hand)), tmp_path / "elsewhere", monkeypatch)
    again = tmp_path / "elsewhere" / "again"
    made = fingerprints(again)
    assert {("scores",), ("weights",), ("adapted",)} <= made.keys()
    assert made.items() <= fingerprints(by_hand).items()


MODEL = {"model.safetensors": "aa", "config.json": "cc"}
ADAPTED = {"model.safetensors": "bb", "config.json": "cc"}


def manifest(kind, model=None, **about):
    files = {name: {"digest": digest} for name, digest in about.pop("made", {}).items()}
    return {"kind": kind, "depends_on": {**({"model": model} if model else {}), **about}, "files": files}


def commands(settings="model: some/base\n", is_grid=False, **stages):
    run = RunFrames(Path("run"), stages=stages, settings=settings, is_grid=is_grid)
    return reproduction(run).split("RECIPE\n")[-1].splitlines()


def test_one_command_a_step():
    stages = {
        "adapted": manifest("model", MODEL, made=ADAPTED),
        "finetune/toy/ours": manifest("finetune", ADAPTED),
        "weights": manifest("weights"),
        "scores": manifest("scores"),
        "corpus": manifest("corpus"),
    }
    assert commands(**stages) == [
        "dana score --config recipe.yaml --out again",
        "dana weigh again",
        "dana adapt again",
        "# What each model was fine-tuned with is in tables/settings.csv.",
    ]


def test_a_grid_is_one_command():
    assert commands(is_grid=True, base=manifest("model", made=MODEL)) == ["dana run recipe.yaml out=again"]


def test_versions_and_settings_head_the_block(whole_run):
    (whole_run / "settings.yaml").write_text("# A comment.\nweigh:\n  beta: 0.2\n")
    head = reproduction(read_run(whole_run)).split("\nRECIPE\n")[0].splitlines()
    assert head[0].startswith("# ")
    assert "numpy " in head[0]
    assert head[1:] == ["cat > recipe.yaml <<'RECIPE'", "weigh:", "  beta: 0.2"]


def test_without_settings_there_is_no_block_and_the_report_says_so(whole_run):
    assert reproduction(read_run(whole_run)) == ""
    page = report_stage(whole_run).read_text()
    assert "<pre" not in page
    assert "What its commands were told is not kept here" in page
    (whole_run / "settings.yaml").write_text("task: <a & b>\n")
    page = report_stage(whole_run).read_text()
    assert "task: &lt;a &amp; b&gt;" in page.split("<pre")[1].split("</pre>")[0]
    text = (whole_run / "report.md").read_text()
    assert "\ntask: <a & b>\nRECIPE\n" in text.split("`````bash")[1].split("`````")[0]


def test_every_file_that_was_read_has_its_digest(whole_run):
    frame = setting_table(read_run(whole_run)).frame
    assert frame.iloc[0].tolist() == ["corpus", "files.web.jsonl", "00"]
    data = frame[frame["setting"] == "task.data.test.jsonl"]
    assert data["value"].unique().tolist() == ["cd" * 16]
    assert data["step"].tolist() == [f"finetune/toy/{arm}" for arm in ("base", "dana", "general", "random")]
    report_stage(whole_run)
    written = pd.read_csv(whole_run / "tables" / "settings.csv", dtype=str, keep_default_na=False)
    pd.testing.assert_frame_equal(written, frame)
