"""Plain text files to records: one a line, a paragraph or a file."""

from collections.abc import Callable, Iterator

from dana.core.errors import Damage
from dana.core.storage import File
from dana.corpus.records import Record

FIRST_LOOK = 1 << 24  # characters
PARAGRAPH = 20  # lines: longer ones on average, and the blank lines between are strays

Lines = Callable[[File], Iterator[tuple[int, str]]]


def parse_text(path: File, lines: Lines, layout: str) -> Iterator[Record]:
    """The records of a plain-text file.

    Args:
        path: The file.
        lines: Opens it: its lines with their numbers.
        layout: ``line``, ``paragraph`` (blank lines part them), ``file``, or ``auto``: see :func:`detect_layout`.
    """
    if layout == "auto":
        layout = detect_layout(lines(path))
    if layout == "file":
        yield Record(str(path), 1, {"text": "".join(line for _, line in lines(path))}, kind=layout)
        return
    waiting: list[str] = []
    started = 1
    for number, line in lines(path):
        if layout == "line" and line.strip():
            yield Record(str(path), number, {"text": line}, kind=layout)
        elif line.strip():
            started = started if waiting else number
            waiting.append(line)
        elif waiting:
            yield Record(str(path), started, {"text": "".join(waiting)}, kind=layout)
            waiting = []
    if waiting:
        yield Record(str(path), started, {"text": "".join(waiting)}, kind=layout)


def detect_layout(lines: Iterator[tuple[int, str]]) -> str:
    """Whether text is in paragraphs or lines: ``paragraph`` where blank lines part it at least every 20 lines or so.

    Looks at the first 16 million characters. A few blank lines among many do not make paragraphs of lines.
    """
    filled = paragraphs = characters = 0
    within = False
    try:
        for _, line in lines:
            full = bool(line.strip())
            filled += full
            paragraphs += full and not within
            within = full
            characters += len(line)
            if characters > FIRST_LOOK:
                break
    except Damage:  # whoever reads on comes to it
        pass
    return "paragraph" if paragraphs > 1 and filled <= PARAGRAPH * paragraphs else "line"
