"""A card of text pairs, and one with a template, from fine-tuning to new text labelled."""

import json
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import toy_pairs
import toy_task
from transformers import pipeline

from dana.cli.main import main
from dana.core.artifacts import read_manifest
from dana.core.errors import ConfigError
from dana.stages.check_task import check_task
from dana.stages.finetune import FinetuneSettings, finetune_stage
from dana.stages.predict import NewText, predict_stage

SETTINGS = FinetuneSettings(preset="quick", epochs=2, seeds=1, save=True)


@pytest.fixture(scope="module")
def pair_checkpoint(tmp_path_factory):
    return str(toy_pairs.write_checkpoint(tmp_path_factory.mktemp("pairs") / "base"))


@pytest.fixture(scope="module")
def tuned(pair_checkpoint, tmp_path_factory):
    """A finished fine-tuning on pairs, its card beside it."""
    folder = tmp_path_factory.mktemp("runs")
    card = toy_pairs.write_task(folder / "tasks")
    finetune_stage(pair_checkpoint, str(card), SETTINGS, folder / "out")
    return folder


def labelled(model, *files, **settings):
    return pa.concat_tables(predict_stage(str(model), NewText([str(file) for file in files], **settings))).to_pylist()


def test_predictions_on_the_test_pairs_are_those_of_the_run(tuned):
    found = labelled(tuned / "out-model", tuned / "tasks" / "toy" / "test.jsonl")
    own = pq.read_table(tuned / "out" / "predictions.parquet").to_pylist()
    assert [row["id"] for row in found] == [row["id"] for row in own]
    assert [list(toy_task.SIGNS).index(row["label"]) for row in found] == [row["prediction"] for row in own]
    assert [row["probability"] for row in found] == [max(row["probabilities"]) for row in own]
    assert [row["text_pair"] for row in found] == [row["hypothesis"] for row in toy_pairs.rows(24, 3)]
    assert list(found[0]) == ["id", "text", "text_pair", "label", "probability"]


def test_a_pipeline_of_transformers_gives_the_same(tuned):
    rows = toy_pairs.rows(24, 3)[:5]
    given = [{"text": row["premise"], "text_pair": row["hypothesis"]} for row in rows]
    found = pipeline("text-classification", str(tuned / "out-model"))(given, truncation=True)
    mine = labelled(tuned / "out-model", tuned / "tasks" / "toy" / "test.jsonl")[:5]
    assert [row["label"] for row in found] == [row["label"] for row in mine]
    assert [row["score"] for row in found] == pytest.approx([row["probability"] for row in mine], abs=1e-5)


def test_manifest_and_readme_name_the_second_field(tuned):
    manifest = read_manifest(tuned / "out-model")
    assert (manifest["text_field"], manifest["text_pair_field"]) == ("premise", "hypothesis")
    assert manifest["depends_on"]["task"]["text_pair"] == "hypothesis"
    assert "It reads pairs of texts" in (tuned / "out-model" / "README.md").read_text()


def test_the_second_field_can_be_named_anew(tuned, tmp_path):
    row = toy_pairs.rows(1, 9)[0]
    (tmp_path / "new.jsonl").write_text(json.dumps({"text": row["premise"], "claim": row["hypothesis"]}) + "\n")
    (found,) = labelled(tuned / "out-model", tmp_path / "new.jsonl", text_pair_field="claim")
    assert (found["text"], found["text_pair"]) == (row["premise"], row["hypothesis"])


@pytest.mark.parametrize(
    ("record", "says"),
    [
        ({"premise": "a"}, "new.jsonl:1: no 'hypothesis'; found premise; --text-pair-field names the field with"),
        ({"hypothesis": "a"}, "new.jsonl:1: no 'premise'; found hypothesis; --text-field names the field"),
        ({"premise": "a", "hypothesis": ["b"]}, "new.jsonl:1: 'hypothesis' is list, not text"),
        ({"premise": "a", "hypothesis": ""}, "new.jsonl:1: the second text is empty"),
    ],
)
def test_new_text_without_a_second_text_is_one_line(tuned, tmp_path, capsys, record, says):
    (tmp_path / "new.jsonl").write_text(json.dumps(record) + "\n")
    assert main(["predict", str(tuned / "out-model"), str(tmp_path / "new.jsonl")]) == 2
    errors = [line for line in capsys.readouterr().err.splitlines() if line.startswith("dana: error:")]
    assert len(errors) == 1
    assert says in errors[0]


def test_the_command_writes_pairs_to_parquet(tuned, tmp_path):
    out, test = tmp_path / "x.parquet", tuned / "tasks" / "toy" / "test.jsonl"
    assert main(["predict", str(tuned / "out-model"), str(test), "--out", str(out)]) == 0
    assert pq.read_schema(out).names == ["id", "text", "text_pair", "label", "probability"]


def test_a_template_goes_with_the_model(checkpoint, tmp_path):
    card = toy_task.write_task(tmp_path / "tasks", template="{head} {body}")
    for split, seed in (("train", 1), ("dev", 2), ("test", 3)):
        words = [(row, row["text"].split()) for row in toy_task.rows(12, seed)]
        rows = [{"head": text[0], "body": " ".join(text[1:]), "label": row["label"]} for row, text in words]
        toy_task.write_split(tmp_path / "tasks" / "toy", split, rows)
    finetune_stage(checkpoint, str(card), SETTINGS, tmp_path / "out")
    model = tmp_path / "out-model"
    found = labelled(model, tmp_path / "tasks" / "toy" / "test.jsonl")
    assert [row["text"] for row in found] == [row["text"] for row in toy_task.rows(12, 3)]
    (tmp_path / "new.jsonl").write_text('{"head": "apple", "text": "a pear"}\n')
    assert labelled(model, tmp_path / "new.jsonl", text_field="text")[0]["text"] == "a pear"
    (tmp_path / "notes.txt").write_text("an owl\n")
    assert labelled(model, tmp_path / "notes.txt")[0]["text"] == "an owl"
    assert main(["predict", str(model), str(tmp_path / "new.jsonl")]) == 2
    with pytest.raises(ConfigError, match=re.escape("--text-pair-field='body': must be left out: ")):
        labelled(model, tmp_path / "new.jsonl", text_pair_field="body")


def test_the_check_of_a_task_of_pairs_looks_at_both(tmp_path):
    card = toy_pairs.write_task(tmp_path)
    rows = toy_pairs.rows(24, 3)
    rows[0] = toy_pairs.rows(48, 1)[0]
    rows[1]["premise"] = toy_pairs.rows(48, 1)[1]["premise"]
    toy_task.write_split(tmp_path / "toy", "test", rows)
    check = check_task(str(card))
    found = {(row["split"], row["within"], row["kind"]): row["examples"] for row in check.tables["overlap"]}
    assert found["test", "train", "exact"] == 1
