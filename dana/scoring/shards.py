"""Shards of a corpus: 1,024 documents each, scored in any order by any process, each written whole or not at all.

Where a shard begins follows from the corpus alone, so it holds the same scores whichever process writes it, and the
shards that a killed process did not write are written by the next one.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from dana.core.errors import ArtifactError
from dana.core.files import replacing
from dana.core.schemas import DOCUMENTS, Document, parts

DOCUMENTS_PER_SHARD = 1024
SECONDS = b"dana.seconds"


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
        with pq.ParquetFile(self.part, page_checksum_verification=True) as file:
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
    """Where the shards of one scoring lie until they are merged.

    Attributes:
        path: The folder.
        scoring: The scoring's fingerprint; each shard carries it and its number, and those of another do not count.
    """

    path: Path
    scoring: str

    def file(self, number: int) -> Path:
        """A shard's file."""
        return self.path / f"shard-{number:06d}.parquet"

    def _stamp(self, number: int) -> dict[bytes, bytes]:
        return {b"dana.scoring": self.scoring.encode(), b"dana.shard": str(number).encode()}

    def _is_stamped(self, number: int, metadata: dict[bytes, bytes] | None) -> bool:
        return self._stamp(number).items() <= (metadata or {}).items()

    def missing(self, shards: Iterable[Shard]) -> list[Shard]:
        """Those that this scoring has no whole file of yet."""
        return [shard for shard in shards if not self._has(shard.number)]

    def _has(self, number: int) -> bool:
        try:
            return self._is_stamped(number, pq.read_schema(self.file(number)).metadata)
        except (OSError, pa.ArrowException):
            return False

    def write(self, number: int, table: pa.Table, seconds: float) -> None:
        """Write a shard's file aside, put it on the disk, and rename it.

        Args:
            number: Of the shard.
            table: Its scores.
            seconds: That scoring it took; kept beside the scores until they are merged.

        Raises:
            ArtifactError: If the folder is gone.
        """
        stamped = table.replace_schema_metadata({**self._stamp(number), SECONDS: f"{seconds:.3f}".encode()})
        try:
            with replacing(self.file(number)) as temporary:
                pq.write_table(stamped, temporary, compression="zstd", write_page_checksum=True)
        except FileNotFoundError as error:
            raise ArtifactError(f"{self.path}: is gone; another process has merged or removed the shards") from error

    def seconds(self, shards: Iterable[Shard]) -> float:
        """How long it took to score some shards, summed over the processes that did."""
        return sum(float(pq.read_schema(self.file(shard.number)).metadata.get(SECONDS, 0)) for shard in shards)

    def tables(self, shards: Iterable[Shard]) -> Iterator[pa.Table]:
        """Every shard's table, in order.

        Raises:
            ArtifactError: If one is damaged, or of another scoring or place.
        """
        for shard in shards:
            file = self.file(shard.number)
            try:
                table = pq.read_table(file, page_checksum_verification=True)
            except (OSError, pa.ArrowException) as error:
                raise ArtifactError(f"{file}: damaged ({error}); remove it and score again") from error
            if not self._is_stamped(shard.number, table.schema.metadata):
                raise ArtifactError(f"{file}: is a shard of something else; remove it and score again")
            yield table.replace_schema_metadata(None)
