import json
import shutil

import pyarrow.parquet as pq
import pytest

from dana.core.artifacts import MANIFEST, write_json
from dana.core.errors import ArtifactError
from dana.core.schemas import HELD_OUT_TASK
from dana.report.run import arm_place, read_run
from dana.report.sections import analyse


def chosen(path):
    (name,) = read_run(path).choice.rows.query("chosen")["name"]
    return name


def test_a_choice_that_is_not_among_its_candidates_is_refused(write, tmp_path):
    write["choice"](tmp_path)
    manifest = tmp_path / "scores" / MANIFEST
    content = json.loads(manifest.read_text())
    assert chosen(tmp_path) == "fusion"
    one = {**content["choice"], "chosen": "lda"}
    write_json(manifest, {**content, "choice": one})
    assert chosen(tmp_path) == "lda"
    for wrong in ({**one, "chosen": "lexical"}, {**one, "candidates": []}):
        write_json(manifest, {**content, "choice": wrong})
        with pytest.raises(ArtifactError, match="is not among its candidates"):
            read_run(tmp_path)
    write_json(manifest, {**content, "choice": {"chosen": "lda"}})
    with pytest.raises(ArtifactError, match="no key candidates"):
        read_run(tmp_path)


def test_a_whole_run_is_read_once_and_in_order(whole_run):
    run = read_run(whole_run)
    assert run.ranking.rows.query("chosen")["name"].tolist() == ["knn"]
    assert len(run.selected.units) == 80 * 12
    assert run.selected.units["weight"].sum() == 192  # a fifth of 960
    assert run.selected.units["planted"].sum() == 240
    assert len(run.selected.task) == 120
    assert list(dict.fromkeys(run.evaluations["arm"])) == ["general", "random", "dana"]
    assert [cell.arm for cell in run.cells] == ["base", "general", "random", "dana"]
    assert [cell.collapsed for cell in run.cells] == [set(), {3}, set(), set()]
    assert set(run.stages) == {
        "ranking",
        "corpus",
        "scores",
        "weights",
        *(f"arms/{arm}/adapted" for arm in ("general", "random", "dana")),
        *(f"finetune/toy/{arm}" for arm in ("base", "general", "random", "dana")),
    }


def test_parts_that_are_not_there_are_none(tmp_path, write):
    write["results"](tmp_path)
    run = read_run(tmp_path)
    assert run.ranking is None
    assert run.selected is None
    assert run.evaluations is None
    assert [len(cell.scores) for cell in run.cells] == [8, 8, 8, 8]


def test_a_run_with_one_arm_calls_it_adapted(tmp_path, write):
    write["training"](tmp_path / "adapted", 0.2)
    write["results"](tmp_path / "other", arms={"ours": 0.5})
    shutil.copytree(tmp_path / "other" / "finetune" / "toy" / "ours", tmp_path / "finetune")
    run = read_run(tmp_path)
    assert set(run.evaluations["arm"]) == {"adapted"}
    assert [cell.arm for cell in run.cells] == ["adapted"]


def test_what_is_still_being_written_is_passed_over(tmp_path, write):
    write["results"](tmp_path)
    (tmp_path / "finetune" / "toy" / "dana").rename(tmp_path / "finetune" / "toy" / ".dana.tmp-1")
    assert [cell.arm for cell in read_run(tmp_path).cells] == ["base", "general", "random"]


def test_unknown_arms_come_last_by_name():
    arms = ["zebra", "adapted", "dana", "apple", "base"]
    assert sorted(arms, key=arm_place) == ["base", "dana", "adapted", "apple", "zebra"]


def test_an_empty_folder_is_refused_with_the_first_command(tmp_path):
    with pytest.raises(ArtifactError, match=r"nothing to report.*dana score"):
        read_run(tmp_path)
    with pytest.raises(ArtifactError, match="no such folder"):
        read_run(tmp_path / "absent")


