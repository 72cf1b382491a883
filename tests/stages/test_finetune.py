"""Fine-tuning: what is written, what decides it, and what is refused; see test_finetune_resume.py for reruns."""

from dataclasses import replace
from statistics import fmean, stdev

import pyarrow.parquet as pq
import pytest
import toy_kinds
import toy_task
from sklearn.metrics import f1_score
from toy_kinds import metrics

from dana.cli.main import main
from dana.core.errors import ArtifactError, ConfigError, DataError
from dana.stages import finetune_seed
from dana.stages.finetune import FinetuneSettings, finetune_stage, seed_rows
from dana.stages.finetune_seed import seed_stage
from dana.tasks.card import load_card
from dana.tasks.examples import read_split, read_splits, subset

BRIEF = FinetuneSettings(preset="quick", epochs=1, seeds=1)


@pytest.fixture(scope="module")
def brief(checkpoint, tmp_path_factory):
    """Fine-tune with one seed and epoch; the task is written beside the result."""
    folder = tmp_path_factory.mktemp("brief")
    finetune_stage(checkpoint, str(toy_task.write_task(folder / "tasks")), BRIEF, folder / "out")
    return folder / "out"


def predictions(folder):
    return pq.read_table(folder / "predictions.parquet").to_pandas()


def test_metrics_agree_with_the_predictions_and_say_what_was_run(checkpoint, card, tmp_path):
    finetune_stage(checkpoint, card, FinetuneSettings(preset="quick"), tmp_path / "out")
    results, table = metrics(tmp_path / "out"), predictions(tmp_path / "out")
    assert list(table.columns) == [
        "adaptation",
        "seed",
        "id",
        "label",
        "prediction",
        "probabilities",
    ]
    assert table.groupby("seed")["id"].nunique().to_dict() == {0: 60, 1: 60}
    assert [max(range(3), key=list(row).__getitem__) for row in table["probabilities"]] == table[
        "prediction"
    ].tolist()
    for seed, row in enumerate(results["seeds"]):
        part = table[table["seed"] == seed]
        f1 = f1_score(part["label"], part["prediction"], average="macro")
        assert (
            row["accuracy"]
            == row["micro_f1"]
            == pytest.approx((part["label"] == part["prediction"]).mean())
        )
        assert row["score"] == row["macro_f1"] == pytest.approx(f1)
        assert (row["seed"], row["epoch"], row["degenerate"]) == (seed, 6, False)
        assert row["dev_score"] == row["dev_scores"][-1]
        assert row["seconds"] > 0
    scores = [row["score"] for row in results["seeds"]]
    assert results["mean"] == pytest.approx(fmean(scores))
    assert results["mean"] > 0.9
    assert results["std"] == pytest.approx(stdev(scores))
    identity = {
        "task": "toy",
        "version": 1,
        "metric": "macro_f1",
        "direction": "higher",
        "model": "base",
    }
    identity |= {"preset": "quick", "ddof": 1, "n": 2, "untrained_labels": []}
    identity["split_overlap"] = {
        "test_in_train": 0,
        "test_in_dev": 0,
        "seen": 0,
        "unseen": 60,
        "unseen_mean": None,
    }
    assert {name: results[name] for name in identity} == identity
    defaults = {"steps": 0, "warmup": 0.1, "evaluate": "last", "pooling": "cls", "max_train": None}
    defaults |= {"windows": None, "method": "whole"}
    assert results["settings"] == {**toy_task.PRESET, **defaults, "seeds": [0, 1]}


def test_its_seeds_share_the_jobs_of_the_command(checkpoint, card, tmp_path, monkeypatch):
    asked = []

    def execute(run, jobs=1, remake=False):
        asked.append(jobs)
        raise KeyboardInterrupt

    monkeypatch.setattr("dana.stages.finetune.execute", execute)
    line = ["finetune", "--model", str(checkpoint), "--task", str(card), "--jobs", "3"]
    assert main([*line, "--out", str(tmp_path / "out")]) == 130
    assert asked == [3]


