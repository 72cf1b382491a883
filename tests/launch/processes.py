"""Two processes of one command: by a launcher, or side by side as a batch system starts them."""

import os
import signal
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parent.parent.parent
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2")
ACCELERATE = (
    "-m",
    "accelerate.commands.launch",
    "--multi_gpu",
    "--num_processes",
    "2",
    "--main_process_port",
    "29541",
)
PAIR = 29543  # port where the two processes of :func:`pair` meet


def start(*arguments, **variables):
    """Start Python in a session of its own, with the variables of a launcher."""
    environment = {
        **os.environ,
        "ACCELERATE_USE_CPU": "true",
        "PYTHONPATH": str(REPOSITORY),
        **variables,
    }
    pipes = {
        "stdout": subprocess.PIPE,
        "stderr": subprocess.STDOUT,
        "text": True,
        "start_new_session": True,
    }
    return subprocess.Popen(
        [sys.executable, *map(str, arguments)], cwd=REPOSITORY, env=environment, **pipes
    )


def launch(launcher, *arguments, seconds=200):
    """Run ``python -m`` or a file in two processes of a launcher; returns its exit code and output."""
    [code], [output] = ended([start(*launcher, *arguments)], seconds)
    return code, output


def pair(*arguments):
    """Start a program in two processes that meet, with nobody above them, as a batch system does."""
    together = {
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(PAIR),
    }
    return [start(*arguments, **together, RANK=rank, LOCAL_RANK=rank) for rank in ("0", "1")]


def ended(processes, seconds=150):
    """Exit codes of processes, and their outputs; on any error they are killed with all that they started."""
    try:
        output = [process.communicate(timeout=seconds)[0] for process in processes]
    except BaseException:
        for process in (one for one in processes if one.poll() is None):
            os.killpg(process.pid, signal.SIGKILL)
        raise
    return [process.returncode for process in processes], output
