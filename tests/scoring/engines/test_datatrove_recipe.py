"""The recipe for datatrove and the code of its page: here as they are, on Slurm as far as a script says."""

import gzip
import importlib.util
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import dill
import pytest
import zstandard

import dana
from dana.core.errors import ConfigError
from dana.core.schemas import read_table
from dana.scoring.saved_selector import load_selector
from tests.guide import fenced

pytest.importorskip(
    "datatrove", reason="datatrove is not installed: pip install 'dana-lm[datatrove]'"
)

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def recipe():
    spec = importlib.util.spec_from_file_location(
        "score_datatrove", ROOT / "recipes" / "score_datatrove.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def folder(tmp_path, run, records, monkeypatch):
    """A folder with pool/ of two files and runs/mine, weighed."""
    monkeypatch.chdir(tmp_path)
    Path("pool").mkdir()
    for number in range(2):
        lines = [json.dumps(record) + "\n" for record in records[number::2]]
        Path(f"pool/{number}.jsonl").write_text("".join(lines), encoding="utf-8")
    Path("runs").mkdir()
    Path("runs/mine").symlink_to(run)
    dana.weigh("runs/mine", beta=0.2)
    return tmp_path


def test_the_code_of_the_page_runs(folder, run, records):
    (code,) = fenced(ROOT / "docs" / "guide" / "scale.md", "python")
    exec(code.replace("runs/tickets", "runs/mine"), {"__name__": "__main__"})
    scores, of_run = (read_table(path / "scores").to_pylist() for path in (Path("runs/pool"), run))
    assert sorted(map(str, scores)) == sorted(map(str, of_run))
    names = [record["id"] for record in [*records[::2], *records[1::2]]]
    assert [row["doc_id"] for row in scores if not row["unit"]] == names
    assert len(list(Path("selected").glob("*.gz"))) == 2
    assert dana.weigh("runs/pool")["weight"].sum() > 0


def test_the_jobs_on_slurm_are_scripts_whose_steps_travel(recipe, folder):
    words = "--run runs/mine --input pool --output scored --tasks 2 --executor slurm --partition gpu --gpus 1"
    job = recipe.executor(
        recipe.parser().parse_args([*words.split(), "--env", "source .venv/bin/activate"])
    )
    jobs = []
    while job is not None:
        script = job.get_launch_file_contents(
            job.get_sbatch_args(job.tasks), "launch_pickled_pipeline it"
        )
        for line in (
            f"#SBATCH --array=0-{job.tasks - 1}\n",
            "#SBATCH --partition=gpu\n",
            "source .venv/bin/activate",
        ):
            assert line in script
        assert ("#SBATCH --gpus=1\n" in script) == (job.job_name == "dana_scores")
        below, job.depends = job.depends, None
        content = dill.dumps(job)
        assert len(content) < 10_000
        assert [type(step) for step in dill.loads(content).pipeline] == [
            type(step) for step in job.pipeline
        ]
        jobs.append((job.job_name, job.tasks))
        job = below
    assert jobs == [
        ("dana_scores", 2),
        ("dana_clusters", 1),
        ("dana_buckets", 14),
        ("dana_signatures", 2),
    ]


def test_an_output_of_another_call_is_refused(recipe, folder, monkeypatch):
    def call(*flags):
        folders = [
            str(folder / name) for name in ("pool", "scored")
        ]  # datatrove keeps where relative ones lay
        words = ["--run", "runs/mine", "--input", folders[0], "--output", folders[1], *flags]
        recipe.record_call(recipe.parser().parse_args(words))

    call("--below", "0", "--text-field", "body")
    for _ in range(2):
        call("--workers", "2", "--executor", "ray")  # while nothing is done, another call may come
    done = folder / "scored" / "logs" / "signatures" / "completions" / "00000"
    done.parent.mkdir(parents=True)
    done.touch()
    with pytest.raises(ConfigError, match=r"/scored.* another --below and --tasks"):
        call("--below", "0", "--tasks", "3")
    with Path("pool/1.jsonl").open("a") as stream:
        stream.write('{"text": "one more"}\n')
    with pytest.raises(ConfigError, match="another --input"):
        call()
    other = SimpleNamespace(
        description=load_selector("runs/mine").description | {"digest": "0" * 32}
    )
    monkeypatch.setattr(recipe, "load_selector", lambda folder: other)
    with pytest.raises(ConfigError, match="another --run and --input"):
        call()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--run", "none", "--join", "j"], "ArtifactError: "),
        (
            ["--run", "r", "--input", "s3://me:hush@pool/a"],
            "ConfigError: s3://***@pool/a: holds credentials",
        ),
        (
            ["--run", "r", "--input", "pool", "--tasks", "0"],
            "SettingError: --tasks=0: must be at least 1",
        ),
        (["--run", "r"], None),
    ],
)
def test_the_recipe_tells_what_is_missing_in_a_line(
    recipe, tmp_path, monkeypatch, capsys, flags, message
):
    monkeypatch.setattr("sys.argv", ["it", "--output", str(tmp_path / "o"), *flags])
    if message is None:
        with pytest.raises(SystemExit):
            recipe.main()
        assert "--input is missing" in capsys.readouterr().err
    else:
        assert recipe.main() == 2
        assert capsys.readouterr().err.startswith(message)
    assert not (tmp_path / "o").exists()


