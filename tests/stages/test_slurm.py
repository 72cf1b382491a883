"""Stopped by a batch system: recipes/slurm.sh with stand-ins for srun and scontrol, and torchrun's own workers."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import yaml

from tests.stages.test_adapt import ADAPT, REPOSITORY, base, inputs  # noqa: F401

# As slurmstepd does: it starts the tasks, and a signal of the time limit reaches them and not their children.
SRUN = """#!{python}
import os, subprocess, sys
places = [dict(SLURM_PROCID=str(n), SLURM_LOCALID=str(n)) for n in range(int(os.environ["SLURM_NTASKS"]))]
tasks = [subprocess.Popen(sys.argv[1:], env=os.environ | place) for place in places]
open(os.environ["TASKS"], "w").write(" ".join(str(task.pid) for task in tasks))
sys.exit(max(task.wait() for task in tasks))
"""
SCONTROL = """#!/bin/bash
[ "$1" = show ] && echo localhost || echo "$@" > "$REQUEUED"
"""


@pytest.fixture
def run_folder(base, inputs, tmp_path):  # noqa: F811
    """A run to adapt that takes long; returns the flags of the command."""
    run = tmp_path / "run"
    for name, folder in zip(("corpus", "task/held_out", "held_out"), inputs, strict=True):
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).symlink_to(folder)
    execution = {"micro_batch_tokens": 256, "trackers": [], "save_every": 1}
    adapt = {**asdict(replace(ADAPT, steps=5000)), "head_warmup": {"steps": 3}, "execution": execution}
    (run / "recipe.yaml").write_text(yaml.safe_dump({"adapt": adapt}))
    flags = ["--config", run / "recipe.yaml", "--model", base, "--unweighted", "--to", tmp_path / "out"]
    return [str(part) for part in (run, *flags)]


def wait_for(what, seconds=150):
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.2)


def alive(process):
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs /proc")
def test_under_slurm_every_task_saves_ends_with_75_and_the_job_is_requeued(run_folder, tmp_path):
    commands = tmp_path / "bin"
    commands.mkdir()
    for name, text in (("srun", SRUN.format(python=sys.executable)), ("scontrol", SCONTROL)):
        (commands / name).write_text(text)
        (commands / name).chmod(0o755)
    tasks, requeued, said = tmp_path / "tasks", tmp_path / "requeued", tmp_path / "said"
    environment = {
        **os.environ,
        "PATH": f"{commands}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "SLURM_NTASKS": "2",
        "SLURM_NNODES": "1",
        "SLURM_JOB_ID": "17",
        "SLURM_JOB_NODELIST": "localhost",
        "MASTER_PORT": "29617",
        "TASKS": str(tasks),
        "REQUEUED": str(requeued),
    }
    with said.open("w") as log:
        command = ["bash", str(REPOSITORY / "recipes" / "slurm.sh"), *run_folder]
        job = subprocess.Popen(command, cwd=REPOSITORY, env=environment, stdout=log, stderr=log)
        try:
            saved = tmp_path / "out-checkpoints"
            wait_for(lambda: job.poll() is not None or any(saved.glob("step-*")))
            assert job.poll() is None, said.read_text()
            pids = [int(pid) for pid in tasks.read_text().split()]
            for pid in pids:
                os.kill(pid, signal.SIGUSR1)
            assert job.wait(timeout=60) == 0, said.read_text()
        finally:
            job.kill()
    assert requeued.read_text() == "requeue 17\n"
    assert "saved, the same command resumes from there" in said.read_text()
    assert not any(alive(pid) for pid in pids)
    assert (saved / max(path.name for path in saved.glob("step-*")) / "state.safetensors").is_file()


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs /proc")
def test_usr1_to_the_workers_of_torchrun_saves_and_leaves_no_orphans(run_folder, tmp_path):
    said = tmp_path / "said"
    launcher = ["torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    command = [sys.executable, "-m", *launcher, str(REPOSITORY / "recipes" / "adapt.py"), *run_folder]
    with said.open("w") as log:
        job = subprocess.Popen(command, cwd=REPOSITORY, stdout=log, stderr=log)
        try:
            saved = tmp_path / "out-checkpoints"
            wait_for(lambda: job.poll() is not None or any(saved.glob("step-*")))
            assert job.poll() is None, said.read_text()
            children = Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()
            subprocess.run(["pkill", "-USR1", "-P", str(job.pid), "-f", "adapt.py"], check=True)
            assert job.wait(timeout=60) == 1, "torchrun has no other code for a worker that ended with 75"
        finally:
            job.kill()
    assert "saved, the same command resumes from there" in said.read_text()
    assert "exitcode  : 75" in said.read_text()
    assert not any(alive(pid) for pid in children)
