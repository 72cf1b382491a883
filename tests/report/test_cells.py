"""Results of fine-tuning as they are read, and which arms can be compared."""

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from dana.core.artifacts import MANIFEST
from dana.core.errors import ArtifactError
from dana.report.cells import PREDICTIONS, Lineage, adaptations, read_cell, trace, weights
from tests.report.conftest import edit_json


@pytest.fixture
def arms(tmp_path, write):
    """Folders of two arms made alike."""
    write["results"](tmp_path, arms={"base": 0.5, "dana": 0.7})
    return tmp_path / "finetune" / "toy"


def cell(arms, arm):
    return read_cell(arms / arm / "metrics.json", arm)


def unlike(arms):
    return cell(arms, "dana").unlike(cell(arms, "base"))


def edit_predictions(arms, change):
    file = arms / "dana" / PREDICTIONS
    pq.write_table(change(pq.read_table(file)), file)


def test_arms_made_alike_compare(arms):
    assert unlike(arms) == []
    result = cell(arms, "dana")
    assert (result.seeds, result.predictions.answers.shape) == (list(range(8)), (8, 300))
    assert len(result.predictions.kind.labels) == 3


@pytest.mark.parametrize(
    ("settings", "reasons"),
    [
        ({"epochs": 2}, ["epochs 3 against 2"]),
        ({"max_train": 1000}, ["max_train not recorded against 1000"]),
        ({"version": 2}, ["version 1 against 2"]),
        ({"seeds": 6}, ["seeds 0 to 7 against 0 to 5"]),
        ({"epochs": 2, "batch_size": 8}, ["batch_size not recorded against 8", "epochs 3 against 2"]),
    ],
)
def test_unlike_settings_are_named(tmp_path, write, settings, reasons):
    write["results"](tmp_path, arms={"dana": 0.7})
    write["results"](tmp_path, arms={"base": 0.5}, **settings)
    assert unlike(tmp_path / "finetune" / "toy") == reasons


def test_unlike_data_precision_and_metric_are_named(arms):
    manifest = arms / "base" / MANIFEST
    depends_on = json.loads(manifest.read_text())["depends_on"]
    depends_on["task"]["data"] = {"test.jsonl": "ef" * 16}
    edit_json(manifest, depends_on=depends_on, precision="no")
    edit_json(arms / "dana" / MANIFEST, precision="bf16")
    predictions = cell(arms, "dana").predictions
    accuracies = enumerate((predictions.answers == predictions.labels).mean(axis=1).tolist())
    rows = [{"seed": seed, "score": accuracy} for seed, accuracy in accuracies]
    edit_json(arms / "dana" / "metrics.json", metric="accuracy", seeds=rows)
    assert unlike(arms) == ["precision bf16 against no", "test.jsonl differs", "metric accuracy against macro_f1"]


def test_unlike_test_examples_are_named_whatever_their_order(arms):
    answers = cell(arms, "dana").predictions.answers
    edit_predictions(arms, lambda table: table.take(np.random.default_rng(0).permutation(table.num_rows)))
    assert unlike(arms) == []
    np.testing.assert_array_equal(cell(arms, "dana").predictions.answers, answers)
    edit_predictions(arms, lambda table: table.set_column(1, "id", pc.replace_substring(table["id"], "t00", "u00")))
    assert unlike(arms) == ["the test examples differ (20 are in only one)"]


def test_collapse_is_read_from_the_predictions(tmp_path, write):
    """Seed 3 of base answers two texts differently from the rest."""
    write["results"](tmp_path, arms={"base": 0.5}, collapsed_arm="base")
    assert cell(tmp_path / "finetune" / "toy", "base").collapsed_seeds == {3}


def set_value(name, value):
    def change(file):
        table = pq.read_table(file)
        values = table[name].to_pylist()
        values[5] = value
        index = table.column_names.index(name)
        pq.write_table(table.set_column(index, name, pa.array(values, table[name].type)), file)

    return change


