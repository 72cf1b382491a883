"""Seals: size, digest and, of tables, rows of each file of a committed folder, and the check against them.

Looked at cheaply whenever the folder is opened (presence, size, rows from the Parquet footers), and byte by byte by
``dana verify``.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dana.core.errors import ArtifactError
from dana.core.files import file_digest, sync

Seals = Mapping[str, Mapping[str, Any]]


def seal(folder: Path) -> dict[str, dict[str, Any]]:
    """Put all of a folder on the disk and say what it is: ``bytes``, ``digest`` and, of Parquet, ``rows`` of each file.

    Keys are places in the folder, with slashes, sorted.
    """
    found = {}
    for path in sorted(folder.rglob("*")):
        sync(path)
        if path.is_file():
            about: dict[str, Any] = {"bytes": path.stat().st_size, "digest": file_digest(path)}
            if path.suffix == ".parquet":
                about["rows"] = _rows(path)
            found[path.relative_to(folder).as_posix()] = about
    sync(folder)
    return found


def flaws(folder: Path, seals: Seals, digests: bool) -> Iterator[str]:
    """What is wrong with a folder, a line each, naming the file; nothing if it is whole.

    Args:
        folder: Where the files are.
        seals: From :func:`seal`.
        digests: Whether to read every byte.
    """
    for name, expected in seals.items():
        path = folder / name
        if not path.is_file():
            yield f"{path}: is missing"
        elif (size := path.stat().st_size) != expected["bytes"]:
            yield f"{path}: {size:,} bytes, {expected['bytes']:,} were written"
        elif "rows" in expected and (rows := _rows(path)) != expected["rows"]:
            found = "damaged" if rows is None else f"{rows:,} rows, {expected['rows']:,} were written"
            yield f"{path}: {found}"
        elif digests and file_digest(path) != expected["digest"]:
            yield f"{path}: its bytes are not those that were written"


def refuse_damage(folder: Path, seals: Seals, then: str) -> None:
    """Read every byte of files that decide others, or are copied into a folder that will be sealed anew.

    Args:
        folder: Where the files are.
        seals: Of those files.
        then: For the message: what to do.

    Raises:
        ArtifactError: Naming the first file that is not what was written.
    """
    if flaw := next(flaws(folder, seals, digests=True), None):
        raise ArtifactError(f"{flaw}; {then}")


def strangers(folder: Path, seals: Seals) -> Iterator[str]:
    """Each part of a table that was not written with the others, a line each."""
    for path in sorted(folder.rglob("part-*.parquet")):
        if path.relative_to(folder).as_posix() not in seals:
            yield f"{path}: does not belong there"


def _rows(path: Path) -> int | None:
    """Rows by the footer of a Parquet file; None if that cannot be read."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.read_metadata(path).num_rows
    except (OSError, pa.ArrowException):
        return None
