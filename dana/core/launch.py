"""Coordinate the processes of a launch.

Here are their count and rank, work of the first process for all, and signals to stop. Count and
rank come from the environment variables of ``accelerate launch``, ``torchrun`` or a batch system.
torch is imported only if several processes communicate. On SIGTERM or SIGUSR1 training finishes its
step and saves; all other work stops at once. Both end with exit code 75.
"""

import atexit
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from types import FrameType
from typing import Any, Self, TypeVar

from dana.core.config import require
from dana.core.errors import ConfigError, DanaError, FirstProcessError, Preemption

T = TypeVar("T")

PATIENCE = timedelta(days=1)  # to wait for the first process, which may tokenise a pool
POLL = 0.02  # seconds between two checks while waiting, so that signals are handled
GRACE = 3.0  # seconds by which other processes delay an error, so that the first reports it
SKEW = 30.0  # the same before they are connected, because they may have started at different times
SHUTDOWN = 0.2  # seconds; freeing tensors takes milliseconds
LOST = re.compile("(closed|reset) by peer|Broken pipe")  # gloo's, if another process is gone
PRECISION_VARIABLE = "ACCELERATE_MIXED_PRECISION"  # of the environment; sets it for a launch
LAUNCHERS = (
    "RANK",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "MASTER_",
    "ACCELERATE_USE_DEEPSPEED",
    "ACCELERATE_USE_FSDP",
)

_alone: ContextVar[bool] = ContextVar("alone", default=False)


def processes() -> int:
    """Return the number of processes of the launch; 1 without a launcher.

    Raises:
        ConfigError: If ``WORLD_SIZE`` is invalid, or a launcher started one process instead of
            several.
    """
    size = os.environ.get("WORLD_SIZE") or "1"
    is_count = size.isdecimal() and int(size) >= 1
    require(is_count, "WORLD_SIZE", size, "the number of processes of the launch")
    # accelerate launch sets MASTER_ADDR only for several processes, and WORLD_SIZE only if it
    # starts them. On a CPU it starts one process in any case, which would train alone and end with
    # exit code 0.
    wants_several = {"ACCELERATE_DYNAMO_BACKEND", "MASTER_ADDR"} <= os.environ.keys()
    if wants_several and "WORLD_SIZE" not in os.environ:
        problem = "accelerate launch started one process instead of several, as it does on CPUs"
        several = "torchrun --standalone --nproc_per_node N -m dana ..."
        raise ConfigError(
            f"{problem}. On one machine: {several}; "
            "for one: --num_processes 1, and unset MASTER_ADDR"
        )
    return int(size)


def process_rank() -> int:
    """Return the rank of this process in its launch, from 0.

    Raises:
        ConfigError: If ``RANK`` is invalid.
    """
    rank = os.environ.get("RANK") or "0"
    form = "the number of this process, from 0, as a launcher sets it"
    require(rank.isdecimal(), "RANK", rank, form)
    if "WORLD_SIZE" not in os.environ:
        return 0
    is_below = int(rank) < processes()
    require(is_below, "RANK", rank, f"below WORLD_SIZE={processes()}, or unset without a launcher")
    return int(rank)


@dataclass(frozen=True)
class Share:
    """One share of work in shards: every `of`-th shard, beginning with shard `number` (from 0)."""

    number: int = 0
    of: int = 1

    @classmethod
    def parse(cls, spec: str) -> "Share":
        """Parse ``i/N``, for example ``1/8`` … ``8/8``.

        Raises:
            ConfigError: If it is of another form.
        """
        number, slash, of = spec.partition("/")
        are_numbers = bool(slash) and number.isdecimal() and of.isdecimal()
        fits = are_numbers and 1 <= int(number) <= int(of)
        require(fits, "--shard", spec, "i/N with i from 1 to N, for example 1/8")
        return cls(int(number) - 1, int(of))

    @classmethod
    def of_launch(cls) -> "Share":
        """Return this process's share of a launch; all of the work without a launcher."""
        return cls(process_rank(), processes())


