"""Worker processes and prefetching leave no process or thread behind; a bounded number of items is ahead."""

import signal
import subprocess
import sys
import threading
import time
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest

from dana.core import workers as workers_module
from dana.core.workers import prefetch

SCRIPT = """
import os, sys, time
from dana.core.workers import worker_pool

with open(sys.argv[1], "a") as log:
    log.write(f"started {os.getpid()}\\n")

def work(number):  # of the script itself, which no worker imports
    with open(sys.argv[1] if len(sys.argv) > 1 else LOG, "a") as log:
        log.write(f"worker {os.getpid()}\\n")
    time.sleep(float(PAUSE))
    return number * number

LOG, PAUSE = sys.argv[1:3]
with worker_pool(2) as pool:
    print(list(pool.map(work, range(6))))
"""


def _script(tmp_path, pause):
    (tmp_path / "script.py").write_text(SCRIPT, encoding="utf-8")
    log = tmp_path / "log"
    command = [sys.executable, str(tmp_path / "script.py"), str(log), str(pause)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True), log


@pytest.fixture(autouse=True)
def no_thread_is_left():
    yield
    assert not [
        thread.name for thread in threading.enumerate() if thread.name.startswith("prefetch")
    ]


def test_a_script_without_a_guard_runs_once_and_its_own_functions_are_called(tmp_path):
    process, log = _script(tmp_path, 0)
    assert process.communicate(timeout=120)[0].strip() == "[0, 1, 4, 9, 16, 25]"
    words, numbers = zip(*map(str.split, log.read_text(encoding="utf-8").splitlines()), strict=True)
    assert words == ("started", *["worker"] * 6)
    assert str(process.pid) not in numbers[1:]


@pytest.mark.slow
def test_workers_of_a_process_that_was_killed_end_by_themselves(tmp_path):
    process, log = _script(tmp_path, 0.5)
    for _ in range(600):
        if log.exists() and log.read_text(encoding="utf-8").count("worker") > 1:
            break
        time.sleep(0.1)
    process.send_signal(signal.SIGKILL)
    process.wait()
    workers = {int(line.split()[1]) for line in log.read_text(encoding="utf-8").splitlines()[1:]}
    until = time.monotonic() + workers_module.IDLE + 90  # loky waits half a minute for its owner
    while (
        alive := [one for one in workers if Path(f"/proc/{one}").exists()]
    ) and time.monotonic() < until:
        time.sleep(0.2)
    assert workers
    assert not alive


STEP = """
import os, sys, time
from dana.core.workers import Worker

worker = Worker({})
print(worker.submit(os.getpid).result(), flush=True)  # idle from now on
time.sleep(600)
"""


@pytest.mark.slow
def test_a_process_of_steps_ends_after_its_owner_was_killed_though_it_is_idle(tmp_path):
    (tmp_path / "script.py").write_text(STEP, encoding="utf-8")
    command = [sys.executable, str(tmp_path / "script.py")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    worker = Path("/proc") / process.stdout.readline().strip()
    assert worker.exists()
    process.kill()
    process.wait()
    until = time.monotonic() + workers_module.CLEANING + 30
    while worker.exists() and time.monotonic() < until:
        time.sleep(0.2)
    assert not worker.exists()


def test_reading_ahead_keeps_order_and_passes_errors_on():
    assert list(prefetch(iter(range(100)), depth=3)) == list(range(100))

    def broken():
        yield 1
        raise ValueError("line 2")

    items = prefetch(broken())
    assert next(items) == 1
    with pytest.raises(ValueError, match="line 2"):
        next(items)


def test_no_more_than_a_few_items_are_ahead_and_a_reader_that_stops_ends_the_thread():
    numbers = count()
    early = prefetch(numbers, depth=2)
    assert next(early) == 0
    early.close()
    following = next(numbers)
    time.sleep(0.05)
    assert next(numbers) == following + 1 <= 5, "bounded, and over when nobody reads"


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_whatever_ends_the_reader_ends_the_thread(error):
    def read():
        with closing(prefetch(iter(range(100)), depth=2)) as items:
            for _ in items:
                raise error

    with pytest.raises(error):
        read()
