"""The processes of one launch: how many there are, which one this is, what the first does for all, and signals to stop.

Reads what ``accelerate launch``, ``torchrun`` or a batch system say in the environment; torch is imported only when
several processes have to meet. Told to stop (SIGTERM, SIGUSR1), a training finishes its step and saves; any other work
is left at once. Exit code 75.
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
from dana.core.errors import ConfigError, DanaError, EndedElsewhere, Preempted

T = TypeVar("T")

PATIENCE = timedelta(days=1)  # to wait for the first process, which may read and tokenise a corpus
POLL = 0.02  # seconds between two looks, so that a signal is answered while others are waited for
GRACE = 3.0  # seconds in which the first process may tell an error that all have
SKEW = 30.0  # the same before they have met: they may have started so far apart
LAST_MOMENT = 0.2  # seconds; freeing takes milliseconds
LOST = re.compile("(closed|reset) by peer|Broken pipe")  # gloo, when another process is gone
LAUNCHERS = ("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_", "ACCELERATE_USE_DEEPSPEED", "ACCELERATE_USE_FSDP")

_alone: ContextVar[bool] = ContextVar("alone", default=False)


def processes() -> int:
    """How many processes were launched together; 1 without a launcher.

    Raises:
        ConfigError: If ``WORLD_SIZE`` is no number, or a launcher was asked for several processes and started one.
    """
    given = os.environ.get("WORLD_SIZE") or "1"
    if not given.isdigit() or int(given) < 1:
        raise ConfigError(f"WORLD_SIZE={given!r}: must be the number of processes that were launched")
    # accelerate launch says where processes meet only if it was asked for several, and how many only if it
    # starts them. On a CPU it starts one, whatever it was asked for, which would train alone with exit code 0.
    if "WORLD_SIZE" not in os.environ and {"ACCELERATE_DYNAMO_BACKEND", "MASTER_ADDR"} <= os.environ.keys():
        raise ConfigError(
            "accelerate launch was asked for several processes and started one, as it does on CPUs. On one machine: "
            "torchrun --standalone --nproc_per_node N -m dana ...; for one: --num_processes 1, and unset MASTER_ADDR"
        )
    return int(given)


def process_rank() -> int:
    """Which of the processes that were launched together this is, from 0.

    Raises:
        ConfigError: If ``RANK`` is no number.
    """
    given = os.environ.get("RANK") or "0"
    if not given.isdigit():
        raise ConfigError(f"RANK={given!r}: must be the number of this process, from 0, as a launcher sets it")
    return int(given)


@dataclass(frozen=True)
class Share:
    """A part of a work that is cut into shards: every `of`-th one, from the `number`-th on (numbers begin with 0)."""

    number: int = 0
    of: int = 1

    @classmethod
    def parse(cls, spec: str) -> "Share":
        """Read ``i/N``, for example ``1/8`` … ``8/8``.

        Raises:
            ConfigError: If it is not that.
        """
        number, slash, of = spec.partition("/")
        fits = bool(slash) and number.isdigit() and of.isdigit() and 1 <= int(number) <= int(of)
        require(fits, "--shard", spec, "i/N with i from 1 to N, for example 1/8")
        return cls(int(number) - 1, int(of))

    @classmethod
    def of_launch(cls) -> "Share":
        """This process's part of the work of a launch; all of it without a launcher."""
        return cls(process_rank(), processes())


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def use_all_cores() -> None:
    """Give a process that no launcher limits the cores it may use; must run before torch is imported."""
    os.environ.setdefault("OMP_NUM_THREADS", str(cores()))
    # Waiting threads sleep rather than spin, which leaves a shared machine to the others.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")


def leave_launch() -> None:
    """Forget the launcher's environment: from here on this is one process that was started by itself.

    For commands whose work one process does. The others of the launch end, and nobody waits for them.
    """
    for name in list(os.environ):
        if name.startswith(LAUNCHERS):
            del os.environ[name]
    os.environ["WORLD_SIZE"] = "1"


def together() -> bool:
    """Whether other processes of the launch do the same work at this moment, so that one has to write."""
    return processes() > 1 and not _alone.get()


def leads() -> bool:
    """Whether this process is the one that writes: the first of the launch, or one that works :func:`alone`."""
    return not together() or process_rank() == 0


@contextmanager
def alone() -> Iterator[None]:
    """Inside, this process works for itself, and :func:`first` waits for nobody: for work that is shared out."""
    token = _alone.set(True)
    try:
        yield
    finally:
        _alone.reset(token)


def first(act: Callable[[], T]) -> T:
    """What `act` returns: the first process calls it, :func:`alone`; the others wait and get the same.

    Every process of the launch must come here, in the same order.

    Args:
        act: What one process is to do; returns what can be pickled.

    Raises:
        EndedElsewhere: On the others, where it failed on the first, which raises the error itself.
    """
    if not together():
        return act()
    value = None
    if process_rank() == 0:
        _meet()
        try:
            with alone():
                value = act()
        except BaseException as error:
            with suppress(RuntimeError):  # the others are gone
                _sum(getattr(error, "exit_code", 1))
            raise
    if code := _sum(0):
        raise EndedElsewhere(code)
    return _sent(value)


