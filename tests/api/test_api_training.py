"""Adapting and fine-tuning from Python give the models and results of the commands, from data on disk or in memory."""

import json

import pandas as pd
import pytest
import torch
from datasets import Dataset, DatasetDict
from transformers import AutoModelForMaskedLM

import dana
from dana.cli.main import main
from dana.core.artifacts import read_manifest
from dana.core.errors import ConfigError, DanaError, DataError
from tests import toy_kinds, toy_pairs, toy_task
from tests.api.conftest import FAST, launch
from tests.scoring.on_disk import contents_made

STEPS = {
    "steps": 2,
    "batch_size": 4,
    "learning_rate": 5e-5,
    "dropout": 0.0,
    "max_tokens": 24,
    "evaluations": 1,
}
SEEDS = {"seeds": [0, 3], "epochs": 1, "max_tokens": 24, "batch_size": 8}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return toy_task.write_checkpoint(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def adaptation(weights_run, pieces):
    return dana.adapt(pieces, out=weights_run[0], **STEPS)


def same(one, other):
    ours, rival = one.state_dict(), other.state_dict()
    return all(torch.equal(ours[name], rival[name]) for name in ours.keys() | rival.keys())


def refused(error, names, work, *arguments, **settings):
    with pytest.raises(error) as refusal:
        work(*arguments, **settings)
    message = str(refusal.value)
    assert [name for name in names if name not in message] == [], message
    assert "\n" not in message


def test_the_adapted_model_is_that_of_the_folder_and_of_the_command(
    weights_run, adaptation, pieces
):
    model, tokenizer = adaptation
    assert same(model, AutoModelForMaskedLM.from_pretrained(weights_run[0] / "adapted"))
    assert not same(model, dana.load_model(pieces)[0])
    assert len(tokenizer("apple iron")["input_ids"]) > 2
    before = (weights_run[0] / "adapted" / "model.safetensors").stat().st_mtime_ns
    settings = [f"adapt.{name}={value}" for name, value in STEPS.items()]
    assert main(["adapt", str(weights_run[0]), "--model", str(pieces), "--set", *settings]) == 0
    assert (weights_run[0] / "adapted" / "model.safetensors").stat().st_mtime_ns == before


def test_text_weights_and_model_in_memory_give_it_too(
    weights_run, adaptation, pieces, task_texts, pool_texts
):
    pool, pair = pd.DataFrame({"text": pool_texts}), dana.load_model(pieces)
    assert same(dana.adapt(pair, iter(task_texts), pool, weights_run[1], **STEPS)[0], adaptation[0])
    plain, _ = dana.adapt(pieces, task_texts, pool_texts, unweighted=True, **STEPS)
    assert not same(plain, adaptation[0]), "weights matter"


@pytest.mark.parametrize(
    ("settings", "error", "names"),
    [
        ({}, ConfigError, ["weights=None"]),
        (
            {"weights": pd.DataFrame({"doc_id": ["a"]})},
            DataError,
            ["weights", "source, unit, start"],
        ),
        ({"weights": [0.5]}, ConfigError, ["weights='list'"]),
        ({"weights": "nowhere"}, dana.DanaError, ["nowhere"]),
        ({"weights": "w", "unweighted": True}, ConfigError, ["weights='w'", "unweighted"]),
        ({"unweighted": True, "stepps": 3}, ConfigError, ["'stepps'", "did you mean 'steps'?"]),
        ({"unweighted": True, "steps": 0}, ConfigError, ["steps=0"]),
    ],
)
def test_wrong_arguments_are_named(
    settings, error, names, pieces, task_texts, pool_texts, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    refused(error, names, dana.adapt, pieces, task_texts, pool_texts, **settings)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("weight", [float("nan"), -0.5, "x", float("inf")])
def test_a_weight_out_of_range_is_named(weight, weights_run, pieces, task_texts, pool_texts):
    table = weights_run[1].astype({"weight": object})
    table.loc[2, "weight"] = weight
    refused(
        DataError,
        [f"weights[2]: weight {weight}"],
        dana.adapt,
        pieces,
        task_texts,
        pool_texts,
        table,
        **STEPS,
    )


def test_results_are_one_row_per_seed_and_those_of_the_command(checkpoint, tmp_path):
    card = toy_task.write_task(tmp_path)
    results = dana.finetune(checkpoint, card, out=tmp_path / "python", **SEEDS)
    assert list(results["seed"]) == [0, 3]
    line = ["finetune", "--model", checkpoint, "--task", card, "--out", tmp_path / "command"]
    settings = [
        "--set",
        "finetune.seeds=[0,3]",
        *(f"finetune.{key}={SEEDS[key]}" for key in SEEDS if key != "seeds"),
    ]
    assert main([str(part) for part in (*line, *settings)]) == 0
    folders = [tmp_path / name for name in ("python", "command")]
    assert len({read_manifest(folder)["fingerprint"] for folder in folders}) == 1
    assert len({(folder / "predictions.parquet").read_bytes() for folder in folders}) == 1


TAGS = {"metric": "span_f1", "text_field": "tokens", "label_field": "tags"}
PAIRS = {"text_field": "premise", "text_pair_field": "hypothesis", "id_field": "uid"}


@pytest.mark.parametrize(
    ("kind", "shape", "settings"),
    [
        ("single_label", Dataset.from_list, {}),
        ("pairs", list, PAIRS),
        ("multi_label", list, {"kind": "multi_label", "metric": "micro_f1"}),
        ("regression", pd.DataFrame, {"kind": "regression", "metric": "mae"}),
        ("token_labels", Dataset.from_list, {"kind": "token_labels", **TAGS}),
    ],
)
def test_splits_in_memory_give_the_results_of_a_card(kind, shape, settings, checkpoint, tmp_path):
    toys = {"single_label": (toy_task,), "pairs": (toy_pairs,)}
    toy, *words = toys.get(kind, (toy_kinds, kind))
    labels = toy_kinds.CHANGES.get(kind, {}).get("labels", toy_task.SIGNS)
    card = toy.write_task(tmp_path, *words, labels=labels and sorted(labels))  # as those in memory
    by_card = dana.finetune(checkpoint, card, **SEEDS).drop(columns="seconds")
    files = {
        split: (tmp_path / "toy" / f"{split}.jsonl").read_text()
        for split in ("train", "dev", "test")
    }
    splits = {
        split: shape([json.loads(line) for line in text.splitlines()])
        for split, text in files.items()
    }
    if kind == "single_label":
        splits = DatasetDict(
            {"validation" if split == "dev" else split: splits[split] for split in splits}
        )
    model = dana.load_model(checkpoint) if kind == "single_label" else checkpoint
    results = dana.finetune(model, splits, **settings, **SEEDS)
    pd.testing.assert_frame_equal(results[by_card.columns], by_card)


def test_the_metric_is_the_main_one_of_the_kind_by_default(checkpoint):
    rows = [{"text": f"brass {number}", "label": number} for number in range(8)]
    splits = dict.fromkeys(("train", "dev", "test"), rows)
    table = dana.finetune(checkpoint, splits, kind="regression", **{**SEEDS, "seeds": 1})
    assert table["score"][0] == table["pearson"][0]


def test_a_card_is_found_in_the_folders_of_task_path(checkpoint, tmp_path, monkeypatch):
    monkeypatch.setenv("DANA_TASK_PATH", "")
    toy_task.write_task(tmp_path, name="words")
    refused(ConfigError, ["'words'"], dana.finetune, checkpoint, "words", **SEEDS)
    assert len(dana.finetune(checkpoint, "words", task_path=tmp_path, **{**SEEDS, "seeds": 1})) == 1


ROW = {"text": "a", "label": "x"}


def alike(*rows):
    """Splits of the same rows."""
    return {"train": [*rows], "dev": [*rows], "test": [*rows]}


@pytest.mark.parametrize(
    ("task", "settings", "error", "names"),
    [
        ({"train": []}, {}, DataError, ["train"]),
        ({"dev": [], "test": []}, {}, DataError, ["'train'", "dev, test"]),
        ({"train": None}, {}, DataError, ["train", "NoneType"]),
        (
            {"train": [ROW], "validation": [ROW], "dev": [ROW]},
            {},
            DataError,
            ["dev and validation are one"],
        ),
        ({"train": ["a"]}, {}, DataError, ["train[0]", "str"]),
        ({"train": [{"text": "a"}]}, {}, DataError, ["train[0]", "'label'", "label_field"]),
        (
            {"train": [{**ROW, "label": float("nan")}]},
            {},
            DataError,
            ["train[0]", "'label'", "nan"],
        ),
        (alike({**ROW, "text": 3}), {}, DataError, ["train[0]", "'text'", "int"]),
        (alike(ROW, {**ROW, "label": " "}), {}, DataError, ["train[1]", "' '", "empty"]),
        (
            alike(ROW, {**ROW, "label": 1}),
            {},
            DataError,
            ["train[1]", "a number", "str", "train[0]"],
        ),
        (
            alike({**ROW, "label": 1}, {**ROW, "label": True}),
            {},
            DataError,
            ["train[1]", "bool", "a number"],
        ),
        (alike({**ROW, "id": None}), {}, DataError, ["train[0]", "'id'", "None"]),
        (alike(ROW), {"kind": "regression"}, DataError, ["train[0]", "'x'"]),
        (
            alike({"text": ["a"], "label": "O"}),
            {"kind": "token_labels"},
            DataError,
            ["train[0]", "'O'"],
        ),
        (
            alike({"text": ["a", " "], "label": ["O", "O"]}),
            {"kind": "token_labels"},
            DataError,
            ["'text'"],
        ),
        (
            alike(ROW),
            {"text_pair_field": "b"},
            DataError,
            ["train[0]", "'b'", "text_pair_field"],
        ),
        (alike(ROW), {"kind": "list"}, ConfigError, ["list", "single_label"]),
        (
            alike(ROW),
            {"kind": "regression", "metric": "macro_f1"},
            ConfigError,
            ["metric='macro_f1'", "pearson"],
        ),
        ("chemprot", {"kind": "regression"}, ConfigError, ["kind='regression'"]),
        ("chemprot", {"metric": "accuracy"}, ConfigError, ["metric='accuracy'"]),
        ("chemprot", {"text_pair_field": "b"}, ConfigError, ["text_pair_field='b'"]),
        (["a"], {}, ConfigError, ["task='list'"]),
        (None, {}, ConfigError, ["task='NoneType'"]),
    ],
)
def test_wrong_splits_rows_and_arguments_of_finetune_are_named(
    task, settings, error, names, checkpoint
):
    refused(error, names, dana.finetune, checkpoint, task, **settings)


def test_a_model_without_its_tokenizer_is_refused(adaptation):
    refused(ConfigError, ["tokenizer"], dana.finetune, adaptation[0], "chemprot")
    refused(dana.DanaError, ["nowhere"], dana.load_model, "./nowhere")


@pytest.mark.slow
def test_a_launched_script_makes_it_too(
    weights_run, adaptation, pieces, task_texts, pool_texts, tmp_path
):
    out = tmp_path / "run"
    job = {
        "task": task_texts,
        "pool": pool_texts,
        "out": str(out),
        "model": str(pieces),
        "steps": STEPS,
    }
    (tmp_path / "job.json").write_text(
        json.dumps({**job, "encoder": FAST["encoder"]}), encoding="utf-8"
    )
    launch("two_ranks_run.py", tmp_path / "job.json")
    for kind in ("target", "pool", "scores", "weights"):
        manifests = [read_manifest(folder / kind) for folder in (out, weights_run[0])]
        assert manifests[0]["fingerprint"] == manifests[1]["fingerprint"]
        assert contents_made(out / kind) == contents_made(weights_run[0] / kind)
    model, _ = dana.load_model(out / "adapted")
    for name, value in adaptation[0].state_dict().items():
        torch.testing.assert_close(model.state_dict()[name], value, atol=1e-6, rtol=0)


LABELLED = [{"text": f"brass {n}", "label": ["bird", "metal"][: n % 3]} for n in range(12)]
BITS = [[int(name in row["label"]) for name in ("bird", "metal")] for row in LABELLED]


@pytest.mark.parametrize(
    ("rows", "settings"),
    [
        (LABELLED, {"kind": "multi_label"}),
        ([{**row, "label": str(row["label"])} for row in LABELLED], {}),
        (
            [{**row, "label": bits} for row, bits in zip(LABELLED, BITS, strict=True)],
            {"labels": ["bird", "metal"]},
        ),
        (
            pd.DataFrame(
                {
                    "text": [row["text"] for row in LABELLED],
                    "bird": [bird for bird, _ in BITS],
                    "metal": [bool(metal) for _, metal in BITS],
                }
            ),
            {"label_field": ["bird", "metal"]},
        ),
    ],
)
def test_several_labels_in_any_form_give_the_same_results(rows, settings, checkpoint):
    once = {**SEEDS, "seeds": 1}
    expected = dana.finetune(checkpoint, dict.fromkeys(("train", "dev", "test"), LABELLED), **once)
    results = dana.finetune(
        checkpoint, dict.fromkeys(("train", "dev", "test"), rows), **settings, **once
    )
    assert "micro_f1" in results
    pd.testing.assert_frame_equal(*(table.drop(columns="seconds") for table in (results, expected)))


@pytest.mark.parametrize(
    ("labels", "settings", "names"),
    [
        ([[0, 1], [1, 0]], {"kind": "multi_label"}, ["vector of 0 and 1", "labels=['name1'"]),
        (["a|b", "c|d"], {}, ["kind='single_label'", "kind='multi_label'"]),
        ([*range(24)], {}, ["kind='single_label'", "kind='regression'"]),
        ([[1, 0], [0, 1]], {"labels": ["a", "a"]}, ["2 different names"]),
        ([["a"], ["a", "b"]], {"kind": "single_label"}, ["train[1]", "2 labels"]),
        ([["a", "a"], ["b", "a"]], {}, ["train[0]", "'a' occurs twice"]),
        (["a", "b"], {"label_field": ["x", "y"]}, ["train[0]", "'x'"]),
        (["a", "b"], {"metric": "pearson"}, ["kind=single_label"]),
    ],
)
def test_labels_that_do_not_tell_or_fit_are_refused(labels, settings, names, checkpoint):
    rows = [{"text": f"a brass {n}", "label": label} for n, label in enumerate(labels * 4)]
    splits = dict.fromkeys(("train", "dev", "test"), rows)
    refused(DanaError, names, dana.finetune, checkpoint, splits, **settings, **SEEDS)


def test_balanced_classes_change_a_fine_tuning_and_a_probe_and_none_is_the_default(
    checkpoint, tmp_path
):
    card = toy_task.write_task(tmp_path)
    rows = [
        json.loads(line) for line in (tmp_path / "toy" / "train.jsonl").read_text().splitlines()
    ]
    rare = [row for row in rows if row["label"] == "bird"][6:]
    toy_task.write_split(tmp_path / "toy", "train", [row for row in rows if row not in rare])
    once = {**SEEDS, "seeds": 1}
    plain, none, balanced = (
        dana.finetune(checkpoint, card, **once, **weight).drop(columns="seconds")
        for weight in ({}, {"class_weight": "none"}, {"class_weight": "balanced"})
    )
    pd.testing.assert_frame_equal(plain, none)
    assert not plain.equals(balanced)
    probes = [
        dana.probe({"base": checkpoint}, card, sizes=[40], draws=2, **weight)["mean"].tolist()
        for weight in ({}, {"class_weight": "none"}, {"class_weight": "balanced"})
    ]
    assert probes[0] == probes[1] != probes[2]
