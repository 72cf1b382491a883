"""Processes of a launch: their roles, and errors when one of them fails or is gone."""

import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from dana.core.errors import ConfigError, DanaError, FirstProcessError, Preemption
from dana.core.launch import (
    _meet,
    busy_text,
    has_peers,
    is_writer,
    leave_launch,
    on_rank_0,
    process_rank,
    processes,
    rendezvous_options,
    report_errors_once,
    single_process,
    stop_on_signal,
)


@pytest.fixture
def launch(monkeypatch):
    """Set rank and number of processes."""

    def of(rank, world):
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("WORLD_SIZE", str(world))

    return of


@pytest.fixture
def connection(monkeypatch):
    """Replace what the processes tell each other; the sums that are asked for."""
    sums = []
    monkeypatch.setattr("dana.core.launch._meet", lambda: None)
    monkeypatch.setattr("dana.core.launch._sum", lambda number: sums.append(number) or number)
    monkeypatch.setattr("dana.core.launch._broadcast", lambda value: value)
    return sums


@pytest.mark.parametrize(
    ("rank", "world", "peers", "writes"),
    [(0, 2, True, True), (1, 2, True, False), (0, 1, False, True)],
)
def test_the_first_process_writes_and_so_does_one_that_works_alone(
    launch, rank, world, peers, writes
):
    launch(rank, world)
    assert (has_peers(), is_writer()) == (peers, writes)
    with single_process():
        assert (has_peers(), is_writer()) == (False, True)
        assert on_rank_0(lambda: 3) == 3, "nobody is waited for"
    assert (has_peers(), is_writer()) == (peers, writes)


def test_the_first_process_works_alone_and_tells_the_others_of_an_error(
    launch, connection, monkeypatch
):
    launch(0, 2)
    assert on_rank_0(has_peers) is False

    def fail():
        raise ConfigError("wrong")

    with pytest.raises(ConfigError, match="wrong"):
        on_rank_0(fail)
    assert connection == [0, ConfigError.exit_code]
    launch(1, 2)
    monkeypatch.setattr("dana.core.launch._sum", lambda number: 75)
    with pytest.raises(FirstProcessError) as error:
        on_rank_0(lambda: 1)
    assert error.value.exit_code == 75


def test_processes_that_did_not_join_are_refused(launch, monkeypatch):
    launch(0, 2)
    monkeypatch.setattr(
        "accelerate.PartialState", lambda **options: SimpleNamespace(num_processes=1)
    )
    with pytest.raises(ConfigError, match="2 processes"):
        _meet()


def test_a_process_that_leaves_its_launch_is_one_alone(launch, monkeypatch):
    launch(0, 2)
    for name in ("LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.setenv(name, "1")
    leave_launch()
    assert (processes(), process_rank(), has_peers()) == (1, 0, False)


@pytest.mark.parametrize(
    ("world", "deepspeed", "cpu", "backend"),
    [(2, "", True, None), (1, "", False, None), (2, "true", False, "gloo")],
)
def test_several_processes_without_an_accelerator_meet_over_gloo(
    launch, monkeypatch, world, deepspeed, cpu, backend
):
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
    monkeypatch.setenv("ACCELERATE_USE_DEEPSPEED", deepspeed)
    launch(0, world)
    options = rendezvous_options()
    assert (options["cpu"], options["backend"]) == (cpu, backend)


ENDS = """
import torch
from torch import distributed
from dana.core.launch import wait_for_all

wait_for_all()
distributed.all_reduce_coalesced([torch.zeros(1) for _ in range(3000)], async_op=True).wait()
"""


@pytest.mark.slow
def test_processes_that_end_right_after_their_last_operation_end_well(tmp_path):
    """A thread of the group frees 3,000 tensors then, which aborts 5 of 8 launches that give it no time."""
    (tmp_path / "ends.py").write_text(ENDS)
    torchrun = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc_per_node",
        "2",
    ]
    for _ in range(5):
        process = subprocess.run(
            [*torchrun, str(tmp_path / "ends.py")], capture_output=True, text=True
        )
        assert process.returncode == 0, process.stderr


@pytest.mark.parametrize(
    "message", ["pair.cc:553] Connection closed by peer [::1]:1", "Connection reset by peer"]
)
def test_another_process_that_is_gone_is_one_line(launch, message):
    launch(0, 2)
    with pytest.raises(DanaError, match="another process"), report_errors_once():
        raise RuntimeError(message)
    launch(0, 1)
    with pytest.raises(RuntimeError, match="by peer"), report_errors_once():
        raise RuntimeError(message)


def test_errors_of_other_processes_than_the_first_come_later(launch, monkeypatch):
    pauses = []
    monkeypatch.setattr("dana.core.launch.time.sleep", pauses.append)
    monkeypatch.setattr("dana.core.launch._is_connected", lambda: False)
    for rank, waits in ((0, []), (1, [30.0])):
        launch(rank, 2)
        with pytest.raises(ValueError, match="wrong"), report_errors_once():
            raise ValueError("wrong")
        assert pauses == waits


@pytest.mark.parametrize(
    ("load", "says"),
    [(2.0, ""), (6.9, ""), (7.5, "this machine is busy (load 7.5 on 4 cores)")],
)
def test_a_machine_is_busy_if_its_load_is_more_than_this_runs(load, says, monkeypatch):
    monkeypatch.setattr("dana.core.launch.cores", lambda: 4)
    monkeypatch.setattr("os.getloadavg", lambda: (load, 0.0, 0.0))
    assert busy_text() == says


def test_idle_threads_sleep_unless_the_environment_says_otherwise():
    """Both are read once, when the libraries are loaded, so they are set before anything imports them."""
    code = (
        "import os, sys; from dana.cli.main import main; main(['plugins', 'list', 'encoder']); "
        "print(os.environ['OMP_WAIT_POLICY'], os.environ['OPENBLAS_THREAD_TIMEOUT'])"
    )
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("OMP_WAIT_POLICY", "OPENBLAS_THREAD_TIMEOUT")
    }
    for given, printed in (({}, "PASSIVE 4"), ({"OPENBLAS_THREAD_TIMEOUT": "20"}, "PASSIVE 20")):
        words = [sys.executable, "-c", code]
        run = subprocess.run(
            words, env=environment | given, capture_output=True, text=True, check=True
        )
        assert run.stdout.splitlines()[-1] == printed


def test_a_rank_without_a_launch_counts_for_nothing(monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert process_rank() == 0
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("MASTER_ADDR", "localhost")
    assert process_rank() == 1
    monkeypatch.setenv("RANK", "2")
    with pytest.raises(ConfigError, match="RANK='2': must be below WORLD_SIZE=2"):
        process_rank()


def test_a_signal_that_comes_in_a_finaliser_stops_the_command():
    class Ending:
        def __del__(self):
            os.kill(os.getpid(), signal.SIGTERM)

    def work():
        Ending()  # which ends at once
        time.sleep(10)

    with pytest.raises(Preemption), stop_on_signal():
        work()
