"""Models that are kept, and new text labelled with them."""

import gzip
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import toy_task
from safetensors.numpy import load_file
from transformers import AutoModelForSequenceClassification

from dana.cli.main import main
from dana.core.artifacts import read_manifest
from dana.core.errors import ArtifactError
from dana.finetuning.loop import run_seed
from dana.stages import finetune, predict
from dana.stages.finetune import FinetuneSettings, finetune_stage
from dana.stages.predict import NewText, predict_stage

SAVE = FinetuneSettings(preset="quick", epochs=4, seeds=3, save=True)


@pytest.fixture(scope="module")
def card(tmp_path_factory):
    return str(toy_task.write_task(tmp_path_factory.mktemp("tasks")))


@pytest.fixture(scope="module")
def run(checkpoint, card, tmp_path_factory):
    """A finished fine-tuning; its model lies beside it."""
    out = tmp_path_factory.mktemp("runs") / "out"
    finetune_stage(checkpoint, card, SAVE, out)
    return out


@pytest.fixture(scope="module")
def model(run):
    return str(run.with_name("out-model"))


def best_of(out):
    rows = json.loads((out / "metrics.json").read_text(encoding="utf-8"))["seeds"]
    return max(rows, key=lambda row: row["dev_score"])["seed"]


def labelled(model, *files, **settings):
    return pa.concat_tables(predict_stage(model, NewText([str(file) for file in files], **settings))).to_pylist()


def test_the_model_of_the_best_seed_is_kept_and_nothing_else(run, model):
    dev_scores = {row["dev_score"] for row in json.loads((run / "metrics.json").read_text())["seeds"]}
    assert len(dev_scores) == 3  # else there is nothing to choose
    manifest = read_manifest(run.with_name("out-model"))
    assert manifest["kind"] == "classifier"
    assert manifest["seeds"] == {"seed": best_of(run)}
    assert sorted(path.name for path in run.parent.iterdir()) == ["out", "out-model"]
    card = (run.with_name("out-model") / "README.md").read_text()
    assert "fine-tuned on toy by dana" in card
    assert "| labels | fruit, metal, bird |" in card
    opened = AutoModelForSequenceClassification.from_pretrained(model)
    assert opened.config.id2label == {0: "fruit", 1: "metal", 2: "bird"}


def test_predictions_on_the_test_split_are_those_of_the_run(run, model, card):
    table = pq.read_table(run / "predictions.parquet").to_pandas()
    own = table[table["seed"] == best_of(run)]
    found = labelled(model, Path(card).parent / "toy" / "test.jsonl")
    assert [row["id"] for row in found] == own["id"].tolist()
    assert [list(toy_task.SIGNS).index(row["label"]) for row in found] == own["prediction"].tolist()
    assert [row["probability"] for row in found] == [max(row) for row in own["probabilities"]]


def test_a_document_of_plain_text_is_what_is_asked_for(model, tmp_path):
    (tmp_path / "notes.txt").write_text("apple pear\nplum apple\n")
    file = tmp_path / "notes.txt"
    assert [len(labelled(model, file, text_documents=kind)) for kind in ("line", "file")] == [2, 1]


def test_a_batch_at_a_time_gives_the_same(model, card, monkeypatch):
    test = Path(card).parent / "toy" / "test.jsonl"
    whole = labelled(model, test)
    monkeypatch.setattr(predict, "BATCH", 7)
    parts = labelled(model, test)
    assert [(row["id"], row["text"], row["label"]) for row in parts] == [
        (row["id"], row["text"], row["label"]) for row in whole
    ]
    assert np.allclose([row["probability"] for row in parts], [row["probability"] for row in whole], atol=1e-6)


def test_without_save_no_model_is_left(checkpoint, card, tmp_path):
    finetune_stage(checkpoint, card, replace(SAVE, save=False, seeds=1), tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_asked_for_afterwards_the_best_seed_alone_is_run_again(checkpoint, card, run, tmp_path, ran):
    finetune_stage(checkpoint, card, replace(SAVE, save=False), tmp_path / "out")
    ran.clear()
    finetune_stage(checkpoint, card, SAVE, tmp_path / "out")
    assert ran == [best_of(tmp_path / "out")]
    weights = [folder / "model.safetensors" for folder in (tmp_path / "out-model", run.with_name("out-model"))]
    assert weights[0].read_bytes() == weights[1].read_bytes()
    finetune_stage(checkpoint, card, SAVE, tmp_path / "out")
    assert len(ran) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "out-model"]


