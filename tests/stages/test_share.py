"""Runs of several tasks over one pool, with a folder that they share: one corpus, its tokens, its embeddings."""

import shutil

import pytest

from dana.cli.main import main
from dana.core.artifacts import open_artifact
from dana.core.schemas import parts
from dana.stages import corpus as stage

FLAGS = ["--selector", "detector", "--detector", "knn", "--encoder", "hashing:dims=64,words=1"]


@pytest.fixture
def runs(texts, tmp_path, capsys):
    """A function that scores the pool for a run's task, with a shared folder."""
    lines = (texts / "cells.txt").read_text(encoding="utf-8").split("\n\n")
    (tmp_path / "halved.txt").write_text("\n\n".join(lines[:40]), encoding="utf-8")

    def score(name, task, *more, expect=0):
        out = tmp_path / name
        given = ["--task", str(task), "--general", str(texts / "pool.jsonl"), "--out", str(out), *FLAGS]
        assert main(["score", *given, *(more or ["--share", str(tmp_path / "share")])]) == expect
        return out

    return score


def inode(folder):
    return [file.stat().st_ino for file in parts(folder)]


def test_another_task_reads_no_source_and_both_score_as_alone(runs, texts, tmp_path, monkeypatch, capsys):
    one = runs("one", texts / "cells.txt")
    monkeypatch.setattr(stage, "read_documents", None)
    two = runs("two", tmp_path / "halved.txt")
    monkeypatch.undo()
    alone = runs("alone", tmp_path / "halved.txt", "--geometry", "center+l2")
    assert inode(one / "corpus") == inode(two / "corpus") != inode(alone / "corpus")
    for folder in ("corpus", "scores"):
        assert [part.read_bytes() for part in parts(two / folder)] == [
            part.read_bytes() for part in parts(alone / folder)
        ]
    assert not (one / "embeddings").exists()
    assert (alone / "embeddings").is_dir()
    assert f"share: {tmp_path / 'share'}" in (two / "settings.yaml").read_text(encoding="utf-8")
    assert "store" not in (two / "settings.yaml").read_text(encoding="utf-8")
    assert main(["verify", str(two)]) == main(["verify", str(tmp_path / "share")]) == 0


def test_what_a_task_keeps_out_makes_another_corpus(runs, texts, tmp_path):
    one = runs("one", texts / "cells.txt")
    two = runs("two", texts / "cells.txt", "--share", str(tmp_path / "share"), "--sample", "0.5")
    assert inode(one / "corpus") != inode(two / "corpus")
    assert len(list((tmp_path / "share" / "corpus").iterdir())) == 2


def test_tokens_are_shared_by_runs_that_remember_the_folder(runs, texts, checkpoint, tmp_path, monkeypatch):
    one, two = runs("one", texts / "cells.txt"), runs("two", tmp_path / "halved.txt")
    assert main(["pack", str(one), "--model", checkpoint]) == 0
    monkeypatch.setattr("dana.stages.pack.write_tokens", None)
    assert main(["pack", str(two), "--model", checkpoint]) == 0
    [of_one], [of_two] = (list((run / "tokens").iterdir()) for run in (one, two))
    assert open_artifact(of_one, "tokens").manifest == open_artifact(of_two, "tokens").manifest
    shared = [(run / "tokens.safetensors").stat().st_ino for run in (of_one, of_two)]
    assert shared[0] == shared[1]


def test_damage_in_the_shared_folder_is_named_by_verify_and_by_the_next_run(runs, texts, tmp_path, capsys):
    one = runs("one", texts / "cells.txt")
    [place] = (tmp_path / "share" / "corpus").iterdir()
    [part] = parts(place)
    with part.open("r+b") as stream:
        stream.truncate(100)
    assert main(["verify", str(one)]) == 2
    capsys.readouterr()
    runs("two", tmp_path / "halved.txt", expect=2)
    assert f"{part}: 100 bytes" in capsys.readouterr().err
    shutil.rmtree(place)
    two = runs("two", tmp_path / "halved.txt")
    assert main(["verify", str(two)]) == 0


@pytest.mark.parametrize("name", ["file", "run", "run/corpus", "s3://bucket/share", "/dev/null", ""])
def test_what_cannot_be_shared_in_is_refused_before_any_work(runs, texts, tmp_path, capsys, name):
    (tmp_path / "file").write_text("", encoding="utf-8")
    given = str(tmp_path / name) if name.startswith(("file", "run")) else name
    runs("run", texts / "cells.txt", "--share", given, expect=2)
    said = capsys.readouterr().err
    assert ("share" in said and repr(given) in said) or "--share ''" in said
    assert not (tmp_path / "run").exists()


def test_a_place_below_a_file_is_refused_by_name(runs, texts, tmp_path, capsys):
    (tmp_path / "file").write_text("", encoding="utf-8")
    runs("run", texts / "cells.txt", "--share", str(tmp_path / "file" / "below"), expect=2)
    assert "Not a directory" in capsys.readouterr().err
    assert not (tmp_path / "run" / "corpus").exists()


@pytest.mark.parametrize("name", ["one", "one/below", "one/corpus", "one/corpus/below"])
def test_another_run_is_no_shared_folder_and_stays_whole(runs, texts, tmp_path, capsys, name):
    one = runs("one", texts / "cells.txt")
    runs("two", texts / "cells.txt", "--share", str(tmp_path / name), "--sample", "0.5", expect=2)
    assert f"share={str(tmp_path / name)!r}: must be a local folder outside" in capsys.readouterr().err
    assert not (tmp_path / "two").exists()
    assert main(["verify", str(one)]) == 0
