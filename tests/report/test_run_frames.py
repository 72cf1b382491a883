"""A run's folder as data frames, and errors that name file, line and key."""

import shutil

import pyarrow.parquet as pq
import pytest

from dana.core.artifacts import MANIFEST
from dana.core.errors import ArtifactError
from dana.core.schemas import HELD_OUT_TASK
from dana.report.run import arm_order, read_run
from dana.report.sections import analyse
from tests.report.conftest import choice_notes, edit_json

ADAPTED = "arms/dana/adapted/training.jsonl"


def test_a_whole_run_is_read_in_order(whole_run):
    run = read_run(whole_run)
    assert run.ranking.rows.query("chosen")["name"].tolist() == ["knn"]
    assert len(run.scores.units) == 80 * 12
    assert run.scores.units["weight"].sum() == 192  # a fifth of 960
    assert run.scores.units["planted"].sum() == 240
    assert len(run.scores.task) == 120
    assert list(dict.fromkeys(run.evaluations["arm"])) == ["general", "random", "dana"]
    assert [cell.arm for cell in run.cells] == ["base", "general", "random", "dana"]
    assert [cell.collapsed_seeds for cell in run.cells] == [set(), {3}, set(), set()]
    assert set(run.stages) == {
        *("ranking", "corpus", "scores", "weights"),
        *(f"arms/{arm}/adapted" for arm in ("general", "random", "dana")),
        *(f"finetune/toy/{arm}" for arm in ("base", "general", "random", "dana")),
    }


def test_missing_parts_are_none_and_hidden_folders_are_skipped(tmp_path, write):
    write["results"](tmp_path)
    (tmp_path / "finetune" / "toy" / "dana").rename(tmp_path / "finetune" / "toy" / ".dana.tmp-1")  # being written
    run = read_run(tmp_path)
    assert (run.ranking, run.choice, run.scores, run.evaluations) == (None, None, None, None)
    assert [(cell.arm, len(cell.scores)) for cell in run.cells] == [("base", 8), ("general", 8), ("random", 8)]


def test_the_only_arm_of_a_run_is_called_adapted(tmp_path, write):
    write["training"](tmp_path / "adapted", 0.2)
    write["results"](tmp_path / "other", arms={"ours": 0.5})
    shutil.copytree(tmp_path / "other" / "finetune" / "toy" / "ours", tmp_path / "finetune")
    run = read_run(tmp_path)
    assert set(run.evaluations["arm"]) == {"adapted"}
    assert [cell.arm for cell in run.cells] == ["adapted"]


def test_unknown_arms_come_last_by_name():
    arms = ["zebra", "adapted", "dana", "apple", "base"]
    assert sorted(arms, key=arm_order) == ["base", "dana", "adapted", "apple", "zebra"]


@pytest.mark.parametrize("name", ["fusion", "lda"])
def test_the_choice_of_a_selector_is_marked(write, tmp_path, name):
    write["choice"](tmp_path)
    if name != "fusion":
        edit_json(tmp_path / "scores" / MANIFEST, choice={**choice_notes(), "chosen": name})
    assert read_run(tmp_path).choice.rows.query("chosen")["name"].tolist() == [name]


def replace_text(old, new):
    return lambda file: file.write_text(file.read_text().replace(old, new, 1))


@pytest.mark.parametrize(
    ("file", "change", "words"),
    [
        (ADAPTED, replace_text("task_loss_se", "other"), [":2:", "task_loss_se"]),
        (ADAPTED, replace_text('"task_loss": 5.2', '"task_loss": "high"'), [":2:", "'high'"]),
        (ADAPTED, lambda file: file.write_text(file.read_text() + "{"), [":11:"]),
        (ADAPTED, lambda file: file.write_text(file.read_text() + "[1]\n"), [":11:", "list"]),
        (ADAPTED, lambda file: file.write_bytes(b"\xff\xfe"), ["utf-8"]),
        (f"ranking/{MANIFEST}", lambda file: edit_json(file, chosen="magic"), ["chosen='magic'"]),
        (f"ranking/{MANIFEST}", lambda file: edit_json(file, detectors=[]), ["chosen='knn'"]),
        (f"ranking/{MANIFEST}", lambda file: file.write_text('{\n"a": 1\n'), [":3:"]),
        (f"scores/{MANIFEST}", lambda file: edit_json(file, choice={"chosen": "lda"}), ["candidates"]),
        ("finetune/toy/base/metrics.json", lambda file: edit_json(file, seeds=[1]), []),
        ("scores/part-00000.parquet", lambda file: file.write_bytes(b"junk"), ["Parquet"]),
        (f"scores/{HELD_OUT_TASK}", lambda file: file.write_bytes(b"junk"), ["Parquet"]),
        (f"scores/{HELD_OUT_TASK}", lambda file: pq.write_table(pq.read_table(file).drop(["score"]), file), ["score"]),
    ],
)
def test_damaged_files_are_named_with_line_and_key(whole_run, file, change, words):
    change(whole_run / file)
    with pytest.raises(ArtifactError) as error:
        read_run(whole_run)
    assert [word for word in [str(whole_run / file), *words] if word not in str(error.value)] == []
    assert "\n" not in str(error.value)


def test_a_null_loss_is_a_dash(whole_run):
    replace_text('"task_loss": 5.2', '"task_loss": null')(whole_run / ADAPTED)
    losses = analyse(read_run(whole_run)).tables["losses"]
    assert any("–" in cell for cells, _ in losses.rows() for cell in cells)


def test_weights_of_other_scores_and_a_second_result_of_an_arm_are_refused(whole_run, tmp_path, write):
    shutil.copytree(whole_run / "finetune" / "toy" / "dana", whole_run / "finetune" / "other" / "dana")
    with pytest.raises(ArtifactError, match="task toy, arm dana"):
        read_run(whole_run)
    shutil.rmtree(whole_run / "finetune" / "other")
    write["selection"](tmp_path / "other", 84)
    shutil.rmtree(whole_run / "scores")
    (tmp_path / "other" / "scores").rename(whole_run / "scores")
    with pytest.raises(ArtifactError, match="toy-run/weights"):
        read_run(whole_run)


def test_a_folder_without_a_run_names_the_first_command(tmp_path):
    with pytest.raises(ArtifactError, match="dana score"):
        read_run(tmp_path)
    with pytest.raises(ArtifactError, match="absent"):
        read_run(tmp_path / "absent")
