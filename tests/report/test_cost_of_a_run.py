"""What a run cost: seconds over every start, what each step counted, and the sentence."""

import json
from dataclasses import replace

import pytest

from dana.core.artifacts import MANIFEST
from dana.core.errors import ArtifactError
from dana.report.files import recorded_seconds
from dana.report.provenance import cost_finding, step_table
from dana.report.run import RunFrames, read_run


def run_of(path, recorded=None, **manifests):
    return RunFrames(path, stages=manifests, recorded=recorded or {})


def manifest(kind, seconds, counts=None, **depends_on):
    return {"kind": kind, "seconds": seconds, "counts": counts or {}, "depends_on": depends_on}


@pytest.fixture
def run(tmp_path):
    """Four steps of 100 seconds; the adapted one was begun again and took 60 of them before."""
    preset = {"epochs": 3, "seeds": [0, 1]}
    return run_of(
        tmp_path,
        {"adapted": 60.0, "corpus": 0.0},
        finetune=manifest("finetune", 20, {"train": 50, "test": 9}, preset=preset),
        adapted=manifest("model", 10, {"tokens_seen": 120_000, "tokens_text": 7}),
        scores=manifest("scores", 15, {"units": 30}),
        corpus=manifest("corpus", 5, {"in": 8, "kept": 7}),
    )


def test_every_step_has_its_seconds_and_what_went_through_it(run):
    frame = step_table(run).frame.set_index("step")
    assert list(frame.index) == ["corpus", "scores", "adapted", "finetune"], "in the order of work"
    assert frame["seconds"].tolist() == [5, 15, 60, 20]
    assert frame["share"].tolist() == [0.05, 0.15, 0.6, 0.2]
    assert frame["counts"].tolist() == [
        "in 8; kept 7",
        "units 30",
        "tokens_seen 120,000; tokens_text 7",
        "train 50; test 9",
    ]
    shown = [cells for cells, _ in step_table(run).rows()]
    assert shown[2][:3] == ["adapted", "60.0", "60.0\N{NO-BREAK SPACE}%"]


def test_the_sentence_adds_up(run):
    said = cost_finding(step_table(run)).replace("\N{NO-BREAK SPACE}", " ")
    assert said == "100.0 seconds in all: scoring 15.0 %, training 60.0 %, fine-tuning 20.0 %."


@pytest.mark.parametrize(
    ("seconds", "said"), [(119, "119.0 seconds"), (120, "2.0 minutes"), (7199, "120.0 minutes"), (9000, "2.5 hours")]
)
def test_durations_are_said_in_their_own_unit(tmp_path, seconds, said):
    assert cost_finding(step_table(run_of(tmp_path, a=manifest("task", seconds)))) == f"{said} in all."


def test_what_is_not_recorded_is_empty(tmp_path):
    assert next(step_table(run_of(tmp_path, b={"kind": "model"})).rows())[0][1:4] == [
        "0.0",
        "0.0\N{NO-BREAK SPACE}%",
        "",
    ]
    assert step_table(run_of(tmp_path)) is None


def test_seconds_are_those_of_all_starts_of_a_step(whole_run):
    """The manifest of a step that was begun again has those of its last start."""
    adapted, finetuned = whole_run / "arms" / "dana" / "adapted", whole_run / "finetune" / "toy" / "dana"
    lines = [{"kind": "step", "seconds": 40.5}, {"kind": "step", "seconds": 1000.25}, {"kind": "x"}]
    with (adapted / "training.jsonl").open("a") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
    metrics = json.loads((finetuned / "metrics.json").read_text())
    for row, seconds in zip(metrics["seeds"], (300.0, 200.5), strict=False):
        row["seconds"] = seconds
    (finetuned / "metrics.json").write_text(json.dumps(metrics))
    assert recorded_seconds(adapted) == 1000.25
    assert recorded_seconds(finetuned) == 500.5
    frame = step_table(read_run(whole_run)).frame.set_index("step")
    assert frame.loc["arms/dana/adapted", "seconds"] == 1000.25
    assert frame.loc["finetune/toy/dana", "seconds"] == 500.5
    told = json.loads((whole_run / "corpus" / MANIFEST).read_text())["seconds"]
    assert frame.loc["corpus", "seconds"] == told


@pytest.mark.parametrize("damage", ["{", "[]", '{"seconds": 1}'])
def test_a_damaged_record_is_named_by_file_and_line(whole_run, damage):
    file = whole_run / "arms" / "dana" / "adapted" / "training.jsonl"
    file.write_text('{"kind": "step"}\n' + damage + "\n")
    with pytest.raises(ArtifactError, match=r"training\.jsonl:2: "):
        recorded_seconds(file.parent)


def test_seeds_that_are_joined_are_counted_once(run):
    part, model = run.stages["finetune"], run.stages["adapted"]
    nested = {"nested/1/finetune/toy/dana": part, "nested/1/arms/dana/adapted": model}
    nested = replace(run, stages={**run.stages, **nested})
    assert len(step_table(nested).frame) == len(step_table(run).frame) + 1