def test_seeds_do_not_depend_on_each_other_and_the_mean_of_tokens_may_stand_for_a_text(
    brief, checkpoint, card, tmp_path
):
    finetune_stage(checkpoint, card, replace(BRIEF, seeds=[5, 0]), tmp_path / "both")
    assert [row["seed"] for row in metrics(tmp_path / "both")["seeds"]] == [5, 0]
    table = predictions(tmp_path / "both")
    together, alone = (
        table[table["seed"] == 0]["probabilities"],
        predictions(brief)["probabilities"],
    )
    assert [list(row) for row in together] == [list(row) for row in alone]
    assert metrics(brief)["std"] is None, "one seed has no standard deviation"
    finetune_stage(checkpoint, card, replace(BRIEF, pooling="mean"), tmp_path / "mean")
    assert [list(row) for row in predictions(tmp_path / "mean")["probabilities"]] != [
        list(row) for row in alone
    ]
    assert metrics(tmp_path / "mean")["settings"]["pooling"] == "mean"


def test_test_texts_that_fill_the_tokens_that_are_read_are_counted_and_told(
    checkpoint, card, tmp_path, caplog
):
    settings = replace(BRIEF, max_tokens=12)
    finetune_stage(checkpoint, card, settings, tmp_path / "out")
    texts = [example.text for example in read_split(load_card(card), "test")]
    full = sum(len(text.split()) + 2 >= 12 for text in texts)
    counts = metrics(tmp_path / "out")["full_texts"]
    assert counts == {"count": full, "of": len(texts), "max_tokens": 12}
    assert 0 < full < len(texts)
    words = f"Beware: {full} of {len(texts)} test texts have 12 tokens or more"
    assert sum(words in record.getMessage() for record in caplog.records) == 1


def test_a_run_that_learns_nothing_is_flagged_with_the_labels_that_it_cannot_learn(
    checkpoint, card, tmp_path, caplog
):
    settings = replace(BRIEF, seeds=[3], learning_rate=1e-9, max_train=1)
    result = finetune_stage(checkpoint, card, settings, tmp_path / "out")
    task = load_card(card)
    used = task.labels[subset(read_split(task, "train"), 1)[0].label]
    untrained = [label for label in task.labels if label != used]
    assert [row["degenerate"] for row in seed_rows(result)] == [True]
    assert metrics(tmp_path / "out")["untrained_labels"] == untrained
    lines = [record.getMessage() for record in caplog.records if "Beware" in record.getMessage()]
    assert [", ".join(untrained) in line for line in lines] == [True, False]
    assert "1 of 1 models (seed 3) do not beat the largest class" in lines[1]


WRITES = {
    "labels": lambda folder: toy_task.write_task(folder, labels=["bird", "fruit", "metal"]),
    "version": lambda folder: toy_task.write_task(folder, version=2),
    "unseen_test": lambda folder: toy_task.write_task(folder, unseen_test=True),
    "data": lambda folder: toy_task.write_split(folder / "toy", "test", toy_task.rows(60, seed=9)),
}


@pytest.mark.parametrize("part", [*WRITES, "model", "epochs"])
def test_what_decides_the_outcome_is_part_of_the_fingerprint(brief, checkpoint, tmp_path, part):
    card = str(toy_task.write_task(tmp_path, tags=["fruit"], notes="Made up.", citation="Nobody"))
    before = (brief / "metrics.json").stat().st_mtime_ns
    assert finetune_stage(checkpoint, card, BRIEF, brief).manifest["counts"], (
        "tags and notes decide nothing"
    )
    if part in WRITES:
        WRITES[part](tmp_path)
    model = toy_task.write_checkpoint(tmp_path / "other", seed=1) if part == "model" else checkpoint
    settings = replace(BRIEF, epochs=2) if part == "epochs" else BRIEF
    with pytest.raises(
        ArtifactError, match=rf"was made from other settings \(.*{part}.* there, .* now"
    ):
        finetune_stage(str(model), card, settings, brief)
    assert (brief / "metrics.json").stat().st_mtime_ns == before


