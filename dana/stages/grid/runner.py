"""Run a grid: every cell whose dependencies are done, some at a time; a cell that fails stops only what needs it."""

import time
from collections import defaultdict
from concurrent.futures import FIRST_COMPLETED, Future, wait
from statistics import fmean

from dana.core.config import require
from dana.core.launch import leads
from dana.core.logging import get_logger, labelled, minutes
from dana.stages.grid.cell import Cell
from dana.stages.grid.collect import write_metrics
from dana.stages.grid.grid import Grid
from dana.stages.grid.team import CellFailed, Submit, team_of

log = get_logger(__name__)

STOPPED = 75  # exit code of dana.core.stop.Preempted: told to stop, and has saved


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
        ConfigError: Before anything is run: an unknown stage, or settings that it does not take.
        DanaError: When all that can be done is done: which cells failed and why. Of a single failure in this process it
            is the error itself.
        Preempted: At once, if a cell was told to stop.
    """
    require(jobs >= 1, "jobs", jobs, "at least 1")
    grid.check()
    going = _Going(grid, jobs)
    try:
        with team_of(jobs) as submit:
            going.begin(submit)
            while going.running:
                going.finish()
                going.begin(submit)
    finally:
        if leads():
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
        self.running: dict[Future[tuple[str, float | None]], tuple[Cell, float]] = {}
        self.made: dict[str, str] = {}
        self.failed: dict[str, BaseException] = {}

    def begin(self, submit: Submit) -> None:
        """Begin cells that have all they need, as many as may run side by side."""
        ready = [cell for cell in self.waiting if set(cell.needs) <= self.made.keys()]
        for cell in ready[: self.jobs - len(self.running)]:
            self.waiting.remove(cell)
            place = f"{len(self.grid.cells) - len(self.waiting)}/{len(self.grid.cells)}"
            log.info("cell %-7s %s   (%s)", place, cell.name, self.clock.left())
            log_file = str(self.grid.file(cell.name, ".log"))
            begun = time.monotonic()
            with labelled(f"{place} {cell.name}"):
                outcome = submit({"stage": cell.stage, "arguments": cell.arguments(self.made), "log": log_file})
            self.running[outcome] = cell, begun

    def finish(self) -> None:
        """Wait for a cell and record what it made; raises only if it was told to stop."""
        for outcome in wait(self.running, return_when=FIRST_COMPLETED).done:
            cell, begun = self.running.pop(outcome)
            error = outcome.exception()
            if error is None:
                self.made[cell.name], seconds = outcome.result()
                seconds = max(time.monotonic() - begun, seconds or 0)
                self.clock.done(cell, seconds)
                if leads():
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
        spent = minutes(time.monotonic() - self._begun)
        if not known:
            return f"{spent} so far"
        unknown = len(self._ahead) - len(known)
        rest = f"about {minutes(sum(known) / self._jobs)} left"
        return f"{spent} so far, {rest}" + (f", plus {unknown} cell(s) not timed yet" if unknown else "")
