"""Weights: the share that is kept, whole segments, text that never joins what was apart."""

import json
import re
import shutil

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from two_topics import CELLS, COURTS, frame_of, one_document, read_selected, write_scores, write_weights_of

import dana
from dana.cli.main import main
from dana.core.artifacts import read_manifest
from dana.core.errors import ArtifactError, ConfigError, Contradiction, DataError
from dana.core.schemas import HELD_OUT_TASK, iterate_documents, read_table
from dana.stages.arms import parse_arms
from dana.stages.texts import corpus_stage
from dana.stages.weigh import CURVE, weigh_stage, weights_text
from dana.weighting.mixture import describe_purity, held_out_task, split_held_out, warn_of_low_purity
from dana.weighting.pool import Pool
from dana.weighting.settings import POLICIES, WeighSettings
from dana.weighting.texts import SELECTED_TEXT


@pytest.mark.parametrize("policy", ["segments", "sampled"])
def test_the_asked_share_of_units_is_kept_in_whole_segments_with_weight_one(opened, tmp_path, policy):
    artifact = write_weights_of(opened, tmp_path / "w", policy=policy, beta=0.1, sharpness=20.0)
    weights = frame_of(artifact.path)
    assert set(weights["weight"]) == {0.0, 1.0}
    segments = weights.groupby(["doc_id", "segment"])["weight"].agg(["min", "max"])
    assert (segments["min"] == segments["max"]).all()
    assert segments["max"].sum() == artifact.manifest["counts"]["segments"]["kept"]
    most = round(0.1 * len(weights))
    assert most - 3 < weights["weight"].sum() <= most  # a segment has at most three units
    kept = weights[weights["weight"] == 1]["source"].value_counts(normalize=True)
    assert kept["planted"] > 0.9


