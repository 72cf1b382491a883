"""A card of text pairs, and one with a template, from fine-tuning to new text labelled."""

import json
import re

import pyarrow.parquet as pq
import pytest
import toy_pairs
import toy_task

from dana.cli.main import main
from dana.core.artifacts import read_manifest
from dana.core.errors import ConfigError
from dana.stages.check_task import check_task
from dana.stages.finetune import FinetuneSettings, finetune_stage
from tests.stages.tiny_training import label

SETTINGS = FinetuneSettings(preset="quick", epochs=2, seeds=1, save=True)
COLUMNS = ["id", "text", "text_pair", "label", "probability"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Fine-tune on pairs, beside their card."""
    folder = tmp_path_factory.mktemp("pairs")
    checkpoint = toy_pairs.write_checkpoint(folder / "base")
    finetune_stage(str(checkpoint), str(toy_pairs.write_task(folder / "tasks")), SETTINGS, folder / "out")
    return folder


def test_predictions_on_the_test_pairs_are_those_of_the_run(run, tmp_path):
    test, out = run / "tasks" / "toy" / "test.jsonl", tmp_path / "x.parquet"
    rows = label(run / "out-model", test)
    run_rows = pq.read_table(run / "out" / "predictions.parquet").to_pylist()
    assert [row["id"] for row in rows] == [row["id"] for row in run_rows]
    assert [list(toy_task.SIGNS).index(row["label"]) for row in rows] == [row["prediction"] for row in run_rows]
    assert [row["probability"] for row in rows] == [max(row["probabilities"]) for row in run_rows]
    assert [row["text_pair"] for row in rows] == [row["hypothesis"] for row in toy_pairs.rows(24, 3)]
    assert main(["predict", str(run / "out-model"), str(test), "--out", str(out)]) == 0
    assert list(rows[0]) == pq.read_schema(out).names == COLUMNS
    manifest = read_manifest(run / "out-model")
    assert (manifest["text_field"], manifest["text_pair_field"]) == ("premise", "hypothesis")
    assert manifest["depends_on"]["task"]["text_pair"] == "hypothesis"
    assert "It reads pairs of texts" in (run / "out-model" / "README.md").read_text()


def test_the_second_field_can_be_named_anew(run, tmp_path):
    pair = toy_pairs.rows(1, 9)[0]
    (tmp_path / "new.jsonl").write_text(json.dumps({"text": pair["premise"], "claim": pair["hypothesis"]}) + "\n")
    (row,) = label(run / "out-model", tmp_path / "new.jsonl", text_pair_field="claim")
    assert (row["text"], row["text_pair"]) == (pair["premise"], pair["hypothesis"])


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"premise": "a"}, "new.jsonl:1: no 'hypothesis'; found premise; --text-pair-field names the field with"),
        ({"hypothesis": "a"}, "new.jsonl:1: no 'premise'; found hypothesis; --text-field names the field"),
        ({"premise": "a", "hypothesis": ["b"]}, "new.jsonl:1: 'hypothesis' is list, not text"),
        ({"premise": "a", "hypothesis": ""}, "new.jsonl:1: the second text is empty"),
    ],
)
def test_new_text_without_a_second_text_is_one_line(run, tmp_path, capsys, record, message):
    (tmp_path / "new.jsonl").write_text(json.dumps(record) + "\n")
    assert main(["predict", str(run / "out-model"), str(tmp_path / "new.jsonl")]) == 2
    (error,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("dana: error:")]
    assert message in error


def test_a_template_goes_with_the_model(checkpoint, tmp_path):
    card = toy_task.write_task(tmp_path / "tasks", template="{head} {body}")
    for seed, split in enumerate(("train", "dev", "test"), 1):
        texts = [(row["label"], row["text"].partition(" ")) for row in toy_task.rows(12, seed)]
        rows = [{"head": text[0], "body": text[2], "label": topic} for topic, text in texts]
        toy_task.write_split(tmp_path / "tasks" / "toy", split, rows)
    finetune_stage(checkpoint, str(card), SETTINGS, tmp_path / "out")
    model, new, notes = tmp_path / "out-model", tmp_path / "new.jsonl", tmp_path / "notes.txt"
    rows = label(model, tmp_path / "tasks" / "toy" / "test.jsonl")
    assert [row["text"] for row in rows] == [row["text"] for row in toy_task.rows(12, 3)]
    new.write_text('{"head": "apple", "text": "a pear"}\n')
    notes.write_text("an owl\n")
    assert label(model, new, text_field="text")[0]["text"] == "a pear"
    assert label(model, notes)[0]["text"] == "an owl"
    assert main(["predict", str(model), str(new)]) == 2
    with pytest.raises(ConfigError, match=re.escape("--text-pair-field='body': must be left out: ")):
        label(model, new, text_pair_field="body")


def test_the_check_of_a_task_of_pairs_looks_at_both(tmp_path):
    card = toy_pairs.write_task(tmp_path)
    rows, train = toy_pairs.rows(24, 3), toy_pairs.rows(48, 1)
    rows[0], rows[1]["premise"] = train[0], train[1]["premise"]
    toy_task.write_split(tmp_path / "toy", "test", rows)
    counts = {
        (row["split"], row["within"], row["kind"]): row["examples"] for row in check_task(str(card)).tables["overlap"]
    }
    assert counts["test", "train", "exact"] == 1
