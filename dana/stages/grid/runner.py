"""Run a grid: every cell whose dependencies are done, some at a time; a cell that fails stops only what needs it."""

import os
import sys
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, wait
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean
from typing import Any

from dana.core.config import require
from dana.core.errors import DanaError
from dana.core.launch import cores, is_writer
from dana.core.logging import format_duration, get_logger, progress_label, setup
from dana.core.workers import Worker
from dana.stages.grid.cell import Cell, call_stage
from dana.stages.grid.grid import Grid, write_metrics

log = get_logger(__name__)

STOPPED = 75  # exit code of dana.core.launch.Preemption: told to stop, and has saved
PATIENCE = 60.0  # seconds for an interrupted cell to remove what it was writing; then its process is killed

Outcome = tuple[str, float | None]  # of call_stage
Submit = Callable[[str, dict[str, Any], Path], "Future[Any]"]  # of a stage, its arguments and a log file


class CellFailed(DanaError):
    """Cells failed; the exit code is 75 if one was told to stop and saved, 1 for an error that dana did not expect."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code

    def __reduce__(self) -> tuple[Any, ...]:
        """What another process makes of it: the exit code goes along."""
        return CellFailed, (str(self), self.exit_code)


def run_grid(grid: Grid, jobs: int = 1) -> dict[str, str]:
    """Run the cells of a grid and collect ``results.csv``.

    Every cell's stage is called, and reuses its artifact if nothing that it depends on has changed: after an
    interruption only what is missing is made. What is made does not depend on `jobs`, as long as OMP_NUM_THREADS is the
    same: on a CPU, sums depend on the number of threads.

    Args:
        grid: The cells.
        jobs: How many run side by side, each in a process of its own; 1 runs them in this process.

    Returns:
        What each cell made, by name.

    Raises:
        DanaError: When all that can be done is done: which cells failed and why. Of a single failure in this process it
            is the error itself.
        Preemption: At once, if a cell was told to stop.
    """
    require(jobs >= 1, "jobs", jobs, "at least 1")
    going = _Going(grid, jobs)
    try:
        with _team_of(jobs) as submit:
            going.begin(submit)
            while going.running:
                going.finish()
                going.begin(submit)
    finally:
        if is_writer():
            write_metrics(grid, going.made)
    log.info("cells     %d of %d done (%s)", len(going.made), len(grid.cells), going.clock.left())
    if going.failed:
        raise going.error()
    return going.made


class _Going:
    """A grid that is being run: which cells wait, run, are done and failed."""

    def __init__(self, grid: Grid, jobs: int) -> None:
        self.grid, self.jobs, self.clock = grid, jobs, Clock(grid, jobs)
        self.waiting = list(grid.cells)
        self.running: dict[Future[Any], tuple[Cell, float]] = {}
        self.made: dict[str, str] = {}
        self.failed: dict[str, BaseException] = {}

    def begin(self, submit: Submit) -> None:
        """Begin cells that have all they need, as many as may run side by side."""
        ready = [cell for cell in self.waiting if set(cell.needs) <= self.made.keys()]
        for cell in ready[: self.jobs - len(self.running)]:
            self.waiting.remove(cell)
            place = f"{len(self.grid.cells) - len(self.waiting)}/{len(self.grid.cells)}"
            log.info("cell %-7s %s   (%s)", place, cell.name, self.clock.left())
            begun = time.monotonic()
            with progress_label(f"{place} {cell.name}"):
                outcome = submit(cell.stage, cell.arguments(self.made), self.grid.file(cell.name, ".log"))
            self.running[outcome] = cell, begun

    def finish(self) -> None:
        """Wait for a cell and record what it made; raises only if it was told to stop."""
        for outcome in wait(self.running, return_when=FIRST_COMPLETED).done:
            cell, begun = self.running.pop(outcome)
            error = outcome.exception()
            if isinstance(error, BrokenExecutor):
                error = CellFailed(f"its process was killed; {self.grid.file(cell.name, '.log')} says more", 1)
            if error is None:
                self.made[cell.name], seconds = outcome.result()
                seconds = max(time.monotonic() - begun, seconds or 0)
                self.clock.done(cell, seconds)
                if is_writer():
                    self.grid.write_record(cell.name, self.made[cell.name], seconds)
                continue
            log.error("failed    %s: %s", cell.name, error)
            self.failed[cell.name] = error
            if getattr(error, "exit_code", None) == STOPPED:
                raise error

    def error(self) -> BaseException:
        """One error for all cells that failed; a single one of this process as it is."""
        names = [cell.name for cell in self.grid.cells if cell.name in self.failed]
        error = self.failed[names[0]]
        if len(names) == 1 and not isinstance(error, CellFailed):
            return error
        rest = f"; {len(self.waiting)} that depend on them were not begun" if self.waiting else ""
        said = f"{len(names)} of {len(self.grid.cells)} cells failed: {', '.join(names)}{rest}. {names[0]}: {error}"
        return CellFailed(said, max(getattr(error, "exit_code", 1) for error in self.failed.values()))


@contextmanager
def _team_of(jobs: int) -> Iterator[Submit]:
    """What takes a cell and gives a future of its outcome: in this process or, of several jobs, in as many others."""
    if jobs == 1:
        yield _call_here
        return
    threads = os.environ.get("OMP_NUM_THREADS")
    environment = {} if threads not in (None, str(cores())) else {"OMP_NUM_THREADS": str(max(1, cores() // jobs))}
    devices = _devices()
    team = [
        Worker(environment | ({"CUDA_VISIBLE_DEVICES": devices[place % len(devices)]} if devices else {}))
        for place in range(jobs)
    ]

    def submit(stage: str, arguments: dict[str, Any], log_file: Path) -> "Future[Any]":
        return next(worker for worker in team if worker.is_idle).submit(_call_there, stage, arguments, str(log_file))

    try:
        yield submit
    finally:
        for worker in team:
            if not worker.is_idle:
                worker.interrupt()
        for worker in team:
            worker.stop(PATIENCE)


def _devices() -> list[str]:
    """The GPUs that the workers share out, as CUDA_VISIBLE_DEVICES names them."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    if given is not None:
        return [name for name in given.split(",") if name.strip()]
    import torch

    return [str(number) for number in range(torch.cuda.device_count())]