def test_sigmoid_weighs_every_unit_and_falls_with_the_score(opened, tmp_path):
    artifact = write_weights_of(opened, tmp_path / "w", policy="sigmoid", beta=0.2)
    weights, scores = frame_of(artifact.path), frame_of(opened[2] / "scores")
    assert weights["doc_id"].tolist() == scores["doc_id"].tolist()
    assert not (artifact.path / SELECTED_TEXT).exists()
    standard = (scores["score"] - scores["score"].mean()) / scores["score"].std(ddof=0)
    expected = 1 / (1 + np.exp(-4 * (np.quantile(standard, 0.2) - standard)))
    np.testing.assert_allclose(weights["weight"], expected, rtol=1e-4)
    by_source = weights.groupby("source")["weight"]
    assert by_source.min()["planted"] > by_source.max()["court"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("policy", ["segments", "sampled"])
def test_selected_lines_are_the_kept_units_and_never_cross_a_gap(opened, tmp_path, policy, stream):
    artifact = write_weights_of(opened, tmp_path / "w", policy=policy, beta=0.4, gamma=2, sharpness=0.5, stream=stream)
    lines = read_selected(artifact.path)
    weights = frame_of(artifact.path).set_index(["doc_id", "unit"])
    documents = {document.doc_id: document.text for document in iterate_documents(opened[2] / "corpus")}
    kept = set(weights.index[weights["weight"] > 0])
    seen = set()
    for line in lines:
        units = {(line["doc_id"], unit) for unit in range(line["first_unit"], line["last_unit"] + 1)}
        assert units <= kept
        assert (line["doc_id"], line["first_unit"] - 1) not in kept
        assert (line["doc_id"], line["last_unit"] + 1) not in kept
        assert line["text"] == documents[line["doc_id"]][line["start"] : line["end"]]
        seen |= units
    assert seen == kept
    assert len(lines) == artifact.manifest["counts"]["selected_texts"]
    assert len({line["doc_id"] for line in lines}) < len(lines)  # some document has a gap


def test_a_budget_in_units_is_not_exceeded_and_counts_add_up(opened, tmp_path):
    artifact = write_weights_of(opened, tmp_path / "w", budget="40 units", min_tail=2)
    counts = artifact.manifest["counts"]["units"]
    assert 37 < counts["kept"] <= 40  # a segment has at most three
    assert counts["in"] == counts["kept"] + counts["dropped_by_weight"] + counts["dropped_short_tail"]
    weights = frame_of(artifact.path)
    assert counts["dropped_short_tail"] == (weights["segment"] == -1).sum() > 0


@pytest.mark.parametrize("policy", ["segments", "sampled"])
def test_a_budget_in_documents_keeps_text_of_no_more_than_so_many(opened, tmp_path, policy):
    found = {}
    for gamma in (2, 1000):
        folder = tmp_path / f"{gamma}"
        weights = frame_of(write_weights_of(opened, folder, policy=policy, budget="12 documents", gamma=gamma).path)
        found[gamma] = weights[weights["weight"] > 0]["doc_id"].unique()
        assert len(found[gamma]) == 12
    whole = weights[weights["doc_id"].isin(found[1000])]
    assert (whole["weight"] == 1).all()  # one segment a document: it is kept as a whole


def test_a_budget_in_tokens_is_filled_and_not_exceeded(opened, tmp_path, tiny_tokenizer):
    tiny_tokenizer.save_pretrained(tmp_path / "tokenizer")
    given = {"budget": "1000 tokens", "tokenizer": str(tmp_path / "tokenizer")}
    made = write_weights_of(opened, tmp_path / "w", gamma=1, **given)
    of = [len(tiny_tokenizer(line["text"], add_special_tokens=False)["input_ids"]) for line in read_selected(made.path)]
    assert 950 < sum(of) <= 1000


def test_a_tokenizer_whose_folder_changes_is_another_one(opened, tmp_path, tiny_tokenizer, byte_level):
    place = tmp_path / "tokenizer"
    given = {"gamma": 1, "budget": "1000 tokens", "tokenizer": str(place)}
    made = {}
    for name, tokenizer in {"words": tiny_tokenizer, "bytes": byte_level}.items():
        shutil.rmtree(place, ignore_errors=True)
        tokenizer.save_pretrained(place)
        made[name] = write_weights_of(opened, tmp_path / name, **given)
        lines = [line["text"] for line in read_selected(made[name].path)]
        tokens = sum(len(tokenizer(text, add_special_tokens=False)["input_ids"]) for text in lines)
        assert 900 < tokens < 1100  # a space between units is a byte of no unit
        assert write_weights_of(opened, tmp_path / name, **given).manifest == made[name].manifest
    assert made["words"].fingerprint != made["bytes"].fingerprint
    before = sorted(path.stat().st_mtime_ns for path in made["words"].path.rglob("*"))
    with pytest.raises(Contradiction, match=r'tokenizer: "[0-9a-f]+" there, "[0-9a-f]+" now'):
        write_weights_of(opened, tmp_path / "words", **given)
    assert sorted(path.stat().st_mtime_ns for path in made["words"].path.rglob("*")) == before


@pytest.mark.parametrize("given", [{}, {"tokenizer": "no/such"}, {"budget": "40 units", "tokenizer": "no/such"}])
def test_without_a_budget_in_tokens_no_tokenizer_is_read(opened, tmp_path, given):
    made = write_weights_of(opened, tmp_path / "w", **given)
    assert set(made.manifest["depends_on"]) == {"scores", "settings"}


@pytest.mark.parametrize("budget", [0.2, "0.2"])
def test_a_share_as_budget_is_beta(opened, tmp_path, budget):
    one, two = (
        write_weights_of(opened, tmp_path / "w", budget=budget),
        write_weights_of(opened, tmp_path / "v", beta=0.2),
    )
    np.testing.assert_array_equal(frame_of(one.path)["weight"], frame_of(two.path)["weight"])


def test_a_gamma_beyond_int32_makes_each_document_a_segment(opened, tmp_path):
    weights = frame_of(write_weights_of(opened, tmp_path / "w", gamma=10**11).path)
    assert (weights["segment"] == 0).all()
    assert (weights.groupby("doc_id")["weight"].nunique() == 1).all()


@pytest.mark.parametrize(
    ("settings", "whole"),
    [
        ({}, "every document"),
        ({"policy": "sampled"}, "every document"),
        ({"beta": "auto"}, "every document"),
        ({"stream": True, "gamma": 5000, "min_tail": 5000}, "the corpus"),
    ],
)
def test_a_least_tail_beyond_every_document_is_refused(opened, tmp_path, settings, whole):
    settings = {"gamma": 200, "min_tail": 200, **settings}
    with pytest.raises(DataError, match=f"min_tail={settings['min_tail']}: .*{whole}"):
        write_weights_of(opened, tmp_path / "w", **settings)
    assert not (tmp_path / "w").exists()


def test_weights_of_another_corpus_are_refused(opened, texts, tmp_path):
    (tmp_path / "x.txt").write_text("One.\nTwo.", encoding="utf-8")
    corpus_stage([str(tmp_path / "x.txt")], tmp_path / "corpus")
    with pytest.raises(ConfigError, match="was not made from"):
        weigh_stage(opened[2] / "scores", tmp_path / "corpus", WeighSettings(), tmp_path / "weights")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"policy": "best"}, "policy='best': must be one of sigmoid, segments, sampled"),
        ({"beta": 0.0}, r"beta=0.0: must be in \(0, 1\], or auto"),
        ({"beta": "most"}, r"beta='most': must be in \(0, 1\], or auto"),
        ({"gamma": 0}, "gamma=0: must be from 1 to"),
        ({"min_tail": 9, "gamma": 3}, r"min_tail=9: must be in \[1, gamma=3\]"),
        ({"sharpness": -1.0}, "sharpness=-1.0: must be a finite number, at least 0"),
        ({"sharpness": float("inf")}, "sharpness=inf: must be a finite number, at least 0"),
        ({"midpoint": float("nan")}, "midpoint=nan: must be a finite number, or null"),
        ({"midpoint": float("-inf")}, "midpoint=-inf: must be a finite number, or null"),
        ({"budget": "nan units"}, "budget='nan units': must be"),
        ({"budget": "10 words"}, "budget='10 words'"),
        ({"budget": "10 tokens"}, "tokenizer=NAME"),
        ({"budget": "10 documents", "stream": True}, "stream=true"),
    ],
)
def test_weigh_settings_out_of_range_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        WeighSettings(**settings)


