"""Raw files are hashed once: again only if path, size or time of modification differ."""

import os

import pytest

from dana.core import raw_files
from dana.core.artifacts import make
from dana.core.errors import DataError
from dana.core.files import file_digest
from dana.core.raw_files import RAW_FILES, RawFiles


@pytest.fixture
def hashed(monkeypatch):
    """Names of the files that were hashed."""
    names = []

    def count(path):
        names.append(path.name)
        return file_digest(path)

    monkeypatch.setattr(raw_files, "file_digest", count)
    return names


@pytest.fixture
def text(tmp_path):
    file = tmp_path / "pool.txt"
    file.write_text("a first text")
    return file


def read(text, folder):
    """A step that reads one file."""
    files = RawFiles(folder)

    def write(draft):
        (draft.path / "copy").write_bytes(text.read_bytes())
        files.check_unchanged()
        draft.notes[RAW_FILES] = files.records()

    return make(folder, "thing", {"text": files.digest(text)}, write)


def test_an_unchanged_file_is_not_hashed_again(text, tmp_path, hashed):
    status = text.stat()
    step = read(text, tmp_path / "out")
    record = {"path": str(text), "bytes": 12, "mtime_ns": status.st_mtime_ns}
    assert step.manifest[RAW_FILES] == [{**record, "digest": file_digest(text)}]
    assert read(text, tmp_path / "out") == step
    assert hashed == ["pool.txt"]


def test_a_touched_or_moved_file_is_hashed_again_and_its_step_reused(text, tmp_path, hashed):
    step = read(text, tmp_path / "out")
    os.utime(text, ns=(1, 1))
    assert read(text, tmp_path / "out") == step
    moved = text.rename(tmp_path / "moved.txt")
    step.path.rename(tmp_path / "copy")
    assert read(moved, tmp_path / "copy").manifest == step.manifest
    assert hashed == ["pool.txt", "pool.txt", "moved.txt"]


def test_a_changed_file_is_another_input(text, tmp_path):
    read(text, tmp_path / "out")
    text.write_text("another text")
    os.utime(text, ns=(1, 1))
    with pytest.raises(Exception, match=r"out was made from other settings \(text: .*--remake"):
        read(text, tmp_path / "out")


@pytest.mark.parametrize(
    "change", [lambda text: text.unlink(), lambda text: os.utime(text, ns=(1, 1))]
)
def test_a_file_that_changes_while_it_is_read_is_refused(text, tmp_path, change):
    files = RawFiles(tmp_path / "out")
    files.digest(text)
    files.check_unchanged()
    change(text)
    with pytest.raises(DataError, match=r"pool\.txt: changed while it was read"):
        files.check_unchanged()
