"""Fine-tuned arms as they are read, and which of them may be compared."""

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from dana.core.artifacts import MANIFEST, write_json
from dana.core.errors import ArtifactError
from dana.report.cells import PREDICTIONS, Lineage, adaptations, read_cell

OTHER = "its seeds, test examples or macro_f1 are not those of metrics.json"


@pytest.fixture
def arms(tmp_path, write):
    """Folders of two arms made alike."""
    write["results"](tmp_path, arms={"base": 0.5, "dana": 0.7}, collapsed="")
    return tmp_path / "finetune" / "toy"


def unlike(arms):
    return _cell(arms, "dana").unlike(_cell(arms, "base"))


def _cell(arms, arm):
    return read_cell(arms / arm / "metrics.json", arm)


def _edit(file, **values):
    write_json(file, {**json.loads(file.read_text()), **values})


def _predictions(arms, change):
    file = arms / "dana" / PREDICTIONS
    pq.write_table(change(pq.read_table(file)), file)


def test_only_the_model_differs_and_they_are_compared(arms):
    assert unlike(arms) == []
    cell = _cell(arms, "dana")
    assert (cell.seeds, cell.predictions.predicted.shape, len(cell.predictions.kind.labels)) == (
        list(range(8)),
        (8, 300),
        3,
    )


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ({"epochs": 2}, ["epochs 3 against 2"]),
        ({"max_train": 1000}, ["max_train not recorded against 1000"]),
        ({"version": 2}, ["version 1 against 2"]),
        ({"seeds": 6}, ["seeds 0 to 7 against 0 to 5"]),
        ({"epochs": 2, "batch_size": 8}, ["batch_size not recorded against 8", "epochs 3 against 2"]),
    ],
)
def test_what_differs_is_named(tmp_path, write, made, said):
    write["results"](tmp_path, arms={"dana": 0.7}, collapsed="")
    write["results"](tmp_path, arms={"base": 0.5}, collapsed="", **made)
    assert unlike(tmp_path / "finetune" / "toy") == said


def test_other_data_is_named(arms):
    manifest = arms / "base" / MANIFEST
    content = json.loads(manifest.read_text())
    content["depends_on"]["task"]["data"] = {"test.jsonl": "ef" * 16}
    write_json(manifest, content)
    assert unlike(arms) == ["test.jsonl differs"]


def test_another_precision_is_named(arms):
    for arm, precision in (("dana", "bf16"), ("base", "no")):
        _edit(arms / arm / MANIFEST, precision=precision)
    assert unlike(arms) == ["precision bf16 against no"]


def test_other_test_examples_are_named_even_where_nothing_else_tells(arms):
    _predictions(arms, lambda table: table.set_column(1, "id", pc.replace_substring(table["id"], "t00", "u00")))
    assert unlike(arms) == ["the test examples differ (20 are in one alone)"]


def test_examples_in_another_order_are_the_same_examples(arms):
    expected = _cell(arms, "dana").predictions
    _predictions(arms, lambda table: table.take(np.random.default_rng(0).permutation(table.num_rows)))
    assert unlike(arms) == []
    np.testing.assert_array_equal(_cell(arms, "dana").predictions.predicted, expected.predicted)


def test_another_metric_is_named(arms):
    file = arms / "dana" / "metrics.json"
    predicted = _cell(arms, "dana").predictions
    rows = [
        {"seed": seed, "score": float((own == predicted.labels).mean())} for seed, own in enumerate(predicted.predicted)
    ]
    _edit(file, metric="accuracy", seeds=rows)
    assert unlike(arms) == ["metric accuracy against macro_f1"]


def test_a_result_without_its_manifest_or_predictions_is_refused(arms):
    (arms / "base" / MANIFEST).rename(arms / "away")
    with pytest.raises(ArtifactError, match=r"base/__dana__/manifest\.json"):
        _cell(arms, "base")
    (arms / "dana" / PREDICTIONS).unlink()
    with pytest.raises(ArtifactError, match=r"dana/predictions\.parquet: not what dana writes"):
        _cell(arms, "dana")


