"""Artifacts are complete or absent, reused by fingerprint, and refused or made again if made from other settings."""

import errno
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dana.core import artifacts
from dana.core.artifacts import (
    MANIFEST,
    fingerprint,
    list_differences,
    make,
    open_artifact,
    write_json,
)
from dana.core.errors import ArtifactError, Contradiction
from dana.core.files import folder_lock, settle_remake, temp_dir
from dana.core.remake import call_remaking
from dana.core.schemas import table_identity


def _write(text):
    def write(draft):
        (draft.path / "data.txt").write_text(text)
        draft.counts["in"] = 1

    return write


def _tables(draft):
    for part in range(2):
        pq.write_table(pa.table({"a": list(range(5))}), draft.path / f"part-0000{part}.parquet")


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


def test_the_fingerprint_ignores_key_order_and_nothing_else():
    assert fingerprint({"a": 1, "b": [2]}) == fingerprint({"b": [2], "a": 1})
    assert (
        fingerprint({"a": 1}) == "6903fb303cd60ccb0a2b9c2592fa773b"
    )  # printf '{"a": 1}' | b2sum -l 128
    assert fingerprint({"a": "α"}) == "c57a286f21a481ed65f39d5a53ac329f"
    assert fingerprint({"n": np.int64(1)}) == fingerprint({"n": 1})


KILLED_AFTER_ITS_RENAME = """
import os, shutil, signal, sys
from pathlib import Path
from dana.core.artifacts import make

shutil.rmtree = lambda *arguments, **options: os.kill(os.getpid(), signal.SIGKILL)
value = int(sys.argv[2])
make(Path(sys.argv[1]), "x", {"value": value}, lambda draft: None, remake=True)
"""


def test_a_process_that_was_killed_when_its_folder_was_there_leaves_nothing_after_a_reuse(tmp_path):
    """The former folder, which may be large, waits beside the new one until then."""
    path = tmp_path / "x"
    make(path, "x", {"value": 1}, _write("old"))
    command = [sys.executable, "-c", KILLED_AFTER_ITS_RENAME, str(path), "2"]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    assert len(names_in(tmp_path)) == 3, "the folder, the lock and the former folder"
    make(path, "x", {"value": 2}, pytest.fail)
    assert names_in(tmp_path) == ["x"]


def test_the_lock_of_a_remake_that_was_killed_at_its_very_end_is_removed(tmp_path):
    path = tmp_path / "x"
    make(path, "x", {"value": 1}, _write("new"))
    (tmp_path / "..x.old.lock").write_text("process 1")
    make(path, "x", {"value": 1}, pytest.fail)
    assert names_in(tmp_path) == ["x"]


def test_what_a_process_at_work_has_beside_a_folder_stays(tmp_path):
    path = tmp_path / "x"
    make(path, "x", {"value": 1}, _write("old"))
    with folder_lock(path), temp_dir(path):
        before = names_in(tmp_path)
        make(path, "x", {"value": 1}, pytest.fail)
        assert names_in(tmp_path) == before


def test_json_takes_paths_and_numpy_numbers_and_refuses_nan(tmp_path):
    write_json(tmp_path / "x.json", {"α": Path("a/b"), "share": np.float32(0.5)})
    assert (tmp_path / "x.json").read_text(
        encoding="utf-8"
    ) == '{\n  "α": "a/b",\n  "share": 0.5\n}\n'
    for value, error in ((object(), TypeError), (float("nan"), ValueError)):
        with pytest.raises(error):
            write_json(tmp_path / "y.json", {"x": value})
    assert names_in(tmp_path) == ["x.json"]


def test_a_difference_shows_sixty_characters_of_each_value():
    assert list(list_differences({"a": "x" * 58, "b": 1}, {"a": "x" * 59, "b": 1})) == [
        f'a: "{"x" * 58}" there, "{"x" * 58}… now'
    ]
    assert list(list_differences({"a": {"b": 1}}, {"a": None})) == ['a: {"b": 1} there, null now']


