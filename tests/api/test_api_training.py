"""Adapting and fine-tuning from Python: the models and results of the commands, from text and tables in memory."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import torch
from datasets import Dataset, DatasetDict
from transformers import AutoModelForMaskedLM

import dana
from dana.cli.main import main
from dana.core.artifacts import read_manifest
from dana.core.errors import ConfigError, DataError
from tests import toy_kinds, toy_pairs, toy_task
from tests.api.conftest import FAST

STEPS = {"steps": 2, "batch_size": 4, "learning_rate": 5e-5, "dropout": 0.0, "max_tokens": 24, "evaluations": 1}
SEEDS = {"seeds": [0, 3], "epochs": 1, "max_tokens": 24, "batch_size": 8}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return toy_task.write_checkpoint(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def adapted(weighed, pieces):
    return dana.adapt(pieces, out=weighed[0], **STEPS)


def same(ours, theirs):
    return all(torch.equal(ours[name], theirs[name]) for name in ours.keys() | theirs.keys())


def test_the_returned_model_is_the_one_in_the_folder(weighed, adapted):
    model, tokenizer = adapted
    assert same(
        dict(model.state_dict()), dict(AutoModelForMaskedLM.from_pretrained(weighed[0] / "adapted").state_dict())
    )
    assert len(tokenizer("apple iron")["input_ids"]) > 2


def test_the_model_was_trained(adapted, pieces):
    assert not same(dict(adapted[0].state_dict()), dict(dana.load_model(pieces)[0].state_dict()))


def test_the_command_finds_the_adapted_model_done(weighed, adapted, pieces):
    before = (weighed[0] / "adapted" / "model.safetensors").stat().st_mtime_ns
    assert main(["adapt", str(weighed[0]), "--model", str(pieces)]) == 0  # the folder remembers the settings
    assert (weighed[0] / "adapted" / "model.safetensors").stat().st_mtime_ns == before


def test_text_and_weights_in_memory_give_the_same_model(weighed, adapted, pieces, task_texts, general_texts):
    general = pd.DataFrame({"text": general_texts})
    model, _ = dana.adapt(str(pieces), iter(task_texts), general, weighed[1], **STEPS)
    assert same(dict(model.state_dict()), dict(adapted[0].state_dict()))


def test_a_model_in_memory_is_adapted_as_the_one_on_disk(weighed, adapted, pieces, task_texts, general_texts):
    pair = dana.load_model(pieces)
    model, _ = dana.adapt(pair, task_texts, general_texts, weighed[1], **STEPS)
    assert same(dict(model.state_dict()), dict(adapted[0].state_dict()))


def test_weights_matter_and_without_them_all_text_counts(weighed, adapted, pieces, task_texts, general_texts):
    plain, _ = dana.adapt(pieces, task_texts, general_texts, unweighted=True, **STEPS)
    assert not same(dict(plain.state_dict()), dict(adapted[0].state_dict()))


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        ({}, ConfigError, "weights=None: must be a table from dana.weigh"),
        ({"weights": pd.DataFrame({"doc_id": ["a"]})}, DataError, "weights: no column source, unit, start"),
        ({"weights": [0.5]}, ConfigError, "weights='list': must be a pandas table from dana.weigh, or a folder"),
        ({"weights": "nowhere"}, dana.DanaError, "nowhere: no table"),
        ({"weights": "w", "unweighted": True}, ConfigError, "weights='w': must be None beside unweighted=True"),
        ({"unweighted": True, "stepps": 3}, ConfigError, "dana.adapt: unknown keyword 'stepps'; did you mean 'steps'?"),
        ({"unweighted": True, "steps": 0}, ConfigError, "steps=0: must be"),
    ],
)
def test_what_a_user_can_mend_is_one_line(given, error, says, pieces, task_texts, general_texts, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error) as raised:
        dana.adapt(pieces, task_texts, general_texts, **given)
    assert says in str(raised.value)
    assert "\n" not in str(raised.value)
    assert list(tmp_path.iterdir()) == []


def test_a_model_without_its_tokenizer_is_refused(adapted):
    with pytest.raises(ConfigError, match="a pair of model and tokenizer"):
        dana.finetune(adapted[0], "chemprot")


def test_results_are_a_row_a_seed_and_those_of_the_command(checkpoint, tmp_path):
    card = toy_task.write_task(tmp_path)
    results = dana.finetune(checkpoint, card, out=tmp_path / "python", **SEEDS)
    assert list(results["seed"]) == [0, 3]
    line = ["finetune", "--model", checkpoint, "--task-card", card, "--out", tmp_path / "command"]
    settings = ["--set", "finetune.seeds=[0,3]", *(f"finetune.{key}={SEEDS[key]}" for key in SEEDS if key != "seeds")]
    assert main([str(part) for part in (*line, *settings)]) == 0
    ours, theirs = (read_manifest(tmp_path / name) for name in ("python", "command"))
    assert ours["fingerprint"] == theirs["fingerprint"]
    predictions = [(tmp_path / name / "predictions.parquet").read_bytes() for name in ("python", "command")]
    assert predictions[0] == predictions[1]


@pytest.mark.parametrize("shape", [list, pd.DataFrame, Dataset.from_list])
def test_splits_in_memory_give_the_results_of_a_card(shape, checkpoint, tmp_path):
    expected = dana.finetune(checkpoint, toy_task.write_task(tmp_path, labels=sorted(toy_task.SIGNS)), **SEEDS)
    names = {"train": (120, 1), "validation": (30, 2), "test": (60, 3)}
    splits = {name: shape(toy_task.rows(*made)) for name, made in names.items()}
    if shape is Dataset.from_list:
        splits = DatasetDict(splits)
    found = dana.finetune(dana.load_model(checkpoint), splits, **SEEDS)
    columns = [name for name in expected.columns if name != "seconds"]
    pd.testing.assert_frame_equal(found[columns], expected[columns])


@pytest.mark.parametrize("shape", [list, pd.DataFrame, Dataset.from_list])
@pytest.mark.parametrize("kind", list(toy_kinds.ROWS))
def test_splits_of_any_kind_in_memory_give_the_results_of_a_card(kind, shape, checkpoint, tmp_path):
    values = toy_kinds.CHANGES[kind]
    changes = {"labels": sorted(values["labels"])} if kind == "token_labels" else {"labels": values.get("labels")}
    changes |= {"labels": sorted(toy_task.SIGNS)} if kind == "multi_label" else {}
    expected = dana.finetune(checkpoint, toy_kinds.write_task(tmp_path, kind, **changes), **SEEDS)
    made = zip(toy_kinds.COUNTS, (1, 2, 3), strict=True)
    splits = {split: shape(toy_kinds.ROWS[kind](toy_kinds.COUNTS[split], seed)) for split, seed in made}
    named = {f"{field}_field": values[field] for field in ("text", "label") if field in values}
    found = dana.finetune(checkpoint, splits, kind=kind, metric=values["metric"], **named, **SEEDS)
    columns = [name for name in expected.columns if name != "seconds"]
    pd.testing.assert_frame_equal(found[columns], expected[columns])


def test_pairs_in_memory_give_the_results_of_a_card(checkpoint, tmp_path):
    card = toy_pairs.write_task(tmp_path, labels=sorted(toy_task.SIGNS))
    expected = dana.finetune(checkpoint, card, **SEEDS)
    splits = {split: toy_pairs.rows(count, seed) for split, count, seed in (("train", 48, 1), ("dev", 15, 2))}
    fields = {"text_field": "premise", "text_pair_field": "hypothesis", "id_field": "uid"}
    found = dana.finetune(checkpoint, splits | {"test": toy_pairs.rows(24, 3)}, **fields, **SEEDS)
    columns = [name for name in expected.columns if name != "seconds"]
    pd.testing.assert_frame_equal(found[columns], expected[columns])


def test_a_kind_has_its_main_metric_unless_told(checkpoint):
    rows = [{"text": f"brass {number}", "label": number} for number in range(8)]
    splits = dict.fromkeys(("train", "dev", "test"), rows)
    found = dana.finetune(checkpoint, splits, kind="regression", **{**SEEDS, "seeds": 1})
    assert found["score"][0] == found["pearson"][0]
    for kind, metric, allowed in (("regression", "macro_f1", "one of pearson"), ("list", None, "one of single_label")):
        with pytest.raises(ConfigError, match=allowed):
            dana.finetune(checkpoint, splits, kind=kind, metric=metric)


@pytest.mark.parametrize("about", [{"kind": "regression"}, {"metric": "accuracy"}, {"text_pair_field": "b"}])
def test_what_a_card_says_is_not_said_again(about, checkpoint):
    with pytest.raises(ConfigError, match=f"{next(iter(about))}=.*must be left out: a task card says it"):
        dana.finetune(checkpoint, "chemprot", **about)


@pytest.mark.parametrize(
    ("kind", "row", "says"),
    [
        ("single_label", {"text": "a", "label": ["x"]}, "train[0]: 'label' label ['x'] is list, not one label"),
        ("multi_label", {"text": "a", "label": "x"}, "train[0]: 'label' label 'x' is str, not a list of labels"),
        (
            "token_labels",
            {"text": ["a"], "label": "O"},
            "train[0]: 'label' label 'O' is str, not a list of labels, one",
        ),
        ("token_labels", {"text": ["a", " "], "label": ["O", "O"]}, "train[0]: 'text' has an empty word"),
        ("regression", {"text": "a", "label": "x"}, "train[0]: 'label' label 'x' is not a finite number"),
        ("regression", {"text": "a", "label": float("inf")}, "train[0]: 'label' label 'inf' is not a finite number"),
    ],
)
def test_rows_that_are_not_of_the_kind_are_named(kind, row, says, checkpoint):
    with pytest.raises(DataError) as raised:
        dana.finetune(checkpoint, {"train": [row]}, kind=kind)
    assert says in str(raised.value)


def test_a_row_without_its_second_text_is_named(checkpoint):
    with pytest.raises(DataError, match=r"train\[0\]: no 'b', but text, label; say text_pair_field=NAME"):
        dana.finetune(checkpoint, {"train": [{"text": "a", "label": 1}]}, text_pair_field="b")


@pytest.mark.parametrize(
    ("splits", "says"),
    [
        ({"train": []}, "train: is empty"),
        ({"dev": [], "test": []}, "task: no split 'train', but dev, test"),
        ({"train": [{"text": "a"}]}, "train[0]: no 'label', but text; say label_field=NAME"),
        ({"train": None}, "train: is NoneType, not rows"),
        ({"train": ["a"]}, "train[0]: is str, not a mapping"),
        ({"train": [{"text": "a", "label": float("nan")}]}, "train[0]: 'label' is nan; leave out rows without a label"),
        ({"train": [{"text": 3, "label": 1}]}, "train[0]: 'text' is int, not text"),
    ],
)
def test_splits_that_are_amiss_are_named(splits, says, checkpoint):
    with pytest.raises(DataError) as raised:
        dana.finetune(checkpoint, splits, seeds=1)
    assert says in str(raised.value)


@pytest.mark.slow
def test_a_launched_script_makes_the_folder_of_one_process(
    weighed, adapted, pieces, task_texts, general_texts, tmp_path
):
    out = tmp_path / "run"
    told = {"task": task_texts, "general": general_texts, "out": str(out), "model": str(pieces), "steps": STEPS}
    (tmp_path / "told.json").write_text(json.dumps({**told, "encoder": FAST["encoder"]}), encoding="utf-8")
    launched = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    script = Path(__file__).with_name("two_ranks_run.py")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[2])}
    subprocess.run([*launched, script, tmp_path / "told.json"], check=True, env=environment, timeout=280)
    for kind in ("task", "corpus", "scores", "weights"):
        ours, theirs = read_manifest(out / kind), read_manifest(weighed[0] / kind)
        assert (ours["fingerprint"], ours["files"]) == (theirs["fingerprint"], theirs["files"])
    model, _ = dana.load_model(out / "adapted")
    for name, value in adapted[0].state_dict().items():
        torch.testing.assert_close(model.state_dict()[name], value, atol=1e-6, rtol=0)


@pytest.mark.parametrize("amiss", [float("nan"), -0.5, "x", float("inf")])
def test_a_weight_that_is_none_is_named(amiss, weighed, pieces, task_texts, general_texts):
    table = weighed[1].astype({"weight": object})
    table.loc[2, "weight"] = amiss
    with pytest.raises(DataError, match=rf"^weights\[2\]: weight {amiss}; must be a finite number"):
        dana.adapt(pieces, task_texts, general_texts, table, **STEPS)


@pytest.mark.parametrize("task", [["a"], pd.DataFrame({"text": ["a"]}), None])
def test_a_task_that_is_no_card_and_no_splits_is_refused(task, checkpoint):
    with pytest.raises(ConfigError, match="must be a task card, or a mapping of train"):
        dana.finetune(checkpoint, task)


def test_a_card_is_found_in_the_folders_of_task_path(checkpoint, tmp_path, monkeypatch):
    monkeypatch.setenv("DANA_TASK_PATH", "")
    toy_task.write_task(tmp_path, name="words")
    brief = {**SEEDS, "seeds": 1}
    with pytest.raises(ConfigError, match="unknown task 'words'"):
        dana.finetune(checkpoint, "words", **brief)
    assert len(dana.finetune(checkpoint, "words", task_path=tmp_path, **brief)) == 1


def test_what_is_no_checkpoint_is_not_loaded(checkpoint, tmp_path):
    import torch

    model, tokenizer = dana.load_model(checkpoint)
    for part in (model, tokenizer):
        part.save_pretrained(tmp_path / "pickled")
    (tmp_path / "pickled" / "model.safetensors").unlink()
    torch.save(model.state_dict(), tmp_path / "pickled" / "pytorch_model.bin")
    (tmp_path / "empty").mkdir()
    for place in ("pickled", "empty", "nowhere"):
        with pytest.raises(dana.DanaError) as raised:
            dana.load_model(tmp_path / place)
        assert "\n" not in str(raised.value)
