"""Artifacts: whole or absent, reused by fingerprint, refused with both sides shown."""

import json

import pytest

from dana.artifacts import fingerprint, make, open_artifact, write_json
from dana.errors import ArtifactError


def _write(text):
    def write(draft):
        (draft.path / "data.txt").write_text(text)
        draft.counts["in"] = 1

    return write


def test_the_fingerprint_ignores_key_order_and_nothing_else():
    assert fingerprint({"a": 1, "b": [2]}) == fingerprint({"b": [2], "a": 1})
    assert fingerprint({"a": 1}) != fingerprint({"a": 2})


def test_an_equal_run_reuses_and_a_different_one_is_refused_untouched(tmp_path):
    made = make(tmp_path / "x", "thing", {"beta": 0.2, "deep": {"k": 1}}, _write("first"))
    assert made.manifest["counts"] == {"in": 1}
    make(tmp_path / "x", "thing", {"beta": 0.2, "deep": {"k": 1}}, _write("second"))
    with pytest.raises(ArtifactError, match=r"deep.k: 1 there, 2 now"):
        make(tmp_path / "x", "thing", {"beta": 0.2, "deep": {"k": 2}}, _write("third"))
    assert (tmp_path / "x" / "data.txt").read_text() == "first"


def test_a_failing_stage_leaves_nothing(tmp_path):
    def write(draft):
        (draft.path / "half.txt").write_text("half")
        raise RuntimeError("power cut")

    with pytest.raises(RuntimeError):
        make(tmp_path / "x", "thing", {}, write)
    assert list(tmp_path.iterdir()) == []


def test_leftovers_of_a_killed_process_are_swept(tmp_path):
    (tmp_path / ".x.tmp-999").mkdir()
    make(tmp_path / "x", "thing", {}, _write("whole"))
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_a_strangers_folder_is_not_overwritten(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(ArtifactError, match="not made by dana"):
        make(tmp_path / "mine", "thing", {}, _write("x"))
    assert (tmp_path / "mine" / "thesis.txt").exists()


def test_opening_says_what_is_wrong_and_how_to_mend_it(tmp_path):
    with pytest.raises(ArtifactError, match="make one with: dana score"):
        open_artifact(tmp_path, "scores", "dana score")
    make(tmp_path / "x", "thing", {}, _write("x"))
    with pytest.raises(ArtifactError, match="'thing', not 'scores'"):
        open_artifact(tmp_path / "x", "scores")
    manifest = json.loads((tmp_path / "x" / "manifest.json").read_text())
    write_json(tmp_path / "x" / "manifest.json", {**manifest, "schema": 99})
    with pytest.raises(ArtifactError, match="schema 99"):
        open_artifact(tmp_path / "x", "thing")
