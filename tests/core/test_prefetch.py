"""Prefetching: the same items in the same order, errors of their own type, and no thread when nobody reads any more."""

import threading
import time
from contextlib import closing

import pytest

from dana.core.workers import prefetch


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("prefetch")]


def test_reading_ahead_keeps_order_and_passes_errors_on():
    assert list(prefetch(iter(range(100)), depth=3)) == list(range(100))

    def broken():
        yield 1
        raise ValueError("line 2")

    found = prefetch(broken())
    assert next(found) == 1
    with pytest.raises(ValueError, match="line 2"):
        next(found)
    assert not threads()


def test_no_more_than_a_few_items_are_ahead_and_a_reader_that_stops_ends_the_thread():
    seen = []

    def endless():
        while True:
            seen.append(1)
            yield 1

    early = prefetch(endless(), depth=2)
    next(early)
    early.close()
    count = len(seen)
    time.sleep(0.05)
    assert len(seen) == count <= 4, "bounded, and over when nobody reads"
    assert not threads()


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_whatever_ends_the_reader_ends_the_thread(error):
    def read():
        with closing(prefetch(iter(range(100)), depth=2)) as items:
            for _ in items:
                raise error

    with pytest.raises(error):
        read()
    assert not threads()
