"""What a run shows between its steps."""

import json

import pytest

from dana.stages.progress import FIRST, PILOT, SELECTED, Progress
from dana.stages.steps.run import Run
from dana.stages.steps.step import Step

NAMES = (
    "baselines/toy",
    "probe/toy/base/0",
    "probe/toy/base/1",
    "texts",
    "weigh/dana",
    "pilot",
    "adapt/dana",
    "probe/toy/dana/0",
    "weigh/dana/1",
    "probe/toy/dana/1",
    "finetune/toy/dana/0/seed-0",
    "finetune/toy/dana/1/seed-2",
)


@pytest.fixture
def run(tmp_path):
    return Run(tmp_path, tuple(Step(name, "m:f", {}) for name in NAMES))


def test_the_parts_of_a_run_come_in_the_order_of_its_steps(run):
    left = Progress(run).left
    assert list(left) == [
        FIRST,
        SELECTED,
        PILOT,
        "adaptation 1",
        "adaptation 2",
        "the fine-tuning of adaptation 1",
        "the fine-tuning of adaptation 2",
    ]
    assert left[FIRST] == {"baselines/toy", "probe/toy/base/0", "probe/toy/base/1"}


def test_a_task_or_an_arm_may_have_a_number_as_name(tmp_path):
    names = ("probe/2024/7/0", "probe/2024/7/1", "probe/2024/8", "finetune/2024/7/1/seed-3")
    run = Run(tmp_path, tuple(Step(name, "m:f", {}) for name in names))
    assert Progress(run).left == {
        "adaptation 1": {"probe/2024/7/0", "probe/2024/8"},
        "adaptation 2": {"probe/2024/7/1"},
        "the fine-tuning of adaptation 2": {"finetune/2024/7/1/seed-3"},
    }


def test_steps_that_a_study_names_in_its_way_are_of_no_part(tmp_path):
    names = ("texts/law", "rank/law/x", "weigh/dana")
    run = Run(tmp_path, tuple(Step(name, "m:f", {}) for name in names))
    assert Progress(run).left == {SELECTED: {"weigh/dana"}}


def test_what_an_earlier_run_reached_is_not_ahead(run):
    for name in NAMES[:3]:
        run.write_record(name, "elsewhere", 1.0)
    assert next(iter(Progress(run).left)) == SELECTED
    run.write_record(NAMES[4], "elsewhere", 1.0)
    assert next(iter(Progress(run).left)) == PILOT


def test_a_part_is_told_once_when_its_last_step_is_done(run, monkeypatch):
    told = []
    monkeypatch.setattr(Progress, "_show", lambda self, part: told.append(part))
    progress = Progress(run)
    by_name = {step.name: step for step in run.steps}
    for name in ("probe/toy/base/1", "baselines/toy", "weigh/dana"):
        progress.tell(by_name[name])
    assert told == [SELECTED], "the steps of a part may end in any order"
    progress.tell(by_name["probe/toy/base/0"])
    progress.tell(by_name["texts"])
    assert told == [SELECTED, FIRST]


def test_a_damaged_folder_stops_no_run(run, tmp_path, heard):
    file = tmp_path / "probe" / "toy" / "base" / "0" / "probe.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"task": "toy"})[:-2])
    progress = Progress(run)
    for step in run.steps:
        progress.tell(step)
    assert not [line for line in heard.messages if line.startswith("scores")]
