"""Read UTF-8 text files, plain, gzip or zstd, as numbered lines."""

import io
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterator

from dana.core.errors import Damage, DataError
from dana.core.storage import File, open_until, pyarrow_source

COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}  # suffix to codec
MAX_LINE = 1 << 28  # bytes
_HEAD = 4096  # bytes


def read_lines(
    path: File, errors: str = "replace", encoding: str = "utf-8"
) -> Iterator[tuple[int, str]]:
    """Yield the lines of a file, unpacked and decoded, with their numbers from 1.

    Args:
        path: The file.
        errors: For bytes that are not UTF-8: ``replace`` reads U+FFFD, ``strict`` raises.
        encoding: Encoding of the text, one whose line feeds are those of UTF-8.

    Raises:
        DataError: If the file cannot be read; names file and line.
        Damage: If a compressed file is damaged, the file is UTF-16 or a quarter of its beginning is
            NUL, or, with ``strict``, bytes are not UTF-8.
    """
    import pyarrow as pa

    codec, number = COMPRESSIONS.get(path.suffix.lower()), 0
    try:
        with pa.input_stream(pyarrow_source(path), compression=codec) as stream:
            reader = io.BufferedReader(stream)  # type: ignore[arg-type]
            _check_encoding(reader.peek(_HEAD)[:_HEAD])
            while raw := reader.readline(MAX_LINE + 1):
                number += 1
                check_line_length(raw, path, number, is_packed=bool(codec))
                text = raw.removeprefix(BOM_UTF8) if number == 1 else raw
                yield number, text.decode(encoding, errors)
    except UnicodeDecodeError as error:
        remedy = "convert the file first, for example: iconv -f LATIN1 -t UTF-8"
        raise Damage(
            number, f"byte 0x{error.object[error.start]:02x} is not UTF-8; {remedy}"
        ) from error
    except OSError as error:
        if codec and error.errno is None:  # pyarrow's own errors have no number
            raise Damage(
                number + 1, f"the compressed file is damaged or ends early: {error}"
            ) from error
        raise DataError(f"{path}:{number + 1}: cannot be read: {error}") from error


def check_line_length(raw: bytes, path: File, number: int, is_packed: bool = False) -> None:
    """Refuse a line longer than :data:`MAX_LINE`, which may fill the memory.

    Raises:
        Damage: If the file is compressed: a few kilobytes may hold gigabytes.
        DataError: If it is not.
    """
    if len(raw) > MAX_LINE:
        problem = f"a line longer than {MAX_LINE >> 20} MB; divide it into documents, one per line"
        raise Damage(number, problem) if is_packed else DataError(f"{path}:{number}: {problem}")


def _check_encoding(head: bytes) -> None:
    """Refuse UTF-16, UTF-32 and binary files by their first bytes."""
    if head.startswith((BOM_UTF16_LE, BOM_UTF16_BE)) or head.count(0) * 4 >= max(4, len(head)):
        raise Damage(
            1, "not UTF-8 but UTF-16, UTF-32 or no text; convert it first: iconv -f UTF-16 -t UTF-8"
        )


def is_sliceable(path: File) -> bool:
    """Return True if an uncompressed file can be sliced by byte offsets: its first bytes are UTF-8."""
    try:
        with open_until(path, _HEAD) as stream:
            _check_encoding(stream.read(_HEAD))
    except (Damage, OSError):  # reading the file reports the error
        return False
    return True
