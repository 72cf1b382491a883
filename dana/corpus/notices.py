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
            self.close_file()
            self._file = _File(origin)
        file = self._file
        file.kind = kind or file.kind
        file.records += 1
        file.replaced += REPLACED in text
        file.longest = max(file.longest, (line - file.line, file.line))
        file.line = line

    def close_file(self) -> None:
        """Log what is unusual of the file that ends."""
        file = self._file
        if file.kind in HOW:
            self._say(file.kind, "%s: %s documents, %s", file.origin, f"{file.records:,}", HOW[file.kind])
        if file.kind == "row" and file.longest[0] > LONG_ROW:
            self._say(
                "long row",
                "%s: %s records; the longest takes %s lines, from line %d on",
                file.origin,
                f"{file.records:,}",
                f"{file.longest[0]:,}",
                file.longest[1],
            )
        if file.replaced:
            log.warning(
                "%s: %s of %s records hold U+FFFD, where bytes are not UTF-8; to keep those characters convert the"
                " file first, for example: iconv -f LATIN1 -t UTF-8",
                file.origin,
                f"{file.replaced:,}",
                f"{file.records:,}",
            )

    def close(self) -> None:
        """End the last file, and log how many were not named."""
        self.close_file()
        self._file = _File()
        if self._others:
            counted = ", ".join(f"{count:,} {kind}" for kind, count in sorted(self._others.items()))
            log.info("input     and more files: %s", counted)

    def _say(self, kind: str, message: str, *values: object) -> None:
        if self._named < FILES:
            self._named += 1
            log.info("input     " + message, *values)
        else:
            self._others[kind] += 1
