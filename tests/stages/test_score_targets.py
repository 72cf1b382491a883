"""Several targets over one corpus in one pass: the bytes of separate runs, each text read and encoded once."""

import shutil
from collections import Counter
from pathlib import Path

import pytest

from dana.cli.main import main
from dana.core.errors import ConfigError
from dana.encoders.hashing import HashingEncoder
from dana.scoring import sharded
from dana.scoring.scoring import Scoring
from dana.scoring.shards import Shard, shards_of
from dana.stages.score_targets import open_targets

# kNN, one fitted on halves, two encoders, words beside vectors.
TARGETS = {
    "knn": ["--selector", "detector", "--detector", "knn"],
    "lda": ["--selector", "lda", "--geometry", "l2"],
    "cascade": ["--selector", "cascade:keep=0.5,first=hashing:dims=16", "--detector", "pca"],
    "fusion": ["--selector", "fusion:parts=lexical+svm"],
}


@pytest.fixture(autouse=True)
def small_shards(monkeypatch):
    monkeypatch.setattr(sharded, "shards_of", lambda corpus: shards_of(corpus, 17))


@pytest.fixture
def prepare(texts, tmp_path):
    """A function that prepares a run of a target, with or without a store of its own."""
    lines = (texts / "cells.txt").read_text(encoding="utf-8").split("\n\n")

    def prepare(name, folder, *more, general=texts / "pool.jsonl"):
        task = tmp_path / f"{name}.txt"
        task.write_text("\n\n".join(lines[: 30 + 5 * len(name)]), encoding="utf-8")
        out = tmp_path / folder / name
        given = ["--task", str(task), "--general", str(general), "--out", str(out), *TARGETS[name]]
        given += ["--encoder", "hashing:dims=64,words=1", "--share", str(tmp_path / "share"), *more]
        assert main(["score", *given, "--prepare"]) == 0
        return out

    return prepare


def content(run):
    files = [path for path in sorted((run / "scores").rglob("*")) if path.is_file() and path.name != "manifest.json"]
    return {str(path.relative_to(run)): path.read_bytes() for path in files}


def separate(prepare, *more, names=TARGETS):
    runs = [prepare(name, "alone", *more) for name in names]
    for run in runs:
        assert main(["score", "--out", str(run)]) == 0
    return [content(run) for run in runs]


@pytest.mark.parametrize("more", [(), ("--store", "none")])
def test_all_at_once_gives_the_bytes_of_each_alone(prepare, more):
    expected = separate(prepare, *more)
    runs = [prepare(name, "together", *more) for name in TARGETS]
    assert main(["score", *map(str, runs)]) == 0
    assert [content(run) for run in runs] == expected
    assert not any((run / "scores-shards").exists() for run in runs)


def test_shards_on_several_machines_give_the_same_bytes(prepare):
    expected = separate(prepare, names=["knn", "lda"])
    runs = [str(prepare(name, "together")) for name in ("knn", "lda")]
    for share in ("2/2", "1/2"):
        assert main(["score", *runs, "--shard", share]) == 0
    assert main(["score", *runs, "--merge"]) == 0
    assert [content(Path(run)) for run in runs] == expected


def test_text_is_read_once_and_each_text_of_a_batch_is_encoded_once(prepare, monkeypatch):
    runs = [prepare(name, "together", "--store", "none") for name in ("knn", "lda")]
    [knn, lda] = tables = open_targets(runs)
    fitted, read, asked = [table.prepared() for table in tables], Counter(), []
    plain, encode = Shard.read, HashingEncoder.encode
    monkeypatch.setattr(Shard, "read", lambda shard: read.update([shard.number]) or plain(shard))
    monkeypatch.setattr(HashingEncoder, "encode", lambda self, texts: asked.append(texts) or encode(self, texts))
    sharded.score_shards(tables, fitted, sharded.Share())
    assert set(read.values()) == {1}
    in_corpus = [
        list(dict.fromkeys(units.texts)) for _, units in knn._batches(shards_of(runs[0] / "corpus", 17)) if units
    ]
    assert asked == in_corpus
    assert len(asked) == len(read) > 5
    held = next(iter(lda.selector.context.memory.parts.values()))
    assert len(held.places) == len(held.vectors) == len(asked[-1])


def test_stopped_in_the_middle_only_what_is_missing_is_scored(prepare, monkeypatch):
    expected = separate(prepare, names=["knn", "lda"])
    runs = [prepare(name, "together") for name in ("knn", "lda")]
    rows, scored = Scoring.rows, []

    def stopping(self, units, fitted):
        scored.append(self.folder.parent.name)
        if len(scored) == 6:
            raise KeyboardInterrupt
        return rows(self, units, fitted)

    monkeypatch.setattr(Scoring, "rows", stopping)
    assert main(["score", *map(str, runs)]) == 130
    (runs[0] / "scores-shards" / "shard-000001.parquet").unlink()
    assert main(["score", *map(str, runs)]) == 0
    shards = len(shards_of(runs[0] / "corpus", 17))
    assert Counter(scored[6:]) == {"knn": shards - 1, "lda": shards - 2}
    assert [content(run) for run in runs] == expected


def test_what_is_scored_already_is_left_alone(prepare, monkeypatch):
    runs = [prepare(name, "together") for name in ("knn", "lda")]
    assert main(["score", "--out", str(runs[0])]) == 0
    before = content(runs[0])
    assert main(["score", *map(str, runs)]) == 0
    assert content(runs[0]) == before
    assert content(runs[1])
    monkeypatch.setattr(Scoring, "rows", None)
    assert main(["score", *map(str, runs)]) == 0


def test_runs_that_do_not_go_together_are_refused(prepare, texts, tmp_path):
    one = prepare("knn", "together")
    with pytest.raises(ConfigError, match="given twice"):
        open_targets([one, one.parent / "." / one.name])
    other = tmp_path / "other.jsonl"
    shutil.copyfile(texts / "pool.jsonl", other)
    with pytest.raises(ConfigError, match=r"lda: its corpus is not that of .*knn"):
        open_targets([one, prepare("lda", "elsewhere", general=other)])
    with pytest.raises(ConfigError, match=r"fusion: cuts text into other units than .*knn"):
        open_targets([one, prepare("fusion", "together", "--language", "de")])


@pytest.mark.parametrize("more", [["--task", "x"], ["--prepare"], ["--engine", "ray"], ["--set", "weigh.beta=0.1"]])
def test_runs_are_scored_as_they_were_prepared(tmp_path, capsys, more):
    assert main(["score", str(tmp_path), *more]) == 2
    assert f"{more[-1] if more[0] == '--set' else more[0]}: runs are scored as" in capsys.readouterr().err


def test_a_folder_that_was_not_prepared_is_refused_by_name(tmp_path, capsys):
    assert main(["score", str(tmp_path / "nowhere")]) == 2
    assert f"{tmp_path / 'nowhere' / 'task'}: no task here" in capsys.readouterr().err
    assert not (tmp_path / "nowhere").exists()
