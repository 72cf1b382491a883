"""Processes of a launch: their roles, and errors when one of them fails or is gone."""

import subprocess
import sys
from types import SimpleNamespace

import pytest

from dana.core.errors import ConfigError, DanaError, FirstProcessError
from dana.core.launch import (
    _meet,
    has_peers,
    is_writer,
    leave_launch,
    on_rank_0,
    process_rank,
    processes,
    rendezvous_options,
    report_errors_once,
    single_process,
)


@pytest.fixture
def launched(monkeypatch):
    """Set rank and number of processes."""

    def of(rank, world):
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("WORLD_SIZE", str(world))

    return of


def test_the_first_process_writes_and_so_does_one_that_works_alone(launched):
    launched(0, 2)
    assert has_peers()
    assert is_writer()
    launched(1, 2)
    assert has_peers()
    assert not is_writer()
    with single_process():
        assert is_writer()
        assert not has_peers()
        assert on_rank_0(lambda: 3) == 3, "nobody is waited for"
    assert has_peers()
    assert not is_writer()
    launched(0, 1)
    assert is_writer()
    assert not has_peers()


def test_the_first_process_works_alone_and_tells_the_others_of_an_error(launched, monkeypatch):
    codes = []
    launched(0, 2)
    monkeypatch.setattr("dana.core.launch._meet", lambda: None)
    monkeypatch.setattr("dana.core.launch._sum", lambda number: codes.append(number) or number)
    monkeypatch.setattr("dana.core.launch._broadcast", lambda value: value)
    assert on_rank_0(has_peers) is False

    def fail():
        raise ConfigError("wrong")

    with pytest.raises(ConfigError, match="wrong"):
        on_rank_0(fail)
    assert codes == [0, ConfigError.exit_code]


def test_the_others_end_with_the_exit_code_of_the_first(launched, monkeypatch):
    launched(1, 2)
    monkeypatch.setattr("dana.core.launch._sum", lambda number: 75)
    monkeypatch.setattr("dana.core.launch._broadcast", lambda value: value)
    with pytest.raises(FirstProcessError) as raised:
        on_rank_0(lambda: 1)
    assert raised.value.exit_code == 75


def test_processes_that_did_not_join_are_refused(launched, monkeypatch):
    launched(0, 2)
    monkeypatch.setattr("accelerate.PartialState", lambda **options: SimpleNamespace(num_processes=1))
    with pytest.raises(ConfigError, match="2 processes"):
        _meet()


def test_a_process_that_leaves_its_launch_is_one_alone(launched, monkeypatch):
    launched(0, 2)
    for name in ("LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.setenv(name, "1")
    leave_launch()
    assert (processes(), process_rank(), has_peers()) == (1, 0, False)


def test_several_processes_without_an_accelerator_meet_over_gloo(launched, monkeypatch):
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
    monkeypatch.delenv("ACCELERATE_USE_DEEPSPEED", raising=False)
    launched(0, 2)
    assert (rendezvous_options()["cpu"], rendezvous_options()["backend"]) == (True, None)
    launched(0, 1)
    assert rendezvous_options()["cpu"] is False
    launched(0, 2)
    monkeypatch.setenv("ACCELERATE_USE_DEEPSPEED", "true")
    assert (rendezvous_options()["cpu"], rendezvous_options()["backend"]) == (False, "gloo")


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
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    for _ in range(5):
        done = subprocess.run([*launch, str(tmp_path / "ends.py")], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("message", ["pair.cc:553] Connection closed by peer [::1]:1", "Connection reset by peer"])
def test_another_process_that_is_gone_is_one_line(launched, message):
    launched(0, 2)
    with pytest.raises(DanaError, match="another process"), report_errors_once():
        raise RuntimeError(message)
    launched(0, 1)
    with pytest.raises(RuntimeError, match="by peer"), report_errors_once():
        raise RuntimeError(message)


def test_errors_of_other_processes_than_the_first_come_later(launched, monkeypatch):
    slept = []
    monkeypatch.setattr("dana.core.launch.time.sleep", slept.append)
    monkeypatch.setattr("dana.core.launch._is_connected", lambda: False)
    for rank, waits in ((0, []), (1, [30.0])):
        launched(rank, 2)
        with pytest.raises(ValueError, match="wrong"), report_errors_once():
            raise ValueError("wrong")
        assert slept == waits
