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
import pytest

import dana
from dana.core.errors import ArtifactError
from dana.core.schemas import read_table
from dana.scoring.engines.parts import join_scores
from tests.scoring.on_disk import contents
from tests.stages.two_topics import CELLS, COURTS, SELECTION, one_document

pytest.importorskip(
    "datatrove", reason="datatrove is not installed: pip install 'dana-lm[datatrove]'"
)
pytestmark = pytest.mark.slow

PIPELINE = Path(__file__).with_name("scoring_pipeline.py")
RECIPE = Path(__file__).parents[3] / "recipes" / "score_datatrove.py"
FILES, EACH = 4, 1500  # more than a shard each


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    folder, random = tmp_path_factory.mktemp("pool"), np.random.default_rng(1)
    for file in range(FILES):
        topics = [COURTS if number % 8 else CELLS for number in range(EACH)]
        texts = [one_document(words, random, 1 + number % 9) for number, words in enumerate(topics)]
        lines = [
            json.dumps({"id": f"{file}-{n}", "source": "s", "text": text}) + "\n"
            for n, text in enumerate(texts)
        ]
        (folder / f"{file}.jsonl").write_text("".join(lines), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def run(texts, pool, tmp_path_factory):
    """The same pool scored by dana score."""
    out = tmp_path_factory.mktemp("large") / "run"
    settings = {"selector": "detector", "detector": "knn", "encoder": SELECTION.encoder}
    dana.score(str(texts / "cells.txt"), str(pool / "*.jsonl"), out=out, **settings)
    return out


def sorted_rows(folder):
    return (
        read_table(folder)
        .sort_by([("doc_id", "ascending"), ("unit", "ascending")])
        .combine_chunks()
    )


def pipeline(run, pool, out, tasks, executor="local"):
    return [sys.executable, str(PIPELINE), *map(str, (run, pool, out, tasks, executor))]


@pytest.fixture(scope="module")
def two_tasks(run, pool, tmp_path_factory):
    """What two tasks on this machine write."""
    out = tmp_path_factory.mktemp("here")
    subprocess.run(pipeline(run, pool, out, 2), check=True, capture_output=True)
    return contents(out / "scored")


def test_killed_in_the_middle_and_started_again_the_table_is_the_same(
    run, pool, tmp_path, two_tasks
):
    command, parts, of_parts = (
        pipeline(run, pool, tmp_path, 2),
        tmp_path / "scored",
        tmp_path / "of_parts",
    )
    silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(command, start_new_session=True, **silent)
    try:
        until = time.monotonic() + 120
        while not any(path.stat().st_size > 10_000 for path in parts.glob("scores/.part-*")):
            assert process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.005)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert len(list(parts.glob("tasks/*.json"))) < 2
    assert list(parts.glob("scores/.part-*"))
    with pytest.raises(ArtifactError, match=r"tasks are not done|no scored parts here"):
        join_scores(parts, run, of_parts)
    assert not (of_parts / "pool").exists()
    subprocess.run(command, check=True, capture_output=True)
    assert contents(parts) == two_tasks
    join_scores(parts, run, of_parts)
    assert sorted_rows(of_parts / "scores").equals(sorted_rows(run / "scores"))
    assert dana.weigh(of_parts)["weight"].sum() > 0


def test_the_recipe_leaves_out_near_duplicates_and_scores_the_rest(run, pool, tmp_path):
    (tmp_path / "pool").mkdir()
    lines = (pool / "0.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)[:200]
    near = json.loads(lines[8])  # nine sentences
    near |= {"id": "near", "text": near["text"] + " Indeed."}
    (tmp_path / "pool" / "a.jsonl").write_text("".join(lines[:100]), encoding="utf-8")
    (tmp_path / "pool" / "b.jsonl").write_text(
        "".join([*lines[100:], json.dumps(near) + "\n"]), encoding="utf-8"
    )
    recipe = [sys.executable, str(RECIPE), "--run", str(run), "--output", str(tmp_path / "out")]
    for flag, folder in (("--input", "pool"), ("--join", "joined")):
        subprocess.run([*recipe, flag, str(tmp_path / folder)], check=True, capture_output=True)
    names = set(read_table(tmp_path / "joined" / "pool")["doc_id"].to_pylist())
    assert len(names) == 200
    assert len({"0-8", "near"} & names) == 1
    files = [path.name for path in sorted((tmp_path / "out" / "documents").iterdir())]
    assert files == ["00000.jsonl.gz", "00001.jsonl.gz"]


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


def test_slurms_scripts_run_with_the_same_bytes(two_tasks, run, pool, tmp_path):
    """The commands sbatch, srun and scontrol are scripts that do what Slurm would, on this machine."""
    (tmp_path / "bin").mkdir()
    for name, script in {"sbatch": SBATCH, "srun": SRUN, "scontrol": SCONTROL}.items():
        (tmp_path / "bin" / name).write_text(script)
        (tmp_path / "bin" / name).chmod(0o755)
    path = f"{tmp_path / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    command = pipeline(run, pool, tmp_path / "out", 2, "slurm")
    subprocess.run(
        command, check=True, capture_output=True, env={**os.environ, "PATH": path}, cwd=tmp_path
    )
    assert contents(tmp_path / "out" / "scored") == two_tasks


@pytest.mark.skipif(
    find_spec("ray") is None, reason="ray is not installed: pip install 'dana-lm[ray]'"
)
def test_ray_runs_it_with_the_same_bytes(two_tasks, run, pool, tmp_path):
    command = pipeline(run, pool, tmp_path / "out", 2, "ray")
    # A cluster of its own, whatever else runs on this machine.
    subprocess.run(
        command,
        check=True,
        capture_output=True,
        env={**os.environ, "RAY_ADDRESS": "local"},
        timeout=900,
    )
    assert contents(tmp_path / "out" / "scored") == two_tasks