def test_errors_name_the_file_and_what_is_wrong(whole_run):
    lines = whole_run / "arms" / "dana" / "adapted" / "training.jsonl"
    good = lines.read_text()
    lines.write_text(good.replace("task_loss_se", "other", 1))
    with pytest.raises(ArtifactError, match=r"training\.jsonl:2: no key task_loss_se"):
        read_run(whole_run)
    lines.write_text(good + "{")
    with pytest.raises(ArtifactError, match=r"training\.jsonl:11: not what dana writes \(Expecting property name"):
        read_run(whole_run)
    lines.write_text(good)
    ranking = whole_run / "ranking" / MANIFEST
    content = json.loads(ranking.read_text())
    write_json(ranking, {**content, "chosen": "magic"})
    with pytest.raises(ArtifactError, match=r"chosen='magic' is not among its candidates"):
        read_run(whole_run)
    ranking.write_text('{\n"a": 1\n')
    with pytest.raises(ArtifactError, match=r"manifest\.json:3: cannot be read"):
        read_run(whole_run)


@pytest.mark.parametrize("name", ["part-00000.parquet", HELD_OUT_TASK])
def test_a_scores_file_that_is_not_parquet_is_named(whole_run, name):
    (whole_run / "scores" / name).write_bytes(b"junk")
    with pytest.raises(ArtifactError, match=rf"scores/{name}: not what dana writes .*Parquet"):
        read_run(whole_run)


def test_held_out_scores_without_a_column_are_refused(whole_run):
    file = whole_run / "scores" / HELD_OUT_TASK
    pq.write_table(pq.read_table(file).drop_columns(["score"]), file)
    with pytest.raises(ArtifactError, match=r"held_out_task\.parquet: .*No match for .*score"):
        read_run(whole_run)


def test_json_of_another_shape_is_refused_with_its_place(whole_run):
    lines = whole_run / "arms" / "dana" / "adapted" / "training.jsonl"
    good = lines.read_text()
    lines.write_text(good + "[1]\n")
    with pytest.raises(ArtifactError, match=r"training\.jsonl:11: holds a list, not an object"):
        read_run(whole_run)
    lines.write_text(good)
    metrics = whole_run / "finetune" / "toy" / "base" / "metrics.json"
    content = json.loads(metrics.read_text())
    write_json(metrics, {**content, "seeds": [1]})
    with pytest.raises(ArtifactError, match=r"base/metrics\.json: not what dana writes"):
        read_run(whole_run)
    write_json(metrics, content)
    write_json(whole_run / "ranking" / MANIFEST, {"detectors": [], "chosen": "knn"})
    with pytest.raises(ArtifactError, match=r"manifest\.json: .*chosen='knn' is not among its candidates"):
        read_run(whole_run)


def test_records_that_are_not_text_or_numbers_are_refused_and_null_is_a_dash(whole_run):
    lines = whole_run / "arms" / "dana" / "adapted" / "training.jsonl"
    good = lines.read_text()
    lines.write_bytes(b"\xff\xfe")
    with pytest.raises(ArtifactError, match=r"training\.jsonl: not what dana writes .'utf-8' codec can't decode"):
        read_run(whole_run)
    lines.write_text(good.replace('"task_loss": 5.2', '"task_loss": "high"', 1))
    with pytest.raises(ArtifactError, match=r"training\.jsonl:2: .*could not convert string to float: 'high'"):
        read_run(whole_run)
    lines.write_text(good.replace('"task_loss": 5.2', '"task_loss": null', 1))
    losses = analyse(read_run(whole_run)).tables["losses"]
    assert any("–" in cell for cells, _ in losses.rows() for cell in cells)


def test_weights_of_other_scores_are_refused(whole_run, tmp_path, write):
    write["selection"](tmp_path / "other", 84)
    (whole_run / "scores").rename(tmp_path / "away")
    (tmp_path / "other" / "scores").rename(whole_run / "scores")
    with pytest.raises(ArtifactError, match="not those of the scores"):
        read_run(whole_run)


def test_an_arm_that_is_there_twice_is_refused(tmp_path, write):
    write["results"](tmp_path)
    shutil.copytree(tmp_path / "finetune" / "toy" / "dana", tmp_path / "finetune" / "other" / "dana")
    with pytest.raises(ArtifactError, match=r"toy/dana/metrics.json: task toy, arm dana is there twice"):
        read_run(tmp_path)
