"""Run the steps of a run as their dependencies finish, some in parallel; a failed step stops only its dependents."""

import os
import sys
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from dana.core.artifacts import refuse_inside_artifact
from dana.core.config import require
from dana.core.errors import DanaError, Preemption
from dana.core.launch import (
    StopRequest,
    busy_text,
    cores,
    has_peers,
    is_writer,
    on_rank_0,
    process_rank,
    processes,
    single_process,
    stop_on_signal,
)
from dana.core.logging import (
    Heartbeat,
    format_duration,
    get_logger,
    progress_label,
    setup,
)
from dana.core.memory import loaded_set_aside, return_memory
from dana.core.remake import call_remaking
from dana.core.workers import Worker
from dana.stages.steps.run import RESULTS, Run, write_metrics
from dana.stages.steps.step import Step, call_stage

log = get_logger(__name__)

STOPPED = (
    75  # exit code of dana.core.launch.Preemption: stopped by a signal, with its progress saved
)
PATIENCE = 60.0  # seconds for an interrupted step to clean up before its process is killed

Outcome = tuple[str, float | None]  # result of call_stage


@dataclass(frozen=True)
class Call:
    """One call of a stage function.

    Attributes:
        stage: ``module:function``.
        arguments: Keyword arguments as JSON values.
        log_file: Where a worker process writes what the call prints.
        remake: Whether artifacts of other settings are replaced.
    """

    stage: str
    arguments: dict[str, Any]
    log_file: Path
    remake: bool

    def make(self) -> Outcome:
        """Make the call; see :func:`dana.stages.steps.step.call_stage`."""
        try:
            return call_remaking(lambda: call_stage(self.stage, self.arguments), self.remake)
        finally:
            return_memory()


Submit = Callable[[list[Call]], "list[Future[Any]]"]


class StepError(DanaError):
    """Error for failed steps; the exit code is 75 if one was stopped by a signal, 1 for an unexpected error."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the exit code, too."""
        return StepError, (str(self), self.exit_code)


def execute(
    run: Run,
    jobs: int = 1,
    tell: Callable[[Step, str], None] | None = None,
    remake: bool = False,
    minutes: float | None = None,
) -> dict[str, str]:
    """Run the steps of a run and collect ``results.csv``.

    Every stage is called and reuses its artifact if nothing it depends on has changed: after an
    interruption only missing artifacts are made. Results do not depend on `jobs` if OMP_NUM_THREADS
    is the same: on CPUs, sums depend on the number of threads.

    Args:
        run: The steps.
        jobs: Number of steps that run in parallel, each in its own process; 1 runs them in this
            process. Launched processes share the steps instead.
        tell: Called in this process with each finished step and its output.
        remake: Whether artifacts of other settings are replaced instead of refused.
        minutes: Time for the run. When it is over, only steps that conclude begin. Before, a step
            begins only if steps of its kind took less time on average than is left. None sets no
            limit.

    Returns:
        Output of each step that is done, by name.

    Raises:
        ArtifactError: If the run's folder is an artifact, or in one.
        DanaError: After all other steps are done: which steps failed and why. A single failure in
            this process is raised as it is.
        Preemption: At once, if a step was stopped by a signal.
    """
    require(jobs >= 1, "jobs", jobs, "at least 1")
    require(minutes is None or minutes > 0, "minutes", minutes, "above 0")
    on_rank_0(lambda: refuse_inside_artifact(run.folder / RESULTS))
    if has_peers():
        jobs = 1  # they share the work of each step
    execution = _Execution(run, jobs, remake, minutes)
    try:
        with loaded_set_aside(), _team_of(jobs) as submit, Heartbeat(execution.words):
            execution.begin(submit)
            while execution.running:
                for step in execution.finish():
                    if tell and is_writer():
                        tell(step, execution.made[step.name])
                execution.begin(submit)
    finally:
        if is_writer():
            outputs = execution.outputs()
            if outputs or not (run.folder / RESULTS).exists():
                write_metrics(run, outputs)
    log.info(
        "steps     %d of %d done (%s)", len(execution.made), len(run.steps), execution.clock.text()
    )
    if execution.failed:
        raise execution.error()
    return execution.made


