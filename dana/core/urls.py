"""URLs to file systems, by fsspec: credentials are refused, dropped connections tried again, errors told in a line.

A URL holds no credentials: they come from where the file system's own package looks for them.
"""

import re
import time
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from dana.core.errors import ConfigError, DanaError, DataError
from dana.core.logging import get_logger
from dana.core.secrets import without_secrets

log = get_logger(__name__)

T = TypeVar("T")
URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
EXTRAS = {"s3": "s3", "s3a": "s3", "gs": "gcs", "gcs": "gcs"}  # of dana, by protocol
WAITS = (0.5, 2.0, 8.0)  # seconds before a second, third and fourth attempt
CREDENTIALS = ("NoCredentialsError", "PartialCredentialsError", "TokenRetrievalError")  # botocore's
FINAL = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError, NotImplementedError, ValueError)


def is_url(name: str) -> bool:
    """Whether a name is a URL of fsspec: ``s3://``, ``gs://``, ``hf://``, ``https://``, ``memory://`` and so on."""
    return bool(URL.match(name))


def check_url(url: str) -> None:
    """Refuse a URL that holds credentials, which would come to stand in logs and manifests, or is a chain of URLs.

    Raises:
        ConfigError: If it is one, without showing what is secret.
    """
    if without_secrets(url) != url:
        raise ConfigError(
            f"{without_secrets(url)}: holds credentials; leave them to the environment or to the configuration of the"
            " file system's package, where no log or manifest shows them"
        )
    if "::" in url:
        raise ConfigError(f"{url}: a chain of URLs is not read; name the file itself (.gz and .zst are unpacked)")


class Place(NamedTuple):
    """A file system and the path of a URL in it."""

    fs: Any
    path: str


def place_of(url: str) -> Place:
    """The file system of a URL and the path in it; nothing is asked of it yet.

    Raises:
        ConfigError: If the protocol is unknown or its package is missing, or the URL holds credentials.
    """
    import fsspec

    check_url(url)
    protocol = url.partition("://")[0]
    try:
        return Place(*fsspec.url_to_fs(url))
    except ImportError as error:
        extra = EXTRAS.get(protocol)
        install = f"pip install 'dana[{extra}]'" if extra else said(error)
        raise ConfigError(f"{url}: {protocol}:// needs a package that is not installed: {install}") from error
    except ValueError as error:
        raise ConfigError(f"{url}: {said(error)}") from error


def attempt(work: Callable[[], T], url: str, doing: str, after: str = "") -> T:
    """What `work` gives; where the connection fails it is done again, up to three times, after 0.5, 2 and 8 seconds.

    Args:
        work: Done as a whole each time.
        url: What it is about.
        doing: For the message: ``read``, ``written``.
        after: What the same command will do if it is run again.

    Raises:
        DataError: If it fails for good: nothing of the name is there, it may not be read, or the last attempt failed.
    """
    for wait in (*WAITS, None):
        try:
            return work()
        except DanaError:
            raise
        except Exception as raised:  # of whatever package the file system is
            error = _answer(raised)
            if (why := _final(error)) or wait is None:
                tried = "" if why else f" ({len(WAITS) + 1} attempts)"
                going = f"; {after}" if after and not why else ""
                raise DataError(f"{url}: cannot be {doing}: {why or said(error)}{tried}{going}") from error
            log.info("storage   %s: %s; again in %.1f s", url, said(error), wait)
            time.sleep(wait)
    raise AssertionError("the last attempt returns or raises")


def waits_after(error: Exception, failures: int) -> float | None:
    """Seconds to wait before another attempt at a stream; None if there should be none.

    Args:
        error: What ended it.
        failures: How often it has failed already without an advance.
    """
    package = type(error).__module__.partition(".")[0]
    dropped = isinstance(error, OSError) or package in ("aiohttp", "fsspec", "httpx", "httpx2", "httpcore", "requests")
    return WAITS[failures] if dropped and not _final(error) and failures < len(WAITS) else None


def _answer(error: Exception) -> Exception:
    """What a server of HTTP answered, where fsspec says instead, whatever it was, that nothing is there."""
    cause = error.__cause__
    told = isinstance(error, FileNotFoundError) and type(cause).__module__.startswith("aiohttp")
    return cause if told and isinstance(cause, Exception) else error


def _final(error: Exception) -> str:
    """Why another attempt would fail, too; empty if it might not."""
    kind = type(error).__name__
    status = getattr(error, "status", 0) or getattr(getattr(error, "response", None), "status_code", 0)
    if status in (404, 410):
        return "no such file, folder or bucket"
    if status in (401, 403):
        return f"no permission: {said(error)}"
    if isinstance(error, FileNotFoundError):
        return "no such file, folder or bucket"
    answer = getattr(error.__cause__, "response", None)  # of botocore
    if isinstance(answer, dict) and answer.get("Error", {}).get("Code") == "RequestTimeTooSkewed":
        return f"the clocks of this machine and of the store disagree; set this one: {said(error)}"
    if isinstance(error, PermissionError) or kind in CREDENTIALS:
        return f"no permission: {said(error)}"
    if kind == "OfflineModeIsEnabled":
        return "the Hub is not asked while HF_HUB_OFFLINE is set"
    refused = 400 <= status < 500 and status not in (408, 429)
    return said(error) if refused or isinstance(error, FINAL) else ""


def said(error: BaseException) -> str:
    """What an error of another package says, in a line without secrets."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return without_secrets(lines[0])
