"""datatrove's executors, as they are: here, killed and gone on; a Slurm of three scripts; Ray. The same bytes."""

import json
import os
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import dana
from dana.core.errors import ArtifactError
from dana.core.schemas import iterate_documents, read_table
from dana.scoring.engines.parts import join_scores
from dana.scoring.saved_selector import load_selector
from tests.stages.two_topics import CELLS, COURTS, one_document

pytest.importorskip("datatrove", reason="datatrove is not installed: pip install 'dana[datatrove]'")
pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
PIPELINE = Path(__file__).with_name("scoring_pipeline.py")
RECIPE = ROOT / "recipes" / "score_datatrove.py"
FILES, EACH = 4, 1500  # more than a shard each


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    folder = tmp_path_factory.mktemp("large") / "pool"
    folder.mkdir()
    random = np.random.default_rng(1)
    for file in range(FILES):
        with (folder / f"{file}.jsonl").open("w", encoding="utf-8") as stream:
            for number in range(EACH):
                text = one_document(COURTS if number % 8 else CELLS, random, 1 + number % 9)
                stream.write(json.dumps({"id": f"{file}-{number}", "source": "s", "text": text}) + "\n")
    return folder


@pytest.fixture(scope="module")
def large(texts, pool, tmp_path_factory):
    """The same pool scored by dana score."""
    out = tmp_path_factory.mktemp("large") / "run"
    settings = {"selector": "detector", "detector": "knn", "encoder": "hashing:dims=64,words=1"}
    dana.score(str(texts / "cells.txt"), str(pool / "*.jsonl"), out=out, **settings)
    return out


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def sorted_rows(table):
    return table.sort_by([("doc_id", "ascending"), ("unit", "ascending")]).combine_chunks()


def pipeline(run, pool, out, tasks, executor="local"):
    return [sys.executable, str(PIPELINE), *map(str, (run, pool, out, tasks, executor))]


@pytest.mark.parametrize("tasks", [2, 4])
def test_killed_in_the_middle_and_started_again_the_table_is_the_same(large, pool, tmp_path, tasks):
    def command(name):
        return pipeline(large, pool, tmp_path / name, tasks)

    subprocess.run(command("whole"), check=True, capture_output=True)
    parts = tmp_path / "killed" / "scored"
    killed = subprocess.Popen(
        command("killed"), start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        until = time.monotonic() + 120
        while not any(path.stat().st_size > 10_000 for path in parts.glob("scores/.part-*")):
            assert killed.poll() is None
            assert time.monotonic() < until
            time.sleep(0.005)
    finally:
        os.killpg(killed.pid, signal.SIGKILL)
        killed.wait()
    assert len(list(parts.glob("tasks/*.json"))) < tasks
    assert list(parts.glob("scores/.part-*"))
    with pytest.raises(ArtifactError, match=r"tasks are not done|no scored parts here"):
        join_scores(parts, large, tmp_path / "joined")
    assert not (tmp_path / "joined" / "corpus").exists()
    subprocess.run(command("killed"), check=True, capture_output=True)
    assert contents(parts) == contents(tmp_path / "whole" / "scored")

    join_scores(parts, large, tmp_path / "joined")
    found, expected = read_table(tmp_path / "joined" / "scores"), read_table(large / "scores")
    assert sorted_rows(found).equals(sorted_rows(expected))
    documents = list(iterate_documents(tmp_path / "joined" / "corpus"))
    each, saved = len(documents) // tasks, load_selector(large)
    shards = [table for rank in range(tasks) for table in saved.tables(documents[rank * each : (rank + 1) * each])]
    assert found.combine_chunks().equals(pa.concat_tables(shards).combine_chunks())
    assert dana.weigh(tmp_path / "joined")["weight"].sum() > 0


def test_the_recipe_leaves_out_near_duplicates_and_scores_the_rest(large, pool, tmp_path):
    (tmp_path / "pool").mkdir()
    lines = (pool / "0.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)[:200]
    near = json.loads(lines[8])  # nine sentences
    near |= {"id": "near", "text": near["text"] + " Indeed."}
    (tmp_path / "pool" / "a.jsonl").write_text("".join(lines[:100]), encoding="utf-8")
    (tmp_path / "pool" / "b.jsonl").write_text("".join([*lines[100:], json.dumps(near) + "\n"]), encoding="utf-8")
    recipe = [sys.executable, str(RECIPE), "--run", str(large), "--output", str(tmp_path / "out")]
    subprocess.run([*recipe, "--input", str(tmp_path / "pool")], check=True, capture_output=True)
    subprocess.run([*recipe, "--join", str(tmp_path / "joined")], check=True, capture_output=True)
    found = {row["doc_id"] for row in read_table(tmp_path / "joined" / "corpus").to_pylist()}
    assert len(found) == 200
    assert len({"0-8", "near"} & found) == 1
    written = [path.name for path in sorted((tmp_path / "out" / "documents").iterdir())]
    assert written == ["00000.jsonl.gz", "00001.jsonl.gz"]


SBATCH = """#!/bin/bash
# Every task of the array, one after the other.
script=${@: -1}
for argument in "$@"; do [[ $argument == --export=ALL,* ]] && export "${argument#--export=ALL,}"; done
last=$(sed -n 's/^#SBATCH --array=0-\\([0-9]*\\).*/\\1/p' "$script")
for task in $(seq 0 "$last"); do
  SLURM_ARRAY_TASK_ID=$task SLURM_NODELIST=here bash "$script" >&2 || exit 1
done
echo Submitted batch job 1
"""
SRUN = """#!/bin/bash
while [[ $1 == -* ]]; do [[ $1 == -n ]] && shift; shift; done
exec "$@"
"""
SCONTROL = "#!/bin/bash\necho here\n"


@pytest.fixture(scope="module")
def here(large, pool, tmp_path_factory):
    """What two tasks on this machine write."""
    out = tmp_path_factory.mktemp("here")
    subprocess.run(pipeline(large, pool, out, 2), check=True, capture_output=True)
    return contents(out / "scored")


def test_slurms_scripts_run_with_the_same_bytes(here, large, pool, tmp_path):
    """The commands sbatch, srun and scontrol are scripts that do what Slurm would, on this machine."""
    (tmp_path / "bin").mkdir()
    for name, script in {"sbatch": SBATCH, "srun": SRUN, "scontrol": SCONTROL}.items():
        (tmp_path / "bin" / name).write_text(script)
        (tmp_path / "bin" / name).chmod(0o755)
    path = f"{tmp_path / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    command = pipeline(large, pool, tmp_path / "out", 2, "slurm")
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, "PATH": path}, cwd=tmp_path)
    assert contents(tmp_path / "out" / "scored") == here


@pytest.mark.skipif(find_spec("ray") is None, reason="ray is not installed: pip install 'dana[ray]'")
def test_ray_runs_it_with_the_same_bytes(here, large, pool, tmp_path):
    command = pipeline(large, pool, tmp_path / "out", 2, "ray")
    # A cluster of its own, whatever else runs on this machine.
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, "RAY_ADDRESS": "local"}, timeout=900)
    assert contents(tmp_path / "out" / "scored") == here
