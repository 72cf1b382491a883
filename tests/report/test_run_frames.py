"""A run's folder as data frames, its steps, costs and settings, and errors that name file, line and key."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from dana.core.artifacts import MANIFEST
from dana.core.errors import ArtifactError, NothingToReport
from dana.core.schemas import HELD_OUT_TARGET
from dana.report.analysis import analyse
from dana.report.files import recorded_seconds
from dana.report.headline import highlights
from dana.report.page import Finding
from dana.report.provenance import cost_finding, setting_table, step_table
from dana.report.run import RunFrames, arm_order, find_stale, read_outcomes, read_run
from dana.report.sections import build_report
from tests.report.conftest import (
    choice_notes,
    edit_json,
    write_results,
    write_selection,
    write_training,
)

ADAPTED = "arms/dana/adapted/training.jsonl"


def test_a_whole_run_is_read_in_order(frames):
    assert frames.ranking.rows.query("chosen")["name"].tolist() == ["knn"]
    assert len(frames.scores.units) == 80 * 12
    assert frames.scores.units["weight"].sum() == 192  # a fifth of 960
    assert len(frames.scores.target) == 120
    assert list(dict.fromkeys(frames.evaluations["arm"])) == ["pool", "random", "dana"]
    collapsed_seeds = [("base", set()), ("pool", {3}), ("random", set()), ("dana", set())]
    assert [
        (arm_result.arm, arm_result.collapsed_seeds) for arm_result in frames.results
    ] == collapsed_seeds
    models = {f"arms/{arm}/adapted" for arm in ("pool", "random", "dana")}
    results = {f"finetune/toy/{arm}" for arm in ("base", "pool", "random", "dana")}
    assert set(frames.stages) == {"ranking", "pool", "scores", "weights"} | models | results


def test_missing_parts_are_none_and_hidden_folders_are_skipped(tmp_path):
    write_results(tmp_path)
    (tmp_path / "finetune" / "toy" / "dana").rename(
        tmp_path / "finetune" / "toy" / ".dana.tmp-1"
    )  # being written
    run = read_run(tmp_path)
    assert (run.ranking, run.choice, run.scores, run.evaluations) == (None, None, None, None)
    assert [(arm_result.arm, len(arm_result.scores)) for arm_result in run.results] == [
        ("base", 8),
        ("pool", 8),
        ("random", 8),
    ]


def test_a_run_is_read_while_other_processes_write_into_it(tmp_path, made_and_removed):
    write_results(tmp_path)
    stages = read_outcomes(tmp_path).stages
    with made_and_removed(tmp_path / "finetune" / "toy" / ".dana.tmp-1"):
        for _ in range(50):
            assert read_outcomes(tmp_path).stages == stages


def test_the_only_arm_of_a_run_is_called_adapted_and_unknown_ones_come_last_by_name(tmp_path):
    write_training(tmp_path / "adapted", 0.2)
    write_results(tmp_path / "other", arms={"ours": 0.5})
    shutil.copytree(tmp_path / "other" / "finetune" / "toy" / "ours", tmp_path / "finetune")
    run = read_run(tmp_path)
    assert set(run.evaluations["arm"]) == {"adapted"}
    assert [arm_result.arm for arm_result in run.results] == ["adapted"]
    arms = ["base", "dana", "adapted", "apple", "zebra"]
    assert sorted(reversed(arms), key=arm_order) == arms


@pytest.mark.parametrize("name", ["fusion", "lda"])
def test_the_choice_of_a_selector_is_marked(tmp_path, name):
    choice = choice_notes()
    write_selection(tmp_path, 20, choice=choice if name == "fusion" else {**choice, "chosen": name})
    assert read_run(tmp_path).choice.rows.query("chosen")["name"].tolist() == [name]


def replace_text(old, new):
    return lambda file: file.write_text(file.read_text().replace(old, new, 1))


def append(text):
    return lambda file: file.write_text(file.read_text() + text)


def write_junk(file):
    file.write_bytes(b"\xff\xfejunk")


@pytest.mark.parametrize(
    ("file", "change", "words"),
    [
        (ADAPTED, replace_text("target_loss_se", "other"), [":2:", "target_loss_se"]),
        (ADAPTED, replace_text('"target_loss": 5.2', '"target_loss": "high"'), [":2:", "'high'"]),
        (ADAPTED, append("{"), [":11:"]),
        (ADAPTED, append("[1]\n"), [":11:", "list"]),
        (ADAPTED, write_junk, ["utf-8"]),
        (f"ranking/{MANIFEST}", lambda file: edit_json(file, chosen="magic"), ["chosen='magic'"]),
        (f"ranking/{MANIFEST}", lambda file: edit_json(file, detectors=[]), ["chosen='knn'"]),
        (f"ranking/{MANIFEST}", lambda file: file.write_text('{\n"a": 1\n'), [":3:"]),
        (
            f"scores/{MANIFEST}",
            lambda file: edit_json(file, choice={"chosen": "lda"}),
            ["candidates"],
        ),
        ("finetune/toy/base/metrics.json", lambda file: edit_json(file, seeds=[1]), []),
        ("scores/part-00000.parquet", write_junk, ["Parquet"]),
        (f"scores/{HELD_OUT_TARGET}", write_junk, ["Parquet"]),
        (
            f"scores/{HELD_OUT_TARGET}",
            lambda file: pq.write_table(pq.read_table(file).drop(["score"]), file),
            ["score"],
        ),
    ],
)
def test_damaged_files_are_named_with_line_and_key(whole_run, file, change, words):
    change(whole_run / file)
    with pytest.raises(ArtifactError) as error:
        read_run(whole_run)
    assert [word for word in [str(whole_run / file), *words] if word not in str(error.value)] == []
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "name",
    [f"scores/{MANIFEST}", "finetune/toy/base/metrics.json", ADAPTED, "scores/part-00000.parquet"],
)
def test_the_remedy_for_a_damaged_file_mends_the_run(whole_run, name):
    """A step reuses the folder that it finds, so running it again alone would change nothing."""
    content = (whole_run / name).read_bytes()
    (whole_run / name).write_bytes(content[: len(content) // 2])
    with pytest.raises(ArtifactError) as error:
        read_run(whole_run)
    [folder] = re.findall(r"remove (\S+) and run its command again", str(error.value))
    assert (whole_run / name).is_relative_to(folder)
    assert (Path(folder) / MANIFEST).is_file()
    shutil.rmtree(folder)
    read_run(whole_run)


@pytest.mark.parametrize("content", ["", '{"ended": 5.0', '{"ended": 5.0}', "[]"])
def test_a_damaged_record_of_a_step_is_not_counted(whole_run, content):
    """``dana run`` writes it again, and says so."""
    (whole_run / "steps").mkdir(exist_ok=True)
    (whole_run / "steps" / "a.json").write_text(content)
    (whole_run / "steps" / "b.json").write_text('{"ended": 9.0, "seconds": 3.0}')
    assert read_run(whole_run).wall_seconds == 3


def test_the_folder_of_one_artifact_is_no_run(tmp_path):
    (tmp_path / MANIFEST).parent.mkdir()
    (tmp_path / MANIFEST).write_text('{"kind": "scores"}')
    with pytest.raises(NothingToReport, match="nothing to report"):
        read_run(tmp_path)


def test_weights_of_other_scores_and_a_second_result_of_an_arm_are_refused(whole_run, tmp_path):
    shutil.copytree(
        whole_run / "finetune" / "toy" / "dana", whole_run / "finetune" / "other" / "dana"
    )
    with pytest.raises(ArtifactError, match="task toy, arm dana"):
        read_run(whole_run)
    shutil.rmtree(whole_run / "finetune" / "other")
    write_selection(tmp_path / "other", 84)
    shutil.rmtree(whole_run / "scores")
    (tmp_path / "other" / "scores").rename(whole_run / "scores")
    with pytest.raises(ArtifactError, match="toy-run/weights"):
        read_run(whole_run)


def manifest(kind, seconds, counts):
    return {"kind": kind, "seconds": seconds, "counts": counts}


def test_steps_have_seconds_shares_and_counts_in_the_order_of_work(tmp_path):
    """The adaptation was resumed and took 60 seconds in total; steps of single nested seeds are counted once."""
    stages = {"finetune": manifest("finetune", 20, {"train": 50, "test": 9})}
    stages |= {"adapted": manifest("model", 10, {"tokens_seen": 120_000, "tokens_text": 7})}
    stages |= {
        "scores": manifest("scores", 15, {"units": 30}),
        "pool": manifest("pool", 5, {"in": 8, "kept": 7}),
    }
    run = RunFrames(tmp_path, stages=stages, step_seconds={"adapted": 60.0, "pool": 0.0})
    frame = step_table(run).frame.set_index("step")
    assert list(frame.index) == ["pool", "scores", "adapted", "finetune"]
    assert frame["seconds"].tolist() == [5, 15, 60, 20]
    assert frame["share"].tolist() == [0.05, 0.15, 0.6, 0.2]
    counts = ["in 8; kept 7", "units 30", "tokens_seen 120,000; tokens_text 7", "train 50; test 9"]
    assert frame["counts"].tolist() == counts
    finding = cost_finding(step_table(run)).replace("\N{NO-BREAK SPACE}", " ")
    assert (
        finding
        == "100.0 seconds of computing: scoring 15.0 %, training 60.0 %, fine-tuning 20.0 %."
    )
    of_seeds = {
        "nested/1/finetune/toy/dana": stages["finetune"],
        "nested/1/arms/dana/adapted": stages["adapted"],
    }
    assert len(step_table(replace(run, stages=stages | of_seeds)).frame) == 5
    ((results, _),) = step_table(RunFrames(tmp_path, stages={"b": {"kind": "model"}})).rows()
    assert results[1:4] == ["0.0", "0.0\N{NO-BREAK SPACE}%", ""]
    assert step_table(RunFrames(tmp_path)) is None


def test_wall_time_counts_steps_side_by_side_once_and_no_pause(whole_run):
    for number, (begin, end) in enumerate([(0, 60), (10, 20), (30, 90), (500, 560), (20, 80)]):
        file = whole_run / "steps" / "x" / f"{number}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"ended": 1e9 + end, "seconds": end - begin}))
    (whole_run / "steps" / "old.json").write_text('{"seconds": 9}')  # of an earlier version
    run = read_run(whole_run)
    assert run.wall_seconds == 150
    assert Finding("2.5 minutes", "wall time of all steps") in highlights(analyse(run))


def test_seconds_include_every_restart(whole_run):
    """The manifest of a resumed step has the seconds of its last start alone."""
    lines = [{"kind": "step", "seconds": 40.5}, {"kind": "step", "seconds": 1000.25}, {"kind": "x"}]
    append("".join(json.dumps(line) + "\n" for line in lines))(whole_run / ADAPTED)
    metrics = whole_run / "finetune" / "toy" / "dana" / "metrics.json"
    rows = json.loads(metrics.read_text())["seeds"]
    edit_json(
        metrics, seeds=[{**rows[0], "seconds": 300.0}, {**rows[1], "seconds": 200.5}, *rows[2:]]
    )
    frame = step_table(read_run(whole_run)).frame.set_index("step")
    steps = ["arms/dana/adapted", "finetune/toy/dana", "pool"]
    assert frame.loc[steps, "seconds"].tolist() == [1000.25, 500.5, 10.0]


@pytest.mark.parametrize("damage", ["{", "[]", '{"seconds": 1}'])
def test_a_damaged_record_is_named_by_file_and_line(tmp_path, damage):
    (tmp_path / "training.jsonl").write_text('{"kind": "step"}\n' + damage + "\n")
    with pytest.raises(ArtifactError, match=r"training\.jsonl:2: "):
        recorded_seconds(tmp_path)


def test_settings_have_the_digest_of_every_input(frames):
    frame = setting_table(frames).frame
    assert frame.iloc[0].tolist() == ["pool", "files.web.jsonl", "00"]
    data = frame[frame["setting"] == "task.data.test.jsonl"]
    assert data["value"].unique().tolist() == ["cd" * 16]
    assert data["step"].tolist() == [
        f"finetune/toy/{arm}" for arm in ("base", "dana", "pool", "random")
    ]


def test_texts_of_other_splits_are_said_on_the_first_screen(tmp_path):
    write_results(tmp_path)
    for file in tmp_path.glob("finetune/toy/*/metrics.json"):
        edit_json(
            file,
            split_overlap={"seen": 3, "unseen": 5, "unseen_mean": 0.25},
            untrained_labels=["wren"],
        )
    report = build_report(read_run(tmp_path))
    seen = "Beware: 3 of 8 test texts are also in train or dev; macro_f1 without them: 0.2500."
    unknown = "Beware: no training text has the label wren: it cannot be learnt."
    name = "On toy (not adapted)"
    assert report.notes[1:3] == [f"{name}: {seen}", f"{name}: {unknown}"]


def test_what_was_made_again_since_is_said():
    def model(weights, digest):
        return {
            "kind": "model",
            "fingerprint": digest,
            "depends_on": {"weights": weights, "model": {}},
            "weight_digests": {"model.safetensors": digest},
        }

    def result(digest):
        return {"kind": "finetune", "depends_on": {"model": {"model.safetensors": digest}}}

    stages = {"weights": {"kind": "weights", "fingerprint": "w"}, "adapted": model("w", "a")}
    stages |= {"other": {"kind": "weights", "fingerprint": "o"}, "adapted-other": model("o", "b")}
    stages |= {
        f"finetune/toy/{arm}": result(digest) for arm, digest in (("dana", "a"), ("base", "c"))
    }
    assert list(find_stale(stages)) == []
    assert list(find_stale({**stages, "weights": {"kind": "weights", "fingerprint": "new"}})) == [
        "Beware: adapted was trained on weights that this folder does not have: if they were replaced "
        "since, adapt it again."
    ]
    assert list(find_stale({**stages, "adapted": model("w", "new")})) == [
        "Beware: finetune/toy/dana is of a model that adapted replaced since: fine-tune it again."
    ]


@pytest.mark.parametrize(("p", "p_holm", "is_said"), [(0.03, 0.06, True), (0.2, 0.4, False)])
def test_an_interval_beyond_zero_that_decides_nothing_is_explained(whole_run, p, p_holm, is_said):
    analysis = analyse(read_run(whole_run))
    unclear = {"verdict": "undecided", "p": p, "p_holm": p_holm, "low": 0.01}
    rows = tuple(replace(row, **unclear) for row in analysis.comparisons)
    first, *_ = highlights(replace(analysis, comparisons=rows))
    assert first.meaning.endswith("undecided, as several questions are asked at once") == is_said
    assert "undecided" in first.meaning
