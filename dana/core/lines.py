"""Text files, plain, gzip or zstd, to decoded lines with their numbers."""

import io
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE, BOM_UTF32_BE, BOM_UTF32_LE
from collections.abc import Iterator

from dana.core.errors import Damage, DataError
from dana.core.storage import File, open_until, readable

COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}  # suffix to codec
# The longer marks first: that of UTF-32 begins with that of UTF-16.
_MARKS = {
    BOM_UTF32_LE: "utf-32-le",
    BOM_UTF32_BE: "utf-32-be",
    BOM_UTF16_LE: "utf-16-le",
    BOM_UTF16_BE: "utf-16-be",
}
_HEAD = 4096  # bytes
_MARK = "\ufeff"


def read_lines(path: File, errors: str = "replace") -> Iterator[tuple[int, str]]:
    """Unpacked lines with their numbers, from 1, ended by a newline.

    UTF-8, or what the byte-order mark says: UTF-16 or UTF-32.

    Args:
        path: The file.
        errors: What to do with bytes that do not decode: ``replace`` makes U+FFFD of them, ``strict`` raises.

    Raises:
        DataError: Naming file and line, if the machine cannot read the file.
        Damage: If a compressed file cannot be unpacked to its end, a quarter of the file's beginning is NUL, or, with
            ``strict``, bytes do not decode.
    """
    import pyarrow as pa

    packed = COMPRESSIONS.get(path.suffix.lower())
    number, encoding = 0, None
    try:
        with pa.input_stream(readable(path), compression=packed) as stream:
            reader = io.BufferedReader(stream)  # type: ignore[arg-type]
            encoding = _encoding(reader.peek(_HEAD)[:_HEAD])
            if encoding:
                wide = io.TextIOWrapper(reader, encoding, errors=errors, newline="\n")
                for number, line in enumerate(wide, 1):
                    yield number, line.removeprefix(_MARK) if number == 1 else line
            else:
                for number, raw in enumerate(reader, 1):
                    yield number, (raw.removeprefix(BOM_UTF8) if number == 1 else raw).decode("utf-8", errors)
    except UnicodeDecodeError as error:
        said = f"byte 0x{error.object[error.start]:02x} is not {error.encoding.upper()}"
        if encoding:  # decoded in blocks, before lines are cut
            raise Damage(number + 1, f"here or further below {said}") from error
        raise Damage(number, f"{said}; convert the file first, for example: iconv -f LATIN1 -t UTF-8") from error
    except OSError as error:
        if packed and error.errno is None:  # pyarrow's own errors have no number
            raise Damage(number + 1, f"the compressed file is damaged or ends early: {error}") from error
        raise DataError(f"{path}:{number + 1}: cannot be read: {error}") from error


def _encoding(head: bytes) -> str | None:
    """The encoding that a file's byte-order mark names; None for UTF-8, with a mark or without."""
    for mark, encoding in _MARKS.items():
        if head.startswith(mark):
            return encoding
    if head.count(0) * 4 >= max(4, len(head)):
        raise Damage(1, "a quarter of its first bytes is NUL: not text, or UTF-16 without a mark; write it as UTF-8")
    return None


def may_be_cut(path: File) -> bool:
    """Whether bytes are a place to cut an unpacked file: not in UTF-16 or UTF-32, nor in what is no text at all."""
    try:
        with open_until(path, _HEAD) as stream:
            return _encoding(stream.read(_HEAD)) is None
    except (Damage, OSError):  # reading it says what is wrong, with the place
        return False