def test_a_killed_run_still_has_the_best_model_and_runs_no_seed_again(
    checkpoint, card, run, tmp_path, ran, monkeypatch
):
    """Stopped before the last seed: what waits is the best so far, and one more is run."""

    def leave(*arguments):
        if arguments[4] == 2:
            raise KeyboardInterrupt
        return run_seed(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(finetune, "run_seed", leave)
        with pytest.raises(KeyboardInterrupt):
            finetune_stage(checkpoint, card, SAVE, tmp_path / "out")
    assert len(list((tmp_path / "out-seeds").glob("model-*"))) == 1
    finetune_stage(checkpoint, card, SAVE, tmp_path / "out")
    assert ran == [2]
    assert read_manifest(tmp_path / "out-model")["seeds"] == {"seed": best_of(run)}


def test_a_better_seed_added_later_takes_the_place(checkpoint, card, run, tmp_path, ran):
    best = best_of(run)
    worse = [seed for seed in range(3) if seed != best][:1]
    finetune_stage(checkpoint, card, replace(SAVE, seeds=worse), tmp_path / "out")
    assert read_manifest(tmp_path / "out-model")["seeds"] == {"seed": worse[0]}
    finetune_stage(checkpoint, card, replace(SAVE, seeds=[*worse, best]), tmp_path / "out")
    assert read_manifest(tmp_path / "out-model")["seeds"] == {"seed": best}
    assert ran == [*worse, best]


def test_a_place_that_is_taken_is_refused_before_any_work(checkpoint, card, tmp_path, ran):
    (tmp_path / "out-model").mkdir()
    (tmp_path / "out-model" / "mine").write_text("x")
    with pytest.raises(ArtifactError, match="out-model: not empty and not made by dana"):
        finetune_stage(checkpoint, card, SAVE, tmp_path / "out")
    finetune_stage(checkpoint, card, replace(SAVE, seeds=1), tmp_path / "other")
    with pytest.raises(ArtifactError, match=r"other-model was made from other settings \(preset\.epochs: 4 there, 1"):
        finetune_stage(checkpoint, card, replace(SAVE, epochs=1), tmp_path / "other")
    assert ran == [0]


TEXTS = ["an apple and a pear", "iron and zinc word3", "the owl saw a wren"]


def write_jsonl(folder):
    path = folder / "new.jsonl.gz"
    path.write_bytes(gzip.compress("".join(json.dumps({"text": text}) + "\n" for text in TEXTS).encode()))
    return path


def write_csv(folder):
    path = folder / "new.csv"
    path.write_text("id,text\n" + "".join(f"c{place},{text}\n" for place, text in enumerate(TEXTS)))
    return path


def write_parquet(folder):
    path = folder / "new.parquet"
    pq.write_table(pa.table({"text": TEXTS}), path)
    return path


def write_txt(folder):
    path = folder / "new.txt"
    path.write_text("\n".join(TEXTS) + "\n")
    return path


def test_texts_that_are_cut_are_counted(model, tmp_path, caplog):
    path = tmp_path / "new.jsonl"
    path.write_text("".join(json.dumps({"text": "word1 " * count}) + "\n" for count in (3, 23, 500)))
    with caplog.at_level("INFO", logger="dana"):
        labelled(model, path)
    assert "2 of 3 texts fill the model's 24 tokens" in caplog.text


def test_fields_can_be_named(model, tmp_path):
    path = tmp_path / "new.jsonl"
    path.write_text(json.dumps({"key": 7, "abstract": TEXTS[0], "text": TEXTS[1]}) + "\n")
    (row,) = labelled(model, path, text_field="abstract", id_field="key")
    assert (row["id"], row["text"]) == ("7", TEXTS[0])
    path.write_text(json.dumps({"meta": {"key": 8}, "paper": {"abstract": TEXTS[2]}}) + "\n")
    (row,) = labelled(model, path, text_field="paper.abstract", id_field="meta.key")
    assert (row["id"], row["text"]) == ("8", TEXTS[2])


def test_the_field_the_model_was_trained_on_comes_first(checkpoint, tmp_path):
    card = toy_task.write_task(tmp_path / "tasks", text="sentence", id="key")
    for split, seed in (("train", 1), ("dev", 2), ("test", 3)):
        rows = [
            {"sentence": row["text"], "label": row["label"], "key": key}
            for key, row in enumerate(toy_task.rows(12, seed))
        ]
        toy_task.write_split(tmp_path / "tasks" / "toy", split, rows)
    finetune_stage(checkpoint, str(card), replace(SAVE, seeds=1, epochs=1), tmp_path / "out")
    (tmp_path / "new.jsonl").write_text(json.dumps({"text": "other", "sentence": TEXTS[2], "key": 5, "id": 6}) + "\n")
    (row,) = labelled(str(tmp_path / "out-model"), tmp_path / "new.jsonl")
    assert (row["id"], row["text"]) == ("5", TEXTS[2])


@pytest.mark.parametrize("suffix", ["parquet", "jsonl"])
def test_the_command_writes_a_file_and_counts_texts(model, tmp_path, capsys, suffix):
    out = tmp_path / "deep" / f"labelled.{suffix}"
    assert main(["predict", model, str(write_csv(tmp_path)), "--out", str(out)]) == 0
    read = pq.read_table(out).to_pylist() if suffix == "parquet" else [json.loads(line) for line in out.open()]
    assert [list(row) for row in read] == [["id", "text", "label", "probability"]] * 3
    assert capsys.readouterr().out == f"written: {out} (3 texts)\n"
    assert [path.name for path in out.parent.iterdir()] == [out.name]


def test_without_a_file_lines_go_to_standard_output(model, tmp_path, capsys):
    assert main(["predict", model, str(write_txt(tmp_path))]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["text"] for row in rows] == TEXTS
    assert all(1 / 3 <= row["probability"] <= 1 for row in rows)


BAD = {
    "empty.jsonl": ("", "empty.jsonl:1: the file is empty"),
    "broken.jsonl": ('{"text": "fine"}\n{"text": \n', "broken.jsonl:2: not JSON"),
    "other.jsonl": ('{"body": "x"}\n', "other.jsonl:1: no 'text'; found body; --text-field names the field"),
    "number.jsonl": ('{"text": 3}\n', "number.jsonl:1: 'text' is int, not text"),
    "blank.jsonl": ('{"text": "  "}\n', "blank.jsonl:1: the text is empty"),
    "odd.docx": ("x", "unknown format '.docx'"),
    "missing.txt": (None, "missing.txt: no such file or folder"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_labelled_is_one_line_and_nothing_is_written(model, tmp_path, capsys, name):
    content, says = BAD[name]
    if content is not None:
        (tmp_path / name).write_text(content)
    assert main(["predict", model, str(tmp_path / name), "--out", str(tmp_path / "out" / "x.parquet")]) == 2
    errors = [line for line in capsys.readouterr().err.splitlines() if line.startswith("dana: error:")]
    assert len(errors) == 1
    assert says in errors[0]
    assert not (tmp_path / "out").exists()


def test_bad_records_can_be_left_out_but_not_all_of_them(model, tmp_path, capsys):
    (tmp_path / "mixed.jsonl").write_text('{"text": "an apple"}\n{"text": ""}\nnonsense\n{"text": "an owl"}\n')
    found = labelled(model, tmp_path / "mixed.jsonl", on_bad_record="skip")
    assert [row["id"] for row in found] == ["mixed-1", "mixed-4"]
    (tmp_path / "bad.jsonl").write_text("nonsense\n")
    assert main(["predict", model, str(tmp_path / "bad.jsonl"), "--on-bad-record", "skip"]) == 2
    assert "bad.jsonl: no text to label; 1 bad record(s)" in capsys.readouterr().err


def test_an_error_in_the_middle_leaves_the_file_that_was_there(model, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(predict, "BATCH", 1)
    (tmp_path / "new.jsonl").write_text('{"text": "an apple"}\nnonsense\n')
    (tmp_path / "out.jsonl").write_text("before")
    assert main(["predict", model, str(tmp_path / "new.jsonl"), "--out", str(tmp_path / "out.jsonl")]) == 2
    assert (tmp_path / "out.jsonl").read_text() == "before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new.jsonl", "out.jsonl"]


def test_a_model_that_is_no_classifier_says_how_to_make_one(checkpoint, tmp_path, capsys):
    assert main(["predict", checkpoint, str(write_txt(tmp_path))]) == 2
    assert "holds BertForMaskedLM, not a sequence classifier; make one with: dana finetune --save" in (
        capsys.readouterr().err
    )


@pytest.mark.slow
def test_two_processes_keep_the_model_that_one_keeps(checkpoint, card, run, model, tmp_path):
    """The best seed is run by the second process: it is the second of the list."""
    first, last = sorted({0, 1, 2} - {best_of(run)})
    recipe = str(Path(__file__).parent.parent.parent / "recipes" / "finetune.py")
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", recipe]
    arguments = ["--model", checkpoint, "--task-card", card, "--preset", "quick", "--out", str(tmp_path / "out")]
    arguments += ["--set", "finetune.epochs=4", f"finetune.seeds=[{first},{best_of(run)},{last}]", "--save"]
    done = subprocess.run(
        [*launch, *arguments], capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 0, done.stderr
    assert "run again" not in done.stderr
    assert read_manifest(tmp_path / "out-model")["seeds"] == {"seed": best_of(run)}
    ours, theirs = (load_file(folder / "model.safetensors") for folder in (tmp_path / "out-model", Path(model)))
    assert all(np.allclose(ours[name], theirs[name], atol=1e-5) for name in theirs)
