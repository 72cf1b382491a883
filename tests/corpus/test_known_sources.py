"""Source files are hashed once: again if they look otherwise, if what is remembered is damaged, or if asked to."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dana.cli.main import main
from dana.core import known_sources, launch
from dana.core.artifacts import is_sealed, sealed, write_json
from dana.core.errors import ArtifactError
from dana.core.files import file_digest
from dana.core.known_sources import KEPT, KnownSources
from dana.stages.texts import corpus_stage
from dana.stages.verify import verify

LINES = 400
TEXT = "".join(f'{{"text": "document number {number:05d}"}}\n' for number in range(LINES))
UNSAMPLED = len(TEXT) // 4  # neither among the first and last 64 bytes nor those in the middle


@pytest.fixture
def hashed(monkeypatch):
    """Names of the files that were hashed, where 1,000 bytes are many and a file settles at once."""
    names = []

    def counted(path):
        names.append(path.name)
        return file_digest(path)

    for name, value in {"WHOLE": 1000, "SAMPLE": 64, "SETTLED": 0, "file_digest": counted}.items():
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


def _hide_time_of_change(path, corpus):
    """Let the corpus remember the present time of change, as if the file system had none."""
    content = json.loads((corpus / KEPT).read_text())
    (held,) = content["files"].values()
    held["looks"]["ctime"] = path.stat().st_ctime_ns
    write_json(corpus / KEPT, sealed({"files": content["files"]}))


def _without_digests(files):
    return {name: {"looks": held["looks"]} for name, held in files.items()}


def _digit(start):
    """The place of a digit of the text at or after `start`."""
    return next(at for at in range(start, len(TEXT)) if TEXT[at].isdigit())


def test_a_rerun_hashes_nothing_and_a_small_file_is_always_hashed(hashed, pool, tmp_path):
    (pool.parent / "small.txt").write_text("a short text\n")
    made = corpus_stage([str(pool.parent)], tmp_path / "out")
    assert hashed == ["pool.jsonl", "small.txt"]
    assert corpus_stage([str(pool.parent)], tmp_path / "out").manifest == made.manifest
    assert hashed == ["pool.jsonl", "small.txt", "small.txt"]
    assert made.manifest["depends_on"]["files"]["pool.jsonl"] == file_digest(pool)
    assert str(tmp_path) not in (made.path / KEPT).read_text()
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
    _hide_time_of_change(pool, made.path)
    for _ in range(2):
        assert corpus_stage([str(pool)], tmp_path / "out").manifest == made.manifest
    assert len(hashed) == 2


def test_a_file_that_was_changed_just_now_is_hashed_again(hashed, pool, tmp_path, monkeypatch):
    monkeypatch.setattr(known_sources, "SETTLED", 10**12)
    for _ in range(2):
        made = corpus_stage([str(pool)], tmp_path / "out")
    assert hashed == ["pool.jsonl", "pool.jsonl"]
    assert not (made.path / KEPT).exists()
    monkeypatch.setattr(known_sources, "SETTLED", 0)
    for _ in range(2):
        corpus_stage([str(pool)], tmp_path / "out")
    assert len(hashed) == 3


def test_an_edited_file_is_refused(hashed, pool, tmp_path):
    corpus_stage([str(pool)], tmp_path / "out")
    pool.write_text(TEXT + '{"text": "one more"}\n')
    for _ in range(2):
        with pytest.raises(ArtifactError, match=r"made from something else \(files\.pool\.jsonl: "):
            corpus_stage([str(pool)], tmp_path / "out")


@pytest.mark.parametrize("start", [0, len(TEXT) // 2 - 20, len(TEXT) - 20])
def test_other_bytes_in_a_sample_are_seen_whatever_the_times_say(hashed, pool, tmp_path, start):
    corpus_stage([str(pool)], tmp_path / "out")
    _edit(pool, _digit(start))
    _hide_time_of_change(pool, tmp_path / "out")
    with pytest.raises(ArtifactError, match="made from something else"):
        corpus_stage([str(pool)], tmp_path / "out")


def test_other_bytes_elsewhere_are_seen_by_the_time_of_change(hashed, pool, tmp_path):
    corpus_stage([str(pool)], tmp_path / "out")
    _edit(pool, _digit(UNSAMPLED))
    with pytest.raises(ArtifactError, match="made from something else"):
        corpus_stage([str(pool)], tmp_path / "out")


def test_where_a_file_system_has_no_such_time_only_verify_sees_them(hashed, pool, tmp_path, capsys):
    out, task = tmp_path / "run", tmp_path / "task.txt"
    task.write_text("".join(f"Text number {number} of the task.\n" for number in range(40)))
    flags = ["--task", str(task), "--general", str(pool), "--out", str(out)]
    command = ["score", *flags, "--selector", "random"]
    assert main(command) == 0
    _edit(pool, _digit(UNSAMPLED))
    _hide_time_of_change(pool, out / "corpus")
    before = len(hashed)
    assert main(command) == 0
    assert len(hashed) == before
    assert main([*command, "--verify"]) == 2
    assert "was made from something else (files." in capsys.readouterr().err
    assert main([*command, "--verify", "--shard", "1/2"]) == 2
    assert "--verify hashes the sources, and this command does not look at them" in capsys.readouterr().err


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: "",
        lambda text: text[: len(text) // 2],
        lambda text: "[" * 100_000,
        lambda text: "[1, 2]",
        lambda text: "\x00\xff",
        lambda text: json.dumps(sealed({"files": [1]})),
        lambda text: json.dumps(sealed({"files": {name: 3 for name in json.loads(text)["files"]}})),
        lambda text: text.replace('"digest": "', '"digest": "0', 1),
        lambda text: json.dumps(sealed({"files": _without_digests(json.loads(text)["files"])})),
        lambda text: json.dumps({"files": json.loads(text)["files"]}),
    ],
)
def test_what_is_damaged_is_hashed_anew_and_written_anew(hashed, pool, tmp_path, damage):
    made = corpus_stage([str(pool)], tmp_path / "out")
    kept = made.path / KEPT
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
    monkeypatch.setattr(known_sources, "WHOLE", 1000)
    for settled, digest in ((0, writing), (1 << 62, lambda path: "digest")):
        monkeypatch.setattr(known_sources, "SETTLED", settled)
        monkeypatch.setattr(known_sources, "file_digest", digest)
        pool.write_text(TEXT)
        known = KnownSources(tmp_path / "out")
        assert known.digest(pool) == "digest"
        known.keep()
        assert not (tmp_path / "out" / KEPT).exists()


def test_a_folder_that_cannot_be_written_is_no_error(hashed, pool, tmp_path, monkeypatch):
    made = corpus_stage([str(pool)], tmp_path / "out")
    (made.path / KEPT).unlink()

    def full(path, value):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(known_sources, "write_json", full)
    assert corpus_stage([str(pool)], tmp_path / "out").manifest == made.manifest
    assert not (made.path / KEPT).exists()


def test_another_process_of_a_launch_than_the_first_hashes_nothing(hashed, pool, tmp_path, monkeypatch):
    made = corpus_stage([str(pool)], tmp_path / "out")
    os.utime(pool, ns=(1, 1))
    hashed.clear()
    before = (made.path / KEPT).read_text()
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    sent = iter([[str(pool)], made.manifest["depends_on"], made, None, None])
    monkeypatch.setattr(launch, "_sum", lambda number: 0)
    monkeypatch.setattr(launch, "_sent", lambda value: next(sent))
    assert corpus_stage([str(pool)], tmp_path / "out") == made
    assert hashed == []
    assert (made.path / KEPT).read_text() == before


KEEPING = """
import sys
from pathlib import Path
from dana.core import known_sources
known_sources.WHOLE, known_sources.SETTLED = 1000, 0
for _ in range(50):
    known = known_sources.KnownSources(Path(sys.argv[1]))
    known._before = {}
    for name in sys.argv[2:]:
        known.digest(Path(name))
    known.keep()
