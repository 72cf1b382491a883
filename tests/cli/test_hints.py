"""Hints for the next command carry what the run's folder cannot know."""

import shlex
from pathlib import Path

import pytest

from dana.cli import hints
from dana.cli.main import build_parser
from dana.stages.settings import RunSettings
from dana.train.settings import AdaptSettings
from dana.weighting.settings import WeighSettings

RUN = Path("runs/my run")


def words(line):
    """The words of a hint, which dana's own parser must take."""
    said = shlex.split(line.removeprefix("next:"), comments=True)
    build_parser().parse_args(said[1:])
    return said


@pytest.mark.parametrize(
    ("model", "task", "out"),
    [
        (RUN / "adapted", "chemprot", "runs/my run/finetune/chemprot/dana"),
        (RUN / "arms" / "random" / "adapted", "chemprot", "runs/my run/finetune/chemprot/random"),
        (RUN / "adapted-short", "chemprot", "runs/my run/finetune/chemprot/adapted-short"),
    ],
)
def test_an_adapted_model_is_fine_tuned_where_the_report_looks(model, task, out):
    said = words(hints.after_adapt(RunSettings(task=task), RUN, model))
    assert said[said.index("--model") + 1] == str(model)
    assert said[said.index("--out") + 1] == out
    assert said[said.index("--task-card") + 1] == task


def test_without_a_card_nobody_knows_what_to_fine_tune_on_and_the_report_comes_next():
    line = hints.after_adapt(RunSettings(task="notes.txt"), RUN, RUN / "adapted")
    assert words(line) == ["dana", "report", str(RUN)]
    assert "dana finetune" in line.partition("#")[2]


def test_after_the_first_arm_comes_the_base_and_then_the_report(tmp_path):
    settings, task = RunSettings(cards=["sst2"]), tmp_path / "run" / "finetune" / "sst2"
    said = words(hints.after_finetune(settings, "some/base", task / "dana"))
    assert said[:4] == ["dana", "finetune", "--model", "some/base"]
    assert said[said.index("--out") + 1] == str(task / "base")
    (task / "base").mkdir(parents=True)
    assert words(hints.after_finetune(settings, "some/base", task / "dana")) == [
        "dana",
        "report",
        str(tmp_path / "run"),
    ]
    assert words(hints.after_finetune(settings, None, task / "dana"))[1] == "report"
    assert hints.after_finetune(settings, None, tmp_path / "elsewhere").startswith("note:")


def test_how_long_to_train_is_asked_only_where_nobody_said(tmp_path):
    def said(**adapt):
        settings = RunSettings(model="m", adapt=AdaptSettings(**adapt))
        return words(hints.after_weigh(settings, tmp_path, tmp_path / "weights"))

    assert said()[-2:] == ["--steps", "1000"]
    for chosen in ({"steps": 5}, {"tokens": 5000}, {"epochs": 2}):
        assert "--steps" not in said(**chosen), chosen


def test_a_base_that_was_just_trained_is_the_one_to_adapt(tmp_path):
    settings = RunSettings(weigh=WeighSettings())
    assert words(hints.after_pretrain(tmp_path, tmp_path / "base")) == ["dana", "weigh", str(tmp_path)]
    (tmp_path / "base").mkdir()
    (tmp_path / "weights").mkdir()
    assert str(tmp_path / "base") in words(hints.after_weigh(settings, tmp_path, tmp_path / "weights"))
    assert words(hints.after_pretrain(tmp_path, tmp_path / "base"))[-1] == str(tmp_path / "base")