def wait_for_all() -> None:
    """Until every process of the launch has come here."""
    if together():
        _sum(0)


def _sum(number: int) -> int:
    """The sum of one number of each process; all wait for all, and answer signals meanwhile."""
    import torch

    total = torch.tensor([number], device=_meet().device)
    work = torch.distributed.all_reduce(total, async_op=True)
    try:
        _poll(work, PATIENCE.total_seconds())
    except BaseException:  # told to stop, as the first is, which comes here soon; torch aborts with an open operation
        _poll(work, GRACE)
        raise
    work.wait()
    return int(total.item())


def _poll(work: Any, seconds: float) -> None:
    until = time.monotonic() + seconds
    while not work.is_completed() and time.monotonic() < until:
        time.sleep(POLL)


def _sent(value: Any) -> Any:
    """What the first process gave."""
    import torch

    box = [value]
    torch.distributed.broadcast_object_list(box, 0)
    return box[0]


def _meet() -> Any:
    """Accelerate's record of the launch, in which the processes have found each other.

    Raises:
        ConfigError: If they have not.
    """
    from accelerate import PartialState

    _let_threads_finish()
    state = PartialState(**meeting())
    if state.num_processes != processes():
        raise ConfigError(f"{processes()} processes were launched, but {state.num_processes} found each other")
    return state


@cache
def _let_threads_finish() -> None:
    """Before this process ends, give the threads of its group a moment in which they can have the interpreter.

    One that frees the tensors of the last operation while the interpreter ends is ended by it, and takes the process
    along: exit code -6, with all work done.
    """
    atexit.register(time.sleep, LAST_MOMENT)


def meeting() -> dict[str, Any]:
    """How processes meet, as arguments of Accelerate's ``PartialState``.

    Where there is no accelerator that is gloo, which Accelerate takes by itself for plain data parallelism only.
    """
    import torch

    has_device = torch.accelerator.is_available() and not is_set("ACCELERATE_USE_CPU")
    deepspeed = is_set("ACCELERATE_USE_DEEPSPEED")
    return {
        "cpu": processes() > 1 and not has_device and not deepspeed,
        "backend": "gloo" if deepspeed and not has_device else None,
        "timeout": PATIENCE,
    }


def is_set(name: str) -> bool:
    """Whether a variable of the environment says yes, as Accelerate reads it."""
    return os.environ.get(name, "").lower() in ("1", "true", "yes")


@contextmanager
def one_voice() -> Iterator[None]:
    """Hold an error of another process than the first back for a moment.

    What is wrong for all of them is told by the first; a launcher then ends the others before they tell it again.

    Raises:
        DanaError: Where another process ended while this one waited for it: that one has said why, or was killed.
    """
    try:
        yield
    except (EndedElsewhere, Preempted):
        raise
    except (Exception, SystemExit) as error:
        if process_rank() > 0:
            time.sleep(GRACE if _have_met() else SKEW)
        if processes() > 1 and isinstance(error, RuntimeError) and LOST.search(str(error)):
            raise DanaError(
                "another process of this launch has ended, so this one ends, too; see what it said"
            ) from error
        raise


def _have_met() -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and torch.distributed.is_initialized()


SIGNALS = (signal.SIGTERM, signal.SIGUSR1)


@contextmanager
def ending_when_told() -> Iterator[None]:
    """Raise Preempted wherever the process is when a signal comes, so that locks and temporary folders go.

    Raises:
        Preempted: When told to stop.
    """
    process = os.getpid()

    def end(number: int, frame: FrameType | None) -> None:
        if os.getpid() != process:  # a child that inherited this handler
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        raise Preempted("told to stop; what was finished is kept, the same command goes on from there")

    with _listening(end):
        yield


class StopRequest(ExitStack):
    """Remembers SIGTERM and SIGUSR1 while it is entered; any rank's request counts for all."""

    def __init__(self) -> None:
        super().__init__()
        self.received = False

    def __enter__(self) -> Self:
        self.enter_context(_listening(self._remember))
        return self

    def _remember(self, number: int, frame: FrameType | None) -> None:
        self.received = True

    def on_any_rank(self, accelerator: Any) -> bool:
        """Whether some rank was asked to stop; every rank must ask together."""
        if accelerator.num_processes == 1:
            return self.received
        import torch

        flag = torch.tensor([float(self.received)], device=accelerator.device)
        return bool(accelerator.reduce(flag).item())


@contextmanager
def _listening(handler: Any) -> Iterator[None]:
    """Let a handler answer the signals; Python allows it in the main thread alone, elsewhere nothing changes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in SIGNALS}
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former)
