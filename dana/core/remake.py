"""Make artifacts again that were made from other settings, for ``--remake``."""

import shutil
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TypeVar

from dana.core.errors import Contradiction, FirstProcessError
from dana.core.files import set_aside
from dana.core.launch import is_writer, on_rank_0
from dana.core.logging import get_logger

T = TypeVar("T")

log = get_logger(__name__)


def call_remaking(act: Callable[[], T], remake: bool) -> T:
    """Call a function that makes artifacts; with `remake`, replace those of other settings.

    An artifact with the settings of this call is reused, so only what differs, and what follows
    from it, is made again. The old folder is kept under another name until the call has succeeded.
    If the call fails, it is put back unless the new one is whole. If the process is killed, the next
    command that looks for the folder puts it back (:func:`dana.core.files.settle_remake`).

    Args:
        act: Makes artifacts by :func:`dana.core.artifacts.make`. Under several processes all must
            call it.
        remake: False leaves the refusal to the caller.

    Raises:
        Contradiction: If an artifact was made from other settings and `remake` is False.
    """
    if not remake:
        return act()
    aside: list[tuple[Path, Path]] = []
    with ExitStack() as stack:
        try:
            result = _call_until_nothing_differs(act, stack, aside)
        except BaseException:
            if is_writer():
                _put_back(aside)
            raise
        if is_writer():
            _remove(aside)
    return result


def _call_until_nothing_differs(
    act: Callable[[], T], stack: ExitStack, aside: list[tuple[Path, Path]]
) -> T:
    """Call a function again and again, with each folder that contradicts it set aside.

    Args:
        act: See :func:`call_remaking`.
        stack: Holds the locks of the old folders.
        aside: Gets the path of each folder and that of the old one.
    """
    while True:
        try:
            return act()
        except (Contradiction, FirstProcessError) as error:
            path = on_rank_0(partial(getattr, error, "path", None))
            if path is None or path in [former for former, _ in aside]:
                raise
        log.info("remake    %s: its settings differ", path)
        old = on_rank_0(partial(_set_aside, path, stack))
        aside.append((path, old))


def _set_aside(path: Path, stack: ExitStack) -> Path:
    """Set a folder aside until the stack is closed, and return the path of the old one."""
    return stack.enter_context(set_aside(path))


def _put_back(aside: list[tuple[Path, Path]]) -> None:
    """Rename old folders back, but for those whose new one is whole: the same command reuses it."""
    for path, old in reversed(aside):
        if path.exists():
            shutil.rmtree(old, ignore_errors=True)
        elif old.exists():
            old.rename(path)


def _remove(aside: list[tuple[Path, Path]]) -> None:
    """Remove the old folders."""
    for _, old in aside:
        shutil.rmtree(old, ignore_errors=True)  # it may have been in a folder that is removed