def test_collapse_is_read_off_the_predictions_not_off_an_old_flag(tmp_path, write):
    """The files say degenerate: false everywhere; seed 3 of base predicts two texts otherwise than the rest."""
    write["results"](tmp_path, arms={"base": 0.5}, collapsed="base")
    file = tmp_path / "finetune" / "toy" / "base" / "metrics.json"
    assert read_cell(file, "base").collapsed == {3}


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"seeds": None}, "not what dana writes"),
        ({"seeds": [{"seed": 0}]}, "no key score"),
        ({"seeds": [{"seed": 0, "score": None}]}, "not what dana writes"),
        ({"metric": "bleu"}, "metric='bleu': must be one of accuracy, micro_f1, macro_f1"),
        ({"seeds": [{"seed": 0, "score": 0.5}]}, "its seeds, test examples or macro_f1 are not those of metrics.json"),
    ],
)
def test_metrics_of_another_shape_are_refused_in_one_line(arms, values, said):
    file = arms / "dana" / "metrics.json"
    content = {**json.loads(file.read_text()), **values}
    file.write_text(json.dumps(content))
    with pytest.raises(ArtifactError, match=said) as caught:
        _cell(arms, "dana")
    assert str(file.parent) in str(caught.value)
    assert "\n" not in str(caught.value)


def _truncated(file):
    file.write_bytes(file.read_bytes()[:-100])


def _column(name, value):
    def change(file):
        table = pq.read_table(file)
        column = table.column_names.index(name)
        values = table[name].to_pylist()
        values[5] = value
        pq.write_table(table.set_column(column, name, pa.array(values, table[name].type)), file)

    return change


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda file: file.write_bytes(b"junk"), "Parquet"),
        (lambda file: file.write_bytes(b""), "Parquet"),
        (_truncated, "Parquet"),
        (lambda file: pq.write_table(pq.read_table(file).slice(0, 0), file), "not what dana writes"),
        (lambda file: pq.write_table(pq.read_table(file)[:900], file), "not what dana writes"),
        (lambda file: pq.write_table(pq.read_table(file).slice(1), file), "not what dana writes"),
        (lambda file: pq.write_table(pq.read_table(file).drop_columns(["id"]), file), r"\(id\)"),
        (_column("prediction", 7), "a class outside 0 to 2"),
        (_column("label", -1), "a class outside 0 to 2"),
        (_column("prediction", 1), OTHER),
    ],
)
def test_predictions_that_are_not_these_are_refused_in_one_line(arms, change, said):
    change(arms / "dana" / PREDICTIONS)
    with pytest.raises(ArtifactError, match=said) as caught:
        _cell(arms, "dana")
    assert str(arms / "dana") in str(caught.value)
    assert "\n" not in str(caught.value)


def test_adapted_arms_of_another_precision_or_nesting_are_not_compared_with_each_other_and_with_base_are(arms):
    parent, made = frozenset({("model.safetensors", "aa")}), {"tokens": 5, "precision": "bf16"}
    adapted = replace(_cell(arms, "dana"), lineage=Lineage(parent, parent, made))
    other = replace(adapted, lineage=Lineage(parent, parent, {**made, "precision": "no"}))
    assert adapted.unlike(other) == ["adapted with precision bf16 against no"]
    nested = replace(adapted, nested=True)
    assert nested.unlike(adapted) == ["one adaptation for all seeds against one a seed"]
    assert nested.unlike(replace(nested, arm="random")) == []
    assert nested.unlike(replace(_cell(arms, "base"), lineage=Lineage(root=parent))) == []


def test_the_precision_of_an_adaptation_is_read_from_its_manifest():
    manifest = {
        "kind": "model",
        "depends_on": {"model": {"model.safetensors": "aa"}, "settings": {"tokens": 5}},
        "files": {"model.safetensors": {"digest": "bb"}},
        "execution": {"precision": "bf16"},
    }
    (found,) = adaptations([manifest]).values()
    assert found.settings == {"tokens": 5, "precision": "bf16"}
    (old,) = adaptations([{**manifest, "execution": None}]).values()
    assert old.settings == {"tokens": 5}
