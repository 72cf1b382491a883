"""Where cells run: one by one in this process, or side by side in worker processes, each with a GPU and its threads."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any

from dana.core.errors import DanaError
from dana.core.launch import cores
from dana.stages.grid.cell import call_stage

PATIENCE = 60.0  # seconds for an interrupted cell to remove what it was writing; then its process is killed

Order = dict[str, Any]  # stage, arguments, log
Submit = Callable[[Order], "Future[tuple[str, float | None]]"]


class CellFailed(DanaError):
    """Cells failed; the exit code is 75 if one was told to stop and saved, 1 for an error that dana did not expect."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


@contextmanager
def team_of(jobs: int) -> Iterator[Submit]:
    """What takes an order and gives a future of its outcome (:func:`call_stage`); `jobs` orders run at a time."""
    if jobs == 1:
        yield _here
        return
    devices = _devices()
    workers = [_start(place, jobs, devices) for place in range(jobs)]
    idle: SimpleQueue[int] = SimpleQueue()
    for place in range(jobs):
        idle.put(place)

    def act(order: Order) -> tuple[str, float | None]:
        place = idle.get()
        try:
            if workers[place].poll() is not None:  # died in the cell before
                workers[place] = _start(place, jobs, devices)
            return _ask(workers[place], order)
        finally:
            idle.put(place)

    threads = ThreadPoolExecutor(jobs)
    try:
        yield lambda order: threads.submit(act, order)
    finally:
        for worker in workers:
            worker.stdin.close()  # type: ignore[union-attr]
        for worker in workers:
            try:
                worker.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                worker.kill()
        threads.shutdown(cancel_futures=True)


def _here(order: Order) -> "Future[tuple[str, float | None]]":
    outcome: Future[tuple[str, float | None]] = Future()
    try:
        outcome.set_result(call_stage(order["stage"], order["arguments"]))
    except Exception as error:
        outcome.set_exception(error)
    return outcome


def _start(place: int, jobs: int, devices: list[str]) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    if environment.get("OMP_NUM_THREADS") in (None, str(cores())):  # not chosen by the user
        environment["OMP_NUM_THREADS"] = str(max(1, cores() // jobs))
    if devices:
        environment["CUDA_VISIBLE_DEVICES"] = devices[place % len(devices)]
    return subprocess.Popen(
        [sys.executable, "-m", "dana.stages.grid.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,  # Ctrl-C reaches this process alone, which then ends them
    )


def _devices() -> list[str]:
    """The GPUs that the workers share out, as CUDA_VISIBLE_DEVICES names them."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    if given is not None:
        return [name for name in given.split(",") if name.strip()]
    import torch

    return [str(number) for number in range(torch.cuda.device_count())]


def _ask(worker: subprocess.Popen[str], order: Order) -> tuple[str, float | None]:
    try:
        worker.stdin.write(json.dumps(order) + "\n")  # type: ignore[union-attr]
        worker.stdin.flush()  # type: ignore[union-attr]
        line = worker.stdout.readline()  # type: ignore[union-attr]
    except (OSError, ValueError):  # its pipe is closed
        line = ""
    if not line:
        raise CellFailed(f"its process ended with code {worker.wait()}; {order['log']} says more", 1)
    said = json.loads(line)
    if "error" in said:
        raise CellFailed(f"{said['error']} ({order['log']})", said["exit_code"])
    return said["made"], said["seconds"]
