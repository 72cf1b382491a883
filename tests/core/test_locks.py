"""What a lock says of its owner, and that its file is never somebody else's."""

import fcntl
import os

import pytest

from dana.core.files import locked


def test_a_lock_names_its_process_and_command(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["/usr/bin/dana", "score", "--task", "t"])
    with locked(tmp_path / "x"):
        about = (tmp_path / ".x.lock").read_text()
        assert not (tmp_path / ".x.lock").stat().st_mode & 0o133
    assert about.startswith(f"process {os.getpid()} on ")
    assert about.endswith(": dana score)")
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
        assert f"process {os.getpid()} " in file.read_text()
