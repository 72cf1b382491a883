"""Exception classes of dana, each with the exit code of the command line.

::

    DanaError            exit code 2, one line, never a traceback for the user
    ├── ConfigError      a key, flag or value: names it, says what is allowed
    ├── DataError        a record or an array: names file and line, or the array and index
    ├── ArtifactError    something on disk that dana wrote, or should have
    │   └── Contradiction    it is there, and was made from other settings
    ├── PluginError      a detector, encoder or selector that cannot be found or loaded
    ├── EndpointError    a service on the network that gives no answer of use
    ├── Warned           a check found what it warns of, and was told to be strict; exit code 1
    ├── Preempted        told to stop, and what was done is saved; exit code 75
    └── EndedElsewhere   another process of the launch failed and has said why; nothing is printed
"""

import re
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path


class DanaError(Exception):
    """Base of all errors a user can cause and mend; its message shows no secret of a URL."""

    exit_code = 2

    def __init__(self, message: str = "") -> None:
        super().__init__(without_secrets(message))


class ConfigError(DanaError):
    """A setting is unknown, missing or out of range."""


class DataError(DanaError):
    """Input text, labels or arrays are not what they must be."""


class Damage(Exception):
    """Where the content of a file cannot be read any further, and why."""

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(problem)
        self.line = line


class ArtifactError(DanaError):
    """A stage's output is missing, incomplete, or was made from something else."""


class Contradiction(ArtifactError):
    """What is on disk was made from something else than is asked for.

    Args:
        path: What is there.
        differences: Each key that differs, with both values; of many the first are named.
    """

    def __init__(self, path: Path, differences: Iterable[str]) -> None:
        named = list(differences)
        more = [f"and {len(named) - 4} more"] if len(named) > 4 else []
        there = "; ".join(named[:4] + more)
        super().__init__(f"{path} was made from something else ({there}). Remove it or choose another folder")


class PluginError(DanaError):
    """A named component is unknown, ambiguous or broken."""


class EndpointError(DanaError):
    """A service on the network does not answer, refuses, or answers with something else than it must."""


class Warned(DanaError):
    """A check that was told to be strict found something to warn of; the warnings are printed."""

    exit_code = 1


class Preempted(DanaError):
    """Told to stop; what was done is saved, and the same command goes on from there."""

    exit_code = 75  # EX_TEMPFAIL of sysexits.h: try again


class EndedElsewhere(DanaError):
    """The first process of the launch failed, has said why, and ends with `exit_code`."""

    def __init__(self, exit_code: int) -> None:
        super().__init__(f"the first process ended with exit code {exit_code}")
        self.exit_code = exit_code


def suggestion(name: str, known: Iterable[str]) -> str:
    """The tail of an "unknown name" error: the nearest known name, and all that are allowed."""
    known = sorted(known)
    return f"{nearest(name, known) or '.'} Known: {', '.join(known) or 'none'}."


def nearest(name: str, known: Iterable[str]) -> str:
    """``; did you mean 'x'?`` for the known name that is most like the given one; empty if none is like it."""
    near = get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f"; did you mean {near[0]!r}?" if near else ""


def nearest_path(path: str | Path) -> str:
    """:func:`nearest` for the first part of a missing path that is not there, among its neighbours on disk."""
    missing = Path(path)
    while not missing.parent.exists():
        missing = missing.parent
    try:
        there = [] if missing.exists() else [entry.name for entry in missing.parent.iterdir()]
    except OSError:
        there = []
    near = get_close_matches(missing.name, there, n=1, cutoff=0.6)
    return f"; did you mean {str(missing.with_name(near[0]))!r}?" if near else ""


SECRET = r"[\w.-]*(?:token|secret|password|passwd|credential|signature|sig|key)[\w.-]*"
# Of a URL that became a path one slash is left. A key of S3 may hold slashes; but after the colon of a host stands a
# port, and the name of an S3 access point begins with arn.
USER = r"(?:[^/@\s]+|(?!arn:)[^/@\s:]+:(?!\d+/)[^@\s]*)"
SECRETS = re.compile(rf"(:/{{1,2}}){USER}@|([?&;]{SECRET}=)[^&\s'\")]+", re.IGNORECASE)


def without_secrets(text: str) -> str:
    """A text with ``***`` in place of what its URLs hold of user names, passwords, keys, tokens and signatures."""
    return SECRETS.sub(lambda found: f"{found[1] or found[2]}***{'@' if found[1] else ''}", text)