@pytest.mark.parametrize(
    ("file", "change"),
    [
        (MANIFEST, lambda file: file.unlink()),
        (PREDICTIONS, lambda file: file.unlink()),
        (PREDICTIONS, lambda file: file.write_bytes(b"junk")),
        (PREDICTIONS, lambda file: file.write_bytes(file.read_bytes()[:-100])),
        (PREDICTIONS, lambda file: pq.write_table(pq.read_table(file).slice(0, 0), file)),
        (PREDICTIONS, lambda file: pq.write_table(pq.read_table(file).slice(1), file)),
        (PREDICTIONS, lambda file: pq.write_table(pq.read_table(file).drop_columns(["id"]), file)),
        (PREDICTIONS, set_value("prediction", 7)),
        (PREDICTIONS, set_value("label", -1)),
        (PREDICTIONS, set_value("prediction", 1)),  # not the predictions of the scores
        ("metrics.json", lambda file: edit_json(file, seeds=None)),
        ("metrics.json", lambda file: edit_json(file, seeds=[{"seed": 0}])),
        ("metrics.json", lambda file: edit_json(file, seeds=[{"seed": 0, "score": None}])),
        ("metrics.json", lambda file: edit_json(file, seeds=[{"seed": 0, "score": 0.5}])),
        ("metrics.json", lambda file: edit_json(file, metric="bleu")),
    ],
)
def test_damaged_results_are_refused_in_one_line_with_the_folder(arms, file, change):
    change(arms / "dana" / file)
    with pytest.raises(ArtifactError) as error:
        cell(arms, "dana")
    assert str(arms / "dana") in str(error.value)
    assert "\n" not in str(error.value)


def manifest(weights_digest: str, parent: str, **settings) -> dict:
    """Manifest of an adapted model."""
    return {
        "kind": "model",
        "files": {
            "model.safetensors": {"digest": weights_digest},
            "__dana__/x.safetensors": {"digest": "no"},
            "config.json": {},
        },
        "depends_on": {"model": {"model.safetensors": parent, "config.json": "c"}, "settings": settings},
    }


def identity(weights_digest: str) -> dict[str, str]:
    return {"model.safetensors": weights_digest, "config.json": "c", "tokenizer.json": "t"}


def test_a_model_is_traced_to_the_start_of_the_run():
    lineages = adaptations([manifest("b", "a", steps=1), manifest("c", "b", steps=2), {"kind": "scores"}])
    model, base = trace(identity("c"), lineages), trace(identity("a"), lineages)
    assert model == Lineage(weights(identity("b")), weights(identity("a")), {"steps": 2})
    assert base == Lineage(frozenset(), weights(identity("a")), None)
    assert not model.roots_differ(base)
    assert model.roots_differ(trace(identity("z"), lineages))
    assert not model.roots_differ(trace({"name": "bert"}, lineages))  # a Hub name may be the same model
    assert trace({"name": "bert"}, lineages).roots_differ(trace({"name": "roberta"}, lineages))
    assert not trace(None, lineages).roots_differ(trace(None, lineages))
    assert trace(identity("a"), adaptations([manifest("a", "a")])).root == weights(identity("a"))  # a circle ends


@pytest.mark.parametrize("values", [{"files": None}, {"files": []}, {"depends_on": None}, {"depends_on": {}}])
def test_a_manifest_without_lineage_is_skipped(values):
    assert adaptations([{**manifest("b", "a"), **values}]) == {}


def test_the_precision_of_an_adaptation_counts():
    content = {**manifest("b", "a", tokens=5), "execution": {"precision": "bf16"}}
    (lineage,) = adaptations([content]).values()
    assert lineage.settings == {"tokens": 5, "precision": "bf16"}
    (older,) = adaptations([{**content, "execution": None}]).values()
    assert older.settings == {"tokens": 5}


def test_adaptations_in_another_precision_or_nested_do_not_compare_except_with_base(arms):
    parent, settings = frozenset({("model.safetensors", "aa")}), {"tokens": 5, "precision": "bf16"}
    model = replace(cell(arms, "dana"), lineage=Lineage(parent, parent, settings))
    other = replace(model, lineage=Lineage(parent, parent, {**settings, "precision": "no"}))
    assert model.unlike(other) == ["adapted with precision bf16 against no"]
    per_seed = replace(model, nested=True)
    assert len(per_seed.unlike(model)) == 1
    assert per_seed.unlike(replace(per_seed, arm="random")) == []
    assert per_seed.unlike(replace(cell(arms, "base"), lineage=Lineage(root=parent))) == []
