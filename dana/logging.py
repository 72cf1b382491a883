"""Log lines and progress bars: on rank zero only, bars with unit, rate and time left."""

import logging
import os
import sys
from collections.abc import Iterable, Iterator
from typing import TypeVar

from tqdm import tqdm

T = TypeVar("T")


def is_main_process() -> bool:
    """Whether this process is the one that talks (rank 0, or the only one)."""
    return int(os.environ.get("RANK", "0")) == 0


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
        tqdm.write(self.format(record), file=sys.stderr)


class progress(tqdm):
    """A tqdm bar with dana's settings: rate and time left, quiet off rank zero, sparse when not a terminal."""

    def __init__(
        self, iterable: Iterable | None = None, *, what: str, unit: str, total: float | None = None, initial: int = 0
    ) -> None:
        terminal = sys.stderr.isatty()
        super().__init__(
            iterable,
            desc=f"{what:<28}",
            unit=f" {unit}",
            total=total,
            initial=initial,
            unit_scale=True,
            disable=not is_main_process(),
            mininterval=0.2 if terminal else 10.0,
            dynamic_ncols=terminal,
            file=sys.stderr,
        )


def tracked(items: Iterable[T], *, what: str, unit: str, total: float | None = None) -> Iterator[T]:
    """Iterate with a progress bar."""
    with progress(what=what, unit=unit, total=total) as bar:
        for item in items:
            yield item
            bar.update(1)
