"""Files at URLs, by fsspec: listed, identified by what their file system tells of the content, and read in blocks.

A URL holds no credentials: they come from where the file system's own package looks for them. Dropped connections are
tried again, errors told in a line.
"""

import io
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, NamedTuple, TypeVar

from dana.core.errors import ConfigError, DanaError, DataError, without_secrets
from dana.core.logging import get_logger

log = get_logger(__name__)

T = TypeVar("T")
URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
EXTRAS = {"s3": "s3", "s3a": "s3", "gs": "gcs", "gcs": "gcs"}  # of dana, by protocol
WAITS = (0.5, 2.0, 8.0)  # seconds before a second, third and fourth attempt
CREDENTIALS = ("NoCredentialsError", "PartialCredentialsError", "TokenRetrievalError")  # botocore's
FINAL = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError, NotImplementedError, ValueError)
BLOCK = 1 << 23  # bytes of a request
BEHIND = 1 << 16  # bytes of a request behind what a reader asked for; twice as many each time that is too few
# What file systems say of a file's content, the surest first; then the times at which it was written.
MARKS = (
    *("md5Hash", "blob_id", "ETag", "etag", "Content-MD5", "Digest", "generation", "crc32c"),
    *("mtime", "LastModified", "Last-Modified", "last_modified", "created"),
)


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


def place_of(url: str) -> tuple[Any, str]:
    """The file system of a URL and the path in it; nothing is asked of it yet.

    Raises:
        ConfigError: If the protocol is unknown or its package is missing, or the URL holds credentials.
    """
    import fsspec

    check_url(url)
    protocol = url.partition("://")[0]
    try:
        return fsspec.url_to_fs(url)
    except ImportError as error:
        extra = EXTRAS.get(protocol)
        install = f"pip install 'dana[{extra}]'" if extra else said(error)
        raise ConfigError(f"{url}: {protocol}:// needs a package that is not installed: {install}") from error
    except ValueError as error:
        raise ConfigError(f"{url}: {said(error)}") from error


def attempt(work: Callable[[], T], url: str, after: str = "") -> T:
    """What `work` reads; where the connection fails it is done again, up to three times, after 0.5, 2 and 8 seconds.

    Args:
        work: Done as a whole each time.
        url: What it is about.
        after: What the same command will do if it is run again, for the message.

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
            if why := _final(error):
                raise DataError(f"{url}: cannot be read: {why}") from error
            if wait is None:
                going = f"; {after}" if after else ""
                tried = f"{said(error)} ({len(WAITS) + 1} attempts){going}"
                raise DataError(f"{url}: cannot be read: {tried}") from error
            log.info("storage   %s: %s; again in %.1f s", url, said(error), wait)
            time.sleep(wait)
    raise AssertionError("the last attempt returns or raises")


def _answer(error: Exception) -> Exception:
    """What a server of HTTP answered, where fsspec says instead, whatever it was, that nothing is there."""
    cause = error.__cause__
    told = isinstance(error, FileNotFoundError) and type(cause).__module__.startswith("aiohttp")
    return cause if told and isinstance(cause, Exception) else error


def _final(error: Exception) -> str:
    """Why another attempt would fail, too; empty if it might not."""
    kind = type(error).__name__
    status = getattr(error, "status", 0) or getattr(getattr(error, "response", None), "status_code", 0)
    if status in (401, 403) or isinstance(error, PermissionError) or kind in CREDENTIALS:
        return f"no permission: {said(error)}"
    if status in (404, 410) or isinstance(error, FileNotFoundError):
        return "no such file, folder or bucket"
    if kind == "OfflineModeIsEnabled":
        return "the Hub is not asked while HF_HUB_OFFLINE is set"
    refused = 400 <= status < 500 and status not in (408, 429)
    return said(error) if refused or isinstance(error, FINAL) else ""


def said(error: BaseException) -> str:
    """What an error of another package says, in a line without secrets."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return without_secrets(lines[0])


