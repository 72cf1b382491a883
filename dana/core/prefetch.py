"""Prefetching: a thread iterates ahead of its reader: text is read, split and tokenised while a batch is computed."""

import queue
import threading
from collections.abc import Generator, Iterable
from typing import Any, TypeVar

T = TypeVar("T")

DEPTH = 4  # batches that wait; more only cost memory


def prefetch(items: Iterable[T], depth: int = DEPTH) -> Generator[T, None, None]:
    """The same items, iterated in another thread, at most `depth` of them in advance.

    An error is raised after the items before it; a reader that stops early, or closes the iterator, stops the thread.
    """
    reader = _Reader(items, depth)
    reader.start()
    try:
        while True:
            kind, value = reader.waiting.get()
            if kind == "error":
                raise value
            if kind == "end":
                return
            yield value
    finally:
        reader.stopped.set()
        reader.join()


class _Reader(threading.Thread):
    def __init__(self, items: Iterable[Any], depth: int) -> None:
        super().__init__(daemon=True, name="prefetch")
        self.items = items
        self.waiting: queue.Queue[tuple[str, Any]] = queue.Queue(maxsize=depth)
        self.stopped = threading.Event()

    def run(self) -> None:
        try:
            for item in self.items:
                if not self.offer("item", item):
                    return
            self.offer("end", None)
        except BaseException as error:  # the one who iterates raises it
            self.offer("error", error)

    def offer(self, kind: str, value: Any) -> bool:
        """Put it in the queue, unless nobody reads any more."""
        while not self.stopped.is_set():
            try:
                self.waiting.put((kind, value), timeout=0.1)
                return True
            except queue.Full:
                continue
        return False
