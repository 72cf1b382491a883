"""Read text files as numbered lines, unpacked and decoded.

Packed files (gzip, bzip2, xz, zstd) are told by their first bytes, those at URLs by their names.
Text is UTF-8, or what its byte-order mark says. A line that is no UTF-8 is read in Windows' Latin
encoding, cp1252, unless it has letters in UTF-8 as well: then only its broken bytes become U+FFFD,
if the first lines of the file are not mostly in cp1252.
A file whose first lines end in carriage returns alone is cut there, any other at line feeds.
"""

import io
import string
from codecs import (
    BOM_UTF8,
    BOM_UTF16_BE,
    BOM_UTF16_LE,
    BOM_UTF32_BE,
    BOM_UTF32_LE,
    getincrementaldecoder,
)
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from dana.core.errors import Damage, DataError
from dana.core.logging import get_logger
from dana.core.storage import File, open_until, pyarrow_source

log = get_logger(__name__)

COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".xz": "xz", ".zst": "zstd"}  # suffix to codec
# First bytes to codec.
MAGIC = {
    b"\x1f\x8b\x08": "gzip",
    b"BZh": "bz2",
    b"\xfd7zXZ\x00": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
}
BZIP2_BLOCK = (b"1AY&SY", b"\x17rE8P\x90")  # behind BZh and a digit: a block, or the end
# That of UTF-32 begins with that of UTF-16, so it comes first.
MARKS = {
    BOM_UTF32_LE: "utf-32",
    BOM_UTF32_BE: "utf-32",
    BOM_UTF16_LE: "utf-16",
    BOM_UTF16_BE: "utf-16",
}
MAX_LINE = 1 << 28  # bytes
MOST_CONTROLS = 0.02  # share of control characters in text that is no UTF-8; more are no text
MOST_HIGH = 0.4  # share of letters beyond ASCII in cp1252: Vietnamese has a quarter
FEWEST_BROKEN = 16  # bytes that are no UTF-8, from which that share is looked at
HEAD = 1 << 12  # bytes that tell text from none
SAMPLE = 1 << 16  # bytes that tell line ends
FALLBACK = "cp1252"
_CONTROLS = bytes({*range(32)} - {*b"\t\n\r\f\v\x1b\x1a"})


def read_lines(
    path: File, errors: str = "replace", encoding: str | None = None, is_look: bool = False
) -> Iterator[tuple[int, str]]:
    """Yield the lines of a file with their ends, unpacked and decoded, with their numbers from 1.

    Args:
        path: The file.
        errors: For bytes that are not text in the encoding: ``replace`` reads a line as
            :func:`decode_line` does, ``strict`` raises.
        encoding: Encoding of the text; None for UTF-8 or what the byte-order mark says.
        is_look: Whether the lines are only looked at, so that nothing is said of them.

    Raises:
        DataError: If the file cannot be read; names file and line.
        Damage: If a compressed file is damaged, the file is no text, or, with ``strict``, bytes are
            no text.
    """
    number = 0
    codec = codec_of(path)
    try:
        with _open(path, codec) as stream:
            reader: io.BufferedReader = io.BufferedReader(stream, SAMPLE)  # type: ignore[arg-type]
            head = reader.peek(SAMPLE)[:SAMPLE]
            whole = encoding or _encoding_of_mark(head)
            if whole:
                lines = _decoded_lines(reader, head, whole, errors)
            else:
                check_is_text(head[:HEAD])
                lines = _utf8_lines(reader, head, errors, None if is_look else path)
            for line in lines:
                number += 1
                check_line_length(line, path, number, is_packed=bool(codec))
                yield number, line
    except UnicodeDecodeError as error:
        remedy = "convert the file first, for example: iconv -f LATIN1 -t UTF-8"
        byte = error.object[error.start]
        name = encoding or "UTF-8"
        raise Damage(number + 1, f"byte 0x{byte:02x} is not {name}; {remedy}") from error
    except EOFError as error:
        raise _packing_damage(number + 1, error) from error
    except OSError as error:
        if codec and error.errno is None:  # errors of the packing itself have no number
            raise _packing_damage(number + 1, error) from error
        raise DataError(f"{path}:{number + 1}: cannot be read: {error}") from error


def _packing_damage(line: int, error: Exception) -> Damage:
    """Return the error for a compressed file that cannot be unpacked from a line on."""
    return Damage(line, f"the compressed file is damaged or ends early: {error}")


