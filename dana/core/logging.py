"""Log lines and progress bars on standard error, of the first process only; bars with unit, rate and time left."""

import logging
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from tqdm import tqdm

from dana.core.launch import process_rank

T = TypeVar("T")


def is_main_process() -> bool:
    """Whether this is the first process of the launch, or the only one: it logs and prints."""
    return process_rank() == 0


def get_logger(name: str) -> logging.Logger:
    """A logger; :func:`setup` decides where its lines go."""
    return logging.getLogger(name)


def setup(verbose: bool = False) -> None:
    """Send dana's log lines to standard error. Called by the command line and recipes, never on import."""
    logger = logging.getLogger("dana")
    logger.setLevel(logging.DEBUG if verbose else logging.INFO if is_main_process() else logging.ERROR)
    if not logger.handlers:
        handler = _BarSafeHandler()
        handler.setFormatter(logging.Formatter("%(message)s"))
        logger.addHandler(handler)
        logger.propagate = False


class _BarSafeHandler(logging.Handler):
    """Writes through tqdm, so that a line does not tear a progress bar."""

    def emit(self, record: logging.LogRecord) -> None:
        progress.write(self.format(record), file=sys.stderr)


_label: ContextVar[str] = ContextVar("label", default="")


@contextmanager
def labelled(text: str) -> Iterator[None]:
    """Put a text before the name of every progress bar that begins inside."""
    token = _label.set(text)
    try:
        yield
    finally:
        _label.reset(token)


class progress(tqdm):
    """A tqdm bar with dana's settings: rate and time left, quiet off rank zero, sparse when not a terminal."""

    # tqdm's own lock is a semaphore that all forks share: one killed while it holds it would stop all others for ever.
    _lock = threading.RLock()

    def __init__(
        self, iterable: Iterable | None = None, *, what: str, unit: str, total: float | None = None, initial: int = 0
    ) -> None:
        terminal = sys.stderr.isatty()
        name = f"{_label.get()}: {what}" if _label.get() else what
        super().__init__(
            iterable,
            desc=f"{name:<28}",
            unit=f" {unit}",
            total=total,
            initial=initial,
            unit_scale=True,
            disable=not is_main_process(),
            mininterval=0.2 if terminal else 10.0,
            dynamic_ncols=terminal,
            file=sys.stderr,
        )


_bars: ContextVar["progress | None"] = ContextVar("bar", default=None)


@contextmanager
def ticking(bar: "progress") -> Iterator[None]:
    """Let whoever works inside move a bar by :func:`tick`, without knowing of it."""
    token = _bars.set(bar)
    try:
        yield
    finally:
        _bars.reset(token)


def tick(count: int) -> None:
    """Move the bar of :func:`ticking`, if there is one. An encoder calls it for each batch that is done."""
    if (bar := _bars.get()) is not None:
        bar.update(count)


def tracked(items: Iterable[T], *, what: str, unit: str, total: float | None = None) -> Iterator[T]:
    """Iterate with a progress bar."""
    with progress(what=what, unit=unit, total=total) as bar:
        for item in items:
            yield item
            bar.update(1)


def minutes(seconds: float) -> str:
    """Seconds in words, for example 45 s, 3 min or 2.5 h."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
