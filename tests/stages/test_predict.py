"""Models that are kept, and new text, pairs and templates labelled with them."""

import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import toy_pairs
import toy_task
from safetensors.numpy import load_file
from transformers import AutoModelForSequenceClassification

from dana.cli.main import main
from dana.core.artifacts import read_json, read_manifest
from dana.core.errors import ArtifactError, ConfigError
from dana.finetuning.loop import run_seed
from dana.finetuning.saved import open_classifier
from dana.stages import finetune_seed, predict
from dana.stages.check_task import check_task
from dana.stages.finetune import FinetuneSettings, finetune_stage
from dana.stages.predict import _round
from tests.stages.tiny_training import REPOSITORY, label

SAVE = FinetuneSettings(preset="quick", epochs=4, seeds=3, save=True)
TEXTS = ["an apple and a pear", "iron and zinc word3", "the owl saw a wren"]


@pytest.fixture(scope="module")
def card(tmp_path_factory):
    return str(toy_task.write_task(tmp_path_factory.mktemp("tasks")))


@pytest.fixture(scope="module")
def run(checkpoint, card, tmp_path_factory):
    """Fine-tune; the model lies beside the result."""
    out = tmp_path_factory.mktemp("runs") / "out"
    finetune_stage(checkpoint, card, SAVE, out)
    return out


@pytest.fixture(scope="module")
def model(run):
    return str(run.with_name("out-model"))


@pytest.fixture(scope="module")
def best(run):
    """Return the seed of the best development score."""
    rows = json.loads((run / "metrics.json").read_text(encoding="utf-8"))["seeds"]
    assert len({row["dev_score"] for row in rows}) == 3  # else there is nothing to choose
    return max(rows, key=lambda row: row["dev_score"])["seed"]


def seed_of(out):
    return read_manifest(out.with_name(f"{out.name}-model"))["depends_on"]["seed"]


def write_lines(path, *rows):
    path.write_text(
        "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows)
    )
    return path


def test_the_model_of_the_best_seed_is_kept_and_nothing_else(run, model, best):
    assert read_manifest(Path(model))["kind"] == "classifier"
    assert seed_of(run) == best
    assert sorted(path.name for path in run.parent.iterdir()) == ["out", "out-model", "out-seeds"]
    assert not list(run.parent.glob("out-seeds/**/weights.safetensors"))
    text = (Path(model) / "README.md").read_text()
    assert "fine-tuned on toy by dana" in text
    assert "| labels | fruit, metal, bird |" in text
    config = AutoModelForSequenceClassification.from_pretrained(model).config
    assert config.id2label == {0: "fruit", 1: "metal", 2: "bird"}


def test_predictions_on_the_test_split_are_those_of_the_run_in_any_batches(
    run, model, best, card, monkeypatch
):
    table = pq.read_table(run / "predictions.parquet").to_pandas()
    run_rows = table[table["seed"] == best]
    rows = label(model, Path(card).parent / "toy" / "test.jsonl")
    assert [row["id"] for row in rows] == run_rows["id"].tolist()
    assert [list(toy_task.SIGNS).index(row["label"]) for row in rows] == run_rows[
        "prediction"
    ].tolist()
    assert [row["probability"] for row in rows] == [max(row) for row in run_rows["probabilities"]]
    monkeypatch.setattr(predict, "BATCH", 7)
    parts = label(model, Path(card).parent / "toy" / "test.jsonl")
    assert parts == [
        {**row, "probability": pytest.approx(row["probability"], abs=1e-6)} for row in rows
    ]


def test_asked_for_afterwards_the_best_seed_alone_is_run_again(
    checkpoint, card, model, best, tmp_path, ran
):
    out = tmp_path / "out"
    finetune_stage(checkpoint, card, replace(SAVE, save=False), out)
    assert not (tmp_path / "out-model").exists()
    ran.clear()
    for _ in range(2):
        finetune_stage(checkpoint, card, SAVE, out)
        assert ran == [best]
    weights = [folder / "model.safetensors" for folder in (tmp_path / "out-model", Path(model))]
    assert weights[0].read_bytes() == weights[1].read_bytes()


