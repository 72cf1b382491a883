"""Give memory that is free back to the system."""

import ctypes
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager


def return_memory() -> None:
    """Give back what this process has freed.

    glibc keeps it, because objects that live on lie between what was freed: after scoring 145,000
    units, 250 of 940 MB. Each step of a run would add to that. Without glibc nothing is done but
    the collection.
    """
    gc.collect()
    if sys.platform != "linux":
        return
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


@contextmanager
def loaded_set_aside() -> Iterator[None]:
    """Leave what is loaded by now out of the collections of garbage in this context.

    With transformers loaded, each collection looks through a million objects, in half a second;
    a run of short steps would spend half of its time on that.
    """
    is_done_outside = gc.get_freeze_count() > 0
    if not is_done_outside:
        gc.collect()
        gc.freeze()
    try:
        yield
    finally:
        if not is_done_outside:
            gc.unfreeze()
