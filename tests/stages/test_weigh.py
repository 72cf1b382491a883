"""Weights: the share that is kept, whole segments, text that never joins what was apart."""

import numpy as np
import pytest
from two_topics import frame_of, read_selected, write_weights_of

from dana.errors import ConfigError
from dana.schemas import iterate_documents
from dana.stages.corpus import corpus_stage
from dana.stages.weigh import WeighSettings, weigh_stage


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
    assert not (artifact.path / "selected.jsonl.gz").exists()
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


def test_weights_of_another_corpus_are_refused(opened, texts, tmp_path):
    (tmp_path / "x.txt").write_text("One.\nTwo.", encoding="utf-8")
    corpus_stage([str(tmp_path / "x.txt")], tmp_path / "corpus")
    with pytest.raises(ConfigError, match="was not made from"):
        weigh_stage(opened[2] / "scores", tmp_path / "corpus", WeighSettings(), tmp_path / "weights")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"policy": "best"}, "policy='best': must be one of sigmoid, segments, sampled"),
        ({"beta": 0.0}, r"beta=0.0: must be in \(0, 1\]"),
        ({"gamma": 0}, "gamma=0: must be at least 1"),
        ({"min_tail": 9, "gamma": 3}, r"min_tail=9: must be in \[1, gamma=3\]"),
        ({"sharpness": -1.0}, "sharpness=-1.0: must be at least 0"),
        ({"budget": "10 words"}, "budget='10 words'"),
        ({"budget": "10 tokens"}, "counting tokens needs tokenizer=NAME"),
    ],
)
def test_weigh_settings_out_of_range_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        WeighSettings(**settings)
