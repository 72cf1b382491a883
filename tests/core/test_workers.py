"""Worker processes: results in order, bounded waiting, scripts without a guard, and an owner that is killed."""

import os
import signal
import subprocess
import sys
import time

import pytest

from dana.core import workers as workers_module
from dana.core.workers import shared_out

SCRIPT = """
import os, sys, time
from dana.core.workers import shared_out

with open(sys.argv[1], "a") as log:
    log.write(f"started {os.getpid()}\\n")

def work(number):  # of the script itself, which no worker imports
    with open(sys.argv[1] if len(sys.argv) > 1 else LOG, "a") as log:
        log.write(f"worker {os.getpid()}\\n")
    time.sleep(float(PAUSE))
    return number * number

LOG, PAUSE = sys.argv[1:3]
print(list(shared_out(work, ((number,) for number in range(6)), 2)))
"""


def _script(tmp_path, pause):
    (tmp_path / "script.py").write_text(SCRIPT, encoding="utf-8")
    log = tmp_path / "log"
    command = [sys.executable, str(tmp_path / "script.py"), str(log), str(pause)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True), log


def test_a_script_without_a_guard_runs_once_and_its_own_functions_are_called(tmp_path):
    process, log = _script(tmp_path, 0)
    assert process.communicate(timeout=120)[0].strip() == "[0, 1, 4, 9, 16, 25]"
    lines = log.read_text(encoding="utf-8").splitlines()
    assert [line.split()[0] for line in lines] == ["started", *["worker"] * 6]
    assert str(process.pid) not in {line.split()[1] for line in lines[1:]}


@pytest.mark.slow
def test_workers_of_a_process_that_was_killed_end_by_themselves(tmp_path):
    process, log = _script(tmp_path, 0.5)
    for _ in range(600):
        if log.exists() and log.read_text(encoding="utf-8").count("worker") > 1:
            break
        time.sleep(0.1)
    process.send_signal(signal.SIGKILL)
    process.wait()
    there = {int(line.split()[1]) for line in log.read_text(encoding="utf-8").splitlines()[1:]}
    until = time.monotonic() + workers_module.IDLE + 90  # loky waits half a minute for its owner
    while (left := [one for one in there if _lives(one)]) and time.monotonic() < until:
        time.sleep(0.2)
    assert there
    assert not left


def _lives(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def test_no_more_calls_are_begun_than_are_waited_for():
    begun = []

    def calls():
        for number in range(20):
            begun.append(number)
            yield (number,)

    results = shared_out(abs, calls(), 2)
    assert next(results) == 0
    assert len(begun) == 2 + workers_module.AHEAD
    assert list(results) == list(range(1, 20))


def test_one_process_calls_by_itself():
    assert list(shared_out(os.getpid, [(), ()], 1)) == [os.getpid()] * 2