def test_a_killed_run_still_has_the_best_model(checkpoint, card, best, tmp_path, ran, monkeypatch):
    """Stopped before the last seed: the weights of the others wait, and one more is run."""

    def leave(*arguments):
        if arguments[4] == 2:
            raise KeyboardInterrupt
        return run_seed(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(finetune_seed, "run_seed", leave)
        with pytest.raises(KeyboardInterrupt):
            finetune_stage(checkpoint, card, SAVE, tmp_path / "out")
    assert len(list(tmp_path.glob("out-seeds/0/*/weights.safetensors"))) == 2
    finetune_stage(checkpoint, card, SAVE, tmp_path / "out")
    assert ran == [2]
    assert seed_of(tmp_path / "out") == best


def test_a_better_seed_added_later_replaces_the_model_and_other_settings_do_not(
    checkpoint, card, best, tmp_path, ran
):
    out, worse = tmp_path / "out", (best + 1) % 3
    finetune_stage(checkpoint, card, replace(SAVE, seeds=[worse]), out)
    assert seed_of(out) == worse
    finetune_stage(checkpoint, card, replace(SAVE, seeds=[worse, best]), out)
    assert seed_of(out) == best
    with pytest.raises(
        ArtifactError, match=r"out-model was made from other settings \(preset\.epochs: 4 there, 1"
    ):
        finetune_stage(checkpoint, card, replace(SAVE, epochs=1), out)
    (tmp_path / "mine-model").mkdir()
    finetune_seed.check_model_folder(
        tmp_path / "mine-model", None
    )  # an empty folder may be written to
    (tmp_path / "mine-model" / "notes").write_text("x")
    with pytest.raises(ArtifactError, match="mine-model: not empty and not made by dana"):
        finetune_stage(checkpoint, card, SAVE, tmp_path / "mine")
    assert ran == [worse, best]


def test_fields_and_documents_are_what_is_asked_for(model, tmp_path, caplog):
    new, notes = tmp_path / "new.jsonl", write_lines(tmp_path / "notes.txt", *TEXTS[:2])
    assert [len(label(model, notes, text_documents=kind)) for kind in ("line", "file")] == [2, 1]
    write_lines(new, {"key": 7, "abstract": TEXTS[0], "text": TEXTS[1]})
    (row,) = label(model, new, text_field="abstract", id_field="key")
    assert (row["id"], row["text"]) == ("7", TEXTS[0])
    write_lines(new, {"meta": {"key": 8}, "paper": {"abstract": TEXTS[2]}})
    (row,) = label(model, new, text_field="paper.abstract", id_field="meta.key")
    assert (row["id"], row["text"]) == ("8", TEXTS[2])
    write_lines(new, *({"text": "word1 " * count} for count in (3, 23, 500)))
    with caplog.at_level("INFO", logger="dana"):
        label(model, new)
    assert "2 of 3 texts fill the model's 24 tokens" in caplog.text


def test_the_field_the_model_was_trained_on_comes_first(checkpoint, tmp_path):
    card = toy_task.write_task(tmp_path / "tasks", text="sentence", id="key")
    for seed, split in enumerate(("train", "dev", "test"), 1):
        rows = [
            {**row, "sentence": row["text"], "key": n}
            for n, row in enumerate(toy_task.rows(12, seed))
        ]
        toy_task.write_split(tmp_path / "tasks" / "toy", split, rows)
    finetune_stage(checkpoint, str(card), replace(SAVE, seeds=1, epochs=1), tmp_path / "out")
    record = {"text": "other", "sentence": TEXTS[2], "key": 5, "id": 6}
    (row,) = label(tmp_path / "out-model", write_lines(tmp_path / "new.jsonl", record))
    assert (row["id"], row["text"]) == ("5", TEXTS[2])


@pytest.mark.parametrize("suffix", ["parquet", "jsonl", None])
def test_the_command_writes_a_file_or_lines_to_standard_output(model, tmp_path, capsys, suffix):
    new, out = write_lines(tmp_path / "new.txt", *TEXTS), tmp_path / "deep" / f"labels.{suffix}"
    assert main(["predict", model, str(new), *(["--out", str(out)] if suffix else [])]) == 0
    stdout = capsys.readouterr().out
    if suffix:
        assert stdout == f"written: {out} (3 texts)\n"
        assert [path.name for path in out.parent.iterdir()] == [out.name]
    lines = out.read_text() if suffix == "jsonl" else stdout
    rows = (
        pq.read_table(out).to_pylist()
        if suffix == "parquet"
        else [json.loads(line) for line in lines.splitlines()]
    )
    assert [list(row) for row in rows] == [["id", "text", "label", "probability"]] * 3
    assert [row["text"] for row in rows] == TEXTS
    assert all(1 / 3 <= row["probability"] <= 1 for row in rows)


def test_bad_records_can_be_left_out_but_not_all_of_them(model, tmp_path, monkeypatch, capsys):
    half_bad = write_lines(
        tmp_path / "mixed.jsonl", {"text": "an apple"}, {"text": ""}, "nonsense", {"text": "an owl"}
    )
    bad = write_lines(tmp_path / "bad.jsonl", "nonsense")
    assert [row["id"] for row in label(model, half_bad, on_bad_record="skip")] == [
        "mixed-1",
        "mixed-4",
    ]
    assert main(["predict", model, str(bad), "--on-bad-record", "skip"]) == 2
    assert "bad.jsonl: no text to label; 1 bad record(s)" in capsys.readouterr().err
    monkeypatch.setattr(predict, "BATCH", 1)
    out = write_lines(tmp_path / "out.jsonl", "before")
    assert main(["predict", model, str(half_bad), "--out", str(out)]) == 2
    assert out.read_text() == "before\n", "an error in the middle leaves the file that was there"
    assert {path.name for path in tmp_path.iterdir()} == {"mixed.jsonl", "bad.jsonl", "out.jsonl"}


BRIEF = FinetuneSettings(preset="quick", epochs=2, seeds=1, save=True)
COLUMNS = ["id", "text", "text_pair", "label", "probability", "warning"]


@pytest.fixture(scope="module")
def pairs_run(tmp_path_factory):
    """Fine-tune on pairs, beside their card."""
    folder = tmp_path_factory.mktemp("pairs")
    checkpoint = toy_pairs.write_checkpoint(folder / "base")
    finetune_stage(
        str(checkpoint), str(toy_pairs.write_task(folder / "tasks")), BRIEF, folder / "out"
    )
    return folder


def test_predictions_on_pairs_are_those_of_the_run_and_their_second_field_has_any_name(
    pairs_run, tmp_path
):
    test, out = pairs_run / "tasks" / "toy" / "test.jsonl", tmp_path / "x.parquet"
    rows = label(pairs_run / "out-model", test)
    run_rows = pq.read_table(pairs_run / "out" / "predictions.parquet").to_pylist()
    assert [row["id"] for row in rows] == [row["id"] for row in run_rows]
    assert [list(toy_task.SIGNS).index(row["label"]) for row in rows] == [
        row["prediction"] for row in run_rows
    ]
    assert [row["probability"] for row in rows] == [max(row["probabilities"]) for row in run_rows]
    assert [row["text_pair"] for row in rows] == [
        row["hypothesis"] for row in toy_pairs.rows(24, 3)
    ]
    assert main(["predict", str(pairs_run / "out-model"), str(test), "--out", str(out)]) == 0
    assert list(rows[0]) == pq.read_schema(out).names == COLUMNS, "the last: it collapsed"
    columns = read_json(pairs_run / "out-model" / "result.json")["columns"]
    assert (columns["text"], columns["text_pair"]) == ("premise", "hypothesis")
    manifest = read_manifest(pairs_run / "out-model")
    assert manifest["depends_on"]["task"]["text_pair"] == "hypothesis"
    assert "It reads pairs of texts" in (pairs_run / "out-model" / "README.md").read_text()
    pair = toy_pairs.rows(1, 9)[0]
    new = write_lines(
        tmp_path / "new.jsonl", {"text": pair["premise"], "claim": pair["hypothesis"]}
    )
    (row,) = label(pairs_run / "out-model", new, text_pair_field="claim")
    assert (row["text"], row["text_pair"]) == (pair["premise"], pair["hypothesis"])


@pytest.mark.parametrize(
    ("model_of", "content", "message"),
    [
        ("run", "", "1: the file is empty"),
        ("run", '{"text": "fine"}\n{"text": \n', "2: not JSON"),
        ("run", '{"body": "x"}\n', "1: no 'text'; found body; --text-field names the field"),
        ("run", '{"text": 3}\n', "1: 'text' is int, not text"),
        ("run", '{"text": null}\n', "1: 'text' is null, not text"),
        ("run", '{"text": "  "}\n', "1: the text is empty"),
        (
            "pairs",
            '{"premise": "a"}',
            "1: no 'hypothesis'; found premise; --text-pair-field names the field",
        ),
        (
            "pairs",
            '{"hypothesis": "a"}',
            "1: no 'premise'; found hypothesis; --text-field names the field",
        ),
        ("pairs", '{"premise": "a", "hypothesis": ["b"]}', "1: 'hypothesis' is list, not text"),
        ("pairs", '{"premise": "a", "hypothesis": ""}', "1: the second text is empty"),
    ],
)
def test_what_cannot_be_labelled_is_one_line(
    model, pairs_run, tmp_path, capsys, model_of, content, message
):
    (tmp_path / "new.jsonl").write_text(content)
    command = [
        "predict",
        model if model_of == "run" else str(pairs_run / "out-model"),
        str(tmp_path / "new.jsonl"),
    ]
    assert main([*command, "--out", str(tmp_path / "out" / "x.parquet")]) == 2
    (error,) = [
        line for line in capsys.readouterr().err.splitlines() if line.startswith("dana: error:")
    ]
    assert f"new.jsonl:{message}" in error
    assert not (tmp_path / "out").exists()


def test_a_lone_surrogate_in_an_id_is_no_letter(model, tmp_path):
    write_lines(tmp_path / "new.jsonl", {"id": "\ud800a", "text": "an iron word0"})
    (rows,) = predict.predict_stage(model, predict.NewText([str(tmp_path / "new.jsonl")]))
    assert rows["id"].to_pylist() == ["a"]


@pytest.mark.parametrize(
    "change", [{"id2label": {"0": "a", "1": "b", "5": "c"}}, {"architectures": [1]}]
)
def test_a_classifier_with_an_odd_configuration_is_refused(model, tmp_path, change):
    copy = shutil.copytree(model, tmp_path / "copy", ignore=shutil.ignore_patterns("__dana__"))
    open_classifier(str(copy))
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**config, **change}))
    with pytest.raises(ArtifactError):
        open_classifier(str(copy))


