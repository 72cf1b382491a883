"""Progress bars that outlive killed forks."""

import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import time

from dana.core.logging import Heartbeat, progress, seconds_left


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


def test_a_bar_that_passes_its_total_shows_neither_total_nor_time_left():
    with progress(what="embedding", unit="units", total=1000) as bar:
        bar.update(1510)
        assert "1.51k units [" in str(bar)
        assert "<" not in str(bar)


BAR = """
from dana.core.logging import progress
with progress(what="work", unit="pieces", total=2) as bar:
    bar.update(1)
"""


def test_a_bar_is_drawn_on_a_terminal_that_does_not_say_its_width():
    owner, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 0, 0, 0, 0))
    with subprocess.Popen([sys.executable, "-c", BAR], stderr=terminal) as process:
        os.close(terminal)
        assert process.wait() == 0
    shown = os.read(owner, 10_000).decode()
    os.close(owner)
    assert "work" in shown
    assert "1.00/2.00" in shown


def test_the_time_left_is_that_of_the_work_left_at_the_pace_of_this_runs_own_steps():
    assert seconds_left(900, 100, 20.0) == 180
    with progress(what="train", unit="tokens", total=1000, initial=500) as bar:
        assert "[00:00<?" in str(bar), "nothing is said before the first step"
        bar.update(100)
        bar.start_t -= 60
        assert "[01:00<04:00" in str(bar), "what an earlier run did is left out"


def test_a_silent_block_says_what_is_at_work_and_one_that_shows_something_does_not(heard):
    with Heartbeat(lambda: "outer at work", 0.4), Heartbeat(lambda: "inner at work", 0.4):
        time.sleep(1.5)
    assert "inner at work" in heard.messages
    assert "outer at work" not in heard.messages
    assert 1 <= len(heard.messages) <= 4, "once in a quiet span"
    heard.clear()
    with Heartbeat(lambda: "at work", 1.0), progress(what="read", unit="texts", total=100) as bar:
        for _ in range(20):
            time.sleep(0.1)
            bar.refresh()
    time.sleep(0.5)
    assert heard.messages == []
