"""Baselines: what they answer, on which texts they are fitted, and how a verdict takes the best of them."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import toy_task
from sklearn.metrics import f1_score

from dana.core.errors import ConfigError
from dana.report.analysis import analyse
from dana.report.headline import headline, next_step
from dana.report.run import read_run
from dana.report.summary import summary
from dana.stages.baselines import baselines_stage
from dana.stages.finetune import FinetuneSettings
from dana.stages.settings import BASELINES, RunSettings
from tests.report.conftest import write_results

TAGS, MARKED = ["O", "B-x"], {*toy_task.WORDS[40:]}
ENCODER = "hashing:dims=64,words=1"


def baselines(card, out, names=BASELINES, **settings):
    baselines_stage(str(card), out, FinetuneSettings(**settings), names, ENCODER)
    return {
        name: json.loads((out / name / "metrics.json").read_text())
        for name in names
        if (out / name).exists()
    }


def test_folds_without_any_predicted_label_are_joined_with_others(tmp_path):
    """In the first fold most training texts have no label, in the second most have one."""
    texts = [f"text {number}" for number in range(40)]
    labels = [["fruit"] if number < 24 else [] for number in range(40)]
    examples = [
        {"id": str(number), "text": text, "label": label, "fold": int(number >= 20)}
        for number, (text, label) in enumerate(zip(texts, labels, strict=True))
    ]
    card = toy_task.write_folds(
        tmp_path, folds=2, examples=examples, kind="multi_label", metric="micro_f1"
    )
    baselines_stage(str(card), tmp_path / "out", FinetuneSettings(), ["majority"], ENCODER, folds=2)
    table = pq.read_table(tmp_path / "out" / "majority" / "predictions.parquet")
    assert table["prediction"].type == pa.list_(pa.int64())
    assert {tuple(row) for row in table["prediction"].to_pylist()} == {(), (0,)}


def test_each_baseline_is_scored_on_the_test_texts_alone(tmp_path):
    card = toy_task.write_task(tmp_path)
    scores = baselines(card, tmp_path / "baselines")
    assert scores["majority"]["mean"] == pytest.approx(1 / 6)  # one of three even classes
    assert scores["tfidf"]["mean"] > 0.9
    assert scores["vectors"]["mean"] > 0.5
    for name in BASELINES:
        table = pq.read_table(tmp_path / "baselines" / name / "predictions.parquet").to_pydict()
        assert table["id"] == [row["id"] for row in toy_task.rows(60, 3)]
        assert scores[name]["mean"] == pytest.approx(
            f1_score(table["label"], table["prediction"], average="macro")
        )
        assert (scores[name]["n"], scores[name]["folds"], scores[name]["metric"]) == (
            60,
            None,
            "macro_f1",
        )
    same = baselines(card, tmp_path / "again")
    assert same == scores
    assert baselines(card, tmp_path / "few", max_train=9)["tfidf"]["mean"] < scores["tfidf"]["mean"]


@pytest.mark.parametrize(
    ("kind", "metric", "label", "labels"),
    [
        ("multi_label", "micro_f1", lambda row: [row["label"]], list(toy_task.SIGNS)),
        ("regression", "pearson", lambda row: float(len(row["text"].split())), []),
        (
            "token_labels",
            "span_f1",
            lambda row: [TAGS[word in MARKED] for word in row["text"].split()],
            TAGS,
        ),
    ],
)
def test_other_kinds_of_target(tmp_path, kind, metric, label, labels):
    card = toy_task.write_task(tmp_path, kind=kind, metric=metric, labels=labels)
    for seed, (split, count) in enumerate({"train": 120, "dev": 30, "test": 60}.items(), 1):
        rows = [{**row, "label": label(row)} for row in toy_task.rows(count, seed)]
        rows = (
            [{**row, "text": row["text"].split()} for row in rows]
            if kind == "token_labels"
            else rows
        )
        toy_task.write_split(tmp_path / "toy", split, rows)
    scores = baselines(card, tmp_path / "baselines")
    assert set(scores) == ({"majority"} if kind == "token_labels" else set(BASELINES))
    assert scores["majority"]["mean"] < 0.5
    assert kind == "token_labels" or scores["tfidf"]["mean"] > scores["majority"]["mean"] + 0.2


def test_baselines_of_the_settings():
    assert RunSettings().baseline_names == list(BASELINES)
    assert RunSettings(baselines="none").baseline_names == []
    with pytest.raises(
        ConfigError, match=r"baselines=.*none, or a list of some of majority, tfidf, vectors"
    ):
        RunSettings(baselines=["forest"])


def test_the_best_baseline_is_a_question_and_a_model_below_it_is_said_so(tmp_path):
    write_results(tmp_path, arms={"base": 0.5, "dana": 0.7})
    texts, labels = np.arange(300), np.arange(300) % 3
    for name, share in (("majority", 0.0), ("tfidf", 0.9), ("vectors", 0.5)):
        right = np.random.default_rng(2).random(300) < share
        answers = np.where(right, labels, 0)
        folder = tmp_path / "baselines" / "toy" / name
        folder.mkdir(parents=True)
        columns = {
            "adaptation": texts * 0,
            "id": [f"t{text:03d}" for text in texts],
            "label": labels,
        }
        pq.write_table(
            pa.table({**columns, "prediction": answers}).take(texts[::-1]),
            folder / "predictions.parquet",
        )
        head = {
            "task": "toy",
            "metric": "macro_f1",
            "direction": "higher",
            "kind": "single_label",
            "folds": None,
        }
        (folder / "metrics.json").write_text(json.dumps({**head, "labels": ["a", "b", "c"]}))
    analysis = analyse(read_run(tmp_path))
    rows = {row.other: row for row in analysis.questions}
    assert list(rows) == ["base", "TF-IDF"]
    assert (rows["TF-IDF"].verdict, rows["TF-IDF"].n) == ("worse", 8)
    assert rows["base"].p_holm == pytest.approx(2 * max(rows["base"].p, rows["TF-IDF"].p), rel=1)
    assert (
        headline(analysis)
        == "Adapted 0.71 is better than not adapted 0.51 and is worse than TF-IDF 0.94 on toy."
    )
    assert next_step(analysis).startswith("use TF-IDF, which is better and needs no adaptation")
    result = json.loads(json.dumps(summary(analysis)))
    assert (result["metric"], result["n"], result["folds"]) == ("macro_f1", 300, None)
    assert result["arms"]["dana"]["n"] == 8
    assert set(result["baselines"]) == {"majority", "tfidf", "vectors"}
    low, high = result["baselines"]["tfidf"]["interval"]
    assert low < result["baselines"]["tfidf"]["mean"] < high
    decisions = {(row["a"], row["b"]): row["decision"] for row in result["verdicts"]}
    assert decisions == {("dana", "base"): "better", ("dana", "tfidf"): "worse"}


def test_balanced_classes_raise_the_share_of_a_rare_one_in_the_linear_baselines(tmp_path):
    card = toy_task.write_task(tmp_path)
    rows = [row for row in toy_task.rows(300, 1) if row["label"] != "bird"]
    birds = [row for row in toy_task.rows(300, 1) if row["label"] == "bird"][:24]
    wrong = [{**row, "label": "metal"} for row in birds[8:]]  # more than are labelled right
    toy_task.write_split(tmp_path / "toy", "train", [*rows, *wrong, *birds[:8]])
    counts, scores = [], []
    for name, weight in (("plain", None), ("none", "none"), ("balanced", "balanced")):
        scores.append(baselines(card, tmp_path / name, class_weight=weight))
        counts.append(
            {
                baseline: pq.read_table(tmp_path / name / baseline / "predictions.parquet")
                .column("prediction")
                .to_pylist()
                .count(2)
                for baseline in BASELINES
            }
        )
    assert scores[0] == scores[1]
    assert scores[2]["majority"] == scores[0]["majority"]
    for name in ("tfidf", "vectors"):
        assert counts[2][name] > counts[0][name]
        assert scores[2][name]["mean"] > scores[0][name]["mean"]