def cores() -> int:
    """Count the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


SOON = "4"  # the least that OpenBLAS takes: its threads spin for 2**4 cycles, then they sleep
BUSY = 0.75  # load of other jobs on each core, above which a machine is called busy


def busy_text() -> str:
    """Say that the machine is busy; empty unless its load shows more work than its cores."""
    if not hasattr(os, "getloadavg"):
        return ""
    load = os.getloadavg()[0]
    count = cores()
    if load < count * (1 + BUSY):  # the run itself loads each core by about 1
        return ""
    return f"this machine is busy (load {load:.1f} on {count} cores)"


def use_all_cores() -> None:
    """Let torch use all cores unless a launcher set a limit.

    It is called before torch and numpy are imported.
    """
    os.environ.setdefault("OMP_NUM_THREADS", str(cores()))
    # Idle threads sleep instead of spinning, so that they do not slow down other jobs of the
    # machine: those of OpenMP, which torch uses, and those of OpenBLAS, numpy's and scipy's.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", SOON)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")


def leave_launch() -> None:
    """Remove the launcher's environment variables.

    This process then works as if it had been started alone. This is for commands that run on one
    process; the other processes of the launch end, and none waits for them.
    """
    for name in list(os.environ):
        if name.startswith(LAUNCHERS):
            del os.environ[name]
    os.environ["WORLD_SIZE"] = "1"


def has_peers() -> bool:
    """Return True if other processes of the launch do the same work now.

    One of them must then write.
    """
    return processes() > 1 and not _alone.get()


def is_writer() -> bool:
    """Return True on the process that writes.

    It is the first of the launch, or one inside :func:`single_process`.
    """
    return not has_peers() or process_rank() == 0


@contextmanager
def single_process() -> Iterator[None]:
    """Let this process work alone within the block, on its share of divided work.

    :func:`on_rank_0` does not wait there.
    """
    token = _alone.set(True)
    try:
        yield
    finally:
        _alone.reset(token)


def on_rank_0(act: Callable[[], T]) -> T:
    """Call a function on the first process of the launch and return its value on all.

    Every process of the launch must make this call, in the same order.

    Args:
        act: The function; its value must be picklable.

    Raises:
        FirstProcessError: On the other processes, if it failed on the first, which raises the error
            itself.
    """
    if not has_peers():
        return act()
    value = None
    if process_rank() == 0:
        _meet()
        try:
            with single_process():
                value = act()
        except BaseException as error:
            with suppress(RuntimeError):  # the other processes have ended
                _sum(getattr(error, "exit_code", 1))
            raise
    exit_code = _sum(0)
    if exit_code:
        raise FirstProcessError(exit_code)
    shared: T = _broadcast(value)
    return shared


def wait_for_all() -> None:
    """Wait until every process of the launch has made this call."""
    if has_peers():
        _sum(0)


def _sum(number: int) -> int:
    """Return the sum of one number of each process; signals are handled while it waits."""
    import torch

    total = torch.tensor([number], device=_meet().device)
    work = torch.distributed.all_reduce(total, async_op=True)
    try:
        _poll(work, PATIENCE.total_seconds())
    except BaseException:
        # A signal, which the first process has, too; torch aborts if an operation is pending.
        _poll(work, GRACE)
        raise
    work.wait()
    return int(total.item())


def _poll(work: Any, seconds: float) -> None:
    """Wait some seconds at most for an operation of torch."""
    until = time.monotonic() + seconds
    while not work.is_completed() and time.monotonic() < until:
        time.sleep(POLL)


def _broadcast(value: Any) -> Any:
    """Return the first process's value on every process."""
    import torch

    box = [value]
    torch.distributed.broadcast_object_list(box, 0)
    return box[0]


def _meet() -> Any:
    """Connect the processes of the launch and return Accelerate's state.

    Raises:
        ConfigError: If fewer or more processes joined than were launched.
    """
    from accelerate import PartialState

    _let_threads_finish()
    state = PartialState(**rendezvous_options())
    if state.num_processes != processes():
        raise ConfigError(
            f"{processes()} processes were launched, but {state.num_processes} joined"
        )
    return state