"""


def test_processes_that_remember_at_once_leave_a_whole_file(pool, tmp_path):
    other = pool.with_name("other.jsonl")
    other.write_text(TEXT * 2)
    out = tmp_path / "out"
    orders = [[pool], [pool, other], [other]]
    at_once = [subprocess.Popen([sys.executable, "-c", KEEPING, out, *files]) for files in orders]
    while any(process.poll() is None for process in at_once):
        if (out / KEPT).exists():
            content = json.loads((out / KEPT).read_text())
            assert content["files"]
            assert is_sealed(content)
    assert [process.returncode for process in at_once] == [0, 0, 0]
    assert [path.name for path in (out / KEPT).parent.iterdir()] == [Path(KEPT).name]


@pytest.mark.parametrize(
    "command",
    [
        ["score", "--task", "x.txt", "--general", "y.txt", "--merge"],
        ["score", "--task", "x.txt", "--general", "y.txt", "--dry-run"],
        ["run", "quickstart", "--dry-run"],
    ],
)
def test_verify_is_refused_where_no_source_is_looked_at(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main([*command, "--verify"]) == 2
    assert "--verify hashes the sources, and this command does not look at them" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["rank", "score", "run"])
def test_help_names_verify(command, capsys):
    with pytest.raises(SystemExit):
        main([command, "--help"])
    assert "--verify" in capsys.readouterr().out
