"""List, identify and read files at URLs through fsspec.

A URL must not hold credentials: the file system's own package finds them. Files are read in blocks,
and failed connections are tried again.
"""

import io
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, NamedTuple, TypeVar
from urllib.parse import urlsplit

from dana.core.errors import ConfigError, DanaError, DataError, without_secrets
from dana.core.extras import install_command
from dana.core.files import file_digest
from dana.core.logging import get_logger

log = get_logger(__name__)

T = TypeVar("T")
URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
# Protocol to optional dependency of dana.
EXTRAS = {"s3": "s3", "s3a": "s3", "gs": "gcs", "gcs": "gcs"}
WAITS = (0.5, 2.0, 8.0)  # seconds before a second, third and fourth attempt
CREDENTIALS = ("NoCredentialsError", "PartialCredentialsError", "TokenRetrievalError")  # botocore's
FINAL = (
    FileNotFoundError,
    PermissionError,
    IsADirectoryError,
    NotADirectoryError,
    NotImplementedError,
    ValueError,
)
BLOCK = 1 << 23  # bytes of a request
BEHIND = 1 << 16  # bytes of a request beyond `until`; doubled each time that is too few
# Keys that identify a file's content, the most reliable first; then times of modification.
MARKS = [
    "md5Hash",
    "blob_id",
    "ETag",
    "etag",
    "Content-MD5",
    "Digest",
    "generation",
    "crc32c",
    "mtime",
    "LastModified",
    "Last-Modified",
    "last_modified",
    "created",
]


def is_url(name: str) -> bool:
    """Return True for a URL of fsspec: ``s3://``, ``hf://``, ``https://``, ``memory://`` etc."""
    return bool(URL.match(name))


def check_url(url: str) -> None:
    """Refuse chained URLs, and URLs with credentials, which would appear in logs and manifests.

    Raises:
        ConfigError: If the URL is one of these; credentials are not shown.
    """
    if without_secrets(url) != url:
        remedy = "set them in the environment or in the configuration of the file system's package"
        raise ConfigError(
            f"{without_secrets(url)}: holds credentials, which logs and manifests would show; "
            f"{remedy}"
        )
    if "::" in url:
        raise ConfigError(
            f"{url}: chained URLs are not supported; name the file itself (.gz, .bz2, .xz and .zst "
            "are unpacked)"
        )


def open_file_system(url: str) -> tuple[Any, str]:
    """Return the fsspec file system of a URL and the path in it, without a request.

    Raises:
        ConfigError: If the protocol is unknown or its package is missing, or the URL holds
            credentials.
    """
    import fsspec

    check_url(url)
    protocol = url.partition("://")[0]
    try:
        opened: tuple[Any, str] = fsspec.url_to_fs(url)
        return opened
    except ImportError as error:
        extra = EXTRAS.get(protocol)
        install = install_command(extra) if extra else error_line(error)
        raise ConfigError(
            f"{url}: {protocol}:// needs a package that is not installed: {install}"
        ) from error
    except Exception as error:  # the file system of each protocol has its own
        raise ConfigError(
            f"{url}: {error_line(error)}; see fsspec's page of {protocol}://"
        ) from error


def with_retries(work: Callable[[], T], url: str, after: str = "") -> T:
    """Call a function that reads from a URL.

    If the connection fails, it is called again after 0.5, 2 and 8 seconds.

    Args:
        work: The function; repeated as a whole.
        url: The URL, for messages.
        after: What a rerun of the command does, for the message.

    Raises:
        DataError: If the URL does not exist or may not be read, or the last attempt failed.
    """
    for wait in (*WAITS, None):
        try:
            return work()
        except DanaError:
            raise
        except Exception as raised:  # the package of the file system decides the type
            error = _server_error(raised)
            reason = _permanent_reason(error)
            if reason:
                raise DataError(f"{url}: cannot be read: {reason}") from error
            if wait is None:
                advice = f"; {after}" if after else ""
                attempts = f"{error_line(error)} ({len(WAITS) + 1} attempts)"
                raise DataError(f"{url}: cannot be read: {attempts}{advice}") from error
            log.info("storage   %s: %s; again in %.1f s", url, error_line(error), wait)
            time.sleep(wait)
    raise AssertionError("the last attempt returns or raises")


