"""Every damaged file is named, and nothing else."""

import json
import shutil

import pytest

from dana.cli.main import main
from dana.core.artifacts import MANIFEST, open_artifact
from dana.core.errors import ArtifactError
from dana.core.schemas import iterate_documents, read_table
from dana.train.checkpoints import Checkpoints


def _flip(path, place=None):
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2 if place is None else place] ^= 1
    path.write_bytes(raw)


def said(folder, capsys):
    """The lines of a damaged folder, in the order of its artifacts."""
    assert main(["verify", str(folder)]) == 2
    return capsys.readouterr().out.splitlines()


@pytest.fixture
def scored(opened, tmp_path):
    """A copy of the run as scoring left it; other tests write beside these folders."""
    for name in ("corpus", "task", "scores"):
        shutil.copytree(opened[2] / name, tmp_path / "copy" / name)
    return tmp_path / "copy"


def test_a_whole_run_is_well(scored, capsys):
    assert main(["verify", str(scored)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert all(line.startswith("ok ") for line in lines)


def test_each_damaged_file_is_named_with_exit_code_2(scored, capsys):
    _flip(scored / "scores" / "part-00000.parquet")
    (scored / "task" / "fit" / "part-00000.parquet").unlink()
    (scored / "scores" / "__dana__" / "selector" / "selector.json").write_text("{}")
    (scored / "corpus" / "part-00042.parquet").write_bytes(b"junk")
    assert main(["verify", str(scored)]) == 2
    said = capsys.readouterr()
    assert "3 of 3 folders are damaged" in said.err
    problems = [line.strip() for line in said.out.splitlines() if line.startswith("   ")]
    expected = {
        "scores/part-00000.parquet: its bytes are not those that were written",
        "fit/part-00000.parquet: is missing",
        "selector/selector.json: 2 bytes",
        "corpus/part-00042.parquet: does not belong there",
    }
    assert len(problems) == len(expected)
    assert all(any(end in problem for problem in problems) for end in expected), problems


def test_files_that_nobody_wrote_there_are_named_and_what_steps_remember_is_not(scored, capsys):
    (scored / "scores" / "extra").write_text("hi")
    (scored / "corpus" / "below").mkdir()
    (scored / "corpus" / "below" / "notes.txt").write_text("hi")
    for passed_over in ("corpus/__dana__/sources.json", "corpus/.hidden", "notes.txt"):
        (scored / passed_over).write_text("{}")
    (scored / "scores" / "__dana__" / "part-00009.parquet").write_text("hi")  # which opening refuses
    shutil.copytree(scored / "task", scored / "scores" / "copy")  # an artifact of its own, but opening finds its parts
    with pytest.raises(ArtifactError, match=r"part-00009\.parquet: does not belong there"):
        open_artifact(scored / "scores", "scores")
    assert main(["verify", str(scored)]) == 2
    said = capsys.readouterr()
    assert "2 of 4 folders are damaged" in said.err
    problems = [line.strip() for line in said.out.splitlines() if line.startswith("   ")]
    parts = [path.relative_to(scored).as_posix() for path in sorted((scored / "scores" / "copy").rglob("part-*"))]
    assert parts
    named = ("corpus/below/notes.txt", "scores/extra", "scores/__dana__/part-00009.parquet", *parts)
    assert problems == [f"{scored / name}: does not belong there" for name in named]


def test_torn_manifests_and_damaged_checkpoints_are_problems(opened, tmp_path, capsys):
    shutil.copytree(opened[2] / "task", tmp_path / "task")
    (tmp_path / "task" / MANIFEST).write_text("{")
    saved = Checkpoints(tmp_path / "adapted-checkpoints", {"a": 1})
    saved.save(5, lambda folder: (folder / "state").write_text("state"), {})
    assert [line.split()[0] for line in said(tmp_path, capsys) if line[0] != " "] == ["DAMAGED", "ok"]
    _flip(tmp_path / "adapted-checkpoints" / "step-00000005" / "state")
    problems = [line for line in said(tmp_path, capsys) if line[0] == " "]
    assert len(problems) == 2
    assert "state: its bytes" in problems[1]
    (tmp_path / "adapted-checkpoints" / "step-00000005" / "manifest.json").write_text(json.dumps([1]))
    assert "cannot be read" in said(tmp_path, capsys)[-1]


def test_a_folder_without_anything_of_dana_is_an_error(tmp_path, capsys):
    assert main(["verify", str(tmp_path)]) == 2
    assert "__dana__/manifest.json" in capsys.readouterr().err


@pytest.mark.parametrize("place", ["corpus", "scores"])
def test_a_flipped_bit_in_a_table_is_found_by_whoever_reads_it(opened, tmp_path, place):
    shutil.copytree(opened[2] / place, tmp_path / place)
    _flip(tmp_path / place / "part-00000.parquet", 60)
    with pytest.raises(ArtifactError, match=r"part-00000\.parquet: damaged"):
        list(iterate_documents(tmp_path / place)) if place == "corpus" else read_table(tmp_path / place)


def test_a_changed_manifest_ranking_or_embedding_is_named(texts, tmp_path, capsys):
    out = tmp_path / "run"
    names = ["--task", str(texts / "cells.txt"), "--general", str(texts / "pool.jsonl"), "--out", str(out)]
    assert main(["rank", *names, "--encoder", "hashing:dims=64", "--detectors", "pca"]) == 0
    assert main(["verify", str(out)]) == 0
    manifest, ranking = out / "corpus" / MANIFEST, out / "ranking" / "ranking.csv"
    (segment,) = out.glob("embeddings/*/vectors-*.safetensors")
    manifest.write_text(manifest.read_text().replace('"kept": 120', '"kept": 121'))
    _flip(ranking)
    _flip(segment)
    (out / "settings.yaml").write_text("weigh: {beata: 1}")
    capsys.readouterr()
    assert main(["verify", str(out)]) == 2
    said = capsys.readouterr().out
    for file in (manifest, ranking, segment):
        assert f"{file}: its bytes are not those that were written" in said
    assert "settings.yaml: unknown key" in said
