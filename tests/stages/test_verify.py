"""Every damaged file is named, and nothing else."""

import json
import shutil

import pytest

from dana.cli.main import main
from dana.core.artifacts import (
    INVENTORY,
    MANIFEST,
    add_seal,
    list_files,
    open_artifact,
    read_inventory,
)
from dana.core.errors import ArtifactError
from dana.core.schemas import iterate_documents, read_table
from dana.stages.pack import pack_for

CHANGED = "its bytes are not those that were written"


def flip(path, index=None):
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2 if index is None else index] ^= 1
    path.write_bytes(raw)


@pytest.fixture
def verify(capsys):
    """Run the command; return its exit code, the lines of the folders, the problems and the error."""

    def run(folder):
        capsys.readouterr()
        code = main(["files", "verify", str(folder)])
        output = capsys.readouterr()
        lines = output.out.splitlines()
        folders = [line for line in lines if line[0] != " "]
        return code, folders, [line.strip() for line in lines if line[0] == " "], output.err

    return run


@pytest.fixture
def run(topics, tmp_path):
    """Copy a run as scoring left it."""
    for name in ("corpus", "task", "scores"):
        shutil.copytree(topics[2] / name, tmp_path / "copy" / name)
    return tmp_path / "copy"


def test_reuse_lists_what_its_killed_writer_did_not(run):
    pack_for("dana-mini", run / "corpus")
    (run / INVENTORY).write_text(json.dumps(add_seal({"files": {}})))
    name = pack_for("dana-mini", run / "corpus").path.relative_to(run)
    assert [*read_inventory(run)] == [f"{name}/{MANIFEST}"]


def test_each_damaged_file_is_named_with_exit_code_2(run, verify):
    code, folders, problems, _ = verify(run)
    assert (code, [line.split()[0] for line in folders], problems) == (0, ["ok"] * 3, [])
    flip(run / "scores" / "part-00000.parquet")
    (run / "task" / "fit" / "part-00000.parquet").unlink()
    (run / "scores" / "__dana__" / "selector" / "selector.json").write_text("{}")
    (run / "corpus" / "part-00042.parquet").write_bytes(b"junk")
    code, _, problems, error = verify(run)
    assert code == 2
    assert "3 of 3 folders are damaged" in error
    endings = {
        f"scores/part-00000.parquet: {CHANGED}",
        "fit/part-00000.parquet: is missing",
        "selector/selector.json: 2 bytes",
        "corpus/part-00042.parquet: does not belong there",
    }
    assert len(problems) == len(endings)
    assert all(any(ending in problem for problem in problems) for ending in endings), problems


def test_files_that_nobody_wrote_there_are_named_and_what_steps_remember_is_not(run, verify):
    (run / "corpus" / "below").mkdir()
    shutil.copytree(
        run / "task", run / "scores" / "copy"
    )  # an artifact of its own, but opening finds its parts
    parts = [
        path.relative_to(run).as_posix()
        for path in sorted((run / "scores" / "copy").rglob("part-*"))
    ]
    strangers = ["corpus/below/notes.txt", "scores/extra", "scores/__dana__/part-00009.parquet"]
    for name in (*strangers, "corpus/__dana__/sources.json", "corpus/.hidden", "notes.txt"):
        (run / name).write_text("{}")
    with pytest.raises(ArtifactError, match=r"part-00009\.parquet: does not belong there"):
        open_artifact(run / "scores", "scores")
    code, _, problems, error = verify(run)
    assert code == 2
    assert "2 of 4 folders are damaged" in error
    assert parts
    assert problems == [f"{run / name}: does not belong there" for name in (*strangers, *parts)]


def test_torn_manifests_are_problems(topics, tmp_path, verify):
    code, *_, error = verify(tmp_path)
    assert (code, "__dana__/manifest.json" in error) == (2, True), (
        "a folder without anything of dana"
    )
    assert "run: no such folder" in verify(tmp_path / "run")[-1]
    shutil.copytree(topics[2] / "task", tmp_path / "task")
    (tmp_path / "task" / MANIFEST).write_text("{")
    assert [line.split()[0] for line in verify(tmp_path)[1]] == ["DAMAGED"]


def test_a_flipped_bit_in_a_table_is_found_by_whoever_reads_it(run):
    for name, read in (
        ("corpus", lambda folder: list(iterate_documents(folder))),
        ("scores", read_table),
    ):
        flip(run / name / "part-00000.parquet", 60)
        with pytest.raises(ArtifactError, match=r"part-00000\.parquet: damaged"):
            read(run / name)


def test_a_changed_manifest_or_ranking_is_named(texts, tmp_path, verify):
    out = tmp_path / "run"
    names = [
        "--task",
        str(texts / "cells.txt"),
        "--general",
        str(texts / "pool.jsonl"),
        "--out",
        str(out),
    ]
    settings = ["--encoder", "hashing:dims=64", "--set", "ranking.detectors=[pca]"]
    assert main(["score", "--rank-only", *names, *settings]) == 0
    assert verify(out)[0] == 0
    manifest, ranking = out / "corpus" / MANIFEST, out / "ranking" / "ranking.csv"
    manifest.write_text(manifest.read_text().replace('"kept": 120', '"kept": 121'))
    flip(ranking)
    (out / "settings.yaml").write_text("weigh: {beata: 1}")
    code, folders, problems, _ = verify(out)
    assert code == 2
    assert {f"{file}: {CHANGED}" for file in (manifest, ranking)} <= set(problems)
    assert "settings.yaml: unknown key" in "\n".join([*folders, *problems])


