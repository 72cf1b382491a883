"""Log lines about input files: how plain text was cut, rows of many lines, bytes that are not UTF-8."""

from collections import Counter
from dataclasses import dataclass, field

from dana.core.logging import get_logger

log = get_logger(__name__)

FILES = 10  # named one by one; the others are counted
LONG_ROW = 20  # lines
HOW = {"line": "one a line", "paragraph": "one a paragraph (blank lines part them)", "file": "the whole file"}
REPLACED = "\ufffd"


@dataclass
class _File:
    origin: str = ""
    kind: str = ""
    records: int = 0
    replaced: int = 0
    line: int = 0
    longest: tuple[int, int] = (0, 0)  # lines of a row, and where it begins


@dataclass
class Notices:
    """Takes every record in order, and logs what is unusual of a file when it ends."""

    _file: _File = field(default_factory=_File)
    _named: int = 0
    _others: Counter[str] = field(default_factory=Counter)

    def add(self, origin: str, line: int, kind: str, text: str) -> None:
        """Count a record: its place, its kind, and its text if it has one."""
        if origin != self._file.origin:
            self._end_file(_File(origin))
        file = self._file
        file.kind = kind or file.kind
        file.records += 1
        file.replaced += REPLACED in text
        file.longest = max(file.longest, (line - file.line, file.line))
        file.line = line

    def close(self) -> None:
        """End the last file, and log how many were not named."""
        self._end_file(_File())
        if self._others:
            counted = ", ".join(f"{count:,} {kind}" for kind, count in sorted(self._others.items()))
            log.info("input     and more files: %s", counted)

    def _end_file(self, following: _File) -> None:
        """Log what is unusual of the file that ends."""
        file, self._file = self._file, following
        lines, begins = file.longest
        if file.kind in HOW:
            self._tell(file.kind, f"{file.origin}: {file.records:,} documents, {HOW[file.kind]}")
        if file.kind == "row" and lines > LONG_ROW:
            longest = f"the longest takes {lines:,} lines, from line {begins} on"
            self._tell("long row", f"{file.origin}: {file.records:,} records; {longest}")
        if file.replaced:
            share = f"{file.replaced:,} of {file.records:,} records"
            remedy = "to keep those characters convert the file first, for example: iconv -f LATIN1 -t UTF-8"
            log.warning("%s: %s hold U+FFFD, where bytes are not UTF-8; %s", file.origin, share, remedy)

    def _tell(self, kind: str, message: str) -> None:
        if self._named < FILES:
            self._named += 1
            log.info("input     %s", message)
        else:
            self._others[kind] += 1