class _Execution:
    """State of a run at work: steps that wait, are at work, done or failed."""

    def __init__(self, run: Run, jobs: int, remake: bool, minutes: float | None) -> None:
        self.run = run
        self.jobs = jobs
        self.remake = remake
        self.deadline: float | None = None
        if minutes is not None:
            self.deadline = time.monotonic() + 60 * minutes
        self.clock = Clock(run, jobs)
        self.waiting = list(run.steps)
        self.states = run.states()
        self.running: dict[Future[Any], tuple[Step, float]] = {}
        self.made: dict[str, str] = {}
        self.failed: dict[str, BaseException] = {}
        self.at_work: dict[str, float] = {}

    def outputs(self) -> dict[str, str]:
        """Return the outputs of the finished steps, also of those that an earlier call finished."""
        outputs = {}
        for step in self.run.steps:
            if self.states[step.name] == "done":
                outputs[step.name] = self.run.output(step.name)
        return outputs | self.made

    def words(self) -> str:
        """Say which steps are at work, for how long, and what time is left."""
        now = time.monotonic()
        steps = [
            f"{words} ({format_duration(now - start)})"
            for words, start in list(self.at_work.items())
        ]
        parts = [f"{'at work':<9} {', '.join(steps) or 'between two steps'}", self.clock.text()]
        return "; ".join([*parts, *filter(None, [busy_text()])])

    def begin(self, submit: Submit) -> None:
        """Start steps whose dependencies are done, up to the number of jobs."""
        steps = self._next_cells()
        if not steps:
            return
        for step in steps:
            self.waiting.remove(step)
            position = self._position()
            log.info("%-9s %-38s %s", position, step.words, self.clock.text())
            self.at_work[step.words] = time.monotonic()
        start = time.monotonic()
        label = f"{position} {steps[0].name}" if len(steps) == 1 else ""
        with progress_label(label):
            outcomes = submit([self._call(step) for step in steps])
        for step, outcome in zip(steps, outcomes, strict=True):
            self.running[outcome] = step, start

    def _next_cells(self) -> list[Step]:
        """Return the steps to start now: as many as there are idle jobs, or launched processes.

        Launched processes work on one step together, unless one process does it alone.
        """
        ready = self._ready()
        if not has_peers():
            return ready[: self.jobs - len(self.running)]
        if ready and ready[0].is_alone:
            return [step for step in ready if step.is_alone][: processes()]
        return ready[:1]

    def _ready(self) -> list[Step]:
        """Return the steps that may begin now, in order.

        They are those before the next step that may stop the run. That step begins when all before
        it are over. If it cannot begin itself, for a failed dependency or want of time, those
        behind it are not kept waiting.
        """
        group: list[Step] = []
        for step in self.waiting:
            if step.stops:
                ready = self._in_time(self._satisfied(group))
                if ready or self.running:
                    return ready
                group = []
                if ready := self._in_time(self._satisfied([step])):
                    return ready
            else:
                group.append(step)
        return self._in_time(self._satisfied(group))

    def _satisfied(self, steps: list[Step]) -> list[Step]:
        """Return the steps whose dependencies are done."""
        return [step for step in steps if set(step.needs) <= self.made.keys()]

    def _in_time(self, steps: list[Step]) -> list[Step]:
        """Return the steps for which there is time; the clock of the first process decides for all.

        Finished ones may, since they take no time and others read them.
        """
        deadline = self.deadline
        if deadline is None:
            return steps

        def names_in_time() -> set[str]:
            left = deadline - time.monotonic()
            return {
                step.name
                for step in steps
                if step.concludes
                or self.states[step.name] == "done"
                or self.clock.mean_seconds(step) < left
            }

        names = on_rank_0(names_in_time)
        return [step for step in steps if step.name in names]

    def _position(self) -> str:
        count = len(self.run.steps)
        return f"{count - len(self.waiting)} of {count}"

    def _call(self, step: Step) -> Call:
        arguments = step.arguments(self.made)
        return Call(step.stage, arguments, self.run.file(step.name, ".log"), self.remake)

    def finish(self) -> Iterator[Step]:
        """Wait for a step, record its output and yield it; raise only if it was stopped by a signal."""
        for outcome in wait(self.running, return_when=FIRST_COMPLETED).done:
            step, start = self.running.pop(outcome)
            self.at_work.pop(step.words, None)
            error = outcome.exception()
            if isinstance(error, BrokenExecutor):
                log_file = self.run.file(step.name, ".log")
                error = StepError(f"its process was killed; {log_file} says more", 1)
            if error is not None:
                log.error("failed    %s: %s", step.name, error)
                self.failed[step.name] = error
                if getattr(error, "exit_code", None) == STOPPED:
                    raise error
                continue
            self.made[step.name], seconds = outcome.result()
            seconds = max(time.monotonic() - start, seconds or 0)
            if self.states[step.name] != "done":  # a reused one keeps its time
                self.clock.count(step, seconds)
                if is_writer():
                    self.run.write_record(step.name, self.made[step.name], seconds)
            if step.stops and self.made[step.name]:
                self.waiting.clear()
            yield step

    def error(self) -> BaseException:
        """Return one error for all failed steps; a single error of this process as it is."""
        names = [step.name for step in self.run.steps if step.name in self.failed]
        error = self.failed[names[0]]
        if len(names) == 1 and not isinstance(error, StepError):
            return error
        others = ""
        if self.waiting and self.deadline is None:  # with one, others wait for want of time
            others = f"; {len(self.waiting)} that depend on them were not started"
        message = f"{len(names)} of {len(self.run.steps)} steps failed: {', '.join(names)}{others}. {names[0]}: {error}"
        return StepError(
            message, max(getattr(error, "exit_code", 1) for error in self.failed.values())
        )


