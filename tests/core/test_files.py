"""Files and folders are written atomically under a lock; leftovers of dead processes are removed."""

import fcntl
import gzip
import json
import os
import subprocess
import sys
from unittest import mock

import numpy as np
import pytest
from safetensors.numpy import save_file

from dana.core import files
from dana.core.artifacts import make
from dana.core.files import (
    file_digest,
    folder_lock,
    start_ticks,
    temp_dir,
    temp_file,
    to_json_lines,
    write_gzip_lines,
)

HOST = os.uname().nodename
ROWS = [{"id": "1", "text": "größer\nals"}, {"id": "2", "text": "\u2028"}]


def write(draft):
    (draft.path / "data").write_text("whole")


def names_in(folder):
    return {path.name for path in folder.iterdir()}


def test_leftovers_of_dead_processes_of_this_machine_are_removed(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    assert start_ticks(process.pid) is None
    (tmp_path / f".x.tmp-{HOST}-{process.pid}-12345").mkdir()
    (
        tmp_path / f".x.tmp-{HOST}-{os.getppid()}-1"
    ).mkdir()  # another process has the id of a dead one
    make(tmp_path / "x", "thing", {}, write)
    assert names_in(tmp_path) == {"x"}
    (tmp_path / f".y.json.tmp-{HOST}-{process.pid}-12345").write_text("half")
    (tmp_path / ".y.json.tmp-elsewhere-7-12345").write_text("half")
    with temp_file(tmp_path / "y.json") as temporary:
        temporary.write_text("whole")
    assert names_in(tmp_path) == {"x", "y.json", ".y.json.tmp-elsewhere-7-12345"}


def test_folders_of_live_processes_and_of_other_machines_are_left_alone(tmp_path, caplog):
    live = f"{HOST}-{os.getppid()}-{start_ticks(os.getppid())}"
    owners = [live, f"{HOST}-{'9' * 30}-0", "elsewhere-7-12345", "of an older dana"]
    names = {*(f".x.tmp-{owner}" for owner in owners), ".y.tmp-elsewhere-7-12345"}
    for name in names:
        (tmp_path / name).mkdir()
    make(tmp_path / "x", "thing", {}, write)
    assert names_in(tmp_path) == {*names, "x"}
    assert [record.levelname for record in caplog.records].count("WARNING") == 4


def test_a_process_of_another_user_is_alive(monkeypatch):
    def refuse(pid, signal):
        raise PermissionError

    monkeypatch.setattr("os.kill", refuse)
    assert start_ticks(1) is not None


def test_a_write_that_fails_leaves_the_file_before_and_nothing_else(tmp_path):
    file = tmp_path / "x.json"
    file.write_text("before")
    with pytest.raises(TypeError), temp_file(file) as temporary:
        temporary.write_text("half") + "no number"
    with pytest.raises(TypeError), temp_dir(tmp_path / "y") as folder:
        (folder / "half").write_text("half") + "no number"
    assert names_in(tmp_path) == {"x.json"}
    assert file.read_text() == "before"
    with temp_file(file) as temporary:
        temporary.write_text("after")
        assert file.read_text() == "before"
    assert file.read_text() == "after"


def test_weights_have_the_mode_of_other_files_and_one_that_cannot_be_read_hides_no_damage(
    tmp_path, monkeypatch
):
    folder = tmp_path / "x"
    folder.mkdir(0o755)
    for name in ("a", "b"):
        save_file({name: np.ones(2)}, folder / f"{name}.safetensors")
    seals = files.seal(folder)
    assert {file.stat().st_mode & 0o777 for file in folder.iterdir()} == {
        folder.stat().st_mode & 0o666
    }
    monkeypatch.setattr(
        files, "file_digest", mock.Mock(side_effect=[PermissionError(13, "No permission"), "other"])
    )
    lines = [line.partition(": ")[2] for line in files.find_damage(folder, seals, digests=True)]
    assert lines == ["cannot be read: No permission", "its bytes are not those that were written"]


def test_a_digest_is_that_of_b2sum(tmp_path):
    (tmp_path / "abc").write_bytes(b"abc")
    assert (
        file_digest(tmp_path / "abc") == "cf4ab791c62b8d2b2109c90275287816"
    )  # printf abc | b2sum -l 128
    content = b"x" * ((1 << 20) + 1)
    for name, end in {"one": b"x", "other": b"y"}.items():
        (tmp_path / name).write_bytes(content + end)
    assert file_digest(tmp_path / "one") != file_digest(tmp_path / "other")


def test_a_lock_names_its_process_and_command(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["/usr/bin/dana", "score", "--task", "t"])
    (tmp_path / ".x.lock").write_text("of a killed process" * 20)
    with folder_lock(tmp_path / "x"):
        owner = (tmp_path / ".x.lock").read_text()
        assert not (tmp_path / ".x.lock").stat().st_mode & 0o133
    assert owner.startswith(f"process {os.getpid()} on ")
    assert owner.endswith(": dana score)")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_lock_file_removed_before_it_was_locked_is_made_again(tmp_path, monkeypatch, is_replaced):
    file, lock, calls = tmp_path / ".x.lock", fcntl.lockf, []

    def late(handle, how):
        lock(handle, how)
        calls.append(handle)
        if len(calls) == 1:  # the last owner frees its lock at this moment
            file.unlink()
            if is_replaced:
                file.touch()

    monkeypatch.setattr("fcntl.lockf", late)
    with folder_lock(tmp_path / "x"):
        assert len(calls) == 2
        assert f"process {os.getpid()} " in file.read_text()


def test_gzip_lines_have_the_same_bytes_under_any_name(tmp_path):
    assert to_json_lines(ROWS[:1]) == '{"id": "1", "text": "größer\\nals"}\n'
    assert [json.loads(line) for line in to_json_lines(ROWS).split("\n")[:-1]] == ROWS
    a, b = tmp_path / "a.jsonl.gz", tmp_path / "b.jsonl.gz"
    assert write_gzip_lines(a, iter(ROWS)) == write_gzip_lines(b, iter(ROWS)) == 2
    assert a.read_bytes() == b.read_bytes()
    assert a.read_bytes()[4:8] == bytes(4), "no time"
    assert gzip.decompress(a.read_bytes()).decode() == to_json_lines(ROWS)
