"""Exception classes of dana, each with the exit code of the command line.

::

    DanaError            exit code 2, one line, never a traceback for the user
    ├── ConfigError      a key, flag or value: names it and what is allowed
    │   └── SettingError     the value of one setting
    ├── DataError        a record or an array: names file and line, or the array and index
    ├── ArtifactError    an artifact on disk is missing, damaged or of another kind
    │   ├── Contradiction    it was made from other settings or inputs
    │   └── NothingToReport  a run has no result yet
    ├── PluginError      a component is unknown, or fails to load or to run
    ├── EndpointError    a network service fails
    ├── CheckWarning     a strict check has warnings; exit code 1
    ├── Preemption       stopped by a signal after saving; the same command resumes; exit code 75
    └── FirstProcessError    the first process failed and reported why; nothing is printed
"""

import re
from collections.abc import Iterable
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path


class DanaError(Exception):
    """Base of the errors that a user can cause and mend.

    Secrets in URLs are removed from the message.
    """

    exit_code = 2

    def __init__(self, message: str = "") -> None:
        super().__init__(without_secrets(message))


class ConfigError(DanaError):
    """A setting is unknown, missing or out of range."""


class SettingError(ConfigError, ValueError):
    """The value of one setting is not allowed.

    It is a ValueError, so that pydantic adds the section.

    Args:
        key: Name of the setting.
        value: Its value.
        requirement: What it must be.
    """

    def __init__(self, key: str, value: object, requirement: str) -> None:
        super().__init__(f"{key}={value!r}: must be {requirement}")
        self.key = key


class DataError(DanaError):
    """Input text, labels or arrays are invalid."""


class Damage(Exception):
    """A file is damaged from a line on; the records before it are valid."""

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(problem)
        self.line = line


class ArtifactError(DanaError):
    """A stage's output is missing, damaged, or was made from other settings or inputs."""


class NothingToReport(ArtifactError):
    """A run's folder has no result yet that a report could show."""


class Contradiction(ArtifactError):
    """An artifact was made from other settings or inputs than those of this command.

    Args:
        path: Folder of the artifact.
        differences: Each key that differs, with both values; the message shows the first eight.
    """

    def __init__(self, path: Path, differences: Iterable[str]) -> None:
        self.path = path
        keys = list(differences)
        shown = keys[:8]
        if len(keys) > len(shown):
            shown.append(f"and {len(keys) - len(shown)} more")
        super().__init__(
            f"{path} was made from other settings ({'; '.join(shown)}); "
            "add --remake to replace it, or choose another folder"
        )


class PluginError(DanaError):
    """A named component is unknown, ambiguous or broken."""


class DivergenceError(DanaError):
    """The loss of a training is not finite."""


class EndpointError(DanaError):
    """A service on the network does not answer, refuses, or answers something else than it must."""


class CheckWarning(DanaError):
    """A strict check has warnings, which were printed."""

    exit_code = 1


class Preemption(DanaError):
    """A signal stopped the command after it saved its work; the same command resumes."""

    exit_code = 75  # EX_TEMPFAIL of sysexits.h: try again


class FirstProcessError(DanaError):
    """The first process of the launch failed with `exit_code` and reported why."""

    def __init__(self, exit_code: int) -> None:
        super().__init__(f"the first process ended with exit code {exit_code}")
        self.exit_code = exit_code


def suggestion(name: str, available: Iterable[str]) -> str:
    """Format the end of an "unknown NAME" message.

    It has the nearest name, if any is similar, and all available names.
    """
    names = sorted(available)
    near = nearest(name, names)
    if not near:
        return f"; available: {', '.join(names) or 'none'}"
    return f"{near} Available: {', '.join(names)}"


def nearest(name: str, available: Iterable[str]) -> str:
    """Format ``; did you mean 'x'?`` for the most similar available name; empty if none is similar."""
    matches = get_close_matches(name, list(available), n=1, cutoff=0.5)
    if not matches:
        return ""
    return f"; did you mean {matches[0]!r}?"


def nearest_path(path: str | Path) -> str:
    """Like :func:`nearest`, for the first missing part of a path.

    The names are those in its parent folder.
    """
    missing = Path(path)
    while not missing.parent.exists():
        missing = missing.parent
    names: set[str] = set()
    with suppress(OSError):
        if not missing.exists():
            names = {entry.name for entry in missing.parent.iterdir()}
    names.discard(missing.name)  # it may be a dangling link
    matches = get_close_matches(missing.name, names, n=1, cutoff=0.6)
    if not matches:
        return ""
    return f"; did you mean {str(missing.with_name(matches[0]))!r}?"


SECRET = r"[\w.-]*(?:token|secret|password|passwd|credential|signature|sig|key)[\w.-]*"
# A URL that was turned into a path has one slash left. An S3 secret may contain slashes, but
# "host:1234/" is a port and "arn:" begins the name of an S3 access point.
USER = r"(?:[^/@\s]+|(?!arn:)[^/@\s:]+:(?!\d+/)[^@\s]*)"
SECRETS = re.compile(rf"(:/{{1,2}}){USER}@|([?&;]{SECRET}=)[^&\s'\")]+", re.IGNORECASE)


def without_secrets(text: str) -> str:
    """Replace user names, passwords, keys, tokens and signatures in URLs of a text by ``***``."""
    return SECRETS.sub(_hide, text)


def _hide(match: re.Match[str]) -> str:
    """Return the replacement of a match of :data:`SECRETS`."""
    slashes, key = match.groups()
    return f"{slashes}***@" if slashes else f"{key}***"
