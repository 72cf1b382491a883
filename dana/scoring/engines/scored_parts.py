"""Scored documents in parts, one a task of another engine, on any fsspec file system.

Of task 3: ``corpus/part-00003.parquet`` (:data:`dana.core.schemas.DOCUMENTS`), ``scores/part-00003.parquet``
(:data:`dana.core.schemas.SCORES`, a row group a shard) and, written last, ``tasks/00003.json``, which says of how many
tasks it is, by which selector it was scored, and size, rows and digest of both. Each is written under a name that
readers of tables pass over, and moved when whole. :func:`dana.scoring.engines.joining.join_scores` makes a run of them.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any
from uuid import uuid4

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
from fsspec.implementations.dirfs import DirFileSystem

from dana.core.artifacts import is_sealed, sealed
from dana.core.schemas import DOCUMENTS, SCORES, Document
from dana.core.urls import is_url, place_of
from dana.corpus.tables import document_tables

TABLES = {"corpus": DOCUMENTS, "scores": SCORES}
TASKS = "tasks"
FORMAT = 1  # raise it when a reader of the old one would go wrong


def part_name(table: str, rank: int) -> str:
    """Where a task's part of ``corpus`` or ``scores`` lies."""
    return f"{table}/part-{rank:05d}.parquet"


def record_name(rank: int) -> str:
    """Where it stands that a task is done."""
    return f"{TASKS}/{rank:05d}.json"


def as_folder(place: Any) -> DirFileSystem:
    """The file system of a folder, in which names are relative to it.

    Args:
        place: A path, a URL of fsspec, or such a file system, as datatrove's ``DataFolder`` is one.

    Raises:
        ConfigError: If the URL's protocol is unknown or its package is missing, or it holds credentials.
    """
    if isinstance(place, DirFileSystem):
        return place
    fs, path = place_of(str(place)) if is_url(str(place)) else fsspec.url_to_fs(str(place))
    return DirFileSystem(path=path, fs=fs)


class PartWriter:
    """The two tables of one task, while they are written."""

    def __init__(self, folder: DirFileSystem, rank: int) -> None:
        """Open both under other names."""
        self.documents = self.blank = 0
        tag = uuid4().hex  # a task that was thought dead may still be writing
        self._files = {
            part_name(table, rank): _TableFile(folder, f"{table}/.part-{rank:05d}.parquet.{tag}", schema)
            for table, schema in TABLES.items()
        }

    def add(self, documents: Sequence[Document], scores: pa.Table) -> None:
        """Write one shard."""
        self.documents += len(documents)
        for file, table in zip(
            self._files.values(), (pa.concat_tables(document_tables(documents)), scores), strict=True
        ):
            file.write(table)

    def move(self) -> dict[str, dict[str, Any]]:
        """Give both their names; returns ``bytes``, ``rows`` and ``digest`` of each by name."""
        return {name: file.move(name) for name, file in self._files.items()}

    def discard(self) -> None:
        """Leave nothing of what was not moved."""
        for file in self._files.values():
            file.discard()


@contextmanager
def task_part(folder: DirFileSystem, rank: int, tasks: int, selector: str) -> Iterator[PartWriter]:
    """The part of one task: whole when the block ends, and nothing of it if anything was raised.

    What an earlier attempt left of the same task goes first.

    Args:
        folder: Of all parts, from :func:`as_folder`.
        rank: Of the task, from 0.
        tasks: How many there are.
        selector: Digest of the saved selector that scores.
    """
    for name in (*TABLES, TASKS):
        folder.makedirs(name, exist_ok=True)
    _clear(folder, rank)
    with ExitStack() as ended:
        writer = PartWriter(folder, rank)
        ended.callback(writer.discard)
        yield writer
        about = {"format": FORMAT, "tasks": tasks, "selector": selector}
        about |= {"documents": writer.documents, "blank": writer.blank, "files": writer.move()}
        _write_whole(folder, record_name(rank), json.dumps(sealed(about), indent=2).encode())


def tasks_done(folder: DirFileSystem) -> dict[int, dict[str, Any]]:
    """What each task that is done has written of itself, by rank; one that is damaged counts as not done."""
    found = {}
    for path in folder.ls(TASKS, detail=False) if folder.isdir(TASKS) else []:
        name = Path(path).name
        if not name.startswith(".") and name.endswith(".json"):
            with suppress(ValueError):  # no JSON, or no number
                about = json.loads(folder.cat_file(f"{TASKS}/{name}"))
                if isinstance(about, dict) and "digest" in about and is_sealed(about):
                    found[int(name.removesuffix(".json"))] = about
    return dict(sorted(found.items()))


def _clear(folder: DirFileSystem, rank: int) -> None:
    """Remove what an earlier attempt left of a task: first of all what says that it is whole."""
    for name in (record_name(rank), *(part_name(table, rank) for table in TABLES)):
        with suppress(FileNotFoundError):
            folder.rm_file(name)
    for place, begins in ((TASKS, f".{rank:05d}.json."), *((table, f".part-{rank:05d}.parquet.") for table in TABLES)):
        for path in folder.ls(place, detail=False) if folder.isdir(place) else []:
            if Path(path).name.startswith(begins):
                with suppress(FileNotFoundError):
                    folder.rm_file(path)


def _write_whole(folder: DirFileSystem, name: str, content: bytes) -> None:
    place, _, last = name.rpartition("/")
    aside = f"{place}/.{last}.{uuid4().hex}"
    folder.pipe_file(aside, content)
    folder.mv(aside, name)


class _TableFile:
    """A Parquet file under another name, with the digest of its bytes."""

    def __init__(self, folder: DirFileSystem, aside: str, schema: pa.Schema) -> None:
        self._folder, self._aside, self._rows = folder, aside, 0
        self._stream = _Digested(folder.open(aside, "wb"))
        self._writer = pq.ParquetWriter(self._stream, schema, compression="zstd", write_page_checksum=True)

    def write(self, table: pa.Table) -> None:
        """Add a row group."""
        self._rows += table.num_rows
        self._writer.write_table(table.combine_chunks(), row_group_size=max(1, table.num_rows))

    def move(self, name: str) -> dict[str, Any]:
        """End the file and give it its name."""
        self._close()
        self._folder.mv(self._aside, name)
        return {"bytes": self._stream.size, "rows": self._rows, "digest": self._stream.digest.hexdigest()}

    def discard(self) -> None:
        """Remove it, if it has not been moved."""
        with suppress(Exception):  # what went wrong before is what is told
            self._close()
        with suppress(FileNotFoundError):
            self._folder.rm_file(self._aside)

    def _close(self) -> None:
        if not self._stream.closed:
            self._writer.close()
            self._stream.close()


class _Digested:
    """A file for pyarrow to write, which counts and digests what goes by."""

    def __init__(self, stream: Any) -> None:
        self._stream, self.size, self.digest = stream, 0, blake2b(digest_size=16)

    def write(self, content: Any) -> int:
        """Write all of it."""
        self._stream.write(content)
        self.digest.update(content)
        self.size += len(content)
        return len(content)

    def tell(self) -> int:
        """Bytes so far."""
        return self.size

    def writable(self) -> bool:
        """True: what pyarrow asks of a file."""
        return True

    def readable(self) -> bool:
        """False, likewise."""
        return False

    def flush(self) -> None:
        """Nothing: object stores write blocks of a least size."""

    @property
    def closed(self) -> bool:
        """Whether the file is closed."""
        return self._stream.closed

    def close(self) -> None:
        """Close the file."""
        self._stream.close()
