"""Sources to a stream of records, each with its file and line.

==================  ==========================================================
``.jsonl .json``    one object a line
``.csv .tsv``       a header line, then a record a line
``.parquet``        a record a row
``.txt``            a document a line, a paragraph or a file: see :mod:`dana.corpus.plain_text`
``hf:name``         ``hf:org/name[@revision][:config][:split]``, streamed
==================  ==========================================================

The text formats may end in ``.gz`` or ``.zst``. Which files a source means: :mod:`dana.corpus.places`.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from dana.core.errors import Damage
from dana.core.lines import read_lines
from dana.core.storage import File, size_of
from dana.corpus.csv_rows import parse_csv
from dana.corpus.hub import is_hub, read_hub
from dana.corpus.parquet import read_parquet
from dana.corpus.places import Source, expand, format_of
from dana.corpus.plain_text import parse_text
from dana.corpus.records import Record


def read_records(sources: Sequence[Source], text_documents: str = "auto") -> Iterator[Record]:
    """Stream the records of all sources, in order; folders and globs in the order of their names.

    A file that is empty, damaged or ends early is a bad record, too: the last one of the file.

    Args:
        sources: Files, folders, globs, URLs, ``hf:`` names.
        text_documents: See :class:`dana.corpus.inputs.Inputs`.

    Raises:
        DataError: If a source is missing, has an unknown format, or the machine cannot read it.
    """
    for source in sources:
        if is_hub(source):
            yield from read_hub(source)  # type: ignore[arg-type]
        else:
            for path in expand(source):
                yield from read_file(path, None, text_documents)


def read_file(
    path: File, groups: range | None = None, text_documents: str = "auto", errors: str = "replace"
) -> Iterator[Record]:
    """The records of one file; of a Parquet file, those of some row groups, if they are given.

    `errors` is that of :func:`dana.core.lines.read_lines`.
    """
    try:
        if size_of(path) == 0:
            raise Damage(1, "the file is empty")
        yield from _read_format(path, groups, text_documents, errors)
    except Damage as damage:
        yield Record(str(path), damage.line, {}, str(damage), rest_lost=True)


def _read_format(path: File, groups: range | None, text_documents: str, errors: str) -> Iterator[Record]:
    match format_of(path):
        case ".parquet":
            yield from read_parquet(path, groups)
        case ".txt":
            yield from parse_text(path, partial(read_lines, errors=errors), text_documents)
        case ".csv":
            yield from parse_csv(path, read_lines(path, errors), ",")
        case ".tsv":
            yield from parse_csv(path, read_lines(path, errors), "\t")
        case _:
            yield from parse_json_lines(path, read_lines(path, errors))


def parse_json_lines(path: File, lines: Iterable[tuple[int, str]]) -> Iterator[Record]:
    """A record a line.

    Args:
        path: Where they come from.
        lines: With their numbers.
    """
    for number, line in lines:
        if not line.strip():
            continue
        try:
            value = json.loads(line.lstrip("\ufeff"))  # joined files have marks within
        except (ValueError, RecursionError) as error:  # a number of 5,000 digits is a plain ValueError
            yield Record(str(path), number, {}, f"not JSON: {error}{_of_array(line)}")
            continue
        if isinstance(value, dict):
            yield Record(str(path), number, value)
        else:
            problem = f"not a JSON object but {type(value).__name__}{_of_array(line)}"
            yield Record(str(path), number, {}, problem)


def _of_array(line: str) -> str:
    """What to do about a line that begins an array."""
    return "; a line must be an object, which jq -c '.[]' makes of an array" if line.lstrip().startswith("[") else ""
