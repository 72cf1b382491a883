"""A corpus cut into shards of documents: scored in any order, by any process, each written whole or not at all.

Where a shard begins follows from the corpus alone, so its file has the same bytes whoever writes it, and a process that
died is made up for by whoever comes next.
"""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from dana.errors import ArtifactError
from dana.schemas import DOCUMENTS, Document, parts

DOCUMENTS_PER_SHARD = 1024


@dataclass(frozen=True)
class Shard:
    """Neighbouring documents of one part of a corpus.

    Attributes:
        number: From 0, in corpus order.
        part: The Parquet file.
        first: Its first row there.
        documents: How many rows.
    """

    number: int
    part: Path
    first: int
    documents: int

    def read(self) -> Iterator[Document]:
        """The documents, read from those row groups alone that hold them."""
        with pq.ParquetFile(self.part) as file:
            start = 0
            for group in range(file.num_row_groups):
                rows = file.metadata.row_group(group).num_rows
                low, high = max(self.first, start), min(self.first + self.documents, start + rows)
                if low < high:
                    table = file.read_row_group(group, DOCUMENTS.names).slice(low - start, high - low)
                    for row in zip(*(table[name].to_pylist() for name in DOCUMENTS.names), strict=True):
                        yield Document(*row)
                start += rows


def shards_of(corpus: Path, size: int = DOCUMENTS_PER_SHARD) -> list[Shard]:
    """All shards of a corpus folder, in order."""
    found: list[Shard] = []
    for part in parts(corpus):
        rows = pq.read_metadata(part).num_rows
        found += [
            Shard(len(found) + place, part, first, min(size, rows - first))
            for place, first in enumerate(range(0, rows, size))
        ]
    return found


@dataclass(frozen=True)
class ShardFolder:
    """Where the shards of one scoring lie until they are merged."""

    path: Path

    def file(self, number: int) -> Path:
        """A shard's file."""
        return self.path / f"shard-{number:06d}.parquet"

    def missing(self, shards: Iterable[Shard]) -> list[Shard]:
        """Those that have no whole file yet."""
        return [shard for shard in shards if not self.file(shard.number).is_file()]

    def write(self, number: int, table: pa.Table) -> None:
        """Write a shard's file aside, put it on the disk, and rename it."""
        aside = self.path / f".{self.file(number).name}.{os.uname().nodename}.{os.getpid()}"
        with aside.open("wb") as stream:
            pq.write_table(table, stream, compression="zstd")
            stream.flush()
            os.fsync(stream.fileno())
        aside.replace(self.file(number))

    def tables(self, shards: Iterable[Shard]) -> Iterator[pa.Table]:
        """Every shard's table, in order.

        Raises:
            ArtifactError: If one cannot be read.
        """
        for shard in shards:
            try:
                yield pq.read_table(self.file(shard.number))
            except (OSError, pa.ArrowException) as error:
                raise ArtifactError(f"{self.file(shard.number)}: {error}; remove it and score again") from error