def _copy(run, tmp_path):
    shutil.copytree(run / "scores", tmp_path / "elsewhere")
    flip(tmp_path / "elsewhere" / "part-00000.parquet")
    shutil.rmtree(run / "scores")
    (run / "scores").symlink_to(tmp_path / "elsewhere")


def _without_digest(run, _):
    manifest = json.loads((run / "scores" / MANIFEST).read_text())
    del manifest["digest"]
    (run / "scores" / MANIFEST).write_text(json.dumps({**manifest, "counts": {}}))


def _of_another_run(run, _):
    shutil.rmtree(run / "weights")
    shutil.copytree(run / "other", run / "weights")


CHANGES = {
    "a folder is gone": (
        lambda run, _: shutil.rmtree(run / "scores"),
        f"scores/{MANIFEST}: is missing",
    ),
    "a link hides damage": (_copy, f"scores/part-00000.parquet: {CHANGED}"),
    "a manifest without its digest": (_without_digest, f"{MANIFEST}: "),
    "weights of another run": (_of_another_run, f"weights/{MANIFEST}: "),
    "a table is cut": (
        lambda run, _: (run / "tables/separation.csv").write_text("x"),
        "separation.csv: 1 bytes",
    ),
    "a report is gone": (lambda run, _: (run / "report.html").unlink(), "report.html: is missing"),
    "settings are cut": (
        lambda run, _: (run / "settings.yaml").write_text("# cut"),
        "settings.yaml: 5 bytes",
    ),
    "a note that nobody wrote": (
        lambda run, _: (run / "scores/__dana__/x").touch(),
        "x: does not belong there",
    ),
    "the list is changed": (
        lambda run, _: (run / INVENTORY).write_text('{"files": {}}'),
        f"{INVENTORY}: changed",
    ),
    "the list is no JSON": (
        lambda run, _: (run / INVENTORY).write_text("[" * 100_000),
        f"{INVENTORY}: cannot be read",
    ),
    "the list holds no seals": (
        lambda run, _: (run / INVENTORY).write_text(json.dumps(add_seal({"files": {"a": None}}))),
        f"{INVENTORY}: 'a' is 'None'",
    ),
}


@pytest.fixture(scope="module")
def whole_run(topics, tmp_path_factory):
    """Score, weigh twice and report by the commands, which list what they wrote."""
    run = tmp_path_factory.mktemp("whole") / "run"
    for name in ("corpus", "task", "scores"):
        shutil.copytree(topics[2] / name, run / name)
    for line in (
        f"weigh {run} --gamma 3",
        f"weigh {run} --beta 0.5 --out {run}/other",
        f"report {run}",
    ):
        assert main(line.split()) == 0
    return run


@pytest.mark.parametrize(("change", "problem"), CHANGES.values(), ids=CHANGES)
def test_what_is_missing_changed_or_of_another_run_is_damage(
    whole_run, tmp_path, verify, change, problem
):
    run = shutil.copytree(whole_run, tmp_path / "run")
    assert verify(run)[0] == 0
    change(run, tmp_path)
    code, _, problems, _ = verify(run)
    assert code == 2
    assert any(problem in line for line in problems), problems


def test_a_command_lists_what_it_wrote_and_nothing_else(whole_run, tmp_path, verify):
    run = shutil.copytree(whole_run, tmp_path / "run")
    _of_another_run(run, tmp_path)
    (run / "tables" / "separation.csv").write_text("")
    assert main(["weigh", str(run), "--beta", "0.3", "--out", str(run / "third")]) == 0
    assert main(["report", str(run)]) == 0
    list_files(run, [], [run / "weights" / MANIFEST])
    assert [problem.partition(": ")[0] for problem in verify(run)[2]] == [
        str(run / "weights" / MANIFEST)
    ]
    for name in ("weights", "other"):
        shutil.rmtree(run / name)
        assert verify(run)[0] == 2
        assert main(["weigh", str(run), "--beta", "0.4", "--out", str(run / name)]) == 0
        assert verify(run)[0] == 0


def test_nothing_is_written_into_an_artifact_and_weights_of_other_scores_train_nothing(
    whole_run, tmp_path, verify, capsys
):
    run = shutil.copytree(whole_run, tmp_path / "run")
    assert main(["weigh", str(run), "--out", str(run / "corpus" / "x")]) == 2
    assert f"{run / 'corpus'}, which would be damaged" in capsys.readouterr().err
    assert verify(run)[0] == 0
    manifest = json.loads((run / "scores" / MANIFEST).read_text())
    (run / "scores" / MANIFEST).write_text(
        json.dumps({**manifest, "fingerprint": "of other scores"})
    )
    capsys.readouterr()
    assert main(["adapt", str(run), "--model", "dana-mini", "--steps", "1"]) == 2
    assert f"{run / 'weights'}: made from other scores" in capsys.readouterr().err
    assert not (run / "adapted").exists()