@dataclass(frozen=True)
class RemoteFile:
    """A file on another file system, with as much of a :class:`~pathlib.Path` as reading one takes.

    Attributes:
        url: Its URL.
        size: Bytes.
        mark: What its file system says of its content without reading it: a checksum, an ETag, a generation, a Hub
            blob, or the time it was written; empty if it says nothing.
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
        """What stands behind the last slash."""
        return PurePosixPath(self.url).name

    @property
    def suffix(self) -> str:
        """The last ending of the name, with its dot."""
        return PurePosixPath(self.url).suffix

    @property
    def suffixes(self) -> list[str]:
        """All endings of the name."""
        return PurePosixPath(self.url).suffixes

    @property
    def is_of_this_process(self) -> bool:
        """Whether no other process can read it."""
        return self.url.startswith("memory://")

    def open(self, mode: str = "rb", until: int | None = None) -> io.BufferedReader:
        """The file's bytes, from any place, in blocks of 8 MB that are asked for again if the connection drops.

        Args:
            mode: Only ``rb``.
            until: The byte behind the last that is wanted: no block goes beyond it, and blocks behind it are small.
        """
        if mode != "rb":
            raise ValueError(f"{self.url}: mode {mode!r}; a remote file is only read")
        return io.BufferedReader(_Blocks(self, self.size if until is None else until), BLOCK)

    @property
    def identity(self) -> str:
        """What a fingerprint depends on: the mark and the size; a digest of the bytes where there is no mark.

        Raises:
            DataError: If it cannot be read.
        """
        if self.mark:
            return f"{self.mark}, {self.size} bytes"
        log.info("storage   %s: its file system tells no checksum; the file is read once to know its content", self.url)
        digest = blake2b(digest_size=16)
        with self.open() as stream:
            while block := stream.read(BLOCK):
                digest.update(block)
        return digest.hexdigest()


File = Path | RemoteFile


def size_of(file: File) -> int:
    """Bytes of a file."""
    return file.size if isinstance(file, RemoteFile) else file.stat().st_size


def open_until(file: File, until: int) -> BinaryIO:
    """The bytes of a file, for one who wants those before a place: see :meth:`RemoteFile.open`."""
    return file.open(until=until) if isinstance(file, RemoteFile) else file.open("rb")


def readable(file: File, until: int | None = None) -> Any:
    """What pyarrow takes to read a file; for `until` see :meth:`RemoteFile.open`."""
    return file.open(until=until) if isinstance(file, RemoteFile) else str(file)


class _Blocks(io.RawIOBase):
    """The bytes of a remote file, a request a read."""

    def __init__(self, file: RemoteFile, until: int) -> None:
        self._file, self._until, self._at = file, until, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._file.size}[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:
        wanted = self._until - self._at
        size = max(0, min(len(buffer), self._file.size - self._at, wanted if wanted > 0 else max(BEHIND, -wanted)))
        if size:
            buffer[:size] = attempt(lambda: self._fetch(size), self._file.url, "a rerun reads it again")
            self._at += size
        return size

    def readall(self) -> bytes:
        return b"".join(iter(lambda: self.read(BLOCK) or b"", b""))  # by itself it would ask for 8 KB at a time

    def _fetch(self, size: int) -> bytes:
        fs, path = place_of(self._file.url)
        found = fs.cat_file(path, start=self._at, end=self._at + size)
        if len(found) > size:
            raise NotImplementedError("the server gives no parts of files (HTTP byte ranges); copy the file here first")
        if len(found) != size:
            raise ConnectionError(f"{len(found):,} of {size:,} bytes came from byte {self._at:,} on")
        return found


class Listing(NamedTuple):
    """What a URL names: ``file``, ``folder`` or ``glob``, and the files, in order of name, hidden ones included."""

    kind: str
    root: str
    files: list[RemoteFile]


def list_url(url: str) -> Listing:
    """Ask a file system what a URL names.

    Args:
        url: Of a file; of a folder, of which all below it is listed; or with ``*``, ``?`` or ``[`` in it, a glob.

    Raises:
        ConfigError: See :func:`place_of`.
        DataError: If there is nothing of the name, or the file system cannot be asked.
    """
    from glob import has_magic

    fs, path = place_of(url)

    def ask() -> Listing:
        fs.invalidate_cache()
        if has_magic(path):
            return Listing("glob", url, _files(fs, fs.glob(path, detail=True)))
        about = fs.info(path)
        if about["type"] == "file":
            return Listing("file", url, [_remote(url, about)])
        root = fs.unstrip_protocol(path).rstrip("/")
        return Listing("folder", root, _files(fs, fs.find(path, detail=True)))

    found = attempt(ask, url, "a rerun asks again")
    if not found.files:
        raise DataError(f"{url}: no file there")
    return found


def check_unchanged(files: Iterable[RemoteFile]) -> None:
    """Ask the file system of each file once more: what was read in several requests must have been one content.

    Raises:
        DataError: If a file is not what it was when it was listed, or is gone.
    """
    for file in files:
        if list_url(file.url).files != [file]:
            raise DataError(f"{file}: was written to while it was read; a rerun reads what is there now")


def _files(fs: Any, found: dict[str, dict[str, Any]]) -> list[RemoteFile]:
    files = ((name, about) for name, about in found.items() if about["type"] == "file" and not name.endswith("/"))
    return sorted(_remote(fs.unstrip_protocol(name), about) for name, about in files)


def _remote(url: str, about: dict[str, Any]) -> RemoteFile:
    lfs = about.get("lfs") or {}
    marks = {**about, "blob_id": lfs.get("sha256") or about.get("blob_id")}
    key = next((key for key in MARKS if marks.get(key)), "")
    size = about.get("size")
    if size is None:
        raise DataError(f"{url}: its file system does not tell its size, so it cannot be read in parts")
    mark: Any = marks.get(key)
    said = str(mark.timestamp() if hasattr(mark, "timestamp") else mark)  # listings and single answers differ in form
    return RemoteFile(url, int(size), f"{key} {said.strip(chr(34))}" if key else "")
