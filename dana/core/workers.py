"""Worker processes and a reading thread: calls of functions to their results, in order, a few in advance."""

import os
import signal
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from dana.core.errors import DanaError

IDLE = 5  # seconds after which a process without work ends, half a minute later where its owner was killed
AHEAD = 2  # calls that wait beside those that run
DEPTH = 4  # batches that wait to be read; more only cost memory
POLL = 0.2  # seconds between two looks at whether the owner lives

T = TypeVar("T")


@contextmanager
def workers(count: int) -> Iterator[Executor]:
    """Processes for independent calls, which end with the block.

    They import the modules of what they call, not the program that runs, so a script needs no guard around its main
    part.

    Raises:
        DanaError: If one was killed.
    """
    from loky import ProcessPoolExecutor

    pool = ProcessPoolExecutor(count, timeout=IDLE, env={"TOKENIZERS_PARALLELISM": "false"})  # cores have one each
    try:
        yield pool
    except BaseException as error:
        pool.shutdown(kill_workers=True)
        if isinstance(error, BrokenExecutor):
            raise DanaError(
                "a process that helped was killed, perhaps for want of memory; run the command again"
            ) from error
        raise
    pool.shutdown()


def shared_out(function: Callable[..., T], calls: Iterable[tuple], count: int) -> Iterator[T]:
    """What a function returns, in the order of its calls; from several processes or, of one, from this one.

    Args:
        function: It, its arguments and what it returns can be pickled.
        calls: Arguments.
        count: How many processes.

    Raises:
        DanaError: If one was killed.
    """
    if count == 1:
        for arguments in calls:
            yield function(*arguments)
        return
    waiting: deque[Future[T]] = deque()
    with workers(count) as pool:
        for arguments in calls:
            waiting.append(pool.submit(function, *arguments))
            if len(waiting) == count + AHEAD:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


class Worker:
    """One process with an environment of its own, for one call at a time; it is started anew where it died."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = dict(environment)
        self._call: Future[Any] | None = None
        self._start()

    def _start(self) -> None:
        from loky import ProcessPoolExecutor

        # loky starts a process anew whose memory grew by 300 MB, between two calls: harmless, and no news to users.
        warnings.filterwarnings("ignore", "A worker was restarted while some jobs", UserWarning)
        self._pool = ProcessPoolExecutor(1, env=self._environment, initializer=_end_with, initargs=(os.getpid(),))

    @property
    def is_idle(self) -> bool:
        """Whether no call runs."""
        return self._call is None or self._call.done()

    def submit(self, function: Callable[..., T], *arguments: Any) -> "Future[T]":
        """Call a function there; the future raises :class:`~concurrent.futures.BrokenExecutor` if its process died."""
        try:
            self._call = self._pool.submit(function, *arguments)
        except BrokenExecutor:  # it died in the call before, or after it
            self._start()
            self._call = self._pool.submit(function, *arguments)
        return self._call

    def interrupt(self) -> None:
        """Raise KeyboardInterrupt in what is called."""
        for process in list(self._pool._processes):  # loky restarts one whose memory grew, so none is known by name
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGINT)

    def stop(self, patience: float) -> None:
        """End the process, `patience` seconds after it was interrupted at the latest."""
        until = time.monotonic() + patience
        while not self.is_idle and time.monotonic() < until:
            time.sleep(0.05)
        self._pool.shutdown(kill_workers=True)


def _end_with(owner: int) -> None:
    """Interrupt this process when its owner dies, however it dies."""
    os.setsid()  # Ctrl-C reaches the owner alone, which then interrupts this process
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts background jobs with it ignored

    def watch() -> None:
        while os.getppid() == owner:
            time.sleep(POLL)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=watch, daemon=True, name="owner").start()


def prefetch(items: Iterable[T], depth: int = DEPTH) -> Generator[T, None, None]:
    """The same items, iterated in another thread, at most `depth` of them in advance.

    An error is raised after the items before it; a reader that stops early, or closes the iterator, stops the thread.
    """
    iterator, end = iter(items), object()
    with ThreadPoolExecutor(1, thread_name_prefix="prefetch") as thread:
        waiting = deque(thread.submit(next, iterator, end) for _ in range(depth))
        try:
            while (item := waiting.popleft().result()) is not end:
                waiting.append(thread.submit(next, iterator, end))
                yield item  # type: ignore[misc]  # the end is no item
        finally:
            thread.shutdown(cancel_futures=True)
