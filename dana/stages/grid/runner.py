"""Run the cells of a grid as their dependencies finish, some in parallel; a failed cell stops only its dependents."""

import os
import sys
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dana.core.config import require
from dana.core.errors import DanaError
from dana.core.launch import cores, is_writer
from dana.core.logging import format_duration, get_logger, progress_label, seconds_left, setup
from dana.core.workers import Worker
from dana.stages.grid.cell import Cell, call_stage
from dana.stages.grid.grid import Grid, write_metrics

log = get_logger(__name__)

STOPPED = (
    75  # exit code of dana.core.launch.Preemption: stopped by a signal, with its progress saved
)
PATIENCE = 60.0  # seconds for an interrupted cell to clean up before its process is killed

Outcome = tuple[str, float | None]  # result of call_stage
Submit = Callable[
    [str, dict[str, Any], Path], "Future[Any]"
]  # takes a stage, its arguments and a log file


class CellError(DanaError):
    """Error for failed cells; the exit code is 75 if one was stopped by a signal, 1 for an unexpected error."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the exit code, too."""
        return CellError, (str(self), self.exit_code)


def run_grid(
    grid: Grid,
    jobs: int = 1,
    tell: Callable[[Cell, str], None] | None = None,
) -> dict[str, str]:
    """Run the cells of a grid and collect ``results.csv``.

    Every stage is called and reuses its artifact if nothing it depends on has changed: after an
    interruption only missing artifacts are made. Results do not depend on `jobs` if OMP_NUM_THREADS
    is the same: on CPUs, sums depend on the number of threads.

    Args:
        grid: The cells.
        jobs: Number of cells that run in parallel, each in its own process; 1 runs them in this
            process.
        tell: Called in this process with each finished cell and its output.

    Returns:
        Output of each cell, by name.

    Raises:
        DanaError: After all other cells are done: which cells failed and why. A single failure in
            this process is raised as it is.
        Preemption: At once, if a cell was stopped by a signal.
    """
    require(jobs >= 1, "jobs", jobs, "at least 1")
    run = _GridRun(grid, jobs)
    try:
        with _team_of(jobs) as submit:
            run.begin(submit)
            while run.running:
                for cell in run.finish():
                    if tell and is_writer():
                        tell(cell, run.made[cell.name])
                run.begin(submit)
    finally:
        if is_writer():
            write_metrics(grid, run.made)
    log.info("cells     %d of %d done (%s)", len(run.made), len(grid.cells), run.clock.text())
    if run.failed:
        raise run.error()
    return run.made


class _GridRun:
    """State of a running grid: cells that wait, run, are done and failed."""

    def __init__(self, grid: Grid, jobs: int) -> None:
        self.grid, self.jobs, self.clock = grid, jobs, Clock(grid, jobs)
        self.waiting, self.states = list(grid.cells), grid.states()
        self.running: dict[Future[Any], tuple[Cell, float]] = {}
        self.made: dict[str, str] = {}
        self.failed: dict[str, BaseException] = {}

    def begin(self, submit: Submit) -> None:
        """Start cells whose dependencies are done, up to the number of jobs."""
        end = next(
            (index for index, cell in enumerate(self.waiting) if cell.stops), len(self.waiting)
        )
        first = self.waiting[: end or int(not self.running)]
        ready = [cell for cell in first if set(cell.needs) <= self.made.keys()]
        for cell in ready[: self.jobs - len(self.running)]:
            self.waiting.remove(cell)
            position = f"{len(self.grid.cells) - len(self.waiting)} of {len(self.grid.cells)}"
            log.info("%-9s %-38s %s", position, cell.words, self.clock.text())
            start = time.monotonic()
            with progress_label(f"{position} {cell.name}"):
                outcome = submit(
                    cell.stage, cell.arguments(self.made), self.grid.file(cell.name, ".log")
                )
            self.running[outcome] = cell, start

    def finish(self) -> Iterator[Cell]:
        """Wait for a cell, record its output and yield it; raise only if it was stopped by a signal."""
        for outcome in wait(self.running, return_when=FIRST_COMPLETED).done:
            cell, start = self.running.pop(outcome)
            error = outcome.exception()
            if isinstance(error, BrokenExecutor):
                error = CellError(
                    f"its process was killed; {self.grid.file(cell.name, '.log')} says more", 1
                )
            if error is None:
                self.made[cell.name], seconds = outcome.result()
                seconds = max(time.monotonic() - start, seconds or 0)
                self.clock.count(cell, seconds)
                if is_writer() and self.states[cell.name] != "done":  # a reused one keeps its time
                    self.grid.write_record(cell.name, self.made[cell.name], seconds)
                if cell.stops and self.made[cell.name]:
                    self.waiting.clear()
                yield cell
                continue
            log.error("failed    %s: %s", cell.name, error)
            self.failed[cell.name] = error
            if getattr(error, "exit_code", None) == STOPPED:
                raise error

    def error(self) -> BaseException:
        """Return one error for all failed cells; a single error of this process as it is."""
        names = [cell.name for cell in self.grid.cells if cell.name in self.failed]
        error = self.failed[names[0]]
        if len(names) == 1 and not isinstance(error, CellError):
            return error
        rest = f"; {len(self.waiting)} that depend on them were not started" if self.waiting else ""
        message = f"{len(names)} of {len(self.grid.cells)} cells failed: {', '.join(names)}{rest}. {names[0]}: {error}"
        return CellError(
            message, max(getattr(error, "exit_code", 1) for error in self.failed.values())
        )


