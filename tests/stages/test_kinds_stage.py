"""A task of every kind, from fine-tuning to a report: results, saved models, new text, verdicts."""

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import toy_kinds
import toy_task
from transformers import AutoConfig, AutoModel, AutoModelForTokenClassification, AutoTokenizer, pipeline

from dana.core.artifacts import read_manifest
from dana.core.errors import ArtifactError
from dana.report.cells import read_cell
from dana.report.verdicts import measure_pair
from dana.stages.check_task import check_task
from dana.stages.finetune import FinetuneSettings, finetune_stage
from dana.stages.predict import NewText, predict_stage
from dana.tasks.card import load_card
from dana.tasks.kinds import KINDS

LEARNT = {"multi_label": 0.9, "regression": 25, "token_labels": 0.9}
OTHERS = sorted(set(KINDS) - {"single_label"})


@pytest.fixture(scope="module")
def run_of(checkpoint, tmp_path_factory):
    """A finished fine-tuning of a kind, made when it is first asked for."""
    made = {}

    def of(kind):
        if kind not in made:
            made[kind] = toy_kinds.finetuned(checkpoint, tmp_path_factory.mktemp(kind), kind, seeds=2)
        return made[kind]

    return of


def labelled(model, *files, **settings):
    return pa.concat_tables(predict_stage(str(model), NewText([str(file) for file in files], **settings)))


def data(out):
    return out.parents[2] / "tasks" / "toy"


def test_every_kind_has_a_toy_task():
    assert set(OTHERS) == set(toy_kinds.ROWS)


@pytest.mark.parametrize("kind", OTHERS)
def test_a_task_that_can_be_learnt_is_learnt(run_of, kind):
    found = toy_kinds.metrics(run_of(kind))
    sign = 1 if found["direction"] == "higher" else -1
    assert all(sign * row["score"] > sign * LEARNT[kind] for row in found["seeds"]), found["seeds"]
    assert not any(row["degenerate"] for row in found["seeds"])
    assert found["kind"] == kind
    assert set(KINDS[kind].metrics) <= set(found["seeds"][0])


@pytest.mark.parametrize("kind", OTHERS)
def test_predictions_of_the_kept_model_are_those_of_the_run(run_of, kind):
    out = run_of(kind)
    seed = read_manifest(out.with_name("dana-model"))["seeds"]["seed"]
    own = pq.read_table(out / "predictions.parquet", filters=[("seed", "==", seed)])
    found = labelled(out.with_name("dana-model"), data(out) / "test.jsonl")
    target = load_card(str(data(out).parent / "toy.yaml")).target
    outputs = target.outputs_from({name: own[name] for name in own.column_names})
    sizes = target.sizes(target.answers(own["label"]))
    shown = pa.table(target.prediction_columns(outputs, sizes)).to_pylist()
    assert [row["id"] for row in found.to_pylist()] == own["id"].to_pylist()
    for mine, expected in zip(found.to_pylist(), shown, strict=True):
        for name, value in expected.items():
            assert mine[name] == (value if name == "label" else pytest.approx(value, abs=1e-5))


@pytest.mark.parametrize("kind", OTHERS)
def test_the_best_seed_is_kept_and_an_epoch_is_chosen_the_right_way_round(checkpoint, tmp_path, ran, kind):
    out = toy_kinds.finetuned(checkpoint, tmp_path, kind, seeds=3, epochs=3, evaluate="best")
    found = toy_kinds.metrics(out)
    best = max if found["direction"] == "higher" else min
    assert ran == [0, 1, 2]  # the best one's weights were there at the end
    for row in found["seeds"]:
        assert row["dev_score"] == best(row["dev_scores"])
    scores = {row["seed"]: row["dev_score"] for row in found["seeds"]}
    assert scores[read_manifest(out.with_name("dana-model"))["seeds"]["seed"]] == best(scores.values())


@pytest.mark.parametrize("kind", OTHERS)
def test_the_kind_is_part_of_what_a_result_is_made_from(run_of, kind):
    assert read_manifest(run_of(kind))["depends_on"]["task"]["kind"] == kind


@pytest.mark.parametrize("kind", OTHERS)
def test_a_result_with_more_seeds_keeps_those_that_are_done(run_of, checkpoint, kind, ran, tmp_path):
    """What is read back from predictions.parquet is what the seeds gave."""
    card, out = str(data(run_of(kind)).parent / "toy.yaml"), tmp_path / "out"
    settings = FinetuneSettings(preset="quick", epochs=1, seeds=1)
    finetune_stage(checkpoint, card, settings, out)
    finetune_stage(checkpoint, card, replace(settings, seeds=2), out)
    finetune_stage(checkpoint, card, replace(settings, seeds=2), tmp_path / "whole")
    assert ran == [0, 1, 0, 1]
    assert pq.read_table(out / "predictions.parquet").equals(pq.read_table(tmp_path / "whole" / "predictions.parquet"))


