"""Call functions in worker processes, and read ahead in a thread."""

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

IDLE = 5  # seconds after which an idle process ends; half a minute later if its owner was killed
DEPTH = 4  # batches read ahead; more only cost memory
POLL = 0.2  # seconds between two checks that the owner is alive
CLEANING = 10  # seconds in which a call that lost its owner may remove what is half-written

T = TypeVar("T")


@contextmanager
def worker_pool(count: int) -> Iterator[Executor]:
    """Start processes for independent calls; they end with the block.

    They import the modules of the functions, not the main program, so a script needs no
    ``__main__`` guard.

    Raises:
        DanaError: If a process was killed.
    """
    from loky import ProcessPoolExecutor

    one_core_each = {"TOKENIZERS_PARALLELISM": "false"}
    pool = ProcessPoolExecutor(count, timeout=IDLE, env=one_core_each)
    try:
        yield pool
    except BaseException as error:
        pool.shutdown(kill_workers=True)
        if isinstance(error, BrokenExecutor):
            raise DanaError(
                "a worker process was killed, perhaps for lack of memory; run the command again"
            ) from error
        raise
    pool.shutdown()


class Worker:
    """One process with its own environment variables, for one call at a time.

    It is restarted if it died.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = dict(environment)
        self._call: Future[Any] | None = None
        self._start()

    def _start(self) -> None:
        from loky import ProcessPoolExecutor

        # Between calls loky restarts a process whose memory grew by 300 MB; users need not be
        # warned.
        warnings.filterwarnings("ignore", "A worker was restarted while some jobs", UserWarning)
        self._pool = ProcessPoolExecutor(
            1, env=self._environment, initializer=_end_with, initargs=(os.getpid(),)
        )

    @property
    def is_idle(self) -> bool:
        """True if no call runs."""
        return self._call is None or self._call.done()

    def submit(self, function: Callable[..., T], *arguments: Any) -> "Future[T]":
        """Call a function in the process; its future raises ``BrokenExecutor`` if that died."""
        try:
            self._call = self._pool.submit(function, *arguments)
        except BrokenExecutor:  # it died during the last call, or afterwards
            self._start()
            self._call = self._pool.submit(function, *arguments)
        return self._call

    def interrupt(self) -> None:
        """Raise KeyboardInterrupt in the running call."""
        # loky may have restarted the process, so its id is not known.
        for process in list(self._pool._processes):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGINT)

    def stop(self, patience: float) -> None:
        """End the process, at most `patience` seconds after it was interrupted."""
        until = time.monotonic() + patience
        while not self.is_idle and time.monotonic() < until:
            time.sleep(0.05)
        self._pool.shutdown(kill_workers=True)


def _end_with(owner: int) -> None:
    """Interrupt this process when its owner dies, and end it soon after, as loky waits for other calls."""
    os.setsid()  # Ctrl-C reaches only the owner, which then interrupts this process
    signal.signal(signal.SIGINT, signal.default_int_handler)  # shells ignore it in background jobs

    def watch() -> None:
        while os.getppid() == owner:
            time.sleep(POLL)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(CLEANING)
        os._exit(os.EX_TEMPFAIL)

    threading.Thread(target=watch, daemon=True, name="owner").start()


def prefetch(items: Iterable[T], depth: int = DEPTH) -> Generator[T, None, None]:
    """Iterate in another thread, at most `depth` items ahead.

    An error is raised after the items before it. Closing the iterator stops the thread.
    """
    iterator = iter(items)
    end = object()
    with ThreadPoolExecutor(1, thread_name_prefix="prefetch") as thread:
        waiting = deque(thread.submit(next, iterator, end) for _ in range(depth))
        try:
            while True:
                item = waiting.popleft().result()
                if item is end:
                    return
                waiting.append(thread.submit(next, iterator, end))
                yield item  # type: ignore[misc]  # the end is no item
        finally:
            thread.shutdown(cancel_futures=True)
