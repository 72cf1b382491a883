"""Artifacts: whole or absent, reused by fingerprint, refused with both sides shown."""

import errno
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dana.core.artifacts import (
    MANIFEST,
    differing,
    fingerprint,
    make,
    open_artifact,
    package_versions,
    read_manifest,
    write_json,
)
from dana.core.errors import ArtifactError


def _write(text):
    def write(draft):
        (draft.path / "data.txt").write_text(text)
        draft.counts["in"] = 1

    return write


def test_the_fingerprint_ignores_key_order_and_nothing_else():
    assert fingerprint({"a": 1, "b": [2]}) == fingerprint({"b": [2], "a": 1})
    assert fingerprint({"a": 1}) != fingerprint({"a": 2})
    assert fingerprint({"a": 1}) == "6903fb303cd60ccb0a2b9c2592fa773b"  # printf '{"a": 1}' | b2sum -l 128
    assert fingerprint({"a": "α"}) == "c57a286f21a481ed65f39d5a53ac329f"


def test_json_is_for_people_and_takes_paths_and_numpy_numbers(tmp_path):
    write_json(tmp_path / "x.json", {"α": Path("a/b"), "share": np.float32(0.5)})
    assert (tmp_path / "x.json").read_text(encoding="utf-8") == '{\n  "α": "a/b",\n  "share": 0.5\n}\n'
    assert fingerprint({"n": np.int64(1)}) == fingerprint({"n": 1})
    with pytest.raises(TypeError, match="object cannot be written as JSON"):
        write_json(tmp_path / "y.json", {"x": object()})


def test_a_difference_shows_sixty_characters_of_each_value():
    assert list(differing({"a": "x" * 58, "b": 1}, {"a": "x" * 59, "b": 1})) == [
        f'a: "{"x" * 58}" there, "{"x" * 58}… now'
    ]
    assert list(differing({"a": {"b": 1}}, {"a": None})) == ['a: {"b": 1} there, null now']


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


def test_a_number_that_json_cannot_hold_is_refused_and_nothing_is_written(tmp_path):
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "x.json", {"loss": float("nan")})
    assert list(tmp_path.iterdir()) == []


def test_packages_that_are_not_installed_have_no_version(monkeypatch):
    monkeypatch.setattr("dana.core.registry.RECORDED_PACKAGES", ("numpy", "no-such-package"))
    assert set(package_versions()) == {"python", "numpy"}


def test_a_strangers_folder_is_not_overwritten(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(ArtifactError, match="not made by dana"):
        make(tmp_path / "mine", "thing", {}, _write("x"))
    assert (tmp_path / "mine" / "thesis.txt").exists()


@pytest.mark.parametrize("place", [".", "..", "../here"])
def test_the_working_directory_is_not_replaced(tmp_path, monkeypatch, place):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(ArtifactError, match=r"working directory or around it|not empty"):
        make(Path(place), "thing", {}, _write("x"))
    assert [path.name for path in tmp_path.rglob("*")] == ["here"]
    made = make(Path("below"), "thing", {}, _write("x"))
    monkeypatch.chdir(made.path)
    assert make(Path(), "thing", {}, _write("x")).fingerprint == made.fingerprint


def test_opening_says_what_is_wrong_and_how_to_mend_it(tmp_path):
    with pytest.raises(ArtifactError, match="make one with: dana score"):
        open_artifact(tmp_path, "scores", "dana score")
    make(tmp_path / "x", "thing", {}, _write("x"))
    with pytest.raises(ArtifactError, match="'thing', not 'scores'"):
        open_artifact(tmp_path / "x", "scores")
    manifest = json.loads((tmp_path / "x" / MANIFEST).read_text())
    write_json(tmp_path / "x" / MANIFEST, {**manifest, "schema": 99})
    with pytest.raises(ArtifactError, match="schema 99"):
        open_artifact(tmp_path / "x", "thing")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "cannot be read"),
        ('{"kind": "thi', "cannot be read"),
        ("[]", "holds a list, not a manifest"),
        ("{}", "schema None"),
        ('{"schema": 2, "kind": 7}', "'kind' is 7"),
        ('{"schema": 2, "kind": "thing", "fingerprint": "a"}', "'depends_on' is None"),
    ],
)
def test_a_manifest_that_is_none_is_refused_by_name(tmp_path, content, says):
    made = make(tmp_path / "x", "thing", {}, _write("x"))
    (made.path / MANIFEST).write_text(content)
    for attempt in (lambda: open_artifact(made.path, "thing"), lambda: make(made.path, "thing", {}, _write("y"))):
        with pytest.raises(ArtifactError, match=says) as refused:
            attempt()
        assert "\n" not in str(refused.value)


