"""Results of fine-tuning as they are read, and which arms can be compared."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from dana.core.artifacts import MANIFEST, write_json
from dana.core.errors import ArtifactError
from dana.report.arm_results import (
    PREDICTIONS,
    Lineage,
    lineages_by_weights,
    read_arm_result,
    read_baseline,
    trace,
    weight_digests,
)
from dana.report.files import RESULTS
from dana.report.verdicts import measure_pair
from dana.tasks.kinds.multi_label import MultiLabel
from dana.tasks.kinds.single_label import SingleLabel
from tests.report.conftest import commit, edit_json, write_results


def arm_result(run, arm):
    return read_arm_result(run / "finetune" / "toy" / arm / RESULTS, arm)


def unlike(run):
    return arm_result(run, "dana").unlike(arm_result(run, "base"))


@pytest.fixture
def arms(shared_run, tmp_path):
    """A run with results alone, of arms made alike."""
    shutil.copytree(shared_run / "finetune", tmp_path / "finetune")
    return tmp_path


UNLIKE = [({}, []), ({"epochs": 2}, ["epochs 3 against 2"])]
UNLIKE += [
    ({"max_train": 1000}, ["max_train not recorded against 1000"]),
    ({"version": 2}, ["version 1 against 2"]),
]
UNLIKE += [({"seeds": 6}, ["seeds 0 to 7 against 0 to 5"])]
UNLIKE += [
    ({"epochs": 2, "batch_size": 8}, ["batch_size not recorded against 8", "epochs 3 against 2"])
]


@pytest.mark.parametrize(("settings", "reasons"), UNLIKE)
def test_unlike_settings_are_named(shared_run, tmp_path, settings, reasons):
    write_results(tmp_path, arms={"base": 0.5}, **settings)
    assert arm_result(shared_run, "dana").unlike(arm_result(tmp_path, "base")) == reasons


def test_unlike_data_precision_and_metric_are_named(arms):
    base, dana = (arms / "finetune" / "toy" / arm for arm in ("base", "dana"))
    depends_on = json.loads((base / MANIFEST).read_text())["depends_on"]
    depends_on["task"]["data"] = {"test.jsonl": "ef" * 16}
    edit_json(base / MANIFEST, depends_on=depends_on, precision="no")
    edit_json(dana / MANIFEST, precision="bf16")
    predictions = arm_result(arms, "dana").predictions
    accuracies = (predictions.predicted == predictions.labels).mean(axis=1).tolist()
    rows = [
        {"seed": seed, "score": accuracy, "degenerate": False}
        for seed, accuracy in enumerate(accuracies)
    ]
    edit_json(dana / RESULTS, metric="accuracy", seeds=rows)
    assert unlike(arms) == [
        "precision bf16 against no",
        "test.jsonl differs",
        "metric accuracy against macro_f1",
    ]


def test_unlike_test_examples_are_named_whatever_their_order(arms):
    predictions, file = (
        arm_result(arms, "dana").predictions.predicted,
        arms / "finetune" / "toy" / "dana" / PREDICTIONS,
    )
    table = pq.read_table(file)
    pq.write_table(table.take(np.random.default_rng(0).permutation(table.num_rows)), file)
    assert unlike(arms) == []
    assert predictions.shape == (8, 300)
    edit_json(
        file.parent / RESULTS, seeds=json.loads((file.parent / RESULTS).read_text())["seeds"][::-1]
    )
    assert arm_result(arms, "dana").seeds == list(range(8))
    np.testing.assert_array_equal(arm_result(arms, "dana").predictions.predicted, predictions)
    pq.write_table(table.set_column(2, "id", pc.replace_substring(table["id"], "t00", "u00")), file)
    assert unlike(arms) == ["the test examples differ (20 are in only one)"]


def test_unlike_answers_and_folds_are_named(frames):
    dana = frames.results[-1]
    labels = dana.predictions.labels.copy()
    labels[:2] = labels[1:3]
    for changes, reason in (
        ({"kind": MultiLabel(dana.predictions.kind.labels)}, "single_label against multi_label"),
        ({"kind": SingleLabel.from_count(4)}, "3 classes against 4"),
        ({"folds": np.arange(300) % 3}, "the folds of the test examples differ"),
        ({"labels": labels}, "the labels of 2 test examples differ"),
    ):
        assert dana.unlike(replace(dana, predictions=replace(dana.predictions, **changes))) == [
            reason
        ]


def edit_table(change):
    return lambda file: pq.write_table(change(pq.read_table(file)), file)


def set_value(name, value, row=5):
    def change(table):
        values = table[name].to_pylist()
        values[row] = value
        return table.set_column(
            table.column_names.index(name), name, pa.array(values, table[name].type)
        )

    return edit_table(change)


@pytest.mark.parametrize(
    ("file", "change"),
    [
        (MANIFEST, lambda file: file.unlink()),
        (PREDICTIONS, lambda file: file.unlink()),
        (PREDICTIONS, lambda file: file.write_bytes(file.read_bytes()[:-100])),
        (PREDICTIONS, edit_table(lambda table: table.slice(0, 0))),
        (PREDICTIONS, edit_table(lambda table: table.slice(1))),
        (PREDICTIONS, edit_table(lambda table: table.drop_columns(["id"]))),
        (PREDICTIONS, set_value("prediction", 7)),
        (PREDICTIONS, set_value("label", -1)),
        (PREDICTIONS, set_value("id", "t005x")),  # of one seed
        (PREDICTIONS, set_value("label", 0, row=305)),  # of another seed; it is 2
        (RESULTS, lambda file: edit_json(file, seeds=None)),
        (RESULTS, lambda file: edit_json(file, seeds=[{"seed": 0}])),
        (RESULTS, lambda file: edit_json(file, seeds=[{"seed": 0, "score": None}])),
        (RESULTS, lambda file: edit_json(file, seeds=[{"seed": 0, "score": 0.5}])),
    ],
)
def test_damaged_results_are_refused_in_one_line_with_the_folder(arms, file, change):
    folder = arms / "finetune" / "toy" / "dana"
    change(folder / file)
    with pytest.raises(ArtifactError) as error:
        arm_result(arms, "dana")
    assert str(folder) in str(error.value)
    assert "\n" not in str(error.value)


def identity(digest):
    return {"model.safetensors": digest, "config.json": "c", "tokenizer.json": "t"}


def manifest(digest, parent, **settings):
    """Manifest of an adapted model."""
    return {
        "kind": "model",
        "weight_digests": {"model.safetensors": digest},
        "depends_on": {"model": identity(parent), "settings": settings},
    }


def test_a_model_is_traced_to_the_start_of_the_run():
    lineages = lineages_by_weights(
        [manifest("b", "a", steps=1), manifest("c", "b", steps=2), {"kind": "scores"}]
    )
    model, base = trace(identity("c"), lineages), trace(identity("a"), lineages)
    assert model == Lineage(
        weight_digests(identity("b")), weight_digests(identity("a")), {"steps": 2}
    )
    assert base == Lineage(frozenset(), weight_digests(identity("a")), None)
    assert not model.roots_differ(base)
    assert model.roots_differ(trace(identity("z"), lineages))
    assert not model.roots_differ(
        trace({"name": "bert"}, lineages)
    )  # a Hub name may be the same model
    assert trace({"name": "bert"}, lineages).roots_differ(trace({"name": "roberta"}, lineages))
    assert not trace(None, lineages).roots_differ(trace(None, lineages))
    assert trace(identity("a"), lineages_by_weights([manifest("a", "a")])).root == weight_digests(
        identity("a")
    )  # a circle ends
    for values in ({"weight_digests": None}, {"depends_on": None}, {"depends_on": {}}):
        assert lineages_by_weights([{**manifest("b", "a"), **values}]) == {}


def test_arms_after_other_arms_compare_if_their_tokens_in_all_are_equal(frames):
    parents = {"dana": "base", "random": "base", "x": "dana", "y": "random", "z": "random"}
    tokens = {"dana": 40, "random": 40, "x": 20, "y": 20, "z": 50}
    lineages = lineages_by_weights(
        [manifest(name, parents[name], tokens=tokens[name]) for name in parents]
    )
    x, y, z = (
        replace(frames.results[-1], lineage=trace(identity(name), lineages)) for name in "xyz"
    )
    assert x.unlike(y) == []
    assert x.unlike(z) == ["adapted on 60 tokens in all against 90"]


def test_adaptations_in_another_precision_or_nested_do_not_compare_except_with_base(frames):
    content = {**manifest("b", "a", tokens=5), "execution": {"precision": "bf16"}}
    older = lineages_by_weights([{**content, "execution": None}])
    assert [lineage.settings for lineage in older.values()] == [{"tokens": 5}]
    lineage = trace(identity("b"), lineages_by_weights([content]))
    assert lineage.settings == {"tokens": 5, "precision": "bf16"}
    base, *_, dana = frames.results
    model = replace(dana, lineage=lineage)
    other = replace(model, lineage=replace(lineage, settings={"tokens": 5, "precision": "no"}))
    assert model.unlike(other) == ["adapted with precision bf16 against no"]
    phases = [
        {"mix": {"selected": 1}, "tokens": 3, "learning_rate": None},
        {"mix": {"task": 1}, "tokens": 2},
    ]
    changes = {"learning_rate": 0.1}, {"mask_rate": 0.1}, {"schedule": "cosine"}
    in_phases, *others = (
        replace(model, lineage=replace(lineage, settings={**lineage.settings, "phases": parts}))
        for parts in (phases, *([phases[0], {**phases[1], **change}] for change in changes))
    )
    assert in_phases.unlike(model) == model.unlike(in_phases) == [], (
        "other text in another order, as much of it"
    )
    for other in others:
        assert other.unlike(model) == other.unlike(in_phases) == ["adapted with phases differs"]
    per_seed = replace(model, adaptations=8)
    assert per_seed.unlike(model) == ["adaptations 8 against 1"]
    assert per_seed.unlike(replace(per_seed, arm="random")) == []
    assert per_seed.unlike(replace(base, lineage=Lineage(root=lineage.root))) == []


def write_folds(folder, right, per_fold=4, **metrics):
    """Write the joined result of three folds; `right` says per fold, fine-tuning and text which answers are true."""
    folds, finetunings = right.shape[:2]
    rows, table = [], []
    for seed in range(folds * finetunings):
        fold, number = divmod(seed, finetunings)
        ids = [f"t{text}" for text in range(fold, folds * per_fold, folds)]
        correct = right[fold, number].astype(bool)
        labels = np.arange(4) % 2
        predictions = np.where(correct, labels, 1 - labels)
        collapsed = SingleLabel(("a", "b")).is_collapsed(predictions, labels, "accuracy")
        score = float(correct.mean())
        rows.append({"adaptation": fold, "seed": seed, "score": score, "degenerate": collapsed})
        head = {"adaptation": fold, "seed": seed}
        table += [
            {**head, "id": ids[i], "label": labels[i], "prediction": predictions[i]}
            for i in range(4)
        ]
    head = {
        "task": "toy",
        "metric": "accuracy",
        "direction": "higher",
        "kind": "single_label",
        "labels": ["a", "b"],
    }
    content = {**head, "folds": folds, "adaptations": folds, "seeds": rows, **metrics}

    def write(draft):
        write_json(draft / RESULTS, content)
        pq.write_table(pa.Table.from_pylist(table[::-1]), draft / PREDICTIONS)

    commit(folder, {"model": {}}, write, "finetune")


def test_folds_are_pooled_and_vary_beside_their_texts(tmp_path):
    right = np.array([[[1, 1, 1, 0]] * 2, [[1, 0, 0, 0], [1, 1, 0, 0]], [[1, 1, 1, 1]] * 2])
    write_folds(tmp_path / "dana", right)
    write_folds(tmp_path / "base", np.zeros((3, 2, 4)))
    dana, base = (read_arm_result(tmp_path / arm / RESULTS, arm) for arm in ("dana", "base"))
    assert dana.estimate.mean == pytest.approx(right.mean())
    assert (dana.adaptations, dana.seeds) == (3, list(range(6)))
    assert dana.predictions.predicted.shape == (2, 12)
    assert dict(zip(dana.predictions.ids, dana.predictions.folds, strict=True))["t4"] == 1
    baseline = read_baseline(tmp_path / "dana" / RESULTS).predictions
    assert dict(zip(baseline.ids, baseline.folds, strict=True)) == {
        f"t{text}": text % 3 for text in range(12)
    }
    assert (dana.collapsed_seeds, base.collapsed_seeds) == ({2, 3}, set(range(6)))
    row = measure_pair(dana, base)
    assert (row.n, row.unit, row.models, row.texts, row.basis) == (3, "fold", 6, 12, "3 folds")
    assert row.mean == pytest.approx(right.mean())
    by_fold = right.mean(axis=(1, 2))
    assert row.error**2 == pytest.approx(by_fold.var(ddof=1) / 3)
    edit_json(tmp_path / "base" / RESULTS, folds=None)
    assert read_baseline(tmp_path / "base" / RESULTS).predictions.folds is None
    with pytest.raises(ArtifactError, match="test examples"):
        read_arm_result(tmp_path / "base" / RESULTS, "base")


@pytest.mark.parametrize(
    ("seeds", "text"),
    [
        ([3], "3"),
        ([1, 4, 9], "1, 4, 9"),
        ([0, 1, 2, 3], "0 to 3"),
        ([0, 1, 2, 3, 4, 5, 7], "0, 1, 2, 3, 4 … 7 (7 in all)"),
        ([0, 1, 2, 3, 4, 5, 8], "0, 1, 2, 3, 4 … 8 (7 in all)"),
    ],
)
def test_many_seeds_are_told_apart_by_the_last(arms, seeds, text):
    result = replace(arm_result(arms, "dana"), scores=dict.fromkeys(seeds, 0.5))
    other = replace(result, scores={90: 0.5})
    assert f"seeds {text} against 90" in result.unlike(other)
