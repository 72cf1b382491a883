"""Weights: the share that is kept, whole segments, text that never joins what was apart, the amount by itself."""

import json
import re
import shutil

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from two_topics import (
    CELLS,
    COURTS,
    frame_of,
    one_document,
    read_selected,
    write_scores,
    write_weights_of,
)

import dana
from dana.cli.main import main
from dana.core.artifacts import read_manifest
from dana.core.errors import ArtifactError, ConfigError, Contradiction, DataError
from dana.core.schemas import HELD_OUT_TARGET, iterate_documents, read_table
from dana.stages.arms import parse_arms
from dana.stages.texts import pool_stage
from dana.stages.weigh import CURVE, MOST_SOURCES, first_look, weigh_stage, weights_text
from dana.train.settings import AdaptSettings
from dana.weighting.in_domain import (
    Estimate,
    InDomain,
    describe_purity,
    held_out_target,
    split_held_out,
    warn_of_low_purity,
)
from dana.weighting.selection import SELECTED_TEXT, Pool
from dana.weighting.settings import POLICIES, WeighSettings

by_policy = pytest.mark.parametrize("policy", ["segments", "sampled", "sigmoid"])
by_segments = pytest.mark.parametrize("policy", ["segments", "sampled"])


@by_segments
def test_beta_is_the_share_of_units_that_is_kept_in_whole_segments(topics, tmp_path, policy):
    artifact = write_weights_of(topics, tmp_path / "w", policy=policy, beta=0.1, sharpness=20.0)
    weights = frame_of(artifact.path)
    assert set(weights["weight"]) == {0.0, 1.0}
    segments = weights.groupby(["doc_id", "segment"])["weight"].agg(["min", "max"])
    assert (segments["min"] == segments["max"]).all()
    assert segments["max"].sum() == artifact.manifest["counts"]["segments"]["selected"]
    budget = round(0.1 * len(weights))
    assert budget - 3 < weights["weight"].sum() <= budget  # a segment has at most three units
    assert (weights[weights["weight"] == 1]["source"] == "planted").mean() > 0.9


def test_sigmoid_weighs_every_unit_and_falls_with_the_score(topics, tmp_path):
    artifact = write_weights_of(topics, tmp_path / "w", policy="sigmoid", beta=0.2)
    weights, scores = frame_of(artifact.path), frame_of(topics[2] / "scores")
    assert weights["doc_id"].tolist() == scores["doc_id"].tolist()
    assert not (artifact.path / SELECTED_TEXT).exists()
    standard = (scores["score"] - scores["score"].mean()) / scores["score"].std(ddof=0)
    by_hand = 1 / (1 + np.exp(-4 * (np.quantile(standard, 0.2) - standard)))
    np.testing.assert_allclose(weights["weight"], by_hand, rtol=1e-4)