def test_a_template_goes_with_the_model(checkpoint, tmp_path):
    card = toy_task.write_task(tmp_path / "tasks", template="{head} {body}")
    for seed, split in enumerate(("train", "dev", "test"), 1):
        texts = [(row["label"], row["text"].partition(" ")) for row in toy_task.rows(12, seed)]
        rows = [{"head": text[0], "body": text[2], "label": topic} for topic, text in texts]
        toy_task.write_split(tmp_path / "tasks" / "toy", split, rows)
    finetune_stage(checkpoint, str(card), BRIEF, tmp_path / "out")
    model, new, notes = tmp_path / "out-model", tmp_path / "new.jsonl", tmp_path / "notes.txt"
    rows = label(model, tmp_path / "tasks" / "toy" / "test.jsonl")
    assert [row["text"] for row in rows] == [row["text"] for row in toy_task.rows(12, 3)]
    new.write_text('{"head": "apple", "text": "a pear"}\n')
    notes.write_text("an owl\n")
    assert label(model, new, text_field="text")[0]["text"] == "a pear"
    assert label(model, notes)[0]["text"] == "an owl"
    assert main(["predict", str(model), str(new)]) == 2
    with pytest.raises(
        ConfigError, match=re.escape("--text-pair-field='body': must be left out: ")
    ):
        label(model, new, text_pair_field="body")


