"""Scoring through an embedding store: what was encoded once is not encoded again, and rounding is recorded."""

import json
from dataclasses import replace

import pytest
from two_topics import SELECTION, frame_of

from dana.core.errors import ArtifactError, ConfigError
from dana.encoders.hashing import HashingEncoder
from dana.scoring.settings import RankSettings, Selection
from dana.stages.rank import run_rank
from dana.stages.score import run_score
from dana.stages.settings import RunSettings


@pytest.fixture
def asked(monkeypatch):
    """Every text that the hashing encoder was asked for."""
    texts = []
    encode = HashingEncoder.encode
    monkeypatch.setattr(HashingEncoder, "encode", lambda self, more: texts.extend(more) or encode(self, more))
    return texts


def settings(texts, out, store, general="pool.jsonl", task="cells.txt", **selection):
    return RunSettings(
        out=str(out),
        task=str(texts / task),
        general=[str(texts / general)],
        detector="knn",
        ranking=RankSettings(detectors=["knn", "pca"], seeds=2),
        selection=replace(SELECTION, store=store and str(store), **selection),
    )


def test_a_second_task_encodes_only_its_own_text(texts, tmp_path, asked):
    run_score(settings(texts, tmp_path / "one", tmp_path / "store"))
    assert len(asked) == len(set(asked)) > 500
    asked.clear()
    lines = (texts / "cells.txt").read_text(encoding="utf-8").split("\n\n")
    (tmp_path / "other.txt").write_text("\n\n".join(line.replace("ell", "all") for line in lines), encoding="utf-8")
    run_score(settings(texts, tmp_path / "two", tmp_path / "store", task=tmp_path / "other.txt"))
    corpus = set(_units(tmp_path / "one"))
    assert asked
    assert not corpus & set(asked)


def _units(out):
    from dana.core.schemas import iterate_documents

    documents = {document.doc_id: document.text for document in iterate_documents(out / "corpus")}
    return [documents[row.doc_id][row.start : row.end] for row in frame_of(out / "scores").itertuples()]


def test_more_documents_encode_only_themselves(texts, tmp_path, asked):
    lines = (texts / "pool.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    (tmp_path / "less.jsonl").write_text("".join(lines[:80]), encoding="utf-8")
    run_score(settings(texts, tmp_path / "less", tmp_path / "store", general=tmp_path / "less.jsonl"))
    asked.clear()
    run_score(settings(texts, tmp_path / "more", tmp_path / "store"))
    new = [document for document in map(json.loads, lines[80:])]
    assert 0 < len(asked) <= sum(document["text"].count(".") for document in new)
    assert all(any(text in document["text"] for document in new) for text in asked)


def test_ranking_fills_the_store_that_scoring_reads(texts, tmp_path, asked):
    run_rank(settings(texts, tmp_path / "run", tmp_path / "store"))
    ranked = set(asked)
    asked.clear()
    run_score(settings(texts, tmp_path / "run", tmp_path / "store"))
    assert asked
    assert not ranked & set(asked)


def test_the_place_of_a_store_changes_no_byte_and_no_fingerprint(texts, tmp_path):
    runs = {}
    for name, store in [("a", "x"), ("b", "x"), ("c", "y/z")]:  # filled, read, elsewhere
        runs[name] = run_score(settings(texts, tmp_path / name, tmp_path / store))
    parts = [(artifact.path / "part-00000.parquet").read_bytes() for artifact in runs.values()]
    assert parts[0] == parts[1] == parts[2]
    assert len({artifact.fingerprint for artifact in runs.values()}) == 1


def test_rounding_enters_the_fingerprint_only_with_a_store(texts, tmp_path):
    plain = Selection().identity()
    assert {"store", "store_dtype"}.isdisjoint(plain)
    assert Selection(store_dtype="int8").identity() == plain
    assert Selection(store="x").identity() == {**plain, "store_dtype": "float16"}
    run_score(settings(texts, tmp_path / "run", None))
    with pytest.raises(ArtifactError, match=r'encoder[.]stored: null there, "int8" now'):
        run_score(settings(texts, tmp_path / "run", tmp_path / "store", store_dtype="int8"))


def test_rounding_hardly_moves_the_scores(texts, tmp_path):
    run_score(settings(texts, tmp_path / "none", None))
    exact = frame_of(tmp_path / "none" / "scores")["score"]
    for dtype, most in [("float16", 1e-3), ("int8", 2e-2)]:
        run_score(settings(texts, tmp_path / dtype, tmp_path / "store", store_dtype=dtype))
        assert (frame_of(tmp_path / dtype / "scores")["score"] - exact).abs().max() < most


def test_settings_of_a_store_are_checked(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(ConfigError, match="store_dtype='float8': must be one of float16, int8"):
        Selection(store_dtype="float8")
    with pytest.raises(ConfigError, match="store="):
        Selection(store=str(tmp_path / "file"))
