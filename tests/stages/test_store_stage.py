"""Scoring through an embedding store: what was encoded once is not encoded again, and rounding is recorded."""

import json
from dataclasses import replace

import pytest
from two_topics import SELECTION, frame_of

from dana.core.errors import ArtifactError, ConfigError
from dana.core.schemas import iterate_documents
from dana.scoring.settings import Selection
from dana.stages.score import run_score
from dana.stages.settings import RunSettings


def settings(texts, out, store, general="pool.jsonl", task="cells.txt", **selection):
    return RunSettings(
        out=str(out),
        task=str(texts / task),
        general=[str(texts / general)],
        detector="knn",
        selection=replace(SELECTION, store=store and str(store), **selection),
    )


def test_a_second_task_encodes_only_its_own_text(texts, tmp_path, encoder_texts):
    run_score(settings(texts, tmp_path / "one", tmp_path / "store"))
    assert len(encoder_texts) == len(set(encoder_texts)) > 500
    encoder_texts.clear()
    lines = (texts / "cells.txt").read_text(encoding="utf-8").split("\n\n")
    (tmp_path / "other.txt").write_text("\n\n".join(line.replace("ell", "all") for line in lines), encoding="utf-8")
    run_score(settings(texts, tmp_path / "two", tmp_path / "store", task=tmp_path / "other.txt"))
    documents = {document.doc_id: document.text for document in iterate_documents(tmp_path / "one" / "corpus")}
    scores = frame_of(tmp_path / "one" / "scores").itertuples()
    assert encoder_texts
    assert not {documents[row.doc_id][row.start : row.end] for row in scores} & set(encoder_texts)


def test_more_documents_encode_only_themselves(texts, tmp_path, encoder_texts):
    lines = (texts / "pool.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    (tmp_path / "less.jsonl").write_text("".join(lines[:80]), encoding="utf-8")
    run_score(settings(texts, tmp_path / "less", tmp_path / "store", general=tmp_path / "less.jsonl"))
    encoder_texts.clear()
    run_score(settings(texts, tmp_path / "more", tmp_path / "store"))
    new = [json.loads(line) for line in lines[80:]]
    assert 0 < len(encoder_texts) <= sum(document["text"].count(".") for document in new)
    assert all(any(text in document["text"] for document in new) for text in encoder_texts)


def test_the_place_of_a_store_changes_no_byte_and_rounding_only_a_little(texts, tmp_path):
    def scores(name, store, **selection):
        artifact = run_score(settings(texts, tmp_path / name, store and tmp_path / store, **selection))
        return artifact.fingerprint, (artifact.path / "part-00000.parquet").read_bytes()

    runs = [scores(name, store) for name, store in (("a", "x"), ("b", "x"), ("c", "y/z"))]  # filled, read, elsewhere
    assert runs[0] == runs[1] == runs[2]
    scores("exact", None)
    scores("int8", "x", store_dtype="int8")
    exact = frame_of(tmp_path / "exact" / "scores")["score"]
    for name, most_error in (("a", 1e-3), ("int8", 2e-2)):
        assert (frame_of(tmp_path / name / "scores")["score"] - exact).abs().max() < most_error
    with pytest.raises(ArtifactError, match=r'encoder[.]stored: null there, "int8" now'):
        scores("exact", "x", store_dtype="int8")
    plain = Selection().identity()
    assert {"store", "store_dtype"}.isdisjoint(plain)
    assert Selection(store_dtype="int8").identity() == plain
    assert Selection(store="x").identity() == {**plain, "store_dtype": "float16"}


def test_a_store_in_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(ConfigError, match="store="):
        Selection(store=str(tmp_path / "file"))
