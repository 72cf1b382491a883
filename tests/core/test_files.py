"""Files and folders written whole or not at all, and whose leftovers are removed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dana.core.artifacts import make
from dana.core.files import aside, began, replacing

HOST = os.uname().nodename


def write(draft):
    (draft.path / "data").write_text("whole")


def test_what_a_dead_process_of_this_machine_left_is_removed(tmp_path):
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    assert began(dead.pid) is None
    (tmp_path / f".x.tmp-{HOST}-{dead.pid}-12345").mkdir()
    make(tmp_path / "x", "thing", {}, write)
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs /proc")
def test_a_process_that_got_the_number_of_a_dead_one_does_not_keep_its_folder(tmp_path):
    (tmp_path / f".x.tmp-{HOST}-{os.getppid()}-1").mkdir()
    make(tmp_path / "x", "thing", {}, write)
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_folders_of_live_processes_and_of_other_machines_are_left_alone(tmp_path, caplog):
    live = os.getppid()
    names = {
        f".x.tmp-{HOST}-{live}-{began(live)}",
        f".x.tmp-{HOST}-{'9' * 30}-0",
        ".x.tmp-elsewhere-7-12345",
        ".x.tmp-of an older dana",
        ".y.tmp-elsewhere-7-12345",
    }
    for name in names:
        (tmp_path / name).mkdir()
    make(tmp_path / "x", "thing", {}, write)
    assert {path.name for path in tmp_path.iterdir()} == {*names, "x"}
    assert caplog.text.count("left alone") == 4


def test_another_users_process_is_alive(monkeypatch):
    def refused(pid, signal):
        raise PermissionError

    monkeypatch.setattr("os.kill", refused)
    assert began(1) is not None


def test_a_file_that_could_not_be_written_leaves_the_one_before_and_nothing_else(tmp_path):
    file = tmp_path / "x.json"
    file.write_text("before")
    with pytest.raises(TypeError), replacing(file) as temporary:
        temporary.write_text("half") + "no number"
    assert [path.name for path in tmp_path.iterdir()] == ["x.json"]
    assert file.read_text() == "before"
    with replacing(file) as temporary:
        temporary.write_text("after")
        assert file.read_text() == "before"
    assert file.read_text() == "after"


def test_a_file_that_a_dead_process_left_is_removed_by_the_next_writer(tmp_path):
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    (tmp_path / f".x.json.tmp-{HOST}-{dead.pid}-12345").write_text("half")
    (tmp_path / ".x.json.tmp-elsewhere-7-12345").write_text("half")
    with replacing(tmp_path / "x.json") as temporary:
        temporary.write_text("whole")
    assert {path.name for path in tmp_path.iterdir()} == {"x.json", ".x.json.tmp-elsewhere-7-12345"}


def test_a_folder_that_was_not_renamed_is_removed(tmp_path):
    with pytest.raises(TypeError), aside(tmp_path / "x") as folder:
        (folder / "half").write_text("half") + "no number"
    assert list(tmp_path.iterdir()) == []
