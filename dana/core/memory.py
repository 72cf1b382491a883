"""Give memory that is free back to the system."""

import ctypes
import gc
import sys


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
