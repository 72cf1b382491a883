"""A task of every kind, from fine-tuning to a report: results, saved models, new text, verdicts."""

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import toy_kinds
import toy_task
from transformers import AutoConfig, AutoModel, AutoTokenizer, pipeline

from dana.core.artifacts import read_manifest
from dana.core.errors import ArtifactError
from dana.report.arm_results import read_arm_result
from dana.report.verdicts import measure_pair
from dana.stages.check_task import check_task
from dana.stages.finetune import FinetuneSettings, finetune_stage
from dana.tasks.card import load_card
from dana.tasks.kinds import KINDS, LABELLED
from tests.stages.tiny_training import label

LEARNT = {"multi_label": 0.9, "regression": 25, "token_labels": 0.9}
OTHERS = sorted({kind.name for kind in LABELLED} - {"single_label"})

by_kind = pytest.mark.parametrize("kind", OTHERS)


@pytest.fixture(scope="module")
def run_of(checkpoint, tmp_path_factory):
    """Fine-tune on a task of a kind when it is first asked for."""
    runs = {}

    def run(kind):
        if kind not in runs:
            runs[kind] = toy_kinds.finetuned(
                checkpoint, tmp_path_factory.mktemp(kind), kind, seeds=2
            )
        return runs[kind]

    return run


def model_of(out):
    return out.with_name("dana-model")


def card_of(out):
    return out.parents[2] / "tasks" / "toy.yaml"


@by_kind
def test_a_task_of_a_kind_is_learnt_and_its_data_has_no_warning(run_of, kind):
    out = run_of(kind)
    results = toy_kinds.metrics(out)
    sign = 1 if results["direction"] == "higher" else -1
    assert all(sign * row["score"] > sign * LEARNT[kind] for row in results["seeds"]), results[
        "seeds"
    ]
    assert not any(row["degenerate"] for row in results["seeds"])
    assert results["kind"] == kind == read_manifest(out)["depends_on"]["task"]["kind"]
    assert set(KINDS[kind].metrics) <= set(results["seeds"][0])
    check = check_task(str(card_of(out)))
    assert not [
        warning for warning in check.warnings if "shared out" in warning or "no example" in warning
    ]
    assert {row["split"] for row in check.tables["labels"]} == {"train", "dev", "test"}


@by_kind
def test_predictions_of_the_model_are_those_of_the_run(run_of, kind):
    out = run_of(kind)
    seed = read_manifest(model_of(out))["seeds"]["seed"]
    run_rows = pq.read_table(out / "predictions.parquet", filters=[("seed", "==", seed)])
    rows = label(model_of(out), card_of(out).parent / "toy" / "test.jsonl")
    target = load_card(str(card_of(out))).label_kind
    outputs = target.outputs_from({name: run_rows[name] for name in run_rows.column_names})
    sizes = target.sizes(target.labels_from(run_rows["label"]))
    columns = pa.table(target.prediction_columns(outputs, sizes)).to_pylist()
    assert [row["id"] for row in rows] == run_rows["id"].to_pylist()
    for row, values in zip(rows, columns, strict=True):
        for name, value in values.items():
            assert row[name] == (value if name == "label" else pytest.approx(value, abs=1e-5))


@by_kind
def test_the_best_seed_is_kept_and_an_epoch_is_chosen_the_right_way_round(
    checkpoint, tmp_path, ran, kind
):
    out = toy_kinds.finetuned(checkpoint, tmp_path, kind, seeds=3, epochs=3, evaluate="best")
    results = toy_kinds.metrics(out)
    best = max if results["direction"] == "higher" else min
    assert ran == [0, 1, 2]  # the best one's weights were there at the end
    for row in results["seeds"]:
        assert row["dev_score"] == best(row["dev_scores"])
    scores = {row["seed"]: row["dev_score"] for row in results["seeds"]}
    assert scores[read_manifest(model_of(out))["seeds"]["seed"]] == best(scores.values())