@cache
def _let_threads_finish() -> None:
    """Wait briefly at exit for the threads of the process group.

    A thread that frees tensors while the interpreter shuts down aborts the process: exit code -6
    after all work.
    """
    atexit.register(time.sleep, SHUTDOWN)


def rendezvous_options() -> dict[str, Any]:
    """Return the arguments of Accelerate's ``PartialState`` with which the processes connect.

    Without an accelerator the backend is gloo, which Accelerate chooses by itself for plain data
    parallelism only.
    """
    import torch

    has_device = torch.accelerator.is_available() and not env_flag("ACCELERATE_USE_CPU")
    uses_deepspeed = env_flag("ACCELERATE_USE_DEEPSPEED")
    backend = "gloo" if uses_deepspeed and not has_device else None
    return {
        "cpu": processes() > 1 and not has_device and not backend,
        "backend": backend,
        "timeout": PATIENCE,
    }


def env_flag(name: str) -> bool:
    """Return True if an environment variable is set to a true value, as Accelerate reads it."""
    return os.environ.get(name, "").lower() in ("1", "true", "yes", "y", "t", "on")


@contextmanager
def report_errors_once() -> Iterator[None]:
    """Delay errors on ranks above 0.

    Rank 0 then reports a common error first, and the launcher ends the others.

    Raises:
        DanaError: If another process ended while this one waited for it.
    """
    try:
        yield
    except (FirstProcessError, Preemption):
        raise
    except (Exception, SystemExit) as error:
        if process_rank() > 0:
            time.sleep(GRACE if _is_connected() else SKEW)
        if processes() > 1 and isinstance(error, RuntimeError) and LOST.search(str(error)):
            raise DanaError(
                "another process of this launch has ended, so this one ends; see its message"
            ) from error
        raise


def _is_connected() -> bool:
    """Return whether the processes of the launch have met."""
    torch = sys.modules.get("torch")
    return torch is not None and torch.distributed.is_initialized()


SIGNALS = (signal.SIGTERM, signal.SIGUSR1)


class Stop(BaseException):
    """A signal to stop, which no ``except Exception`` takes for a fault of a model or a plug-in."""

    exit_code = Preemption.exit_code


@contextmanager
def stop_on_signal() -> Iterator[None]:
    """Raise :class:`Preemption` on a signal to stop.

    Locks and temporary folders are then removed.

    Raises:
        Preemption: On SIGTERM or SIGUSR1.
    """
    process = os.getpid()

    def end(number: int, frame: FrameType | None) -> None:
        if os.getpid() != process:  # a child that inherited this handler
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        raise Stop

    def send_again(report: Any) -> None:
        """Repeat a signal whose exception Python drops.

        It does so in a finaliser or a callback of C.
        """
        if isinstance(report.exc_value, Stop):
            threading.Timer(0.1, os.kill, (process, signal.SIGTERM)).start()
        else:
            former_hook(report)

    former_hook = sys.unraisablehook
    sys.unraisablehook = send_again
    try:
        with _listening(end):
            yield
    except Stop:
        raise Preemption(
            "stopped by a signal; finished work is saved, and the same command resumes"
        ) from None
    finally:
        sys.unraisablehook = former_hook


class StopRequest(ExitStack):
    """Record SIGTERM and SIGUSR1 within its block; a signal to any rank counts for all."""

    def __init__(self) -> None:
        super().__init__()
        self.received = False

    def __enter__(self) -> Self:
        self.enter_context(_listening(self._remember))
        return self

    def _remember(self, number: int, frame: FrameType | None) -> None:
        self.received = True

    def on_any_rank(self, accelerator: Any) -> bool:
        """Return True if any rank received a signal; every rank must make this call."""
        if accelerator.num_processes == 1:
            return self.received
        import torch

        flag = torch.tensor([float(self.received)], device=accelerator.device)
        return bool(accelerator.reduce(flag).item())


@contextmanager
def _listening(handler: Any) -> Iterator[None]:
    """Handle the signals to stop within the block.

    Outside the main thread, where Python refuses to, nothing is done.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in SIGNALS}
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former)