def test_an_equal_run_reuses_and_a_different_one_is_refused_untouched(tmp_path, monkeypatch):
    artifact = make(tmp_path / "x", "thing", {"beta": 0.2, "deep": {"k": 1}}, _write("first"))
    assert artifact.manifest["counts"] == {"in": 1}
    make(tmp_path / "x", "thing", {"beta": 0.2, "deep": {"k": 1}}, _write("second"))
    with pytest.raises(Contradiction, match=r"deep.k: 1 there, 2 now.*--remake"):
        make(tmp_path / "x", "thing", {"beta": 0.2, "deep": {"k": 2}}, _write("third"))
    assert (tmp_path / "x" / "data.txt").read_text() == "first"
    monkeypatch.setattr(artifacts, "folder_lock", None)  # as in a folder that is read-only
    make(tmp_path / "x", "thing", {"beta": 0.2, "deep": {"k": 1}}, _write("second"))


@pytest.mark.parametrize(
    ("error", "type_of_error"),
    [
        (RuntimeError("power cut"), RuntimeError),
        (OSError(errno.ENOSPC, "No space left on device"), ArtifactError),
    ],
)
def test_a_failing_stage_or_a_full_disk_leaves_nothing(tmp_path, error, type_of_error):
    def write(draft):
        (draft.path / "half.txt").write_text("half")
        raise error

    with pytest.raises(type_of_error):
        make(tmp_path / "x", "thing", {}, write)
    assert names_in(tmp_path) == []


@pytest.mark.parametrize("path", [".", "..", "../here", "../thesis"])
def test_a_folder_of_the_user_and_the_working_directory_are_not_replaced(
    tmp_path, monkeypatch, path
):
    for folder in ("here", "thesis"):
        (tmp_path / folder).mkdir()
    (tmp_path / "thesis" / "years.txt").write_text("of work")
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(ArtifactError):
        make(Path(path), "thing", {}, _write("x"))
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["here", "thesis", "years.txt"]
    artifact = make(Path("below"), "thing", {}, _write("x"))
    monkeypatch.chdir(artifact.path)
    assert make(Path(), "thing", {}, _write("x")).fingerprint == artifact.fingerprint


FLAWS = [
    (None, "dana score"),
    ('{"kind": "thi', "manifest.json:1"),
    ("[]", "list"),
    ('{"schema": 99}', "99"),
]
FLAWS += [('{"schema": 4, "kind": 7}', "'kind'")]
FLAWS += [('{"schema": 4, "kind": "thing", "fingerprint": "a"}', "'depends_on'")]


@pytest.mark.parametrize(("content", "name"), FLAWS)
def test_opening_names_what_is_wrong_with_a_manifest(tmp_path, content, name):
    path = make(tmp_path / "x", "thing", {}, _write("x")).path
    with pytest.raises(ArtifactError, match="'thing', not 'scores'"):
        open_artifact(path, "scores")
    (path / MANIFEST).write_text(content) if content else (path / MANIFEST).unlink()
    with pytest.raises(ArtifactError) as error:
        open_artifact(path, "thing", "dana score")
    assert name in str(error.value)
    assert "\n" not in str(error.value)
    if content:
        assert re.search("remove .*/x and run its command again|make it again", str(error.value))
    with pytest.raises(ArtifactError):
        make(path, "thing", {}, _write("y"))


def test_remaking_replaces_what_differs_and_touches_nothing_equal(tmp_path):
    first = make(tmp_path / "x", "thing", {"a": 1}, _write("first"))
    before = (first.path / MANIFEST).stat()
    make(tmp_path / "x", "thing", {"a": 1}, _write("second"), remake=True)
    assert (first.path / MANIFEST).stat() == before
    second = make(tmp_path / "x", "thing", {"a": 2}, _write("second"), remake=True)
    assert (second.path / "data.txt").read_text() == "second"
    assert second.manifest["depends_on"] == {"a": 2}
    assert names_in(tmp_path) == ["x"]


