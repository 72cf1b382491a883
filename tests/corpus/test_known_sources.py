"""Source files are hashed once: again if they look otherwise or what is remembered is damaged."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dana.core import known_sources, launch
from dana.core.artifacts import is_intact
from dana.core.errors import ArtifactError
from dana.core.files import file_digest
from dana.core.known_sources import CACHE, KnownSources
from dana.stages.texts import corpus_stage
from dana.stages.verify import verify

LINES = 400
TEXT = "".join(f'{{"text": "document number {number:05d}"}}\n' for number in range(LINES))


@pytest.fixture
def hashed(monkeypatch):
    """Names of the files that were hashed, where 1,000 bytes are many and a file settles at once."""
    names = []

    def counted(path):
        names.append(path.name)
        return file_digest(path)

    for name, value in {"SMALL": 1000, "SETTLED": 0, "file_digest": counted}.items():
        monkeypatch.setattr(known_sources, name, value)
    return names


@pytest.fixture
def pool(tmp_path):
    path = tmp_path / "in" / "pool.jsonl"
    path.parent.mkdir()
    path.write_text(TEXT)
    return path


def _edit(path, at):
    """Change a byte in place, with equal size, inode and time of modification."""
    before = path.stat()
    with path.open("r+b") as stream:
        stream.seek(at)
        digit = b"7" if stream.read(1) != b"7" else b"8"
        stream.seek(at)
        stream.write(digit)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_a_rerun_hashes_nothing_and_a_small_file_is_always_hashed(hashed, pool, tmp_path):
    (pool.parent / "small.txt").write_text("a short text\n")
    made = corpus_stage([str(pool.parent)], tmp_path / "out")
    assert hashed == ["pool.jsonl", "small.txt"]
    assert corpus_stage([str(pool.parent)], tmp_path / "out").manifest == made.manifest
    assert hashed == ["pool.jsonl", "small.txt", "small.txt"]
    assert made.manifest["depends_on"]["files"]["pool.jsonl"] == file_digest(pool)
    assert str(tmp_path) not in (made.path / CACHE).read_text()
    assert all(line.startswith("ok ") for line in verify(made.path))


def test_files_of_one_name_are_told_apart(hashed, pool, tmp_path):
    other = tmp_path / "in" / "below" / pool.name
    other.parent.mkdir()
    other.write_text(TEXT.replace("document", "DOCUMENT"))
    made = corpus_stage([str(pool.parent)], tmp_path / "out")
    assert corpus_stage([str(pool.parent)], tmp_path / "out").manifest == made.manifest
    assert len(hashed) == 2
    assert set(made.manifest["depends_on"]["files"].values()) == {file_digest(pool), file_digest(other)}


def test_a_touched_file_is_hashed_once_more_and_the_corpus_is_reused(hashed, pool, tmp_path):
    made = corpus_stage([str(pool)], tmp_path / "out")
    os.utime(pool, ns=(1, 1))
    for _ in range(2):
        assert corpus_stage([str(pool)], tmp_path / "out").manifest == made.manifest
    assert len(hashed) == 2


def test_other_bytes_are_seen_by_the_time_of_change(hashed, pool, tmp_path):
    corpus_stage([str(pool)], tmp_path / "out")
    _edit(pool, TEXT.index("00001"))
    with pytest.raises(ArtifactError, match="made from other settings"):
        corpus_stage([str(pool)], tmp_path / "out")


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: "",
        lambda text: text[: len(text) // 2],
        lambda text: "[" * 100_000,
        lambda text: "[1, 2]",
        lambda text: "\x00\xff",
        lambda text: text.replace('"digest": "', '"digest": "0', 1),
        lambda text: json.dumps({"files": json.loads(text)["files"]}),
    ],
)
def test_what_is_damaged_is_hashed_anew_and_written_anew(hashed, pool, tmp_path, damage):
    made = corpus_stage([str(pool)], tmp_path / "out")
    kept = made.path / CACHE
    whole = kept.read_text()
    kept.write_bytes(damage(whole).encode("latin-1"))
    assert corpus_stage([str(pool)], tmp_path / "out").manifest == made.manifest
    assert len(hashed) == 2
    assert kept.read_text() == whole


def test_a_file_that_changes_while_it_is_hashed_or_has_just_changed_is_not_remembered(pool, tmp_path, monkeypatch):
    def writing(path):
        os.utime(path, ns=(len(calls), 5))
        calls.append(path)
        return "digest"

    calls = []
    monkeypatch.setattr(known_sources, "SMALL", 1000)
    for settled, digest in ((0, writing), (1 << 62, lambda path: "digest")):
        monkeypatch.setattr(known_sources, "SETTLED", settled)
        monkeypatch.setattr(known_sources, "file_digest", digest)
        pool.write_text(TEXT)
        known = KnownSources(tmp_path / "out")
        assert known.digest(pool) == "digest"
        known.save()
        assert not (tmp_path / "out" / CACHE).exists()


def test_a_folder_that_cannot_be_written_is_no_error(hashed, pool, tmp_path, monkeypatch):
    made = corpus_stage([str(pool)], tmp_path / "out")
    (made.path / CACHE).unlink()

    def full(path, value):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(known_sources, "write_json", full)
    assert corpus_stage([str(pool)], tmp_path / "out").manifest == made.manifest
    assert not (made.path / CACHE).exists()


def test_another_process_of_a_launch_than_the_first_hashes_nothing(hashed, pool, tmp_path, monkeypatch):
    made = corpus_stage([str(pool)], tmp_path / "out")
    os.utime(pool, ns=(1, 1))
    hashed.clear()
    before = (made.path / CACHE).read_text()
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    sent = iter([[str(pool)], made.manifest["depends_on"], made, None, None])
    monkeypatch.setattr(launch, "_sum", lambda number: 0)
    monkeypatch.setattr(launch, "_broadcast", lambda value: next(sent))
    assert corpus_stage([str(pool)], tmp_path / "out") == made
    assert hashed == []
    assert (made.path / CACHE).read_text() == before


KEEPING = """
import sys
from pathlib import Path
from dana.core import known_sources
known_sources.SMALL, known_sources.SETTLED = 1000, 0
for _ in range(50):
    known = known_sources.KnownSources(Path(sys.argv[1]))
    known._before = {}
    for name in sys.argv[2:]:
        known.digest(Path(name))
    known.save()
"""


def test_processes_that_remember_at_once_leave_a_whole_file(pool, tmp_path):
    other = pool.with_name("other.jsonl")
    other.write_text(TEXT * 2)
    out = tmp_path / "out"
    orders = [[pool], [pool, other], [other]]
    at_once = [subprocess.Popen([sys.executable, "-c", KEEPING, out, *files]) for files in orders]
    while any(process.poll() is None for process in at_once):
        if (out / CACHE).exists():
            content = json.loads((out / CACHE).read_text())
            assert content["files"]
            assert is_intact(content)
    assert [process.returncode for process in at_once] == [0, 0, 0]
    assert [path.name for path in (out / CACHE).parent.iterdir()] == [Path(CACHE).name]
