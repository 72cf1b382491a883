"""Announce work that takes longer than a minute before it begins; in a dry run, end where it would begin."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from dana.core.errors import DanaError
from dana.core.launch import processes
from dana.core.logging import format_duration, get_logger

log = get_logger(__name__)

LONG = 60.0  # seconds of work that are announced
UNMEASURED = (DanaError, RuntimeError)  # of a probe, which may need more memory than the work
_mode: ContextVar[tuple[Path | None, bool]] = ContextVar(
    "mode", default=(None, True)
)  # folder of a dry run; loud


@dataclass(frozen=True)
class Cost:
    """Cost of a piece of work on this machine.

    Attributes:
        what: The work, in words.
        seconds: Wall time.
        bytes: Size of the result on disk.
        table: Further lines for a dry run.
        reading: Seconds of it that reading takes.
    """

    what: str
    seconds: float
    bytes: float = 0.0
    table: str = ""
    reading: float = 0.0

    def __str__(self) -> str:
        from dana.core.device import describe_machine  # loads torch

        size = f", {self.bytes / 1e9:.2f} GB" if self.bytes >= 5e6 else ""
        return f"time      about {format_duration(self.seconds)}{size} on {describe_machine()}: {self.what}"


class DryRun(Exception):
    """Ends a dry run; its text is the answer."""

    def __init__(self, cost: Cost) -> None:
        super().__init__(
            "\n".join(filter(None, [cost.table, str(cost), "dry run   nothing was written"]))
        )
        self.answer = {"dry_run": True, **asdict(cost)}


@contextmanager
def announcements(dry: bool = False, loud: bool = True) -> Iterator[None]:
    """Within the block, raise :class:`DryRun` where work would begin, or announce nothing if it is not loud."""
    with TemporaryDirectory(prefix="dana-") if dry else nullcontext() as folder:
        token = _mode.set((Path(folder) if folder else None, loud))
        try:
            yield
        finally:
            _mode.reset(token)


def is_dry() -> bool:
    """Return True in a dry run."""
    return _mode.get()[0] is not None


def scratch(folder: Path) -> Path:
    """Return the folder for texts in memory: in a dry run a temporary one instead of the given one."""
    return _mode.get()[0] or folder


def announce(estimate: Callable[[], Cost], out: Path | None = None) -> None:
    """Log what is about to be done and how long it takes, if that is longer than a minute.

    Several processes share a device in ways that no probe knows; they announce nothing.

    Args:
        estimate: Measures the work, only where that is of use. What it cannot read, the work itself
            reports.
        out: Folder of the result; one that exists is reused or extended, so it is not announced.

    Raises:
        DryRun: In a dry run, with the estimate.
    """
    if is_dry():
        raise DryRun(estimate())
    if _mode.get()[1] and processes() == 1 and not (out and out.exists()):
        with suppress(*UNMEASURED):
            if (work := estimate()).seconds > LONG:
                log.info("%s", work)
