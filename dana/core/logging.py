"""Write log lines and progress bars to standard error, on the first process only."""

import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar

from tqdm import tqdm

from dana.core.launch import process_rank

if TYPE_CHECKING:
    Bar = tqdm[Any]
else:
    Bar = tqdm  # takes no type argument when it runs

T = TypeVar("T")
# Seconds without a line or a moving bar, after which a heartbeat says that work goes on.
QUIET = 8.0
LONGEST_QUIET = 120.0  # seconds between two heartbeats without any news
USUAL_SIZE = (80, 24)  # columns and lines of a terminal that does not say how many it has
BAR_INTERVAL = 5.0  # seconds between two states of a bar that goes to a file


def is_main_process() -> bool:
    """Return True on the first process of the launch, which logs and prints."""
    return process_rank() == 0


def get_logger(name: str) -> logging.Logger:
    """Return a logger; :func:`setup` configures its output."""
    return logging.getLogger(name)


def setup(verbose: bool = False) -> None:
    """Send dana's log lines to standard error.

    The command line and recipes call this; nothing calls it on import.
    """
    logger = logging.getLogger("dana")
    logger.setLevel(logging.DEBUG if verbose else _usual_level())
    if not logger.handlers:
        handler = _BarSafeHandler()
        handler.setFormatter(logging.Formatter("%(message)s"))
        logger.addHandler(handler)
        logger.propagate = False


def _usual_level() -> int:
    """Return the level of this process: the first says all, the others only errors."""
    return logging.INFO if is_main_process() else logging.ERROR


_is_quiet: ContextVar[bool] = ContextVar("quiet", default=False)


@contextmanager
def messages(quiet: bool) -> Iterator[None]:
    """Show log lines and progress bars within the block as a command does, or only errors.

    Handlers and a level of the application stay as they are.
    """
    logger = logging.getLogger("dana")
    token = _is_quiet.set(quiet)
    if not logger.hasHandlers():
        setup()
    elif logger.level == logging.NOTSET:
        logger.setLevel(_usual_level())
    level = logger.level
    if quiet:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
        _is_quiet.reset(token)


class _BarSafeHandler(logging.Handler):
    """Writes through tqdm, so that a line does not tear a progress bar."""

    def emit(self, record: logging.LogRecord) -> None:
        _note_output()
        progress.write(self.format(record), file=sys.stderr)


_last_output = time.monotonic()


def _note_output() -> None:
    """Remember when something was shown last."""
    global _last_output
    _last_output = time.monotonic()


class Heartbeat:
    """Says within a block what is at work, whenever nothing was shown for some seconds.

    Args:
        words: Returns what is at work; called in another thread.
        quiet: Seconds without a line or a moving bar; None takes :data:`QUIET`.
    """

    _innermost: "Heartbeat | None" = None

    def __init__(self, words: Callable[[], str], quiet: float | None = None) -> None:
        self._words = words
        self._quiet = QUIET if quiet is None else quiet
        self._outer: Heartbeat | None = None
        self._ended = threading.Event()

    def __enter__(self) -> "Heartbeat":
        self._outer = Heartbeat._innermost
        Heartbeat._innermost = self
        _note_output()
        if is_main_process():
            threading.Thread(target=self._beat, daemon=True, name="heartbeat").start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._ended.set()
        Heartbeat._innermost = self._outer

    def _beat(self) -> None:
        """Look four times in a quiet span; only the innermost block speaks.

        Each line without news in between waits twice as long as the one before it, so that a log
        file is not filled with them.
        """
        log = get_logger(__name__)
        quiet = self._quiet
        spoke_at = _last_output
        while not self._ended.wait(self._quiet / 4):
            if _last_output != spoke_at:  # something else was shown
                quiet = self._quiet
            is_silent = time.monotonic() - _last_output >= quiet
            if is_silent and Heartbeat._innermost is self:
                _note_output()  # an application's own handlers do not
                log.info("%s", self._words())
                spoke_at = _last_output
                quiet = min(2 * quiet, max(LONGEST_QUIET, self._quiet))


_label: ContextVar[str] = ContextVar("label", default="")


@contextmanager
def progress_label(text: str) -> Iterator[None]:
    """Prefix the name of every progress bar that starts within the block."""
    token = _label.set(text)
    try:
        yield
    finally:
        _label.reset(token)


def _terminal_width() -> int:
    """Return the columns of the terminal; 0 of one that does not say, as in some containers."""
    return os.get_terminal_size(sys.stderr.fileno()).columns


class progress(Bar):
    """A tqdm bar with rate and time left, both by the mean pace of this run.

    It is shown on rank 0 only, and updated rarely if the output is no terminal.
    """

    # tqdm's own lock is a semaphore shared by all forks: one killed while holding it would block
    # all others.
    _lock = threading.RLock()

    def __init__(
        self,
        iterable: Iterable[Any] | None = None,
        *,
        what: str,
        unit: str,
        total: float | None = None,
        initial: int = 0,
    ) -> None:
        is_terminal = sys.stderr.isatty()
        is_interactive = is_terminal or "ipykernel" in sys.modules
        label = _label.get()
        name = f"{label}: {what}" if label else what
        size: dict[str, Any] = {"dynamic_ncols": is_terminal}
        if is_terminal and _terminal_width() == 0:
            columns, lines = USUAL_SIZE
            size = {"ncols": columns, "nrows": lines}  # else no bar is drawn
        super().__init__(
            iterable,
            desc=f"{name:<28}",
            file=sys.stderr,
            mininterval=0.2 if is_interactive else BAR_INTERVAL,
            disable=not is_main_process() or _is_quiet.get(),
            unit=f" {unit}",
            unit_scale=True,
            total=total,
            initial=initial,
            smoothing=0,  # the mean, not the latest pace
            **size,
        )

    def display(self, msg: str | None = None, pos: int | None = None) -> None:
        """Show the bar."""
        _note_output()
        super().display(msg, pos)


_bars: ContextVar["progress | None"] = ContextVar("bar", default=None)


@contextmanager
def report_ticks(bar: "progress") -> Iterator[None]:
    """Let functions called within the block advance a bar by :func:`tick`."""
    token = _bars.set(bar)
    try:
        yield
    finally:
        _bars.reset(token)


def tick(count: int) -> None:
    """Advance the bar of :func:`report_ticks`, if there is one.

    An encoder calls this after each batch.
    """
    bar = _bars.get()
    if bar is not None:
        bar.update(count)


def monitor(items: Iterable[T], *, what: str, unit: str, total: float | None = None) -> Iterator[T]:
    """Iterate with a progress bar."""
    with progress(what=what, unit=unit, total=total) as bar:
        for item in items:
            yield item
            bar.update(1)


def seconds_left(left: float, done: float, seconds: float) -> float:
    """Return the seconds that the work left takes at the pace of this run's own first steps.

    Args:
        left: Work still to do: tokens, units or steps of one kind.
        done: Work of that kind that this run has done, more than 0.
        seconds: Seconds that it took.
    """
    return left * seconds / done


def format_duration(seconds: float) -> str:
    """Format seconds, for example 45 s, 3 min or 2.5 h."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