@contextmanager
def _team_of(jobs: int) -> Iterator[Submit]:
    """Yield a function that submits a cell, to this process or to one of several workers."""
    if jobs == 1:
        yield _call_here
        return
    threads = os.environ.get("OMP_NUM_THREADS")
    environment = (
        {}
        if threads not in (None, str(cores()))
        else {"OMP_NUM_THREADS": str(max(1, cores() // jobs))}
    )
    devices = [{"CUDA_VISIBLE_DEVICES": name} for name in _devices()] or [{}]
    team = [Worker(environment | devices[index % len(devices)]) for index in range(jobs)]

    def submit(stage: str, arguments: dict[str, Any], log_file: Path) -> "Future[Any]":
        return next(worker for worker in team if worker.is_idle).submit(
            _call_there, stage, arguments, str(log_file)
        )

    try:
        yield submit
    finally:
        for worker in team:
            if not worker.is_idle:
                worker.interrupt()
        for worker in team:
            worker.stop(PATIENCE)


def _devices() -> list[str]:
    """Return the GPUs for the workers, as named in CUDA_VISIBLE_DEVICES."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [name for name in visible.split(",") if name.strip()]
    import torch

    return [str(number) for number in range(torch.cuda.device_count())]


def _call_here(stage: str, arguments: dict[str, Any], log_file: Path) -> "Future[Any]":
    outcome: Future[Any] = Future()
    try:
        outcome.set_result(call_stage(stage, arguments))
    except Exception as error:
        outcome.set_exception(error)
        link: BaseException | None = error
        while link:  # a failed cell must not keep its model until the grid ends
            traceback.clear_frames(link.__traceback__)
            link = link.__cause__ or link.__context__
    return outcome


def _call_there(stage: str, arguments: dict[str, Any], log_file: str) -> Outcome:
    """Run one cell in a worker process, with its output in a log file."""
    Path(log_file).parent.mkdir(parents=True, exist_ok=True)
    with Path(log_file).open("w", encoding="utf-8") as stream:
        for descriptor in (1, 2):
            os.dup2(stream.fileno(), descriptor)
    setup()
    try:
        return call_stage(stage, arguments)
    except DanaError as error:
        log.error("%s", error)
        raise CellError(f"{error} ({log_file})", error.exit_code) from None
    except Exception as error:
        traceback.print_exc()
        raise CellError(f"{type(error).__name__}: {error} ({log_file})", 1) from None
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


class Clock:
    """Say the time spent, and the time left as far as finished cells of the same stage tell it.

    A stage of which no cell is finished is left out.

    Args:
        grid: The cells.
        jobs: Number of cells that run in parallel and share the machine.
    """

    def __init__(self, grid: Grid, jobs: int) -> None:
        self._jobs = jobs
        self._begun = time.monotonic()
        self._ahead = Counter(cell.stage for cell in grid.cells)
        self._finished: Counter[str] = Counter()
        self._seconds: dict[str, float] = defaultdict(float)

    def count(self, cell: Cell, seconds: float) -> None:
        """Count a finished cell and the seconds that making its artifact took."""
        self._ahead[cell.stage] -= 1
        self._finished[cell.stage] += 1
        self._seconds[cell.stage] += seconds

    def text(self) -> str:
        """Format the time spent and the time left."""
        spent = f"{format_duration(time.monotonic() - self._begun)} so far"
        left = 0.0
        for stage, finished in self._finished.items():
            left += seconds_left(self._ahead[stage], finished, self._seconds[stage]) / self._jobs
        return f"{spent}, about {format_duration(left)} left" if left >= 1 else spent
