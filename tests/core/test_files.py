"""Files and folders are written atomically under a lock; leftovers of dead processes are removed."""

import gzip
import json
import os
import subprocess
import sys

import numpy as np
import pytest
from safetensors.numpy import save_file

from dana.core.artifacts import make
from dana.core.files import (
    file_digest,
    folder_lock,
    paths_below,
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
    (tmp_path / f".x.tmp-{HOST}-{process.pid}").mkdir()
    (tmp_path / f".x.tmp-{HOST}-{os.getpid()}").mkdir()  # of a dead process of this one's id
    make(tmp_path / "x", "thing", {}, write)
    assert names_in(tmp_path) == {"x"}
    (tmp_path / f".y.json.tmp-{HOST}-{process.pid}").write_text("half")
    with temp_file(tmp_path / "y.json") as temporary:
        temporary.write_text("whole")
    assert names_in(tmp_path) == {"x", "y.json"}


def test_folders_of_live_processes_and_of_other_machines_are_left_alone(tmp_path):
    owners = [f"{HOST}-{os.getppid()}", f"{HOST}-1", "elsewhere-7", "of an older dana"]
    names = {*(f".x.tmp-{owner}" for owner in owners), f".y.tmp-{HOST}-{'9' * 9}"}
    for name in names:
        (tmp_path / name).mkdir()
    make(tmp_path / "x", "thing", {}, write)
    assert names_in(tmp_path) == {*names, "x"}


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


def test_weights_have_the_mode_of_other_files(tmp_path):
    def write_weights(draft):
        save_file({"a": np.ones(2)}, draft.path / "a.safetensors")

    folder = make(tmp_path / "x", "thing", {}, write_weights).path
    assert (folder / "a.safetensors").stat().st_mode & 0o777 == folder.stat().st_mode & 0o666


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
    assert owner.startswith(f"process {os.getpid()} on ")
    assert owner.endswith(": dana score)")
    assert not list(tmp_path.iterdir())


def test_gzip_lines_have_the_same_bytes_under_any_name(tmp_path):
    assert to_json_lines(ROWS[:1]) == '{"id": "1", "text": "größer\\nals"}\n'
    assert [json.loads(line) for line in to_json_lines(ROWS).split("\n")[:-1]] == ROWS
    a, b = tmp_path / "a.jsonl.gz", tmp_path / "b.jsonl.gz"
    assert write_gzip_lines(a, iter(ROWS)) == write_gzip_lines(b, iter(ROWS)) == 2
    assert a.read_bytes() == b.read_bytes()
    assert a.read_bytes()[4:8] == bytes(4), "no time"
    assert gzip.decompress(a.read_bytes()).decode() == to_json_lines(ROWS)


def test_paths_are_those_that_fit_in_order_without_what_is_being_written(tmp_path):
    for name in ("b/c/x.json", "b/x.json", "a/x.json", "x.json", ".b.tmp-host-1/new/x.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "b" / ".x.json.tmp-host-1").touch()
    every = [tmp_path / name for name in ("a/x.json", "b/c/x.json", "b/x.json", "x.json")]
    assert paths_below(tmp_path, "**/x.json") == every
    assert paths_below(tmp_path, "*/x.json") == [tmp_path / "a/x.json", tmp_path / "b/x.json"]
    assert paths_below(tmp_path, "*/**/c") == [tmp_path / "b/c"]
    assert paths_below(tmp_path / "b", "*") == [tmp_path / "b/c", tmp_path / "b/x.json"]
    assert paths_below(tmp_path / "missing", "**/x.json") == []


def test_a_folder_that_is_removed_while_paths_are_listed_is_no_error(tmp_path, made_and_removed):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "x.json").touch()
    with made_and_removed(tmp_path / "written"):
        for _ in range(1000):
            assert paths_below(tmp_path, "**/x.json") == [tmp_path / "kept" / "x.json"]
