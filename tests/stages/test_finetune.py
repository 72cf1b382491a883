import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev

import pyarrow.parquet as pq
import pytest
import toy_kinds
import toy_task
from sklearn.metrics import f1_score

from dana.core.config import load
from dana.core.errors import ArtifactError, ConfigError, DataError
from dana.stages.finetune import FinetuneSettings, finetune_stage

REPOSITORY = Path(__file__).parent.parent.parent
QUICK = FinetuneSettings(preset="quick")
BRIEF = FinetuneSettings(preset="quick", epochs=1, seeds=1)


def metrics(folder):
    return json.loads((folder / "metrics.json").read_text(encoding="utf-8"))


def test_metrics_and_predictions_agree(checkpoint, card, tmp_path):
    finetune_stage(checkpoint, card, QUICK, tmp_path / "out")
    found = metrics(tmp_path / "out")
    table = pq.read_table(tmp_path / "out" / "predictions.parquet").to_pandas()
    assert list(table.columns) == ["seed", "id", "label", "prediction", "probabilities"]
    assert len(table) == 2 * 60
    assert table.groupby("seed")["id"].nunique().to_dict() == {0: 60, 1: 60}
    assert [max(range(3), key=list(row).__getitem__) for row in table["probabilities"]] == table["prediction"].tolist()
    for row in found["seeds"]:
        own = table[table["seed"] == row["seed"]]
        assert row["accuracy"] == row["micro_f1"] == pytest.approx((own["label"] == own["prediction"]).mean())
        assert (
            row["score"] == row["macro_f1"] == pytest.approx(f1_score(own["label"], own["prediction"], average="macro"))
        )


def test_metrics_say_what_was_run_and_how_it_went(checkpoint, card, tmp_path):
    finetune_stage(checkpoint, card, QUICK, tmp_path / "out")
    found = metrics(tmp_path / "out")
    identity = {
        name: found[name] for name in ("task", "version", "metric", "direction", "model", "preset", "ddof", "n")
    }
    assert identity == {
        "task": "toy",
        "version": 1,
        "metric": "macro_f1",
        "direction": "higher",
        "model": "base",
        "preset": "quick",
        "ddof": 1,
        "n": 2,
    }
    assert found["settings"] == {
        **toy_task.PRESET,
        "warmup": 0.1,
        "evaluate": "last",
        "pooling": "cls",
        "max_train": None,
    }
    assert found["split_overlap"] == {"test_in_train": 0, "test_in_dev": 0}
    scores = [row["score"] for row in found["seeds"]]
    assert found["mean"] == pytest.approx(fmean(scores))
    assert found["mean"] > 0.9
    assert found["std"] == pytest.approx(stdev(scores))
    for seed, row in enumerate(found["seeds"]):
        assert (row["seed"], row["epoch"], row["degenerate"]) == (seed, 6, False)
        assert row["dev_score"] == row["dev_scores"][-1]
        assert row["seconds"] > 0


def test_one_seed_has_no_standard_deviation(checkpoint, card, tmp_path):
    finetune_stage(checkpoint, card, BRIEF, tmp_path / "out")
    assert metrics(tmp_path / "out")["std"] is None


def test_a_run_that_learns_nothing_is_flagged(checkpoint, card, tmp_path):
    settings = FinetuneSettings(preset="quick", epochs=1, seeds=[3], learning_rate=1e-9, max_train=8)
    finetune_stage(checkpoint, card, settings, tmp_path / "out")
    assert [row["degenerate"] for row in metrics(tmp_path / "out")["seeds"]] == [True]


def test_seeds_can_be_named_and_do_not_depend_on_each_other(checkpoint, card, tmp_path):
    both = FinetuneSettings(preset="quick", epochs=1, seeds=[5, 1])
    finetune_stage(checkpoint, card, both, tmp_path / "both")
    finetune_stage(checkpoint, card, FinetuneSettings(preset="quick", epochs=1, seeds=[1]), tmp_path / "one")
    tables = [pq.read_table(tmp_path / name / "predictions.parquet").to_pandas() for name in ("both", "one")]
    assert [row["seed"] for row in metrics(tmp_path / "both")["seeds"]] == [5, 1]
    together, alone = tables[0][tables[0]["seed"] == 1], tables[1]
    assert [list(row) for row in together["probabilities"]] == [list(row) for row in alone["probabilities"]]


def test_the_same_run_is_reused_and_another_is_refused(checkpoint, card, tmp_path):
    first = finetune_stage(checkpoint, card, BRIEF, tmp_path / "out")
    before = (tmp_path / "out" / "metrics.json").stat().st_mtime_ns
    assert finetune_stage(checkpoint, card, BRIEF, tmp_path / "out").fingerprint == first.fingerprint
    assert (tmp_path / "out" / "metrics.json").stat().st_mtime_ns == before
    with pytest.raises(ArtifactError, match=r"preset\.epochs: 1 there, 2 now"):
        finetune_stage(checkpoint, card, FinetuneSettings(preset="quick", epochs=2, seeds=1), tmp_path / "out")


def test_the_mean_of_all_tokens_may_stand_for_a_text(checkpoint, card, tmp_path):
    finetune_stage(checkpoint, card, BRIEF, tmp_path / "first")
    finetune_stage(checkpoint, card, replace(BRIEF, pooling="mean"), tmp_path / "mean")
    first, mean = (
        pq.read_table(tmp_path / name / "predictions.parquet")["probabilities"] for name in ("first", "mean")
    )
    assert first != mean
    assert metrics(tmp_path / "mean")["settings"]["pooling"] == "mean"
    words = toy_kinds.write_task(tmp_path / "words", "token_labels")
    with pytest.raises(ConfigError, match="pooling='mean': must be left out for kind=token_labels"):
        finetune_stage(checkpoint, str(words), replace(BRIEF, pooling="mean"), tmp_path / "none")
    with pytest.raises(ConfigError, match="pooling='max': must be cls or mean"):
        replace(BRIEF, pooling="max")