def _server_error(error: Exception) -> Exception:
    """Return the HTTP error behind a FileNotFoundError, which fsspec raises for every status."""
    cause = error.__cause__
    is_http = isinstance(error, FileNotFoundError) and type(cause).__module__.startswith("aiohttp")
    return cause if is_http and isinstance(cause, Exception) else error


def _permanent_reason(error: Exception) -> str:
    """Return why another attempt would fail, too; empty if it may succeed."""
    kind = type(error).__name__
    response = getattr(error, "response", None)
    status = getattr(error, "status", 0) or getattr(response, "status_code", 0)
    if status in (401, 403) or isinstance(error, PermissionError) or kind in CREDENTIALS:
        return f"no permission: {error_line(error)}"
    if status in (404, 410) or isinstance(error, FileNotFoundError):
        return "no such file, folder or bucket"
    if kind == "OfflineModeIsEnabled":
        return "HF_HUB_OFFLINE is set; unset it to read from the Hub"
    is_refusal = 400 <= status < 500 and status not in (408, 429)
    if is_refusal or isinstance(error, FINAL):
        return error_line(error)
    return ""


def error_line(error: BaseException) -> str:
    """Return the first line of another package's error message, without secrets."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return without_secrets(lines[0])


@dataclass(frozen=True)
class RemoteFile:
    """A file at a URL, with the part of the interface of :class:`~pathlib.Path` that readers use.

    Attributes:
        url: Its URL.
        size: Bytes.
        mark: Identifies the content without reading it: a checksum, an ETag, a generation, a Hub
            blob, or the time of modification; empty if the file system has none.
    """

    url: str
    size: int
    mark: str

    def __str__(self) -> str:
        return self.url

    def __lt__(self, other: "RemoteFile") -> bool:
        return self.url < other.url

    @property
    def name(self) -> str:
        """The part of the URL behind the last slash, without a query."""
        return self._path.name

    @property
    def suffix(self) -> str:
        """The last extension, with its dot."""
        return self._path.suffix

    @property
    def suffixes(self) -> list[str]:
        """All extensions."""
        return self._path.suffixes

    @property
    def _path(self) -> PurePosixPath:
        """The URL as a path, without the query that a web server takes.

        Where the path has no extension, the query may end in the name of the file: ``get?file=a.csv``.
        """
        if self.url.startswith(("http://", "https://")):
            path = PurePosixPath(urlsplit(self.url).path)
            if path.suffix:
                return path
        return PurePosixPath(self.url)

    @property
    def is_of_this_process(self) -> bool:
        """True if other processes cannot read the file."""
        return self.url.startswith("memory://")

    def open(self, mode: str = "rb", until: int | None = None) -> io.BufferedReader:
        """Open the file for reading, with random access.

        It is read in blocks of 8 MB, which are read again if the connection fails.

        Args:
            mode: Only ``rb``.
            until: End of the bytes that will be read: no block crosses it, and blocks beyond it are
                small.
        """
        if mode != "rb":
            raise ValueError(f"{self.url}: mode={mode!r}: must be 'rb'")
        end = self.size if until is None else until
        return io.BufferedReader(_Blocks(self, end), BLOCK)

    @property
    def identity(self) -> str:
        """The file's entry in fingerprints.

        It is mark and size, or a digest of the bytes if there is no mark.

        Raises:
            DataError: If it cannot be read.
        """
        if self.mark:
            return f"{self.mark}, {self.size} bytes"
        message = (
            "storage   %s: its file system has no checksum; reading the file once to compute one"
        )
        log.info(message, self.url)
        return file_digest(self)


File = Path | RemoteFile


def file_size(file: File) -> int:
    """Return the size of a file in bytes."""
    return file.size if isinstance(file, RemoteFile) else file.stat().st_size


def open_until(file: File, until: int) -> BinaryIO:
    """Open a file to read the bytes before `until`; see :meth:`RemoteFile.open`."""
    return file.open(until=until) if isinstance(file, RemoteFile) else file.open("rb")


def pyarrow_source(file: File, until: int | None = None) -> Any:
    """Return the path or stream from which pyarrow reads a file.

    For `until` see :meth:`RemoteFile.open`.
    """
    return file.open(until=until) if isinstance(file, RemoteFile) else str(file)


class _Blocks(io.RawIOBase):
    """The bytes of a remote file, one request per read."""

    def __init__(self, file: RemoteFile, until: int) -> None:
        self._file = file
        self._until = until
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        origins = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._file.size}
        self._at = origins[whence] + offset
        return self._at

    def readinto(self, buffer: Any) -> int:
        in_request = self._until - self._at
        if in_request <= 0:  # a request beyond `until` doubles what was read there
            in_request = max(BEHIND, -in_request)
        in_file = self._file.size - self._at
        size = max(0, min(len(buffer), in_file, in_request))
        if size:
            buffer[:size] = with_retries(lambda: self._fetch(size), self._file.url, "run it again")
            self._at += size
        return size

    def readall(self) -> bytes:
        # The default requests 8 KB at a time.
        blocks = iter(lambda: self.read(BLOCK) or b"", b"")
        return b"".join(blocks)

    def _fetch(self, size: int) -> bytes:
        fs, path = open_file_system(self._file.url)
        block: bytes = fs.cat_file(path, start=self._at, end=self._at + size)
        if len(block) > size:
            raise NotImplementedError(
                "the server does not support HTTP byte ranges; download the file first"
            )
        if len(block) != size:
            raise ConnectionError(f"got {len(block):,} of {size:,} bytes from byte {self._at:,} on")
        return block


class Listing(NamedTuple):
    """The files of a URL.

    Attributes:
        kind: ``file``, ``folder`` or ``glob``.
        root: The file, folder or pattern.
        files: The files by name, including hidden ones.
    """

    kind: str
    root: str
    files: list[RemoteFile]


def list_url(url: str) -> Listing:
    """List the files of a URL.

    Args:
        url: A file; a folder, which is listed recursively; or a glob with ``*``, ``?`` or ``[``.

    Raises:
        ConfigError: See :func:`open_file_system`.
        DataError: If it does not exist, holds no file, or cannot be listed.
    """
    from glob import has_magic

    fs, path = open_file_system(url)

    def ask() -> Listing:
        fs.invalidate_cache()
        if has_magic(path):
            return Listing("glob", url, _files(fs, fs.glob(path, detail=True)))
        info = fs.info(path)
        if info["type"] == "file":
            return Listing("file", url, [_remote(url, info)])
        root = fs.unstrip_protocol(path).rstrip("/")
        return Listing("folder", root, _files(fs, fs.find(path, detail=True)))

    listing = with_retries(ask, url, "run it again")
    if not listing.files:
        raise DataError(f"{url}: no file there")
    return listing


def check_unchanged(files: Iterable[RemoteFile]) -> None:
    """Check that files have not changed since they were listed.

    Each file is read in several requests, which would mix two contents.

    Raises:
        DataError: If a file changed or was removed.
    """
    for file in files:
        if with_retries(partial(_look_up, file.url), file.url) != file:
            raise DataError(f"{file}: changed while it was read; run it again")


def _look_up(url: str) -> RemoteFile:
    """Ask for the file at a URL, whose name may have characters of a glob."""
    fs, path = open_file_system(url)
    fs.invalidate_cache()
    return _remote(url, fs.info(path))


def _files(fs: Any, entries: dict[str, dict[str, Any]]) -> list[RemoteFile]:
    """Return the files among the entries of a listing, sorted by URL."""
    files = []
    for name, info in entries.items():
        if info["type"] == "file" and not name.endswith("/"):
            files.append(_remote(fs.unstrip_protocol(name), info))
    return sorted(files)


def _remote(url: str, info: dict[str, Any]) -> RemoteFile:
    """Make the file of a URL from its entry in a listing.

    Raises:
        DataError: If the listing has no size.
    """
    size = info.get("size")
    if size is None:
        raise DataError(
            f"{url}: its file system does not report its size, so it cannot be read in blocks"
        )
    return RemoteFile(url, int(size), _mark(info))


def _mark(info: dict[str, Any]) -> str:
    """Return the most reliable mark of a file's content with its key; empty if there is none."""
    lfs = info.get("lfs") or {}
    marks: dict[str, Any] = {**info, "blob_id": lfs.get("sha256") or info.get("blob_id")}
    for key in MARKS:
        mark = marks.get(key)
        if mark:
            # Listings and single files differ in the type of a time.
            value = mark.timestamp() if hasattr(mark, "timestamp") else mark
            text = str(value).strip('"')
            return f"{key} {text}"
    return ""