def decode_line(raw: bytes, is_foreign_file: bool = False) -> tuple[str, bool]:
    """Decode a line; return it, and whether it is in cp1252.

    It is UTF-8, else with U+FFFD for its broken bytes if it has letters in UTF-8, else cp1252.

    Args:
        raw: The line.
        is_foreign_file: Whether :func:`is_foreign` is true of its file. Letters in UTF-8 beside
            others are then what some program has encoded twice, and the line is cp1252.
    """
    try:
        return raw.decode(), False
    except UnicodeDecodeError:
        text = raw.decode("utf-8", "replace")
    if is_foreign_file or text.replace("\ufffd", "").isascii():
        return raw.decode(FALLBACK, "replace"), True
    return text, False


def is_foreign(head: bytes) -> bool:
    """Return whether most of the first lines of a file that are not ASCII are in cp1252.

    Lines with letters in UTF-8 are not, though other bytes of them may be no UTF-8.

    Args:
        head: The beginning of the file; its first :data:`HEAD` bytes are looked at, which whoever
            reads a slice of a file knows, too.
    """
    head = head[:HEAD]
    lines = head.splitlines()
    if len(lines) > 1 and not head.endswith((b"\n", b"\r")):
        lines.pop()  # it may be cut within a letter
    marked = [line for line in lines if not line.isascii()]
    foreign = sum(decode_line(line)[1] for line in marked)
    return 2 * foreign > len(marked)


def say_foreign(path: File, count: int, example: str) -> None:
    """Log how many lines of a file are read in the encoding of Windows."""
    message = (
        "input     %s: %s lines are not UTF-8 and read as %s: %r; inputs.encoding names another"
    )
    log.info(message, path, f"{count:,}", FALLBACK, example)


def around_letter(text: str) -> str:
    """Return the surroundings of the first letter that is not ASCII."""
    place = next((at for at, letter in enumerate(text) if not letter.isascii()), 0)
    return text[max(0, place - 20) : place + 20].strip()


def codec_of(path: File) -> str | None:
    """Return the codec that a file is packed with, or None.

    A file whose name says that it is packed, but which is text, is read as it is: browsers unpack
    what they load.
    """
    named = COMPRESSIONS.get(path.suffix.lower())
    if not isinstance(path, Path):
        return named
    try:
        with path.open("rb") as stream:
            head = stream.read(HEAD if named else 16)
    except OSError:  # reading the file reports the error
        return named
    for magic, codec in MAGIC.items():
        if head.startswith(magic) and (codec != "bz2" or head[4:10] in BZIP2_BLOCK):
            return codec
    is_text = bool(head) and _is_utf8(head) and 0 not in head
    if is_text:
        return None
    return named


@contextmanager
def _open(path: File, codec: str | None) -> Iterator[BinaryIO]:
    """Open a file to read its unpacked bytes."""
    if codec in ("bz2", "xz"):
        import bz2
        import lzma

        unpack = bz2.BZ2File if codec == "bz2" else lzma.LZMAFile
        try:
            with path.open("rb") as packed, unpack(packed) as stream:
                yield stream  # type: ignore[misc]
        except lzma.LZMAError as error:
            raise EOFError(str(error)) from error
        return
    import pyarrow as pa

    with pa.input_stream(pyarrow_source(path), compression=codec) as stream:
        yield stream


def _encoding_of_mark(head: bytes) -> str | None:
    """Return the encoding of a byte-order mark, but for that of UTF-8."""
    return next((name for mark, name in MARKS.items() if head.startswith(mark)), None)


def _decoded_lines(
    reader: io.BufferedReader, head: bytes, encoding: str, errors: str
) -> Iterator[str]:
    """Yield the lines of text in one encoding, without its byte-order mark."""
    sample = head.decode(encoding, "ignore")
    end = "\r" if _ends_in_returns(sample) else "\n"
    stream = io.TextIOWrapper(reader, encoding, errors, newline=end)
    line = stream.readline(MAX_LINE + 1).removeprefix("\ufeff")
    while line:
        yield line
        line = stream.readline(MAX_LINE + 1)