@pytest.mark.parametrize("changed", ["model", "data", "labels", "unseen_test"])
def test_what_decides_the_outcome_is_part_of_the_fingerprint(checkpoint, card, tmp_path, changed):
    model = checkpoint
    finetune_stage(model, card, BRIEF, tmp_path / "out")
    if changed == "model":
        model = str(toy_task.write_checkpoint(tmp_path / "other", seed=1))
    elif changed == "data":
        toy_task.write_split(tmp_path / "tasks" / "toy", "test", toy_task.rows(60, seed=9))
    elif changed == "unseen_test":
        card = str(toy_task.write_task(tmp_path / "tasks", unseen_test=True))
    else:
        card = str(toy_task.write_task(tmp_path / "tasks", labels=["bird", "fruit", "metal"]))
    with pytest.raises(ArtifactError, match="was made from other settings"):
        finetune_stage(model, card, BRIEF, tmp_path / "out")


def test_a_subset_of_the_training_data_is_the_same_for_every_model(checkpoint, card, tmp_path, monkeypatch):
    seen = []

    def remember(model, splits, *rest):
        seen.append(splits["train"])
        raise KeyboardInterrupt

    monkeypatch.setattr("dana.stages.finetune.run_seed", remember)
    other = str(toy_task.write_checkpoint(tmp_path / "other", seed=1))
    settings = FinetuneSettings(preset="quick", max_train=10)
    for model in (checkpoint, other):
        with pytest.raises(KeyboardInterrupt):
            finetune_stage(model, card, settings, tmp_path / "out")
    assert len(seen[0].tokens) == 10
    assert seen[0].tokens == seen[1].tokens
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"preset": "quick", "epoch": 3}, "unknown key 'epoch'; did you mean 'epochs'"),
        ({"epochs": 0}, "epochs=0: must be at least 1"),
        ({"seeds": [2, 2]}, "seeds=.*must be distinct"),
        ({"evaluate": "worst"}, "evaluate='worst': must be last or best"),
        ({"max_train": 0}, "max_train=0: must be at least 1"),
    ],
)
def test_bad_settings_fail_before_any_work(values, says):
    with pytest.raises(ConfigError, match=says):
        load(FinetuneSettings, values)


def test_settings_read_seeds_as_a_number_or_a_list():
    assert load(FinetuneSettings, {}, ["seeds=4"]).seeds == 4
    assert load(FinetuneSettings, {}, ["seeds=[4, 6]"]).seeds == [4, 6]


def test_what_cannot_be_used_is_refused_and_nothing_is_written(checkpoint, card, tmp_path):
    out = tmp_path / "out"
    with pytest.raises(ConfigError, match=r"preset='quikc'.*did you mean 'quick'"):
        finetune_stage(checkpoint, card, FinetuneSettings(preset="quikc"), out)
    with pytest.raises(ConfigError, match="max_tokens=64: must be at most 32 for this model"):
        finetune_stage(checkpoint, card, FinetuneSettings(preset="quick", max_tokens=64), out)
    with pytest.raises(DataError, match="task toy: no train data"):
        finetune_stage(checkpoint, card, QUICK, out, data=str(tmp_path / "nowhere"))
    with pytest.raises(ArtifactError, match="no such folder"):
        finetune_stage(str(tmp_path / "gone"), card, QUICK, out)
    bare = toy_task.write_checkpoint(tmp_path / "bare")
    for file in bare.glob("tokenizer*"):
        file.unlink()
    with pytest.raises(ArtifactError, match="bare: has no tokenizer"):
        finetune_stage(str(bare), card, QUICK, out)
    assert not out.exists()


@pytest.mark.slow
def test_two_processes_give_what_one_gives(checkpoint, card, tmp_path):
    arguments = ["finetune", "--model", checkpoint, "--task-card", card, "--preset", "quick", "--seeds", "3"]
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    recipe = [
        *launch,
        str(REPOSITORY / "recipes" / "finetune.py"),
        *arguments[1:],
        "--out",
        str(tmp_path / "two"),
    ]
    done = subprocess.run(recipe, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    finetune_stage(checkpoint, card, FinetuneSettings(preset="quick", seeds=3), tmp_path / "one")
    one, two = metrics(tmp_path / "one"), metrics(tmp_path / "two")
    timeless = [[{**row, "seconds": 0} for row in found["seeds"]] for found in (one, two)]
    assert timeless[0] == timeless[1]
    assert one["n"] == two["n"] == 3


def test_tags_and_notes_of_a_card_decide_no_result(checkpoint, card, tmp_path):
    first = finetune_stage(checkpoint, card, BRIEF, tmp_path / "out").manifest
    toy_task.write_task(tmp_path / "tasks", tags=["fruit"], notes="Made up.", citation="Nobody")
    assert finetune_stage(checkpoint, card, BRIEF, tmp_path / "out").manifest == first
    toy_task.write_task(tmp_path / "tasks", version=2)
    with pytest.raises(ArtifactError, match="version"):
        finetune_stage(checkpoint, card, BRIEF, tmp_path / "out")
