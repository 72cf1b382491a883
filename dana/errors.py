"""Every deliberate error of dana.

::

    DanaError            exit code 2, one line, never a traceback for the user
    ├── ConfigError      a key, flag or value: names it, says what is allowed
    ├── DataError        a record or an array: names file and line, or the array and index
    ├── ArtifactError    something on disk that dana wrote, or should have
    ├── PluginError      a detector, encoder or selector that cannot be found or loaded
    └── Preempted        training was told to stop and has saved (dana.train.stop); exit code 75
"""

from collections.abc import Iterable
from difflib import get_close_matches


class DanaError(Exception):
    """Base of all errors a user can cause and mend."""

    exit_code = 2


class ConfigError(DanaError):
    """A setting is unknown, missing or out of range."""


class DataError(DanaError):
    """Input text, labels or arrays are not what they must be."""


class ArtifactError(DanaError):
    """A stage's output is missing, incomplete, or was made from something else."""


class PluginError(DanaError):
    """A named component is unknown, ambiguous or broken."""


def suggestion(name: str, known: Iterable[str]) -> str:
    """The tail of an "unknown name" error: the nearest known name, and all that are allowed."""
    known = sorted(known)
    near = get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    return f"{hint} Known: {', '.join(known) or 'none'}."