@pytest.mark.parametrize("kind", OTHERS)
def test_test_labels_are_not_looked_at_before_the_end(run_of, checkpoint, kind, tmp_path):
    """With other test labels the same models come out: same epochs, same predictions."""
    out = run_of(kind)
    toy_kinds.write_task(tmp_path / "tasks", kind)
    rows = toy_kinds.ROWS[kind](60, 3)
    if kind == "token_labels":
        rows = [{**row, "tags": row["tags"][::-1]} for row in rows]
    else:
        moved = [rows[-1], *rows[:-1]]
        rows = [{**row, "label": other["label"]} for row, other in zip(rows, moved, strict=True)]
    toy_task.write_split(tmp_path / "tasks" / "toy", "test", rows)
    settings = FinetuneSettings(preset="quick", seeds=2)
    finetune_stage(checkpoint, str(tmp_path / "tasks" / "toy.yaml"), settings, tmp_path / "out")
    ours, theirs = (pq.read_table(folder / "predictions.parquet") for folder in (tmp_path / "out", out))
    assert ours["prediction"].equals(theirs["prediction"])
    assert not ours["label"].equals(theirs["label"])
    names = ("dev_scores", "epoch")
    rows = [
        [[row[name] for name in names] for row in toy_kinds.metrics(folder)["seeds"]]
        for folder in (tmp_path / "out", out)
    ]
    assert rows[0] == rows[1]


@pytest.mark.parametrize("kind", OTHERS)
def test_the_report_reads_it_and_compares_arms(run_of, kind):
    cell = read_cell(run_of(kind) / "metrics.json", "dana")
    worse = cell.predictions.answers.copy()
    worse[:, 0] = worse[:, 1] if kind != "token_labels" else [(0,) * len(codes) for codes in worse[:, 0]]
    scorer = cell.predictions.kind.scorer
    [scores] = scorer(worse, cell.predictions.labels, cell.metric)(np.ones((1, 60)))
    base = replace(cell, arm="base", predictions=replace(cell.predictions, answers=worse),
                   scores=dict(zip(cell.scores, map(float, scores), strict=True)))  # fmt: skip
    row = measure_pair(cell, base)
    assert row.mean == pytest.approx(np.mean([cell.scores[seed] - base.scores[seed] for seed in cell.seeds]))
    assert row.low <= row.mean <= row.high


@pytest.mark.parametrize("kind", OTHERS)
def test_clean_data_gives_no_warning_of_labels(run_of, kind):
    check = check_task(str(data(run_of(kind)).parent / "toy.yaml"))
    assert not [said for said in check.warnings if "shared out" in said or "no example" in said]
    assert {row["split"] for row in check.tables["labels"]} == {"train", "dev", "test"}
    str(check)


def test_a_pipeline_gives_each_label_its_probability(run_of):
    out = run_of("multi_label")
    rows = toy_kinds.ROWS["multi_label"](8, 3)
    classify = pipeline("text-classification", str(out.with_name("dana-model")), top_k=None)
    found = [{one["label"]: one["score"] for one in each} for each in classify([row["text"] for row in rows])]
    for row, mine in zip(
        found, labelled(out.with_name("dana-model"), data(out) / "test.jsonl").to_pylist(), strict=False
    ):
        given = {label for label, score in row.items() if score >= 0.5}
        assert given == set(mine["label"])
        assert [row[label] for label in mine["label"]] == pytest.approx(mine["probability"], abs=1e-5)


def test_the_saved_model_of_words_is_transformers_own(run_of):
    """The label of a word is that of its first token."""
    out = run_of("token_labels")
    model, place = out.with_name("dana-model"), str(out.with_name("dana-model"))
    opened, tokenizer = AutoModelForTokenClassification.from_pretrained(place), AutoTokenizer.from_pretrained(place)
    rows, mine = toy_kinds.ROWS["token_labels"](8, 3), labelled(model, data(out) / "test.jsonl").to_pylist()
    for row, found in zip(rows, mine[:8], strict=True):
        made = tokenizer(row["tokens"], is_split_into_words=True, return_tensors="pt")
        codes = opened.eval()(**made).logits[0].argmax(-1).tolist()
        words = made.word_ids()
        first = [words.index(place) for place in range(len(row["tokens"]))]
        assert [opened.config.id2label[codes[at]] for at in first] == found["label"]


def test_words_beyond_the_cut_have_no_label(run_of, tmp_path):
    (tmp_path / "new.jsonl").write_text(json.dumps({"tokens": ["wren"] * 30}) + "\n")
    [row] = labelled(run_of("token_labels").with_name("dana-model"), tmp_path / "new.jsonl").to_pylist()
    assert len(row["label"]) == 30
    assert [label is None for label in row["label"]] == [False] * 22 + [True] * 8
    assert row["probability"][22:] == [None] * 8


def test_a_head_without_a_bias_is_refused_for_numbers_before_training(tmp_path):
    AutoTokenizer.from_pretrained(toy_task.write_checkpoint(tmp_path / "toy")).save_pretrained(tmp_path / "gpt2")
    config = AutoConfig.for_model("gpt2", vocab_size=toy_task.SIZE["vocab_size"], n_embd=32, n_layer=1, n_head=2)
    AutoModel.from_config(config).save_pretrained(tmp_path / "gpt2")
    card = str(toy_kinds.write_task(tmp_path / "tasks", "regression"))
    settings = FinetuneSettings(preset="quick", epochs=1, seeds=1)
    with pytest.raises(ArtifactError, match=r"no bias.*pooling=mean"):
        finetune_stage(str(tmp_path / "gpt2"), card, settings, tmp_path / "out")
    finetune_stage(str(tmp_path / "gpt2"), card, replace(settings, pooling="mean"), tmp_path / "out")
    assert toy_kinds.metrics(tmp_path / "out")["n"] == 1
