"""The tables of steps, costs and settings."""

import json
from dataclasses import replace

import pytest

from dana.core.artifacts import MANIFEST
from dana.core.errors import ArtifactError
from dana.report.files import recorded_seconds
from dana.report.provenance import cost_finding, setting_table, step_table
from dana.report.run import RunFrames, read_run


def manifest(kind, seconds, counts=None, **depends_on):
    return {"kind": kind, "seconds": seconds, "counts": counts or {}, "depends_on": depends_on}


@pytest.fixture
def run(tmp_path):
    """Four steps of 100 seconds; the adaptation was resumed and took 60 of them in total."""
    stages = {
        "finetune": manifest("finetune", 20, {"train": 50, "test": 9}, preset={"epochs": 3, "seeds": [0, 1]}),
        "adapted": manifest("model", 10, {"tokens_seen": 120_000, "tokens_text": 7}),
        "scores": manifest("scores", 15, {"units": 30}),
        "corpus": manifest("corpus", 5, {"in": 8, "kept": 7}),
    }
    return RunFrames(tmp_path, stages=stages, step_seconds={"adapted": 60.0, "corpus": 0.0})


def test_steps_have_seconds_shares_and_counts_in_the_order_of_work(run):
    frame = step_table(run).frame.set_index("step")
    assert list(frame.index) == ["corpus", "scores", "adapted", "finetune"]
    assert frame["seconds"].tolist() == [5, 15, 60, 20]
    assert frame["share"].tolist() == [0.05, 0.15, 0.6, 0.2]
    counts = ["in 8; kept 7", "units 30", "tokens_seen 120,000; tokens_text 7", "train 50; test 9"]
    assert frame["counts"].tolist() == counts
    finding = cost_finding(step_table(run)).replace("\N{NO-BREAK SPACE}", " ")
    assert finding == "100.0 seconds in total: scoring 15.0 %, training 60.0 %, fine-tuning 20.0 %."


def test_steps_of_single_nested_seeds_are_counted_once(run):
    part, model = run.stages["finetune"], run.stages["adapted"]
    stages = {**run.stages, "nested/1/finetune/toy/dana": part, "nested/1/arms/dana/adapted": model}
    assert len(step_table(replace(run, stages=stages)).frame) == len(step_table(run).frame) + 1


def test_steps_without_records_are_zero(tmp_path):
    ((cells, _),) = step_table(RunFrames(tmp_path, stages={"b": {"kind": "model"}})).rows()
    assert cells[1:4] == ["0.0", "0.0\N{NO-BREAK SPACE}%", ""]
    assert step_table(RunFrames(tmp_path)) is None


def test_seconds_include_every_restart(whole_run):
    """The manifest of a resumed step has the seconds of its last start alone."""
    model_folder, result_folder = whole_run / "arms" / "dana" / "adapted", whole_run / "finetune" / "toy" / "dana"
    lines = [{"kind": "step", "seconds": 40.5}, {"kind": "step", "seconds": 1000.25}, {"kind": "x"}]
    with (model_folder / "training.jsonl").open("a") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
    metrics = json.loads((result_folder / "metrics.json").read_text())
    for row, seconds in zip(metrics["seeds"], (300.0, 200.5), strict=False):
        row["seconds"] = seconds
    (result_folder / "metrics.json").write_text(json.dumps(metrics))
    frame = step_table(read_run(whole_run)).frame.set_index("step")
    assert frame.loc["arms/dana/adapted", "seconds"] == 1000.25
    assert frame.loc["finetune/toy/dana", "seconds"] == 500.5
    assert frame.loc["corpus", "seconds"] == json.loads((whole_run / "corpus" / MANIFEST).read_text())["seconds"]


@pytest.mark.parametrize("damage", ["{", "[]", '{"seconds": 1}'])
def test_a_damaged_record_is_named_by_file_and_line(tmp_path, damage):
    (tmp_path / "training.jsonl").write_text('{"kind": "step"}\n' + damage + "\n")
    with pytest.raises(ArtifactError, match=r"training\.jsonl:2: "):
        recorded_seconds(tmp_path)


def test_settings_have_the_digest_of_every_input(whole_run):
    frame = setting_table(read_run(whole_run)).frame
    assert frame.iloc[0].tolist() == ["corpus", "files.web.jsonl", "00"]
    data = frame[frame["setting"] == "task.data.test.jsonl"]
    assert data["value"].unique().tolist() == ["cd" * 16]
    assert data["step"].tolist() == [f"finetune/toy/{arm}" for arm in ("base", "dana", "general", "random")]
