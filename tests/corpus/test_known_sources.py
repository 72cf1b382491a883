"""Source files are hashed once: again if they look otherwise or what is remembered is damaged."""

import json
import os

import pytest

from dana.core import known_sources, launch
from dana.core.errors import ArtifactError
from dana.core.files import file_digest
from dana.core.known_sources import CACHE, KnownSources
from dana.stages.texts import corpus_stage
from dana.stages.verify import verify

TEXT = "".join(f'{{"text": "document number {number:05d}"}}\n' for number in range(400))


@pytest.fixture
def hashes(monkeypatch):
    """Names of the files that were hashed, where 1,000 bytes are many and a file settles at once."""
    names = []

    def count(path):
        names.append(path.name)
        return file_digest(path)

    for name, value in {"SMALL": 1000, "SETTLED": 0, "file_digest": count}.items():
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
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    with path.open("r+b") as stream:
        stream.write(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_a_large_file_is_hashed_again_only_if_it_looks_otherwise(hashes, pool, tmp_path):
    other = tmp_path / "in" / "below" / pool.name  # another of the same name
    other.parent.mkdir()
    other.write_text(TEXT.replace("document", "DOCUMENT"))
    (pool.parent / "small.txt").write_text("a short text\n")
    corpus = corpus_stage([str(pool.parent)], tmp_path / "out")
    digests = {file_digest(path) for path in (pool, other, pool.parent / "small.txt")}
    assert set(corpus.manifest["depends_on"]["files"].values()) == digests
    assert sorted(hashes) == ["pool.jsonl", "pool.jsonl", "small.txt"]
    assert str(tmp_path) not in (corpus.path / CACHE).read_text()
    assert all(line.startswith("ok ") for line in verify(corpus.path))
    for change, count in (
        (lambda: None, 0),
        (lambda: os.utime(pool, ns=(1, 1)), 1),
        (lambda: None, 0),
    ):
        hashes.clear()
        change()
        assert corpus_stage([str(pool.parent)], tmp_path / "out").manifest == corpus.manifest
        assert sorted(hashes) == ["pool.jsonl"] * count + ["small.txt"]
    _edit(pool, TEXT.index("00001"))  # seen by the time of change
    with pytest.raises(ArtifactError, match="made from other settings"):
        corpus_stage([str(pool.parent)], tmp_path / "out")


def test_what_is_damaged_is_hashed_anew_and_written_anew(hashes, pool, tmp_path):
    corpus = corpus_stage([str(pool)], tmp_path / "out")
    cache = corpus.path / CACHE
    content = cache.read_text()
    without_checksum = json.dumps({"files": json.loads(content)["files"]})
    other_digest = content.replace('"digest": "', '"digest": "0', 1)
    half = content[: len(content) // 2]
    for damage in ("", half, "[" * 100_000, "[1, 2]", "\x00\xff", other_digest, without_checksum):
        hashes.clear()
        cache.write_bytes(damage.encode("latin-1"))
        assert corpus_stage([str(pool)], tmp_path / "out").manifest == corpus.manifest
        assert len(hashes) == 1, damage[:99]
        assert cache.read_text() == content


def test_a_file_that_changes_while_it_is_hashed_or_has_just_changed_is_not_remembered(
    pool, tmp_path, monkeypatch
):
    def digest_and_touch(path):
        os.utime(path, ns=(5, 5))
        return "digest"

    monkeypatch.setattr(known_sources, "SMALL", 1000)
    for seconds, digest in ((0, digest_and_touch), (1 << 62, lambda path: "digest")):
        monkeypatch.setattr(known_sources, "SETTLED", seconds)
        monkeypatch.setattr(known_sources, "file_digest", digest)
        pool.write_text(TEXT)
        sources = KnownSources(tmp_path / "out")
        assert sources.digest(pool) == "digest"
        sources.save()
        assert not (tmp_path / "out" / CACHE).exists()


def test_a_folder_that_cannot_be_written_is_no_error(hashes, pool, tmp_path, monkeypatch):
    corpus = corpus_stage([str(pool)], tmp_path / "out")
    (corpus.path / CACHE).unlink()

    def full(path, value):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(known_sources, "write_json", full)
    assert corpus_stage([str(pool)], tmp_path / "out").manifest == corpus.manifest
    assert not (corpus.path / CACHE).exists()


def test_another_process_of_a_launch_than_the_first_hashes_nothing(
    hashes, pool, tmp_path, monkeypatch
):
    corpus = corpus_stage([str(pool)], tmp_path / "out")
    os.utime(pool, ns=(1, 1))
    hashes.clear()
    before = (corpus.path / CACHE).read_text()
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    messages = iter([[str(pool)], corpus.manifest["depends_on"], corpus, None, None])
    monkeypatch.setattr(launch, "_sum", lambda number: 0)
    monkeypatch.setattr(launch, "_broadcast", lambda value: next(messages))
    assert corpus_stage([str(pool)], tmp_path / "out") == corpus
    assert hashes == []
    assert (corpus.path / CACHE).read_text() == before
