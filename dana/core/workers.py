"""Worker processes: calls of functions to their results, in order, with no more in memory than are waited for."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from typing import TypeVar

from dana.core.errors import DanaError

IDLE = 5  # seconds after which a process without work ends, half a minute later where its owner was killed
AHEAD = 2  # calls that wait beside those that run

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
    from loky.process_executor import TerminatedWorkerError

    pool = ProcessPoolExecutor(count, timeout=IDLE, env={"TOKENIZERS_PARALLELISM": "false"})  # cores have one each
    try:
        yield pool
    except BaseException as error:
        pool.shutdown(kill_workers=True)
        if isinstance(error, TerminatedWorkerError):
            said = "a process that helped was killed, perhaps for want of memory; run the command again"
            raise DanaError(said) from error
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