def test_a_folder_without_one_of_its_tables_is_refused_by_name(tmp_path):
    path = make(tmp_path / "x", "thing", {"a": 1}, _tables).path
    assert open_artifact(path, "thing").manifest["tables"] == [
        "part-00000.parquet",
        "part-00001.parquet",
    ]
    (path / "part-00001.parquet").unlink()
    for act in (
        lambda: open_artifact(path, "thing"),
        lambda: make(path, "thing", {"a": 1}, _tables),
        lambda: table_identity(path),
    ):
        with pytest.raises(
            ArtifactError, match=r"part-00001\.parquet: is missing.*remove .*x and run"
        ):
            act()
    notes = make(tmp_path / "y", "thing", {"a": 1}, _write("no table"))
    assert "tables" not in notes.manifest


KILLED = """
import os, signal, sys
from pathlib import Path
from dana.core.artifacts import make
from dana.core.remake import call_remaking

folder = Path(sys.argv[1])


def die(draft):
    os.kill(os.getpid(), signal.SIGKILL)


call_remaking(lambda: make(folder, "thing", {"a": 2}, die), remake=True)
"""


def killed_remake(tmp_path):
    """Make a folder, and kill a process that makes it again from other settings; return the folder."""
    path = make(tmp_path / "x", "thing", {"a": 1}, _write("old")).path
    process = subprocess.run([sys.executable, "-c", KILLED, path], check=False)
    assert process.returncode == -signal.SIGKILL
    assert not path.exists(), "it was set aside"
    return path


def test_a_remake_that_was_killed_leaves_the_old_folder_for_the_next_command(tmp_path):
    path = killed_remake(tmp_path)
    assert open_artifact(path, "thing").path == path
    assert names_in(path) == ["__dana__", "data.txt"]
    assert not (tmp_path / ".x.old").exists()


def test_a_remake_that_was_killed_is_made_by_the_same_command_and_leaves_nothing(tmp_path):
    path = killed_remake(tmp_path)
    call_remaking(lambda: make(path, "thing", {"a": 2}, _write("new")), remake=True)
    assert (path / "data.txt").read_text() == "new"
    assert names_in(tmp_path) == ["x"]


def test_nobody_puts_an_old_folder_back_while_it_is_made_again(tmp_path):
    path = make(tmp_path / "x", "thing", {"a": 1}, _write("old")).path

    def write(draft):
        settle_remake(path)  # as another process would do now
        assert not path.exists()
        _write("new")(draft)

    call_remaking(lambda: make(path, "thing", {"a": 2}, write), remake=True)
    assert (path / "data.txt").read_text() == "new"
    assert names_in(tmp_path) == ["x"]


def test_what_is_remade_stays_until_the_new_one_is_complete(tmp_path):
    make(tmp_path / "x", "thing", {"a": 1}, _write("first"))

    def fail(draft):
        (draft.path / "half").write_text("half")
        assert (tmp_path / "x" / "data.txt").read_text() == "first"
        raise RuntimeError("killed")

    with pytest.raises(RuntimeError):
        make(tmp_path / "x", "thing", {"a": 2}, fail, remake=True)
    assert open_artifact(tmp_path / "x", "thing").manifest["depends_on"] == {"a": 1}
    assert names_in(tmp_path) == ["x"]


def test_remaking_replaces_no_other_kind_and_nothing_of_the_users(tmp_path):
    make(tmp_path / "x", "thing", {"a": 1}, _write("first"))
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "years.txt").write_text("of work")
    for path, kind, problem in (
        ("x", "scores", "holds 'thing', not 'scores'"),
        ("thesis", "thing", "not made by dana"),
        ("x/below", "thing", "which would be damaged"),
    ):
        with pytest.raises(ArtifactError, match=problem):
            make(tmp_path / path, kind, {"a": 2}, _write("second"), remake=True)
    assert (tmp_path / "x" / "data.txt").read_text() == "first"
    assert (tmp_path / "thesis" / "years.txt").read_text() == "of work"


