"""Scoring through a store, and ``dana store``: what was encoded once is not encoded again, damage is reported."""

import json
import os
import time
from dataclasses import replace

import pytest
import torch
from two_topics import SELECTION, frame_of

from dana.artifacts import fingerprint
from dana.cli import main
from dana.encoders.hashing import HashingEncoder
from dana.encoders.segment import ASIDE, PATTERN
from dana.encoders.store import Stored, create_encoder
from dana.errors import ArtifactError, ConfigError
from dana.stages.rank import RankSettings
from dana.stages.run import rank, score
from dana.stages.selection import Selection
from dana.stages.settings import RunSettings
from dana.stages.store import info, parse_bytes, prune, verify


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
    score(settings(texts, tmp_path / "one", tmp_path / "store"))
    assert len(asked) == len(set(asked)) > 500
    asked.clear()
    lines = (texts / "cells.txt").read_text(encoding="utf-8").split("\n\n")
    (tmp_path / "other.txt").write_text("\n\n".join(line.replace("ell", "all") for line in lines), encoding="utf-8")
    score(settings(texts, tmp_path / "two", tmp_path / "store", task=tmp_path / "other.txt"))
    corpus = set(_units(tmp_path / "one"))
    assert asked
    assert not corpus & set(asked)


def _units(out):
    from dana.schemas import iterate_documents

    documents = {document.doc_id: document.text for document in iterate_documents(out / "corpus")}
    return [documents[row.doc_id][row.start : row.end] for row in frame_of(out / "scores").itertuples()]


