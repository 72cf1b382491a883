"""Pushes to file systems with folders, and to the memory of the process."""

import logging

from dana.core.artifacts import make
from dana.stages.transfer import pull, push


def _fill(draft):
    (draft.path / "deep").mkdir()
    (draft.path / "deep" / "words.txt").write_text("a b c", encoding="utf-8")


def test_folders_above_a_file_are_made(tmp_path):
    made = make(tmp_path / "run" / "notes", "notes", {"of": 1}, _fill)
    url = f"file://{tmp_path}/new place/ü"
    assert list(push(tmp_path / "run", url)) == [f"pushed {url}/notes"]
    assert list(push(tmp_path / "run", url)) == [f"was there {url}/notes"]
    list(pull(f"{url}/notes", tmp_path / "back"))
    assert (tmp_path / "back" / "deep" / "words.txt").read_bytes() == (made.path / "deep" / "words.txt").read_bytes()


def test_what_is_pushed_to_the_memory_of_the_process_is_said_to_end_with_it(tmp_path, heard):
    make(tmp_path / "notes", "notes", {"of": 1}, _fill)
    with heard.at_level(logging.WARNING):
        list(push(tmp_path / "notes", "memory://ends-with-it"))
        list(push(tmp_path / "notes", f"file://{tmp_path}/stays"))
    warned = [record.getMessage() for record in heard.records if record.levelno >= logging.WARNING]
    assert warned == ["memory://ends-with-it: is in the memory of this process, gone when it ends"]