def test_all_is_on_disk_before_the_folder_is_renamed(tmp_path, monkeypatch):
    events = []
    monkeypatch.setattr(
        "os.fsync", lambda handle: events.append(Path(f"/proc/self/fd/{handle}").readlink().name)
    )
    rename = Path.rename
    monkeypatch.setattr(
        Path, "rename", lambda path, target: events.append("rename") or rename(path, target)
    )
    make(tmp_path / "x", "thing", {}, _tables)
    before, after = events[: events.index("rename")], events[events.index("rename") + 1 :]
    assert {"part-00000.parquet", "part-00001.parquet", "__dana__"} <= set(before)
    assert "new" in before, "the folder's own entries"
    assert after == [tmp_path.name]


MAKER = """
import sys, time, logging
from pathlib import Path
from dana.core import artifacts
from dana.core.logging import setup
setup()
def write(draft):
    (draft.path / "half").write_text("x")
    time.sleep(float(sys.argv[2]))
    (draft.path / "data.txt").write_text("whole")
artifacts.make(Path(sys.argv[1]), "thing", {"a": 1}, write)
"""


def writer(folder, seconds):
    """A process that writes x; it ends after so many seconds."""
    command = [sys.executable, "-c", MAKER, str(folder / "x"), str(seconds)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


def wait_for_writer(folder):
    deadline = time.monotonic() + 30
    while not list(folder.glob(".x.tmp-*/new/half")):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_of_several_processes_one_writes_and_all_get_the_same(tmp_path):
    makers = [writer(tmp_path, 0.5) for _ in range(4)]
    errors = [maker.communicate(timeout=60)[1] for maker in makers]
    assert [maker.returncode for maker in makers] == [0] * 4, errors
    assert sum("written" in error for error in errors) == 1
    assert sum("reused" in error for error in errors) == 3
    assert (tmp_path / "x" / "data.txt").read_text() == "whole"
    assert names_in(tmp_path) == ["x"]


def test_a_second_process_that_waited_enough_says_who_writes_and_touches_nothing(
    tmp_path, monkeypatch, heard
):
    """With patience it says so once, and gets what the first one wrote."""
    lock = tmp_path / ".x.lock"
    with writer(tmp_path, 1.5) as first:
        wait_for_writer(tmp_path)
        owner = lock.read_text()
        for text, name in (
            (owner, rf"process {first.pid} on \S+ \(since "),
            ("", "another process"),
        ):
            lock.write_text(text)
            monkeypatch.setattr("dana.core.files.PATIENCE", 0.1)
            with pytest.raises(ArtifactError, match=f"x: {name}"):
                make(tmp_path / "x", "thing", {"a": 1}, _write("mine"))
        lock.write_text(owner)
        monkeypatch.setattr("dana.core.files.PATIENCE", 60.0)
        heard.set_level("INFO", "dana")
        heard.clear()
        artifact = make(tmp_path / "x", "thing", {"a": 1}, _write("mine"))
    assert (artifact.path / "data.txt").read_text() == "whole"
    assert first.returncode == 0
    assert heard.text.count(f"waiting   for process {first.pid} on") == 1


def test_a_killed_process_is_taken_over_at_once(tmp_path, monkeypatch):
    with writer(tmp_path, 60) as first:
        wait_for_writer(tmp_path)
        first.kill()
    assert (tmp_path / ".x.lock").exists()
    monkeypatch.setattr("dana.core.files.PATIENCE", 0.0)
    make(tmp_path / "x", "thing", {"a": 1}, _write("mine"))
    assert names_in(tmp_path) == ["x"], "neither its lock nor its temporary folder is left"
