"""Text files in UTF-8, plain, gzip or zstd, to decoded lines with their numbers."""

import io
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterator

from dana.core.errors import Damage, DataError
from dana.core.storage import File, open_until, readable

COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}  # suffix to codec
_HEAD = 4096  # bytes


def read_lines(path: File, errors: str = "replace") -> Iterator[tuple[int, str]]:
    """Unpacked lines with their numbers, from 1, ended by a newline.

    Args:
        path: The file.
        errors: What to do with bytes that do not decode: ``replace`` makes U+FFFD of them, ``strict`` raises.

    Raises:
        DataError: Naming file and line, if the machine cannot read the file.
        Damage: If a compressed file cannot be unpacked to its end, the file is UTF-16 or a quarter of its beginning is
            NUL, or, with ``strict``, bytes do not decode.
    """
    import pyarrow as pa

    packed = COMPRESSIONS.get(path.suffix.lower())
    number = 0
    try:
        with pa.input_stream(readable(path), compression=packed) as stream:
            reader = io.BufferedReader(stream)  # type: ignore[arg-type]
            _check_encoding(reader.peek(_HEAD)[:_HEAD])
            for number, raw in enumerate(reader, 1):
                yield number, (raw.removeprefix(BOM_UTF8) if number == 1 else raw).decode("utf-8", errors)
    except UnicodeDecodeError as error:
        remedy = "convert the file first, for example: iconv -f LATIN1 -t UTF-8"
        raise Damage(number, f"byte 0x{error.object[error.start]:02x} is not UTF-8; {remedy}") from error
    except OSError as error:
        if packed and error.errno is None:  # pyarrow's own errors have no number
            raise Damage(number + 1, f"the compressed file is damaged or ends early: {error}") from error
        raise DataError(f"{path}:{number + 1}: cannot be read: {error}") from error


def _check_encoding(head: bytes) -> None:
    """Refuse a file that is UTF-16 or UTF-32, or no text, by how it begins."""
    if head.startswith((BOM_UTF16_LE, BOM_UTF16_BE)) or head.count(0) * 4 >= max(4, len(head)):
        raise Damage(1, "not UTF-8 but UTF-16, UTF-32 or no text; convert it first: iconv -f UTF-16 -t UTF-8")


def may_be_cut(path: File) -> bool:
    """Whether bytes are a place to cut an unpacked file: it is UTF-8 as far as its beginning tells."""
    try:
        with open_until(path, _HEAD) as stream:
            _check_encoding(stream.read(_HEAD))
    except (Damage, OSError):  # reading it says what is wrong, with the place
        return False
    return True