def test_more_documents_encode_only_themselves(texts, tmp_path, asked):
    lines = (texts / "pool.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    (tmp_path / "less.jsonl").write_text("".join(lines[:80]), encoding="utf-8")
    score(settings(texts, tmp_path / "less", tmp_path / "store", general=tmp_path / "less.jsonl"))
    asked.clear()
    score(settings(texts, tmp_path / "more", tmp_path / "store"))
    new = [document for document in map(json.loads, lines[80:])]
    assert 0 < len(asked) <= sum(document["text"].count(".") for document in new)
    assert all(any(text in document["text"] for document in new) for text in asked)


def test_ranking_fills_the_store_that_scoring_reads(texts, tmp_path, asked):
    rank(settings(texts, tmp_path / "run", tmp_path / "store"))
    ranked = set(asked)
    asked.clear()
    score(settings(texts, tmp_path / "run", tmp_path / "store"))
    assert asked
    assert not ranked & set(asked)


def test_the_place_of_a_store_changes_no_byte_and_no_fingerprint(texts, tmp_path):
    runs = {}
    for name, store in [("a", "x"), ("b", "x"), ("c", "y/z")]:  # filled, read, elsewhere
        runs[name] = score(settings(texts, tmp_path / name, tmp_path / store))
    parts = [(artifact.path / "part-00000.parquet").read_bytes() for artifact in runs.values()]
    assert parts[0] == parts[1] == parts[2]
    assert len({artifact.fingerprint for artifact in runs.values()}) == 1


def test_rounding_enters_the_fingerprint_only_with_a_store(texts, tmp_path):
    plain = Selection().identity()
    assert {"store", "store_dtype"}.isdisjoint(plain)
    assert Selection(store_dtype="int8").identity() == plain
    assert Selection(store="x").identity() == {**plain, "store_dtype": "float16"}
    score(settings(texts, tmp_path / "run", None))
    with pytest.raises(ArtifactError, match='store_dtype: null there, "int8" now'):
        score(settings(texts, tmp_path / "run", tmp_path / "store", store_dtype="int8"))


def test_rounding_hardly_moves_the_scores(texts, tmp_path):
    score(settings(texts, tmp_path / "none", None))
    exact = frame_of(tmp_path / "none" / "scores")["score"]
    for dtype, most in [("float16", 1e-3), ("int8", 2e-2)]:
        score(settings(texts, tmp_path / dtype, tmp_path / "store", store_dtype=dtype))
        assert (frame_of(tmp_path / dtype / "scores")["score"] - exact).abs().max() < most


def test_settings_of_a_store_are_checked(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(ConfigError, match="store_dtype='float8': must be one of float16, int8"):
        Selection(store_dtype="float8")
    with pytest.raises(ConfigError, match="must be a folder, or a place for a new one"):
        Selection(store=str(tmp_path / "file"))


@pytest.fixture
def filled(tmp_path):
    """A store of two encoders and three segments."""
    texts = [f"sentence {number}" for number in range(300)]
    for spec, part in [("hashing:32", texts[:100]), ("hashing:32", texts[100:]), ("hashing:64", texts)]:
        encoder = create_encoder(spec, str(tmp_path / "store"), "int8" if spec.endswith("64") else "float16")
        encoder.encode(part)
        encoder.close()
    return tmp_path / "store"


def named(store, spec):
    return next(row for row in info(store) if row.spec == spec)


def test_info_counts(filled, capsys):
    half, byte = named(filled, "hashing:32"), named(filled, "hashing:64")
    assert (half.dtype, half.dims, half.segments, half.rows) == ("float16", 32, 2, 300)
    assert (byte.dtype, byte.dims, byte.segments, byte.rows) == ("int8", 64, 1, 300)
    assert half.name == fingerprint(Stored(HashingEncoder(32), filled).identity())
    assert byte.size == sum(path.stat().st_size for path in (filled / byte.name).iterdir())
    assert main(["store", "info", str(filled)]) == 0
    assert "hashing:64                   int8        64        1            300" in capsys.readouterr().out


def test_verify_passes_a_whole_store_and_encodes_a_sample_again(filled, capsys):
    verdicts = verify(filled)
    assert [(verdict.rows, verdict.problems, verdict.why_not) for verdict in verdicts] == [(300, [], "")] * 2
    assert sorted(verdict.encoded for verdict in verdicts) == [8, 16]
    assert all(verdict.difference < 1e-2 for verdict in verdicts)
    assert main(["store", "verify", str(filled)]) == 0
    assert "300 rows; 16 texts encoded again" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("place", "says"),
    [(-1, "1 of 300 rows fail their checksum"), (None, "not a whole segment"), ("key", "keys are not ascending")],
)
def test_verify_reports_damage(filled, place, says, capsys):
    path = next((filled / named(filled, "hashing:64").name).glob(PATTERN))
    content = bytearray(path.read_bytes())
    if place is None:
        content = content[: len(content) // 2]
    elif place == "key":
        content[8 + int.from_bytes(content[:8], "little") + 7] ^= 0xFF  # the first key becomes large
    else:
        content[place] ^= 0x10
    path.unlink()
    path.write_bytes(content)
    problems = [problem for verdict in verify(filled) for problem in verdict.problems]
    assert any(says in problem and str(path) in problem for problem in problems)
    assert main(["store", "verify", str(filled)]) == 2
    assert "1 of 2 encoders' rows have problems" in capsys.readouterr().err


def test_verify_notices_vectors_of_another_encoder(filled, monkeypatch):
    encode = HashingEncoder.encode
    monkeypatch.setattr(HashingEncoder, "encode", lambda self, texts: torch.roll(encode(self, texts), 1, 1))
    problems = [problem for verdict in verify(filled) for problem in verdict.problems]
    assert len(problems) == 3
    assert all("vectors differ from what hashing:" in problem for problem in problems)


def test_verify_says_why_it_encoded_nothing(tmp_path):
    encoder = Stored(HashingEncoder(8), tmp_path, spec="hashing:16")
    encoder.encode(["x"])
    encoder.close()
    assert verify(tmp_path)[0].why_not == "hashing:16 is another encoder now than the one that filled this"
    assert verify(tmp_path)[0].problems == []


def test_prune_keeps_what_is_named(filled):
    gone = named(filled, "hashing:64")
    assert prune(filled, keep=["hashing:32"]) == gone.size
    assert [row.spec for row in info(filled)] == ["hashing:32"]
    assert prune(filled, keep=[info(filled)[0].name[:6]]) == 0
    with pytest.raises(ConfigError, match="no such encoder here; did you mean 'hashing:32'"):
        prune(filled, keep=["hashing:3"])
    assert named(filled, "hashing:32").rows == 300


def test_prune_drops_the_oldest_segments_until_it_fits(filled):
    shelf = filled / named(filled, "hashing:32").name
    for age, path in enumerate(sorted(filled.glob(f"*/{PATTERN}"), key=lambda path: path.parent == shelf)):
        os.utime(path, (1e9 - age, 1e9 - age))  # those of the shelf are older
    older, newer = sorted(shelf.glob(PATTERN), key=lambda path: path.stat().st_mtime)
    total = sum(path.stat().st_size for path in filled.glob(f"*/{PATTERN}"))
    size = older.stat().st_size
    assert prune(filled, max_bytes=total) == 0
    assert prune(filled, max_bytes=total - 1) == size
    assert newer.exists()
    assert not older.exists()
    assert prune(filled, max_bytes=0) == total - size
    assert [row.rows for row in info(filled)] == [0, 0]


def test_prune_clears_up_after_the_dead(filled):
    shelf = filled / named(filled, "hashing:32").name
    dead, alive = shelf / f"{ASIDE}dead", shelf / f"{ASIDE}alive"
    for path in (dead, alive):
        path.write_bytes(b"half")
    os.utime(dead, (time.time() - 7200,) * 2)
    broken = next(shelf.glob(PATTERN))
    broken.write_bytes(b"")
    assert prune(filled) == 4
    assert not dead.exists()
    assert not broken.exists()
    assert alive.exists()


@pytest.mark.parametrize(("text", "size"), [("500", 500), ("1.5k", 1500), ("200G", 2e11), ("2T", 2e12), ("0", 0)])
def test_sizes_are_read(text, size):
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "G", "-1", "5X", "nan", "1e30"])
def test_other_sizes_are_refused(text):
    with pytest.raises(ConfigError, match="must be a size such as 500M, 200G or 2T"):
        parse_bytes(text)


def test_no_store_here_is_one_line(tmp_path, capsys):
    assert main(["store", "verify", str(tmp_path)]) == 2
    assert "no embedding store here" in capsys.readouterr().err