def _call_here(stage: str, arguments: dict[str, Any], log_file: Path) -> "Future[Any]":
    outcome: Future[Any] = Future()
    try:
        outcome.set_result(call_stage(stage, arguments))
    except Exception as error:
        outcome.set_exception(error)
    return outcome


def _call_there(stage: str, arguments: dict[str, Any], log_file: str) -> Outcome:
    """Run one cell in a worker process; what it prints goes to its log."""
    Path(log_file).parent.mkdir(parents=True, exist_ok=True)
    with Path(log_file).open("w", encoding="utf-8") as stream:
        for descriptor in (1, 2):
            os.dup2(stream.fileno(), descriptor)
    setup()
    try:
        return call_stage(stage, arguments)
    except DanaError as error:
        log.error("%s", error)
        raise CellFailed(f"{error} ({log_file})", error.exit_code) from None
    except Exception as error:
        traceback.print_exc()
        raise CellFailed(f"{type(error).__name__}: {error} ({log_file})", 1) from None
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


class Clock:
    """Time spent and time left, from the cells of the same kind that are done."""

    def __init__(self, grid: Grid, jobs: int) -> None:
        self._jobs = jobs
        self._ahead = {cell.name: (cell.kind or cell.stage, cell.amount) for cell in grid.cells}
        self._measured: dict[str, list[float]] = defaultdict(list)  # seconds a unit of work, by kind
        self._begun = time.monotonic()

    def done(self, cell: Cell, seconds: float) -> None:
        """Count a cell: how long it took, or took when its artifact was made."""
        kind, amount = self._ahead.pop(cell.name)
        self._measured[kind].append(seconds / amount)

    def left(self) -> str:
        """Time spent and time left, in words; of kinds that were not measured yet nothing is known."""
        known = [
            fmean(self._measured[kind]) * amount for kind, amount in self._ahead.values() if kind in self._measured
        ]
        spent = format_duration(time.monotonic() - self._begun)
        if not known:
            return f"{spent} so far"
        unknown = len(self._ahead) - len(known)
        rest = f"about {format_duration(sum(known) / self._jobs)} left"
        return f"{spent} so far, {rest}" + (f", plus {unknown} cell(s) not timed yet" if unknown else "")