def test_the_check_of_a_task_of_pairs_looks_at_both(tmp_path):
    card = toy_pairs.write_task(tmp_path)
    rows, train = toy_pairs.rows(24, 3), toy_pairs.rows(48, 1)
    rows[0], rows[1]["premise"] = train[0], train[1]["premise"]
    toy_task.write_split(tmp_path / "toy", "test", rows)
    rows = check_task(str(card)).tables["overlap"]
    counts = {(row["split"], row["within"], row["kind"]): row["examples"] for row in rows}
    assert counts["test", "train", "exact"] == 1


@pytest.mark.slow
def test_two_processes_keep_the_model_that_one_keeps(checkpoint, card, run, model, best, tmp_path):
    """The best seed is run by the second process: it is the second of the list."""
    first, last = sorted({0, 1, 2} - {best})
    recipe = str(REPOSITORY / "recipes" / "finetune.py")
    launch = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc_per_node",
        "2",
        recipe,
    ]
    arguments = [
        "--model",
        checkpoint,
        "--task",
        card,
        "--preset",
        "quick",
        "--out",
        str(tmp_path / "out"),
    ]
    arguments += ["--set", "finetune.epochs=4", f"finetune.seeds=[{first},{best},{last}]", "--save"]
    process = subprocess.run([*launch, *arguments], capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    assert "run again" not in process.stderr
    assert seed_of(tmp_path / "out") == best
    two, one = (
        load_file(folder / "model.safetensors") for folder in (tmp_path / "out-model", Path(model))
    )
    assert all(np.allclose(two[name], one[name], atol=1e-5) for name in one)


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (1.2149999e-07, 1.215e-07),
        (-1.2149999e-07, -1.215e-07),
        (0.12345678, 0.123457),
        (0.0, 0.0),
        (1234.5, 1234.5),
        ([0.00012345678], [0.000123457]),
    ],
)
def test_small_numbers_keep_their_digits(value, written):
    assert _round(value) == pytest.approx(written, rel=1e-5)
