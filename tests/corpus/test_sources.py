"""Which files a source means: links are followed, a run never reads what it wrote, what is passed over is said."""

import os
from collections import Counter

import datasets
import pytest

from dana.core.errors import ConfigError, DataError
from dana.corpus.readers import read_records
from dana.corpus.sources import expand, find_files


@pytest.fixture
def pool(tmp_path):
    """Two files, one of them deeper."""
    for name in ("a.txt", "in/b.txt"):
        (tmp_path / "pool" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "pool" / name).write_text(name)
    return tmp_path / "pool"


def _names(files, pool):
    return [os.path.relpath(file, pool) for file in files]


def test_files_are_read_in_the_order_of_names_and_those_of_sources_in_their_order(pool):
    (pool / "c.jsonl").write_text('{"text": "ay"}')
    for source, names in ((pool, ["a.txt", "c.jsonl", "in/b.txt"]), (pool / "*.txt", ["a.txt"])):
        assert _names(expand(str(source)), pool) == names
    texts = [
        record.fields["text"] for record in read_records([str(pool / "in" / "b.txt"), str(pool)])
    ]
    assert texts == ["in/b.txt", "a.txt", "ay", "in/b.txt"]
    (pool / "bare").write_text("no suffix")
    (pool / "x.pdf").write_text("no text")
    assert [record.fields["text"] for record in read_records([str(pool / "bare")])] == ["no suffix"]
    with pytest.raises(DataError, match=r"bare: unknown format 'without a suffix'; available: \.j"):
        expand(str(pool / "[bx]*"))
    with pytest.raises(DataError, match=r"x\.pdf: unknown format '\.pdf'; .*rename it, or pipe it"):
        expand(str(pool / "x.pdf"))


def test_links_are_followed_and_each_real_folder_is_read_once(pool, tmp_path):
    (pool / "in" / "up").symlink_to(pool)
    (pool / "self").symlink_to(pool / "self")
    for source in (pool, pool / "**" / "*.txt"):
        assert _names(expand(str(source)), pool) == ["a.txt", "in/b.txt"]
    (tmp_path / "else").mkdir()
    (tmp_path / "else" / "c.txt").write_text("c")
    (pool / "linked").symlink_to(tmp_path / "else")
    (pool / "d.txt").symlink_to(tmp_path / "else" / "c.txt")
    (tmp_path / "way").symlink_to(pool)
    assert _names(expand(str(tmp_path / "way")), tmp_path / "way") == [
        "a.txt",
        "d.txt",
        "in/b.txt",
        "linked/c.txt",
    ]


def test_a_link_to_nothing_and_a_name_that_is_not_utf8_are_named(pool):
    (pool / "gone.txt").symlink_to(pool / "nowhere")
    with pytest.raises(DataError, match=r"gone\.txt: broken link"):
        expand(str(pool))
    (pool / "in" / os.fsdecode(b"bad\xff.txt")).write_text("text")
    for source in (pool / "in", pool / "in" / "*.txt"):
        with pytest.raises(
            DataError, match=r"in/bad\\xff\.txt': the name is not UTF-8; rename the file"
        ):
            expand(str(source))


@pytest.mark.parametrize("source", ["", " "])
def test_no_source_is_not_the_working_directory(source):
    with pytest.raises(ConfigError, match="must be a file, folder, glob, URL or hf: name"):
        expand(source)


def test_a_run_within_its_sources_does_not_read_itself(pool):
    run = pool / "in" / "run"
    (run / "pool" / "__dana__").mkdir(parents=True)
    for name in ("pool/part-0.parquet", "ranking.csv", "tables/x.csv"):
        (run / name).parent.mkdir(exist_ok=True)
        (run / name).write_text("the run's")
    for source in (str(pool), str(pool / "**" / "*")):
        assert _names(find_files([source], run), pool) == ["a.txt", "in/b.txt"]
    assert _names(find_files([str(pool)], pool / "other"), pool) == ["a.txt", "in/b.txt"], (
        "another's, by its pool"
    )
    for source in (run / "tables" / "x.csv", run / "t*" / "*.csv"):
        assert _names(find_files([str(source)], run), run) == ["tables/x.csv"], "named, it is meant"
    with pytest.raises(ConfigError, match="choose another --out"):
        find_files([str(pool / "in" / "..")], pool)


def test_what_is_passed_over_is_counted_and_said(pool, tmp_path, caplog):
    for name in ("x.pdf", "y.PDF", "README", ".hidden.txt"):
        (pool / name).write_text("x")
    (pool / "old" / "__dana__").mkdir(parents=True)
    skips = Counter()
    expand(str(pool), None, skips)
    assert skips == {".pdf": 2, "without suffix": 1, "folder that dana wrote": 1}
    caplog.set_level("INFO", "dana")
    find_files([str(pool)], tmp_path / "out")
    (record,) = caplog.records
    assert (
        record.getMessage()
        == f"input     {pool}: skipped: 2 .pdf, 1 folder that dana wrote, 1 without suffix"
    )


def test_a_folder_that_cannot_be_read_is_an_error(pool, monkeypatch):
    def walk(root, followlinks, onerror):
        onerror(PermissionError(13, "Permission denied", f"{root}/in"))
        yield from ()

    monkeypatch.setattr(os, "walk", walk)
    with pytest.raises(DataError, match=r"in: cannot be read: Permission denied"):
        expand(str(pool))


@pytest.mark.parametrize(
    "error", [IndexError("list index out of range"), ImportError("no soundfile"), KeyError()]
)
def test_whatever_a_dataset_raises_is_one_error(monkeypatch, error):
    def load_dataset(*_, **__):
        raise error

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    with pytest.raises(
        DataError, match=r"hf:org/name: cannot be read: (list index|no soundfile|KeyError)"
    ):
        list(read_records(["hf:org/name"]))
    with pytest.raises(ConfigError, match="source='hf:': must be hf:org/name"):
        list(read_records(["hf:"]))