def test_a_first_look_shows_passages_of_the_whole_selection_and_not_of_its_first_file(tmp_path):
    """The first 1,200 documents are selected, too, but the best text comes after them."""
    task = "\n\n".join(f"cell {number} binds protein and gene" for number in range(40))
    (tmp_path / "cells.txt").write_text(task)
    rows = [
        {"id": f"{source}{number}", "source": source, "text": f"{words} number {number} of many."}
        for source, words in (("first", "the court ruled"), ("last", "cell binds protein"))
        for number in range(1200)
    ]
    (tmp_path / "pool.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    write_scores(tmp_path, tmp_path)
    settings = WeighSettings(beta=0.9, gamma=1)
    look = first_look(weigh_stage(tmp_path / "scores", tmp_path / "pool", settings, tmp_path / "w"))
    best, last = (
        [line for line in look.splitlines() if line.strip().startswith(f"{place}, ")]
        for place in ("best", "last")
    )
    assert [", last: cell binds protein number" in line for line in best] == [True, True]
    assert [", first: the court ruled number" in line for line in last] == [True, True]
    shares = [float(line.split()[-1].rstrip("%")) for line in look.splitlines()[2:4]]
    assert sum(shares) == pytest.approx(100, abs=0.2)
    assert "like held-out target text" in look


@pytest.mark.parametrize(("count", "note"), [(1, "1 other source"), (2, "2 other sources")])
def test_sources_that_are_not_shown_are_counted(topics, tmp_path, count, note):
    artifact = write_weights_of(topics, tmp_path / "w", beta=0.2)
    [sums, *_] = artifact.manifest["counts"]["by_source"].values()
    sources = {f"source {number}": sums for number in range(MOST_SOURCES + count)}
    artifact.manifest["counts"]["by_source"] = sources
    assert f"and {note}" in first_look(artifact).splitlines()


@pytest.mark.parametrize("stream", [False, True])
@by_segments
def test_selected_lines_are_the_kept_units_and_never_cross_a_gap(topics, tmp_path, policy, stream):
    artifact = write_weights_of(
        topics, tmp_path / "w", policy=policy, beta=0.4, gamma=2, sharpness=0.5, stream=stream
    )
    lines = read_selected(artifact.path)
    weights = frame_of(artifact.path).set_index(["doc_id", "unit"])
    documents = {
        document.doc_id: document.text for document in iterate_documents(topics[2] / "pool")
    }
    selection, units_of_lines = set(weights.index[weights["weight"] > 0]), set()
    for line in lines:
        units = {
            (line["doc_id"], unit) for unit in range(line["first_unit"], line["last_unit"] + 1)
        }
        assert units <= selection
        assert (line["doc_id"], line["first_unit"] - 1) not in selection
        assert (line["doc_id"], line["last_unit"] + 1) not in selection
        assert line["text"] == documents[line["doc_id"]][line["start"] : line["end"]]
        units_of_lines |= units
    assert units_of_lines == selection
    assert len(lines) == artifact.manifest["counts"]["selected_texts"]
    assert len({line["doc_id"] for line in lines}) < len(lines)  # some document has a gap


def test_counts_add_up_and_a_tokenizer_is_read_for_tokens_alone(topics, tmp_path):
    artifact = write_weights_of(
        topics, tmp_path / "w", budget="40 units", min_tail=2, tokenizer="no/such"
    )
    counts = artifact.manifest["counts"]["units"]
    assert 37 < counts["selected"] <= 40  # a segment has at most three
    assert (
        counts["in"]
        == counts["selected"] + counts["dropped_by_weight"] + counts["dropped_short_tail"]
    )
    assert counts["dropped_short_tail"] == (frame_of(artifact.path)["segment"] == -1).sum() > 0
    assert set(artifact.manifest["depends_on"]) == {"scores", "settings"}
    weights = frame_of(
        write_weights_of(topics, tmp_path / "long", gamma=10**11).path
    )  # beyond int32
    assert (weights["segment"] == 0).all(), "each document is a segment"
    assert (weights.groupby("doc_id")["weight"].nunique() == 1).all()


def test_a_budget_in_tokens_is_filled_by_the_tokenizer_that_is_there_now(
    topics, tmp_path, tiny_tokenizer, byte_level
):
    folder, artifacts = tmp_path / "tokenizer", []
    settings = {"gamma": 1, "budget": "1000 tokens", "tokenizer": str(folder)}
    # A space between units is a byte of no unit.
    for tokenizer, low, high in ((tiny_tokenizer, 950, 1000), (byte_level, 900, 1100)):
        shutil.rmtree(folder, ignore_errors=True)
        tokenizer.save_pretrained(folder)
        artifacts.append(write_weights_of(topics, tmp_path / f"w{high}", **settings))
        texts = [line["text"] for line in read_selected(artifacts[-1].path)]
        assert (
            low
            < sum(len(tokenizer(text, add_special_tokens=False)["input_ids"]) for text in texts)
            <= high
        )
        assert (
            write_weights_of(topics, tmp_path / f"w{high}", **settings).manifest
            == artifacts[-1].manifest
        )
    assert artifacts[0].fingerprint != artifacts[1].fingerprint
    before = sorted(path.stat().st_mtime_ns for path in artifacts[0].path.rglob("*"))
    with pytest.raises(Contradiction, match=r'tokenizer: "[0-9a-f]+" there, "[0-9a-f]+" now'):
        write_weights_of(topics, artifacts[0].path, **settings)
    assert sorted(path.stat().st_mtime_ns for path in artifacts[0].path.rglob("*")) == before


@pytest.mark.parametrize(
    ("settings", "scope"),
    [
        ({}, "every document"),
        ({"policy": "sampled"}, "every document"),
        ({"beta": "auto"}, "every document"),
        ({"stream": True, "gamma": 5000, "min_tail": 5000}, "the pool"),
    ],
)
def test_a_least_tail_beyond_every_document_is_refused(topics, tmp_path, settings, scope):
    settings = {"gamma": 200, "min_tail": 200, **settings}
    with pytest.raises(DataError, match=f"min_tail={settings['min_tail']}: .*{scope}"):
        write_weights_of(topics, tmp_path / "w", **settings)
    assert not (tmp_path / "w").exists()


@pytest.fixture(scope="module")
def planted_run(tmp_path_factory):
    """Score a task of 300 documents, and a pool whose tenth is like it."""
    folder = tmp_path_factory.mktemp("planted")
    random = np.random.default_rng(0)
    task = "\n\n".join(one_document(CELLS, random, 3) for _ in range(300))
    (folder / "cells.txt").write_text(task, encoding="utf-8")
    kinds = ["planted"] * 60 + ["court"] * 540
    records = [
        {
            "id": f"{kind}-{n}",
            "source": kind,
            "text": one_document(CELLS if kind == "planted" else COURTS, random, 3),
        }
        for n, kind in enumerate(kinds)
    ]
    (folder / "pool.jsonl").write_text(
        "".join(json.dumps(record) + "\n" for record in records), encoding="utf-8"
    )
    return write_scores(folder, folder / "run")


@by_policy
def test_the_in_domain_share_of_what_is_kept_is_estimated_and_a_low_one_warned_of(
    planted_run, tmp_path, heard, policy
):
    artifact = write_weights_of(
        planted_run, tmp_path / "w", policy=policy, beta=0.2, sharpness=20.0
    )
    in_domain, sources = artifact.manifest["in_domain"], artifact.manifest["counts"]["by_source"]
    truth = sources["planted"]["selected_units"] / sum(
        row["selected_units"] for row in sources.values()
    )
    assert 0.3 < truth < 0.6
    assert in_domain["pool"]["value"] == pytest.approx(0.1, abs=0.04)
    assert in_domain["selected"]["value"] == pytest.approx(truth, abs=0.12)
    percent = 100 * in_domain["selected"]["value"]
    assert f"at most about {percent:.0f} % of the selected text" in heard.text
    assert policy == "sigmoid" or re.search(
        "20 % is selected, and about .* % of the pool scores so", heard.text
    )
    beta = float(
        re.search(r"--beta (0\.\d+) ends where other text becomes more likely", heard.text)[1]
    )
    assert beta == pytest.approx(in_domain["mostly"], rel=0.05) == pytest.approx(0.1, abs=0.02)
    assert f"at most about {percent:.0f}% of the selected text" in describe_purity(in_domain)
    heard.clear()
    lean = write_weights_of(
        planted_run, tmp_path / "lean", policy=policy, beta=0.08, sharpness=100.0
    )
    assert lean.manifest["in_domain"]["selected"]["value"] > 0.8
    assert "like held-out" not in heard.text


def test_of_a_pool_that_is_selected_whole_the_share_is_the_pools(planted_run, tmp_path):
    in_domain = write_weights_of(planted_run, tmp_path / "w", beta=1.0).manifest["in_domain"]
    assert in_domain["selected"]["value"] == pytest.approx(in_domain["pool"]["value"])


@pytest.mark.parametrize(
    ("recall_low", "low", "reason"),
    [(0.15, 0.3, "than a random one"), (0.25, 0.02, "leave it between 2% and 95%")],
)
def test_what_may_be_chance_is_not_told(
    planted_run, tmp_path, monkeypatch, recall_low, low, reason
):
    estimates = Estimate(0.1, 0.05, 0.2), Estimate(0.5, recall_low, 0.7), Estimate(0.5, low, 0.95)
    monkeypatch.setattr(
        "dana.weighting.in_domain.estimate_in_domain", lambda *_: InDomain(*estimates, 0.1)
    )
    assert (
        reason
        in write_weights_of(planted_run, tmp_path / "w", beta=0.2).manifest["in_domain"]["unknown"]
    )


@pytest.mark.parametrize(
    ("pool", "mostly", "message"),
    [
        (0.0016, 4e-5, "hardly any of the pool (0.16 %)"),
        (0.0016, 0.0, "no score of the pool makes target text likely"),
        (0.01, 0.004, "--beta 0.004 ends where other text becomes more likely"),
    ],
)
def test_where_hardly_any_text_is_like_the_task_no_tiny_budget_is_advised(
    heard, pool, mostly, message
):
    warn_of_low_purity(
        {
            "pool": {"value": pool},
            "selected": {"value": 0.02},
            "selected_share": 0.05,
            "mostly": mostly,
        }
    )
    assert message in heard.text
    assert "filler" not in heard.text
    heard.clear()
    shares = {
        "pool": {"value": 0.01},
        "selected": {"value": 0.02},
        "selected_share": 0.05,
        "mostly": 0.06,
    }
    warn_of_low_purity(shares)
    assert "of the selected text scores like held-out text of the task" in heard.text
    assert "--beta" not in heard.text, "where it is larger than the budget"


def test_of_few_held_out_units_or_scores_by_chance_no_share_is_told(
    planted_run, tmp_path, monkeypatch
):
    def with_chance(table, seed):
        return table.set_column(
            5, "score", pa.array(np.random.default_rng(seed).random(table.num_rows))
        )

    def in_domain(name, held_out, **settings):
        monkeypatch.setattr("dana.weighting.in_domain.read_table", lambda path: held_out)
        return write_weights_of(planted_run, tmp_path / name, **settings).manifest["in_domain"]

    scores = with_chance(read_table(planted_run[2] / "scores"), 0)
    pool = Pool.from_tables([scores], scores.num_rows)
    monkeypatch.setattr("dana.stages.weigh.read_pool", lambda folder: pool)
    held_out = with_chance(pq.read_table(planted_run[2] / "scores" / HELD_OUT_TARGET), 1)
    unknown = in_domain("w", held_out)
    assert unknown == {"unknown": "the scores do not tell held-out target text from the pool"}
    assert "unknown (the scores do not tell" in describe_purity(unknown)
    alone = held_out.set_column(0, "doc_id", pa.array(map(str, range(held_out.num_rows))))
    reason = "the selection would hold no more held-out target text than a random one"
    assert in_domain("alone", alone) == {"unknown": reason}
    few = held_out.slice(0, 19)
    assert in_domain("few", few) == {"unknown": "19 held-out target units; an estimate needs 20"}
    one = held_out.set_column(0, "doc_id", pa.array(["one"] * held_out.num_rows))
    one = one.set_column(2, "unit", pa.array(range(held_out.num_rows), pa.int32()))
    assert in_domain("one", one) == {"unknown": "1 held-out target documents; an estimate needs 5"}
    reason = "0 held-out target units besides the 19 units that chose beta; an estimate needs 20"
    assert in_domain("auto", few, beta="auto") == {"unknown": reason}


def test_the_memory_that_weighing_needs_is_said_before(planted_run, tmp_path, heard):
    units = write_weights_of(planted_run, tmp_path / "w").manifest["counts"]["units"]["in"]
    assert f"weighing {units:,} units needs about 1 MB of memory" in heard.text


def test_counts_by_source_are_those_of_the_file(planted_run, tmp_path):
    """Of the sigmoid's weights the smallest are 0 in single precision, and are not selected."""
    artifact = write_weights_of(planted_run, tmp_path / "w", policy="sigmoid", sharpness=200.0)
    weights = frame_of(artifact.path)
    is_kept = weights["weight"] > 0
    counts = artifact.manifest["counts"]
    assert 0 < counts["units"]["dropped_by_weight"] == (~is_kept).sum() < counts["units"]["in"]
    weights["characters"] = weights["end"] - weights["start"]
    weights["selected_characters"] = weights["characters"] * weights["weight"].astype(float)
    sums = weights.groupby("source").agg(
        units=("unit", "size"),
        characters=("characters", "sum"),
        selected_units=("weight", lambda column: column.astype(float).sum()),
        selected_characters=("selected_characters", "sum"),
    )
    for source, row in counts["by_source"].items():
        assert row == pytest.approx(sums.loc[source].to_dict(), abs=1e-3)
    assert list(counts["by_source"]) == sorted(sums.index)


@by_policy
def test_beta_auto_keeps_about_as_much_as_there_is_of_the_task(planted_run, tmp_path, policy):
    """A tenth of the pool is like the task. Written on one half of the held-out documents, reported on the other."""
    artifact = write_weights_of(
        planted_run, tmp_path / "w", policy=policy, beta="auto", sharpness=100.0
    )
    amount = artifact.manifest["beta"]
    assert amount["by_likeness"] == pytest.approx(0.1, abs=0.02)
    assert amount["beta"] == min(amount["by_likeness"], amount["by_perplexity"])
    documents = pq.read_table(planted_run[2] / "scores" / HELD_OUT_TARGET)["doc_id"].to_pylist()
    assert amount["held_out_documents"] == (len(set(documents)) + 1) // 2
    weights = frame_of(artifact.path)
    assert weights["weight"].sum() == pytest.approx(amount["beta"] * len(weights), rel=0.1)
    assert (weights[weights["weight"] > 0.5]["source"] == "planted").mean() > 0.85
    again = write_weights_of(
        planted_run, tmp_path / "same", policy=policy, beta=amount["beta"], sharpness=100.0
    )
    np.testing.assert_array_equal(frame_of(again.path)["weight"], weights["weight"])
    curve = pd.read_csv(artifact.path / CURVE)
    assert curve["share"].tolist() == [0.01, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0]
    assert (curve["units"] == (curve["share"] * len(weights)).round()).all()
    below = curve["share"] < 1
    assert (curve["perplexity"][below] < curve["perplexity_random"][below]).all()
    assert curve["perplexity"].iloc[-1] == curve["perplexity_random"].iloc[-1]
    assert curve["in_domain"].is_monotonic_decreasing
    assert curve["in_domain"].iloc[-1] == pytest.approx(0.1, abs=0.02)
    text = weights_text(artifact)
    assert f"beta {amount['beta']:.3g}: a model of the best" in text
    assert f"{100 * amount['by_likeness']:.3g} % of the pool is like the task" in text
    assert (
        (artifact.path / CURVE).with_suffix(".svg").read_text(encoding="utf-8").startswith("<svg ")
    )


def test_beta_auto_is_one_choice_of_command_function_and_arm(planted_run, tmp_path, capsys):
    run, copy = planted_run[2], tmp_path / "run"
    assert (
        main(["weigh", str(run), "--beta", "auto", "--gamma", "3", "--out", str(tmp_path / "w")])
        == 0
    )
    manifest = read_manifest(tmp_path / "w")
    assert manifest["beta"]["reason"] in capsys.readouterr().out
    assert manifest["depends_on"]["settings"]["beta"] == "auto"
    shutil.copytree(run, copy)
    table = dana.weigh(copy, beta="auto", gamma=3)
    np.testing.assert_array_equal(table["weight"], frame_of(tmp_path / "w")["weight"])
    (arm,) = parse_arms(
        {"mine": {"weigh": {"beta": "auto"}}},
        "detector",
        WeighSettings(budget="9 units"),
        AdaptSettings(),
    )
    assert arm.weigh.is_auto
    with pytest.raises(ConfigError, match="beta='auto'"):
        dana.weigh(frame_of(run / "scores"), beta="auto")


def test_text_that_was_not_scored_is_refused(planted_run, topics, tmp_path):
    run, auto = tmp_path / "run", WeighSettings(beta="auto")
    (tmp_path / "x.txt").write_text("One.\nTwo.", encoding="utf-8")
    pool_stage([str(tmp_path / "x.txt")], tmp_path / "pool")
    shutil.copytree(planted_run[2], run)
    with pytest.raises(ConfigError, match=r"was not made from .*pool; score this pool first"):
        weigh_stage(run / "scores", tmp_path / "pool", WeighSettings(), run / "weights")
    shutil.rmtree(run / "target")
    with pytest.raises(ArtifactError, match="no target here"):
        weigh_stage(run / "scores", run / "pool", auto, run / "weights")
    shutil.copytree(topics[2] / "target", run / "target")
    with pytest.raises(ConfigError, match=r"was not made from .*target; score"):
        weigh_stage(run / "scores", run / "pool", auto, run / "weights")
    assert not (run / "weights").exists()


@pytest.mark.parametrize("name", ["part-00000.parquet", HELD_OUT_TARGET])
def test_scores_without_one_of_their_tables_are_refused(planted_run, tmp_path, name):
    run = tmp_path / "run"
    shutil.copytree(planted_run[2], run)
    file = run / "scores" / name
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(ArtifactError, match=f"{name}: damaged: .*; remove .*scores and run its"):
        weigh_stage(run / "scores", run / "pool", WeighSettings(), run / "weights")
    file.unlink()
    with pytest.raises(ArtifactError, match=f"{name}: is missing, although .*; copy the whole"):
        weigh_stage(run / "scores", run / "pool", WeighSettings(), run / "weights")
    assert not (run / "weights").exists()


def test_the_halves_of_held_out_text_share_no_document(planted_run):
    task = held_out_target(planted_run[2] / "scores")
    halves = split_held_out(task, 0)
    assert sum(half.num_rows for half in halves) == task.num_rows
    one, two = (set(half["doc_id"].to_pylist()) for half in halves)
    assert not one & two
    assert abs(len(one) - len(two)) <= 1
    assert set(split_held_out(task, 1)[0]["doc_id"].to_pylist()) != one
    assert [half.num_rows for half in split_held_out(task.slice(0, 39), 0)] == [39, 0]
    assert [half.num_rows for half in split_held_out(task.slice(0, 40), 0)] == [21, 19], (
        "the last has one unit"
    )


def test_weights_of_another_version_of_the_policy_are_refused(topics, tmp_path, monkeypatch):
    write_weights_of(topics, tmp_path / "w")
    monkeypatch.setitem(POLICIES, "sampled", 2)
    write_weights_of(topics, tmp_path / "w")
    monkeypatch.setitem(POLICIES, "segments", 2)
    with pytest.raises(ArtifactError, match=r"settings\.version: 1 there, 2 now"):
        write_weights_of(topics, tmp_path / "w")