@by_kind
def test_test_labels_are_not_looked_at_before_the_end(run_of, checkpoint, kind, tmp_path):
    """With other test labels the same models come out: same epochs, same predictions."""
    toy_kinds.write_task(tmp_path / "tasks", kind)
    rows = toy_kinds.ROWS[kind](60, 3)
    if kind == "token_labels":
        rows = [{**row, "tags": row["tags"][::-1]} for row in rows]
    else:
        rows = [
            {**row, "label": other["label"]}
            for row, other in zip(rows, [rows[-1], *rows[:-1]], strict=True)
        ]
    toy_task.write_split(tmp_path / "tasks" / "toy", "test", rows)
    settings = FinetuneSettings(preset="quick", seeds=1)
    finetune_stage(checkpoint, str(tmp_path / "tasks" / "toy.yaml"), settings, tmp_path / "out")
    tables = [
        pq.read_table(out / "predictions.parquet").slice(0, 60)
        for out in (tmp_path / "out", run_of(kind))
    ]
    assert tables[0].drop(["label"]).equals(tables[1].drop(["label"]))
    assert not tables[0]["label"].equals(tables[1]["label"])
    first, second = (toy_kinds.metrics(out)["seeds"][0] for out in (tmp_path / "out", run_of(kind)))
    assert (first["dev_scores"], first["epoch"]) == (second["dev_scores"], second["epoch"])


@by_kind
def test_the_report_reads_it_and_compares_arms(run_of, kind):
    step = read_arm_result(run_of(kind) / "metrics.json", "dana")
    worse = step.predictions.predicted.copy()
    worse[:, 0] = (
        worse[:, 1] if kind != "token_labels" else [(0,) * len(codes) for codes in worse[:, 0]]
    )
    scorer = step.predictions.kind.scorer
    [scores] = scorer(worse, step.predictions.labels, step.metric)(np.ones((1, 60)))
    predictions = replace(step.predictions, predicted=worse)
    scores = dict(zip(step.scores, map(float, scores), strict=True))
    base = replace(step, arm="base", predictions=predictions, scores=scores)
    row = measure_pair(step, base)
    assert row.mean == pytest.approx(
        np.mean([step.scores[seed] - base.scores[seed] for seed in step.seeds])
    )
    assert row.low <= row.mean <= row.high


def test_a_pipeline_gives_each_label_its_probability(run_of):
    out = run_of("multi_label")
    classify = pipeline("text-classification", str(model_of(out)), top_k=None)
    texts = [row["text"] for row in toy_kinds.ROWS["multi_label"](8, 3)]
    rows = label(model_of(out), card_of(out).parent / "toy" / "test.jsonl")[:8]
    for scores, row in zip(classify(texts), rows, strict=True):
        probabilities = {score["label"]: score["score"] for score in scores}
        assert {name for name, value in probabilities.items() if value >= 0.5} == set(row["label"])
        assert [probabilities[name] for name in row["label"]] == pytest.approx(
            row["probability"], abs=1e-5
        )


def test_words_beyond_the_cut_have_no_label(run_of, tmp_path):
    (tmp_path / "new.jsonl").write_text(json.dumps({"tokens": ["wren"] * 30}) + "\n")
    [row] = label(model_of(run_of("token_labels")), tmp_path / "new.jsonl")
    assert len(row["label"]) == 30
    assert [word_label is None for word_label in row["label"]] == [False] * 22 + [True] * 8
    assert row["probability"][22:] == [None] * 8


def test_a_head_without_a_bias_is_refused_for_numbers_before_training(tmp_path):
    model, settings = str(tmp_path / "gpt2"), FinetuneSettings(preset="quick", epochs=1, seeds=1)
    AutoTokenizer.from_pretrained(toy_task.write_checkpoint(tmp_path / "toy")).save_pretrained(
        model
    )
    config = AutoConfig.for_model(
        "gpt2", vocab_size=toy_task.SIZE["vocab_size"], n_embd=32, n_layer=1, n_head=2
    )
    AutoModel.from_config(config).save_pretrained(model)
    card = str(toy_kinds.write_task(tmp_path / "tasks", "regression"))
    with pytest.raises(ArtifactError, match=r"no bias.*pooling=mean"):
        finetune_stage(model, card, settings, tmp_path / "out")
    finetune_stage(model, card, replace(settings, pooling="mean"), tmp_path / "out")
    assert toy_kinds.metrics(tmp_path / "out")["n"] == 1