@pytest.fixture
def packed(folder, records):
    """The pool as files of Zstandard, with its text and ids in other fields."""
    lines = [
        json.dumps({"doc": record["id"], "content": record["text"]}) + "\n" for record in records
    ]
    (folder / "packed").mkdir()
    for number in range(2):
        content = "".join(lines[number::2]).encode()
        path = folder / "packed" / f"{number}.jsonl.zst"
        path.write_bytes(zstandard.compress(content))
    return folder


def call_recipe(recipe, folder, monkeypatch, *flags):
    words = ["--run", str(folder / "runs" / "mine"), "--input", str(folder / "packed")]
    words += ["--output", str(folder / "scored"), "--tasks", "2", "--workers", "1", *flags]
    monkeypatch.setattr("sys.argv", ["it", *words])
    return recipe.main()


def test_a_pool_without_a_document_is_an_error_and_the_mended_command_runs(
    recipe, packed, records, monkeypatch, capsys
):
    done = packed / "scored" / "logs"
    assert call_recipe(recipe, packed, monkeypatch) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("DataError: ")
    assert "0.jsonl.zst: no document" in error
    assert "the field 'text'" in error
    assert list(done.glob("*/completions/*")) == []

    fields = ["--text-field", "content", "--id-field", "doc", "--below", "auto"]
    assert call_recipe(recipe, packed, monkeypatch, *fields) == 0
    assert len(list(done.glob("scores/completions/*"))) == 2
    monkeypatch.setattr("sys.argv", ["it", "--run", "runs/mine", "--output", "scored"])
    monkeypatch.setattr("sys.argv", [*sys.argv, "--join", "runs/best"])
    assert recipe.main() == 0
    written = {
        json.loads(line)["id"]
        for path in (packed / "scored" / "documents").glob("*.gz")
        for line in gzip.decompress(path.read_bytes()).decode().splitlines()
    }
    joined = {row["doc_id"] for row in read_table(Path("runs/best/pool")).to_pylist()}
    assert joined == written
    assert 0 < len(joined) < len(records) / 2


def test_files_that_cannot_be_unpacked_are_refused_before_anything_runs(
    recipe, packed, monkeypatch, capsys
):
    monkeypatch.setattr("dana.scoring.engines.datatrove.infer_compression", lambda name: None)
    assert call_recipe(recipe, packed, monkeypatch) == 2
    assert "zstandard is not installed: pip install 'datatrove" in capsys.readouterr().err
    assert not (packed / "scored").exists()


def test_the_words_of_minhash_are_danas():
    from dana.scoring.engines.datatrove import DanaWords

    text = "Dr. Lee measured 3 cells. They grew."
    assert DanaWords().word_tokenize(text) == [
        "dr",
        "lee",
        "measured",
        "3",
        "cells",
        "they",
        "grew",
    ]
    assert DanaWords().sent_tokenize(text) == ["Dr. Lee measured 3 cells.", "They grew."]
    assert DanaWords().span_tokenize(text) == [(0, 25), (26, 36)]
