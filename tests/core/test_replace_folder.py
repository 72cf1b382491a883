"""A folder that is replaced: one of the old and the new is there, whenever the process dies."""

import signal
import subprocess
import sys
import threading
import time

import pytest

from dana.core.files import (
    folder_lock,
    read_unmixed,
    remove_leftovers,
    replace_folder,
    restore_folder,
)

KILL = """
import os, shutil, signal, sys
from pathlib import Path
from dana.core.files import replace_folder

new, path, moment = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
calls = iter(range(100))


def dying(act):
    def call(*arguments, **options):
        if next(calls) == moment:
            os.kill(os.getpid(), signal.SIGKILL)
        return act(*arguments, **options)

    return call


Path.rename = dying(Path.rename)
shutil.rmtree = dying(shutil.rmtree)
replace_folder(new, path)
"""


def make(folder, text):
    folder.mkdir()
    (folder / "word").write_text(text)
    return folder


def test_the_new_folder_is_in_the_place_of_the_old_one_and_nothing_else_is_left(tmp_path):
    path = make(tmp_path / "model", "old")
    replace_folder(make(tmp_path / "new", "new"), path)
    assert (path / "word").read_text() == "new"
    assert [entry.name for entry in tmp_path.iterdir()] == ["model"]
    assert restore_folder(path) == path
    assert restore_folder(tmp_path / "none") == tmp_path / "none"


# The steps are: remove what an earlier kill left, rename the old one, rename the new one, remove
# the old one.
@pytest.mark.parametrize(("moment", "left"), [(0, "old"), (1, "old"), (2, "old"), (3, "new")])
def test_after_a_kill_at_any_step_one_of_the_two_is_there_whole(tmp_path, moment, left):
    path = make(tmp_path / "model", "old")
    command = [sys.executable, "-c", KILL, make(tmp_path / "new", "new"), path, str(moment)]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    assert path.exists() == (moment != 2), "between the two renames it is missing"
    assert restore_folder(path) == path
    assert (path / "word").read_text() == left
    again = tmp_path / "again"
    replace_folder(make(again, "again"), path)
    assert (path / "word").read_text() == "again"
    assert not (tmp_path / ".model.old").exists()


def test_the_former_folder_that_a_killed_process_left_is_removed_with_its_lock(tmp_path):
    path = make(tmp_path / "model", "new")
    make(tmp_path / ".model.old", "old")
    (tmp_path / ".model.lock").write_text("process 1")
    with folder_lock(path):
        remove_leftovers(path, is_replaced=True)
        assert (tmp_path / ".model.old").is_dir(), "a process is at work"
    (tmp_path / ".model.lock").write_text("process 1")
    remove_leftovers(path, is_replaced=True)
    assert [entry.name for entry in tmp_path.iterdir()] == ["model"]


def test_where_nothing_may_be_written_the_old_folder_is_read_in_its_place(tmp_path, monkeypatch):
    former = make(tmp_path / ".model.old", "old")
    monkeypatch.setattr("filelock.FileLock.acquire", _refuse)
    assert restore_folder(tmp_path / "model") == former


def _refuse(*arguments, **options):
    raise PermissionError(13, "Permission denied")


def test_a_reader_waits_for_who_is_replacing_the_folder_at_this_moment(tmp_path):
    path = tmp_path / "model"
    make(tmp_path / ".model.old", "old")
    has_lock = threading.Event()

    def write():
        with folder_lock(path):
            has_lock.set()
            time.sleep(0.5)
            make(path, "new")

    writer = threading.Thread(target=write)
    writer.start()
    has_lock.wait()
    assert (restore_folder(path) / "word").read_text() == "new"
    writer.join()


@pytest.mark.parametrize("moment", [0, 1, 2])
def test_what_is_read_of_a_folder_is_of_the_old_or_of_the_new_one(tmp_path, moment):
    """It is replaced before, while or after both files are read, and once in between is missing."""
    path = make(tmp_path / "model", "old")
    (path / "second").write_text("old")
    new = make(tmp_path / "new", "new")
    (new / "second").write_text("new")
    moments = iter(range(100))

    def pass_moment():
        if next(moments) == moment:
            replace_folder(new, path)

    def read():
        pass_moment()
        first = (path / "word").read_text()
        pass_moment()
        second = (path / "second").read_text()
        pass_moment()
        return first, second

    assert read_unmixed(path, read) == ("new", "new")


def test_an_error_of_a_folder_that_stays_is_raised_and_of_one_that_is_replaced_is_not(tmp_path):
    path = make(tmp_path / "model", "old")
    with pytest.raises(FileNotFoundError):
        read_unmixed(path, (path / "second").read_text)
    with pytest.raises(FileNotFoundError):
        read_unmixed(tmp_path / "none", (tmp_path / "none").read_text)
    new = make(tmp_path / "new", "new")
    (new / "second").write_text("new")

    def read():
        try:
            return (path / "second").read_text()
        except FileNotFoundError:
            replace_folder(new, path)
            raise

    assert read_unmixed(path, read) == "new"