@pytest.mark.parametrize("policy", ["segments", "sampled"])
def test_short_segments_do_not_win_by_variance_unless_the_papers_rule_is_asked_for(
    opened, tmp_path, monkeypatch, policy
):
    """Scores without any meaning: chance favours short segments if their means are taken as they are."""
    table = read_table(opened[2] / "scores")
    shares = {False: [], True: []}
    for seed in range(6):
        scores = np.random.default_rng(seed).normal(size=table.num_rows)
        noise = table.set_column(table.schema.get_field_index("score"), "score", pa.array(scores))
        monkeypatch.setattr("dana.stages.weigh.scored_pool", lambda folder, noise=noise: Pool(noise))
        for shrink, found in shares.items():
            settings = WeighSettings(policy=policy, gamma=9, beta=0.1, shrink=shrink, sharpness=20.0, seed=seed)
            folder = weigh_stage(
                opened[2] / "scores", opened[2] / "corpus", settings, tmp_path / f"{seed}{shrink}"
            ).path
            weights = frame_of(folder)
            short = weights.groupby("doc_id")["unit"].transform("size") <= 2
            found.append(short[weights["weight"] > 0].mean())
    of_all = 0.067  # of documents of one to nine units
    assert np.mean(shares[False]) > 2 * of_all
    assert np.mean(shares[True]) < of_all


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """Scores of a task of 300 documents, and of a pool whose tenth is like it."""
    folder = tmp_path_factory.mktemp("planted")
    random = np.random.default_rng(0)
    task = "\n\n".join(one_document(CELLS, random, 3) for _ in range(300))
    (folder / "cells.txt").write_text(task, encoding="utf-8")
    kinds = ["planted"] * 60 + ["court"] * 540
    records = [
        {"id": f"{kind}-{n}", "source": kind, "text": one_document(CELLS if kind == "planted" else COURTS, random, 3)}
        for n, kind in enumerate(kinds)
    ]
    (folder / "pool.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return write_scores(folder, folder / "run")


@pytest.mark.parametrize("policy", ["segments", "sampled", "sigmoid"])
def test_the_in_domain_share_of_what_is_kept_is_estimated_and_a_low_one_warned_of(planted, tmp_path, heard, policy):
    artifact = write_weights_of(planted, tmp_path / "w", policy=policy, beta=0.2, sharpness=20.0)
    found = artifact.manifest["in_domain"]
    kept = artifact.manifest["counts"]["by_source"]
    truth = kept["planted"]["kept_units"] / sum(row["kept_units"] for row in kept.values())
    assert 0.3 < truth < 0.6
    assert found["pool"]["value"] == pytest.approx(0.1, abs=0.04)
    assert found["kept"]["value"] == pytest.approx(truth, abs=0.12)
    assert f"at most about {100 * found['kept']['value']:.0f} % of the selected text" in heard.text
    filler = f"20 % is selected, so {100 - 100 * found['kept']['value']:.0f} % of the selected text is filler"
    assert policy == "sigmoid" or filler in heard.text
    advised = float(re.search(r"try --beta (0\.\d+), beyond which a unit is more likely filler", heard.text)[1])
    assert advised == pytest.approx(found["mostly"], rel=0.05) == pytest.approx(0.1, abs=0.02)
    assert f"at most about {found['kept']['value']:.0%} of the selected text" in describe_purity(found)
    heard.clear()
    lean = write_weights_of(planted, tmp_path / "lean", policy=policy, beta=0.08, sharpness=100.0).manifest["in_domain"]
    assert lean["kept"]["value"] > 0.8
    assert "like the task" not in heard.text


@pytest.mark.parametrize(
    ("pool", "mostly", "said"),
    [
        (
            0.0016,
            4e-5,
            "hardly any of the pool (0.16 %)",
        ),
        (0.0016, 0.0, "none of the pool is in-domain"),
        (0.01, 0.004, "try --beta 0.004, beyond which a unit is more likely filler than not"),
    ],
)
def test_where_hardly_any_text_is_like_the_task_no_tiny_budget_is_advised(heard, pool, mostly, said):
    warn_of_low_purity({"pool": {"value": pool}, "kept": {"value": 0.02}, "kept_share": 0.05, "mostly": mostly})
    assert said in heard.text
    assert ("filler" in heard.text) == ("hardly any" not in said)


def test_of_few_held_out_units_or_scores_by_chance_no_share_is_purity_text(opened, planted, tmp_path, monkeypatch):
    table = read_table(planted[2] / "scores")
    chance = table.set_column(5, "score", pa.array(np.random.default_rng(0).random(table.num_rows)))
    monkeypatch.setattr("dana.stages.weigh.scored_pool", lambda folder: Pool(chance))
    held_out = pq.read_table(planted[2] / "scores" / HELD_OUT_TASK)
    random = held_out.set_column(5, "score", pa.array(np.random.default_rng(1).random(held_out.num_rows)))
    monkeypatch.setattr("dana.weighting.mixture.pq.read_table", lambda path: random)
    found = write_weights_of(planted, tmp_path / "w").manifest["in_domain"]
    assert found == {"unknown": "the scores do not tell held-out task text from the pool"}
    assert "unknown (the scores do not tell" in describe_purity(found)
    monkeypatch.setattr("dana.weighting.mixture.pq.read_table", lambda path: random.slice(0, 19))
    found = write_weights_of(planted, tmp_path / "few").manifest["in_domain"]
    assert found == {"unknown": "19 held-out task units; an estimate needs 20"}
    found = write_weights_of(planted, tmp_path / "auto", beta="auto").manifest["in_domain"]
    assert found == {"unknown": "0 held-out task units besides the 19 that chose beta; an estimate needs 20"}


@pytest.mark.parametrize(
    "settings", [{}, {"policy": "sampled"}, {"policy": "sigmoid"}, {"beta": "auto"}, {"stream": True, "gamma": 7}]
)
def test_no_byte_depends_on_how_much_is_in_memory(planted, tmp_path, monkeypatch, settings):
    whole = write_weights_of(planted, tmp_path / "whole", **settings)
    monkeypatch.setattr("dana.weighting.pool.ROWS", 50)
    monkeypatch.setattr("dana.weighting.selection.PIECE", 64)
    parts = write_weights_of(planted, tmp_path / "parts", **settings)
    files = [path.relative_to(whole.path) for path in whole.path.rglob("*") if path.is_file()]
    assert sorted(files) == sorted(path.relative_to(parts.path) for path in parts.path.rglob("*") if path.is_file())
    for file in files:
        if file.name != "manifest.json":
            assert (whole.path / file).read_bytes() == (parts.path / file).read_bytes(), file
    costs = ("seconds", "digest")
    said = [{key: value for key, value in one.manifest.items() if key not in costs} for one in (whole, parts)]
    assert said[0] == said[1]


@pytest.mark.parametrize("policy", ["segments", "sampled", "sigmoid"])
def test_beta_auto_keeps_about_as_much_as_there_is_of_the_task(planted, tmp_path, policy):
    """A tenth of the pool is like the task. Written on one half of the held-out documents, reported on the other."""
    artifact = write_weights_of(planted, tmp_path / "w", policy=policy, beta="auto", sharpness=100.0)
    chosen = artifact.manifest["beta"]
    assert chosen["by_likeness"] == pytest.approx(0.1, abs=0.02)
    assert chosen["beta"] == min(chosen["by_likeness"], chosen["by_perplexity"])
    documents = pq.read_table(planted[2] / "scores" / HELD_OUT_TASK)["doc_id"].to_pylist()
    assert chosen["held_out_documents"] == (len(set(documents)) + 1) // 2
    weights = frame_of(artifact.path)
    assert weights["weight"].sum() == pytest.approx(chosen["beta"] * len(weights), rel=0.1)
    assert weights[weights["weight"] > 0.5]["source"].value_counts(normalize=True)["planted"] > 0.85
    again = write_weights_of(planted, tmp_path / "same", policy=policy, beta=chosen["beta"], sharpness=100.0)
    np.testing.assert_array_equal(frame_of(again.path)["weight"], weights["weight"])
    curve = pd.read_csv(artifact.path / CURVE)
    assert curve["share"].tolist() == [0.01, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0]
    assert (curve["units"] == (curve["share"] * len(weights)).round()).all()
    below = curve["share"] < 1
    assert (curve["perplexity"][below] < curve["perplexity_random"][below]).all()
    assert curve["perplexity"].iloc[-1] == curve["perplexity_random"].iloc[-1]
    assert curve["in_domain"].is_monotonic_decreasing
    assert curve["in_domain"].iloc[-1] == pytest.approx(0.1, abs=0.02)
    said = weights_text(artifact)
    assert f"beta {chosen['beta']:.3g}: a model of the best" in said
    assert f"{100 * chosen['by_likeness']:.3g} % of the pool is like the task" in said
    assert (artifact.path / CURVE).with_suffix(".svg").read_text(encoding="utf-8").startswith("<svg ")


def test_beta_auto_is_one_choice_of_command_function_and_arm(planted, tmp_path, capsys):
    run = planted[2]
    assert main(["weigh", str(run), "--beta", "auto", "--gamma", "3", "--to", str(tmp_path / "w")]) == 0
    said = capsys.readouterr().out
    manifest = read_manifest(tmp_path / "w")
    assert manifest["beta"]["reason"] in said
    assert manifest["depends_on"]["settings"]["beta"] == "auto"
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    table = dana.weigh(copy, beta="auto", gamma=3)
    np.testing.assert_array_equal(table["weight"], frame_of(tmp_path / "w")["weight"])
    (arm,) = parse_arms({"mine": {"weigh": {"beta": "auto"}}}, "detector", WeighSettings(budget="9 units"))
    assert arm.weigh.is_auto
    with pytest.raises(ConfigError, match="beta='auto'"):
        dana.weigh(frame_of(run / "scores"), beta="auto")


def test_beta_auto_wants_the_task_that_was_scored(planted, opened, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(planted[2], run)
    shutil.rmtree(run / "task")
    with pytest.raises(ArtifactError, match="no task here"):
        weigh_stage(run / "scores", run / "corpus", WeighSettings(beta="auto"), run / "weights")
    shutil.copytree(opened[2] / "task", run / "task")
    with pytest.raises(ConfigError, match=r"was not made from .*task; score this task first"):
        weigh_stage(run / "scores", run / "corpus", WeighSettings(beta="auto"), run / "weights")
    assert not (run / "weights").exists()


def test_the_halves_of_held_out_text_share_no_document(planted):
    task = held_out_task(planted[2] / "scores")
    chooses, reports = split_held_out(task, 0)
    assert chooses.num_rows + reports.num_rows == task.num_rows
    of = [set(part["doc_id"].to_pylist()) for part in (chooses, reports)]
    assert not of[0] & of[1]
    assert abs(len(of[0]) - len(of[1])) <= 1
    assert set(split_held_out(task, 1)[0]["doc_id"].to_pylist()) != of[0]
    few, none = split_held_out(task.slice(0, 39), 0)
    assert (few.num_rows, none.num_rows) == (39, 0)


def test_weights_of_another_version_of_the_policy_are_refused(opened, tmp_path, monkeypatch):
    write_weights_of(opened, tmp_path / "w")
    monkeypatch.setitem(POLICIES, "sampled", 2)
    write_weights_of(opened, tmp_path / "w")
    monkeypatch.setitem(POLICIES, "segments", 2)
    with pytest.raises(ArtifactError, match=r"settings\.version: 1 there, 2 now"):
        write_weights_of(opened, tmp_path / "w")
