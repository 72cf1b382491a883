"""What a lock says of its owner, and that its file is never somebody else's."""

import fcntl
import json
import os

import pytest

from dana.core.files import locked


@pytest.mark.parametrize("program", ["/usr/bin/dana", "/lib/dana/__main__.py"])
def test_a_lock_names_its_process_and_command(tmp_path, monkeypatch, program):
    monkeypatch.setattr("sys.argv", [program, "score", "--task", "t"])
    with locked(tmp_path / "x"):
        about = json.loads((tmp_path / ".x.lock").read_text())
        assert not (tmp_path / ".x.lock").stat().st_mode & 0o133
    assert (about["pid"], about["command"]) == (os.getpid(), "dana score")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("replaced", [False, True])
def test_a_lock_file_removed_before_it_was_locked_is_made_anew(tmp_path, monkeypatch, replaced):
    file, lock, calls = tmp_path / ".x.lock", fcntl.lockf, []

    def late(handle, how):
        lock(handle, how)
        calls.append(handle)
        if len(calls) == 1:  # what its last owner does as we come
            file.unlink()
            if replaced:
                file.touch()

    monkeypatch.setattr("fcntl.lockf", late)
    with locked(tmp_path / "x"):
        assert len(calls) == 2
        assert json.loads(file.read_text())["pid"] == os.getpid()