@contextmanager
def _team_of(jobs: int) -> Iterator[Submit]:
    """Yield a function that submits calls: to this process, to launched processes or to workers."""
    if has_peers():
        yield _call_on_ranks
        return
    if jobs == 1:
        yield lambda calls: [_call_here(call) for call in calls]
        return
    environment = {}
    if os.environ.get("OMP_NUM_THREADS") in (None, str(cores())):
        environment["OMP_NUM_THREADS"] = str(max(1, cores() // jobs))
    devices = [{"CUDA_VISIBLE_DEVICES": name} for name in _devices()] or [{}]
    team = [Worker(environment | devices[index % len(devices)]) for index in range(jobs)]

    def submit(calls: list[Call]) -> "list[Future[Any]]":
        outcomes = []
        for call in calls:
            worker = next(worker for worker in team if worker.is_idle)
            outcomes.append(worker.submit(_call_there, call))
        return outcomes

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


def _call_here(call: Call) -> "Future[Any]":
    outcome: Future[Any] = Future()
    try:
        outcome.set_result(call.make())
    except Exception as error:
        outcome.set_exception(error)
        link: BaseException | None = error
        visited: set[int] = set()  # an error may be its own cause
        while link and id(link) not in visited:
            visited.add(id(link))
            # A failed step must not keep its model until the run ends.
            traceback.clear_frames(link.__traceback__)
            link = link.__cause__ or link.__context__
        return_memory()
    return outcome


def _call_on_ranks(calls: list[Call]) -> "list[Future[Any]]":
    """Make one call on all launched processes together, or each of several on a process of its own.

    Every process gets every outcome, so that all go on with the same steps.
    """
    if len(calls) == 1:
        return [_call_here(calls[0])]
    from accelerate.utils import gather_object

    rank = process_rank()
    outcome = None
    with StopRequest() as request:  # an idle process waits for the others
        if rank < len(calls):
            with single_process():
                outcome = _stoppable(calls[rank])
        outcomes = gather_object([outcome])
        was_told = any(gather_object([request.received]))
    futures = [_future(*parts) for parts in outcomes[: len(calls)]]
    is_stopped = any(_exit_code(future) == STOPPED for future in futures)
    if was_told and not is_stopped:
        raise Preemption(
            "stopped by a signal; finished work is saved, and the same command resumes"
        )
    return futures


def _exit_code(outcome: "Future[Any]") -> int:
    """Return the exit code of a call that is over; 0 if it succeeded."""
    error = outcome.exception()
    return getattr(error, "exit_code", 1) if error is not None else 0


def _stoppable(call: Call) -> tuple[Outcome | None, str, int]:
    """Make a call, which a signal ends at once, and return what :func:`_portable` does."""
    try:
        with stop_on_signal():
            return _portable(_call_here(call))
    except Preemption as error:
        return None, str(error), error.exit_code


def _portable(outcome: "Future[Any]") -> tuple[Outcome | None, str, int]:
    """Return a result, or the text and exit code of an error, which can be pickled whatever it is."""
    error = outcome.exception()
    if error is None:
        return outcome.result(), "", 0
    if isinstance(error, DanaError):
        return None, str(error), error.exit_code
    return None, f"{type(error).__name__}: {error}", 1


def _future(result: Outcome | None, error: str, exit_code: int) -> "Future[Any]":
    outcome: Future[Any] = Future()
    if error:
        outcome.set_exception(StepError(error, exit_code))
    else:
        outcome.set_result(result)
    return outcome


def _call_there(call: Call) -> Outcome:
    """Run one step in a worker process, with its output in a log file."""
    log_file = call.log_file
    log_file.parent.mkdir(parents=True, exist_ok=True)
    # A step that is reused says little; what its work said stays before it.
    with log_file.open("a", encoding="utf-8") as stream:
        for descriptor in (1, 2):
            os.dup2(stream.fileno(), descriptor)
    setup()
    try:
        return call.make()
    except DanaError as error:
        log.error("%s", error)
        raise StepError(f"{error} ({log_file})", error.exit_code) from None
    except Exception as error:
        traceback.print_exc()
        raise StepError(f"{type(error).__name__}: {error} ({log_file})", 1) from None
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


class Clock:
    """Say the time spent, and the time left by the steps that this run has finished itself.

    Args:
        run: The steps.
        jobs: Number of steps that run in parallel and share the machine.
    """

    def __init__(self, run: Run, jobs: int) -> None:
        self._jobs = jobs
        self._begun = time.monotonic()
        self._left: Counter[str] = Counter()
        self._seconds: dict[str, list[float]] = defaultdict(list)
        states = run.states()
        for step in run.steps:
            if states[step.name] == "done":
                self._seconds[step.stage].append(run.record(step.name)["seconds"])
            else:
                self._left[step.stage] += 1

    def count(self, step: Step, seconds: float) -> None:
        """Count a step that was not done before, and the seconds that making its artifact took."""
        self._left[step.stage] -= 1
        self._seconds[step.stage].append(seconds)

    def mean_seconds(self, step: Step) -> float:
        """Return how long the finished steps of a step's kind took in the mean; 0 if there are none."""
        seconds = self._seconds[step.stage]
        return fmean(seconds) if seconds else 0.0

    def text(self) -> str:
        """Format the time spent and the time left.

        If no step of a kind is finished yet, its time is unknown and not counted, so the text says
        "more than".
        """
        spent = f"{format_duration(time.monotonic() - self._begun)} so far"
        left = 0.0
        is_known = True
        for stage, count in self._left.items():
            seconds = self._seconds[stage]
            if seconds:
                left += count * fmean(seconds) / self._jobs
            elif count:
                is_known = False
        if left < 1:
            return spent
        return f"{spent}, {'about' if is_known else 'more than'} {format_duration(left)} left"