def _utf8_lines(
    reader: io.BufferedReader, head: bytes, errors: str, path: File | None
) -> Iterator[str]:
    """Yield the lines of text in UTF-8 or cp1252.

    At the end, if there is a path, it is logged how many lines are in cp1252.
    """
    foreign = 0
    example = ""
    is_first = True
    is_foreign_file = is_foreign(head)
    for raw in _raw_lines(reader, head):
        if is_first:
            raw = raw.removeprefix(BOM_UTF8)
            is_first = False
        try:
            text = raw.decode()
        except UnicodeDecodeError:
            if errors == "strict":
                raise
            text, is_foreign_line = decode_line(raw, is_foreign_file)
            if is_foreign_line:
                foreign += 1
                example = example or around_letter(text)
        yield text
    if foreign and path is not None:
        say_foreign(path, foreign, example)


def _raw_lines(reader: io.BufferedReader, head: bytes) -> Iterator[bytes]:
    """Yield the lines of text as bytes."""
    if _ends_in_returns(head.decode("latin-1")):
        stream = io.TextIOWrapper(reader, "latin-1", newline="\r")  # a character per byte
        line = stream.readline(MAX_LINE + 1)
        while line:
            yield line.encode("latin-1")
            line = stream.readline(MAX_LINE + 1)
    else:
        raw = reader.readline(MAX_LINE + 1)
        while raw:
            yield raw
            raw = reader.readline(MAX_LINE + 1)


def _ends_in_returns(sample: str) -> bool:
    """Return whether the lines of a text end in carriage returns alone."""
    return "\r" in sample[:-1] and "\n" not in sample


def check_line_length(line: bytes | str, path: File, number: int, is_packed: bool = False) -> None:
    """Refuse a line longer than :data:`MAX_LINE`, which may fill the memory.

    Raises:
        Damage: If the file is compressed: a few kilobytes may hold gigabytes.
        DataError: If it is not.
    """
    if len(line) <= MAX_LINE:
        return
    problem = f"a line longer than {MAX_LINE >> 20} MB; divide it into documents, one per line"
    if is_packed:
        raise Damage(number, problem)
    raise DataError(f"{path}:{number}: {problem}")


def check_is_text(head: bytes) -> None:
    """Refuse UTF-16 and UTF-32 without a mark and binary files by their first bytes.

    Raises:
        Damage: If a quarter of them is NUL; or if they are no UTF-8, and hold control characters or
            mostly letters beyond ASCII, as text in another script does.
    """
    controls = len(head) - len(head.translate(None, _CONTROLS))
    is_utf8 = _is_utf8(head)
    is_binary = controls > MOST_CONTROLS * len(head) and not is_utf8
    if is_binary or head.count(0) * 4 >= max(4, len(head)):
        remedy = "convert it first: iconv -f UTF-16LE -t UTF-8, or name it by inputs.encoding"
        raise Damage(1, f"not UTF-8 but UTF-16 without its mark, UTF-32 or no text; {remedy}")
    if not is_utf8 and _is_other_script(head):
        raise Damage(
            1,
            "neither UTF-8 nor Latin letters in cp1252; name its encoding by inputs.encoding, "
            "for example cp1251, gb18030 or shift_jis, or convert it to UTF-8",
        )


def _is_other_script(head: bytes) -> bool:
    """Return whether text is in an encoding of another script.

    It then has mostly letters beyond ASCII, which are no UTF-8.
    """
    text = head.decode("utf-8", "replace")
    broken = text.count("\ufffd")
    letters = sum(not letter.isascii() for letter in text) - broken
    high = sum(byte >= 0x80 for byte in head)
    plain = len(head) - len(head.translate(None, string.ascii_letters.encode()))
    return broken >= FEWEST_BROKEN and broken > letters and high > MOST_HIGH * (high + plain)


def _is_utf8(head: bytes) -> bool:
    """Return whether the beginning of a file is UTF-8; a letter may be cut at its end."""
    try:
        getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return True


def read_head(path: File) -> bytes:
    """Return the first bytes of a file as they are stored.

    There are none if it cannot be read, which reading it reports.
    """
    try:
        with open_until(path, HEAD) as stream:
            return stream.read(HEAD)
    except OSError:
        return b""


def is_sliceable(head: bytes) -> bool:
    """Return whether a file that is not packed can be sliced at line feeds.

    Its first bytes are then UTF-8.
    """
    try:
        check_is_text(head)
    except Damage:  # reading the file reports it
        return False
    return not _encoding_of_mark(head) and not _ends_in_returns(head.decode("latin-1"))