def _tables(draft):
    for part in range(2):
        pq.write_table(pa.table({"a": list(range(5))}), draft.path / f"part-0000{part}.parquet")


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda part: part.unlink(), "is missing"),
        (lambda part: part.write_bytes(part.read_bytes()[:-5]), "were written"),
        (lambda part: part.write_bytes(b"\0" * part.stat().st_size), "damaged"),
        (lambda part: part.rename(part.with_name("part-00007.parquet")), "is missing"),
        (lambda part: part.with_name("part-00009.parquet").write_bytes(part.read_bytes()), "does not belong"),
    ],
)
def test_a_damaged_folder_is_not_opened_and_the_file_is_named(tmp_path, damage, says):
    made = make(tmp_path / "x", "thing", {}, _tables)
    damage(made.path / "part-00001.parquet")
    for attempt in (lambda: open_artifact(made.path, "thing"), lambda: make(made.path, "thing", {}, _tables)):
        with pytest.raises(ArtifactError, match=rf"part-0000\d\.parquet: .*{says}.*dana verify"):
            attempt()


def test_rows_are_checked_where_the_size_is_the_same(tmp_path):
    made = make(tmp_path / "x", "thing", {}, _tables)
    manifest = read_manifest(made.path)
    manifest["files"]["part-00000.parquet"]["rows"] = 6
    write_json(made.path / MANIFEST, manifest)
    with pytest.raises(ArtifactError, match="5 rows, 6 were written"):
        open_artifact(made.path, "thing")


def test_everything_is_on_the_disk_before_the_folder_gets_its_name(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr("os.fsync", lambda handle: seen.append(Path(f"/proc/self/fd/{handle}").readlink().name))
    rename = Path.rename

    def watched(path, target):
        seen.append("renamed")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", watched)
    make(tmp_path / "x", "thing", {}, _tables)
    before, after = seen[: seen.index("renamed")], seen[seen.index("renamed") + 1 :]
    assert {"part-00000.parquet", "part-00001.parquet", "__dana__"} <= set(before)
    assert any(name.startswith(".x.tmp-") for name in before), "the folder's own names"
    assert after == [tmp_path.name]


def test_a_full_disk_is_one_line_and_leaves_nothing(tmp_path):
    def write(draft):
        (draft.path / "half").write_text("half")
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(ArtifactError, match="x: cannot be written: No space left on device; nothing is left of it"):
        make(tmp_path / "x", "thing", {}, write)
    assert list(tmp_path.iterdir()) == []


MAKER = """
import sys, time, logging
from pathlib import Path
from dana.core import artifacts
from dana.core.logging import setup
setup()
def write(draft):
    (draft.path / "begun").write_text("x")
    time.sleep(float(sys.argv[2]))
    (draft.path / "data.txt").write_text("whole")
artifacts.make(Path(sys.argv[1]), "thing", {"a": 1}, write)
"""


def _maker(path, seconds, **environment):
    command = [sys.executable, "-c", MAKER, str(path), str(seconds)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment})


def _begun(folder):
    """Wait until somebody is writing."""
    deadline = time.monotonic() + 30
    while not list(folder.glob(".x.tmp-*/begun")):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_of_several_processes_one_writes_and_all_get_the_same(tmp_path):
    makers = [_maker(tmp_path / "x", 0.5) for _ in range(4)]
    errors = [maker.communicate(timeout=60)[1] for maker in makers]
    assert [maker.returncode for maker in makers] == [0] * 4, errors
    assert sum("written" in error for error in errors) == 1
    assert sum("reused" in error for error in errors) == 3
    assert (tmp_path / "x" / "data.txt").read_text() == "whole"
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_a_second_process_that_waited_enough_says_who_writes_and_touches_nothing(tmp_path, monkeypatch):
    first = _maker(tmp_path / "x", 4)
    _begun(tmp_path)
    monkeypatch.setattr("dana.core.files.PATIENCE", 0.2)
    with pytest.raises(ArtifactError, match=rf"x: process {first.pid} on \S+ \(since .*\) is writing it"):
        make(tmp_path / "x", "thing", {"a": 1}, _write("mine"))
    monkeypatch.setattr("dana.core.files.PATIENCE", 0.0)
    (tmp_path / ".x.lock").write_text("")
    with pytest.raises(ArtifactError, match="x: another process is writing it"):
        make(tmp_path / "x", "thing", {"a": 1}, _write("mine"))
    first.communicate(timeout=60)
    assert first.returncode == 0
    assert (tmp_path / "x" / "data.txt").read_text() == "whole"


def test_a_second_command_waits_for_the_first_and_says_so_once(tmp_path, heard):
    heard.set_level("INFO", "dana")
    first = _maker(tmp_path / "x", 3)
    _begun(tmp_path)
    made = make(tmp_path / "x", "thing", {"a": 1}, _write("mine"))
    assert (made.path / "data.txt").read_text() == "whole"
    assert first.wait(timeout=60) == 0
    first.stderr.close()
    assert heard.text.count(f"waiting   for process {first.pid} on") == 1


def test_a_killed_process_is_taken_over_at_once(tmp_path, monkeypatch):
    killed = _maker(tmp_path / "x", 60)
    _begun(tmp_path)
    killed.kill()
    killed.communicate(timeout=60)
    assert (tmp_path / ".x.lock").exists()
    monkeypatch.setattr("dana.core.files.PATIENCE", 0.0)
    make(tmp_path / "x", "thing", {"a": 1}, _write("mine"))
    assert [path.name for path in tmp_path.iterdir()] == ["x"], "neither its lock nor its half folder is left"
