"""Progress bars that outlive killed forks."""

import os
import signal
import time

from dana.core.logging import progress


def test_a_fork_killed_while_it_draws_does_not_stop_the_others():
    """A lock in shared memory would stay taken for ever."""
    with progress(what="before", unit="forks", total=1):
        pass
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:  # pragma: no cover
        with progress.get_lock():
            os.write(writing, b"x")
            time.sleep(60)
        os._exit(0)
    os.read(reading, 1)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert progress.get_lock().acquire(blocking=True, timeout=5)
    progress.get_lock().release()