def test_a_subset_of_the_training_data_is_the_same_for_every_model(
    checkpoint, card, tmp_path, monkeypatch
):
    subsets = []

    def remember(model, splits, *rest):
        subsets.append(splits["train"].tokens)
        raise KeyboardInterrupt

    monkeypatch.setattr("dana.stages.finetune_seed.run_seed", remember)
    for model in (checkpoint, str(toy_task.write_checkpoint(tmp_path / "other", seed=1))):
        with pytest.raises(KeyboardInterrupt):
            finetune_stage(model, card, replace(BRIEF, max_train=10), tmp_path / "out")
    assert len(subsets[0]) == 10
    assert subsets[0] == subsets[1]
    assert not (tmp_path / "out").exists()


def test_what_cannot_be_used_is_refused_and_nothing_is_written(checkpoint, card, tmp_path):
    out, bare = tmp_path / "out", toy_task.write_checkpoint(tmp_path / "bare")
    for file in bare.glob("tokenizer*"):
        file.unlink()
    words = str(toy_kinds.write_task(tmp_path / "words", "token_labels"))
    with pytest.raises(ConfigError, match="max_tokens=64: must be at most 32 for this model"):
        finetune_stage(checkpoint, card, replace(BRIEF, max_tokens=64), out)
    with pytest.raises(ArtifactError, match="bare: has no tokenizer"):
        finetune_stage(str(bare), card, BRIEF, out)
    with pytest.raises(ConfigError, match="pooling='mean': must be left out for kind=token_labels"):
        finetune_stage(checkpoint, words, replace(BRIEF, pooling="mean"), out)
    with pytest.raises(ConfigError, match="pooling='max': must be one of cls, mean, markers"):
        replace(BRIEF, pooling="max")
    assert not out.exists()


def test_data_that_change_while_they_are_read_are_refused(checkpoint, tmp_path, monkeypatch):
    card = toy_task.write_task(tmp_path)
    train = tmp_path / "toy" / "train.jsonl"
    monkeypatch.setattr(
        "dana.stages.finetune_seed.read_splits", lambda *of: (read_splits(*of), train.touch())[0]
    )
    with pytest.raises(DataError, match=r"train\.jsonl: changed while it was read"):
        finetune_stage(checkpoint, str(card), BRIEF, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_model_that_is_the_base_takes_over_the_seed_of_the_base(
    checkpoint, card, tmp_path, monkeypatch
):
    """As of an arm for which no objective was worth it; another seed, or another model, is trained."""
    base = seed_stage(checkpoint, card, BRIEF, 0, tmp_path / "base")
    trained = []

    def run_seed(model, inputs, card, preset, seed, *arguments):
        trained.append(seed)
        raise KeyboardInterrupt

    monkeypatch.setattr(finetune_seed, "run_seed", run_seed)
    arm = seed_stage(checkpoint, card, BRIEF, 0, tmp_path / "arm", twin=base.path)
    assert trained == []
    for name in ("metrics.json", "predictions.parquet"):
        assert (arm.path / name).read_bytes() == (base.path / name).read_bytes()
    kept = ("fingerprint", "depends_on", "counts", "precision")
    assert {key: arm.manifest[key] for key in kept} == {key: base.manifest[key] for key in kept}
    with pytest.raises(KeyboardInterrupt):
        seed_stage(checkpoint, card, BRIEF, 1, tmp_path / "other", twin=base.path)
    with pytest.raises(KeyboardInterrupt):
        seed_stage(checkpoint, card, BRIEF, 1, tmp_path / "first", twin=tmp_path / "missing")
    assert trained == [1, 1]
