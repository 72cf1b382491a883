"""Compute one row per unit of a pool, in shards that any number of processes share.

A shard is a row group of the pool, 1,024 documents, so its rows are the same whichever process
computes them. A shard's rows are written to a file of their own, which is renamed into place: the
next process skips the shards that have one.

Three steps, each of which may run as another process on another machine: prepare (fit the model,
once), score shards (any share of them), merge (one table in pool order).
"""

import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq

from dana.core.artifacts import (
    MANIFEST,
    META_DIR,
    Artifact,
    Draft,
    fingerprint,
    make,
    open_artifact,
    read_manifest,
)
from dana.core.errors import ArtifactError
from dana.core.files import folder_lock, settle_remake, temp_file
from dana.core.launch import Share, on_rank_0, wait_for_all
from dana.core.logging import get_logger, progress, report_ticks
from dana.core.schemas import DOCUMENTS, Document, documents_of, name_damage, part_files
from dana.core.workers import prefetch
from dana.corpus.unit_stream import Units, draw, split_documents
from dana.corpus.units import WholeDocuments
from dana.scoring.inputs import PoolText
from dana.scoring.settings import Selection

log = get_logger(__name__)

AHEAD = 2  # shards read and cut ahead of scoring
SECONDS = b"dana.seconds"  # in the metadata of a shard: the time that scoring it took


@dataclass(frozen=True)
class Shard:
    """A row group of a part of a pool: neighbouring documents.

    Attributes:
        number: From 0, in pool order.
        part: The Parquet file.
        group: Number of the row group in the file.
        document_count: Number of rows.
    """

    number: int
    part: Path
    group: int
    document_count: int

    def read(self) -> Iterator[Document]:
        """Return the documents. The whole group is in memory before the first one is returned."""
        with (
            name_damage(self.part),
            pq.ParquetFile(self.part, page_checksum_verification=True) as file,
        ):
            return documents_of(file.read_row_group(self.group, DOCUMENTS.names))


def shards_of(pool: Path) -> list[Shard]:
    """List the shards of a pool folder, in order."""
    shards: list[Shard] = []
    for part in part_files(pool):
        with name_damage(part):
            metadata = pq.read_metadata(part)
        for group in range(metadata.num_row_groups):
            shards.append(Shard(len(shards), part, group, metadata.row_group(group).num_rows))
    return shards


@dataclass(frozen=True)
class ShardFolder:
    """Folder of one table's shards until they are merged.

    Attributes:
        path: The folder.
        fingerprint: Fingerprint of the table. It is part of each file name, so that shards of other
            tables are ignored.
    """

    path: Path
    fingerprint: str

    def file(self, number: int) -> Path:
        """Return the path of a shard's file."""
        return self.path / f"shard-{number:06d}-{self.fingerprint[:16]}.parquet"

    def missing(self, shards: Iterable[Shard]) -> list[Shard]:
        """Return the shards that have no file yet."""
        return [shard for shard in shards if not self.file(shard.number).is_file()]

    def write(self, number: int, table: pa.Table, seconds: float) -> None:
        """Write a shard to a temporary file, flush it to disk and rename it.

        Args:
            number: Number of the shard.
            table: Rows of the shard.
            seconds: Time that scoring took, stored in the file's metadata until the shards are
                merged.

        Raises:
            ArtifactError: If the folder no longer exists.
        """
        table = table.replace_schema_metadata({SECONDS: f"{seconds:.3f}".encode()})
        try:
            with temp_file(self.file(number)) as temporary:
                pq.write_table(table, temporary, compression="zstd", write_page_checksum=True)
        except FileNotFoundError as error:
            raise ArtifactError(
                f"{self.path}: gone; another process has merged or removed the shards"
            ) from error

    def seconds(self, shards: Iterable[Shard]) -> float:
        """Sum the seconds that scoring these shards took, over all processes."""
        files = [self.file(shard.number) for shard in shards]
        return sum(float(pq.read_schema(file).metadata[SECONDS]) for file in files)

    def tables(
        self, shards: Iterable[Shard], columns: list[str] | None = None
    ) -> Iterator[pa.Table]:
        """Yield the table of each shard, in order.

        Args:
            shards: The shards.
            columns: Columns to read; None reads all.

        Raises:
            ArtifactError: If a file is damaged.
        """
        for shard in shards:
            file = self.file(shard.number)
            try:
                table = pq.read_table(file, columns=columns, page_checksum_verification=True)
            except (OSError, pa.ArrowException) as error:
                raise ArtifactError(
                    f"{file}: damaged ({error}); remove it and score again"
                ) from error
            yield table.replace_schema_metadata(None)


class ShardedTable(ABC):
    """A table of one row per unit of a pool.

    Subclasses are frozen dataclasses that fit a model and compute rows.

    Attributes:
        pool: The pool.
        selection: How its text is cut.
        folder: Folder of the table: ``part-*.parquet`` of `schema`, one row per unit, in pool
            order.
        kind: Kind of the table's artifact, for example ``scores``.
        model_name: Name of the fitted model's artifact, for example ``selector``. It lies beside
            the shards; merging them moves it to ``__dana__/<model_name>``, where :meth:`load` reads
            it.
        schema: Columns of a row.
        command: Command that makes the table, for messages.
    """

    pool: PoolText
    selection: Selection | WholeDocuments
    folder: Path
    kind: ClassVar[str]
    model_name: ClassVar[str]
    schema: ClassVar[pa.Schema]
    command: ClassVar[str]

    @property
    @abstractmethod
    def depends_on(self) -> dict[str, Any]:
        """Inputs of the fingerprint: everything that decides the rows."""

    @abstractmethod
    def fit(self, draft: Draft) -> None:
        """Fit the model and write it into a draft, with counts and seeds.

        Its place is ``__dana__/<model_name>``.
        """

    @abstractmethod
    def load(self, folder: Path) -> Any:
        """Read the model that :meth:`fit` wrote."""

    @abstractmethod
    def rows(self, units: Units, model: Any) -> pa.Table:
        """Compute one row of `schema` per unit, each independent of the others."""

    @abstractmethod
    def join(self, draft: Draft, fitted: Artifact, shards: Iterator[pa.Table]) -> int:
        """Write the table into a draft and return its number of rows.

        Args:
            draft: Draft of the table; the caller sets counts, seeds and seconds.
            fitted: Artifact of :meth:`fit`.
            shards: Tables of the shards in pool order.
        """

    @property
    def shard_folder(self) -> ShardFolder:
        """Folder of the shards."""
        path = self.folder.with_name(f"{self.folder.name}-shards")
        return ShardFolder(path, fingerprint(self.depends_on))

    @property
    def is_done(self) -> bool:
        """Whether the folder holds a table; :meth:`merge` checks that it is this one."""
        settle_remake(self.folder)
        return (self.folder / MANIFEST).is_file()

    def prepare(self) -> Any:
        """Fit the model, or load it if it was fitted before.

        Raises:
            ArtifactError: If the folder holds the shards of another table; the difference is named.
        """
        folder = self.shard_folder.path / self.model_name
        fitted = make(folder, self.model_name, self.depends_on, self.fit)
        return self.load(fitted.path / META_DIR / self.model_name)

    def load_prepared(self) -> Any:
        """Load the model that :meth:`prepare` fitted.

        Raises:
            ArtifactError: If there is none, or it is of another table.
        """
        command = f"{self.command} --prepare, with the same flags"
        # Refuses if there is none; so `prepare` only loads.
        open_artifact(self.shard_folder.path / self.model_name, self.model_name, command)
        return self.prepare()

    def draw_samples(
        self, requests: Mapping[str, tuple[int, int]], runs: Mapping[str, int] | None = None
    ) -> tuple[int, dict[str, Units]]:
        """Count the units of the pool and draw samples, in one pass.

        Args:
            requests: Name of each sample to (seed, size), in order of priority.
            runs: Name of each sample of runs to the units of a run.

        Returns:
            Number of units, and the samples by name, as :func:`dana.corpus.unit_stream.draw` draws
            them.
        """
        count = 0

        def count_units() -> Iterator[Units]:
            nonlocal count
            documents = self.pool.documents
            with progress(what="drawing samples", unit="documents", total=documents) as bar:
                for units in prefetch(self.pool.units(self.selection)):
                    yield units
                    count += len(units)
                    bar.update(len(units.documents))

        # `draw` reads the whole stream, so the count is complete when it returns.
        samples = draw(count_units(), requests, runs)
        return count, samples

    def score(self, model: Any, share: Share) -> float:
        """Score the shards of a share that have no file yet.

        Args:
            model: Model of :meth:`prepare`.
            share: This process's share of the shards.

        Returns:
            Seconds spent on computing rows.
        """
        folder = self.shard_folder
        shards = shards_of(self.pool.artifact.path)[share.number :: share.of]
        missing = folder.missing(shards)
        done = len(shards) - len(missing)
        if done:
            log.info("shards    %d of %d are already scored", done, len(shards))
        seconds = 0.0
        count = 0
        total = self._estimate_units(missing)
        with progress(what="scoring", unit="units", total=total) as bar, report_ticks(bar):
            for shard, batches in prefetch(self._cut(missing), AHEAD):
                start = time.monotonic()
                tables = [self.schema.empty_table()]
                for units in batches:
                    tables.append(self.rows(units, model))
                    count += len(units)
                    bar.update(count - bar.n)  # the encoder has ticked some of them
                shard_seconds = time.monotonic() - start
                seconds += shard_seconds
                folder.write(shard.number, pa.concat_tables(tables).combine_chunks(), shard_seconds)
            bar.total = count
        return seconds

    def _estimate_units(self, shards: list[Shard]) -> int | None:
        """Estimate the number of units of shards for a progress bar.

        It is None if the units of the pool were not counted.
        """
        counts = read_manifest(self.shard_folder.path / self.model_name).get("counts", {})
        if "pool_units" not in counts:
            return None
        documents = sum(shard.document_count for shard in shards)
        units: int = counts["pool_units"]
        return round(units * documents / max(1, self.pool.documents))

    def _cut(self, shards: list[Shard]) -> Iterator[tuple[Shard, list[Units]]]:
        """Yield each shard with its batches of units."""
        splitter = self.selection.splitter()
        for shard in shards:
            yield shard, list(split_documents(shard.read(), splitter))

    def run(self) -> Artifact:
        """Prepare, score and merge, shared by the processes of one launch; resumes after a kill.

        Raises:
            ArtifactError: If another command is making the same table.
        """
        with ExitStack() as stack:
            on_rank_0(lambda: stack.enter_context(self._lock()))  # one lock a launch
            if not on_rank_0(lambda: self.is_done):
                self.score(self.prepare(), Share.of_launch())
                wait_for_all()
            return on_rank_0(self._merge)

    def merge(self) -> Artifact:
        """Join all shards in pool order and remove them.

        Raises:
            ArtifactError: If shards are missing, or another command is making the same table.
        """
        with self._lock():
            return self._merge()

    def _lock(self) -> AbstractContextManager[None]:
        """Lock the shards: merging removes them, so only one command may make the table."""
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        return folder_lock(self.shard_folder.path)

    def _merge(self) -> Artifact:
        """Join the shards, as :meth:`merge` does; the caller holds the lock."""
        folder = self.shard_folder
        shards = shards_of(self.pool.artifact.path)
        missing = folder.missing(shards)
        # A finished table has no shards any more; `make` then returns it.
        if missing and not self.is_done:
            raise ArtifactError(
                f"{folder.path}: {len(missing)} of {len(shards)} shards are not scored yet, "
                f"the first is number {missing[0].number}; "
                f"run {self.command} with the same flags to score them"
            )

        def write(draft: Draft) -> None:
            fitted = open_artifact(folder.path / self.model_name, self.model_name)
            units = self.join(draft, fitted, folder.tables(shards))
            draft.counts = {"units": units, **draft.counts, **fitted.manifest["counts"]}
            draft.seeds = fitted.manifest["seeds"]
            # The manifest's seconds run from `start`: move it back by what the other two steps
            # took.
            draft.start -= fitted.manifest["seconds"] + folder.seconds(shards)

        artifact = make(self.folder, self.kind, self.depends_on, write)
        shutil.rmtree(folder.path, ignore_errors=True)
        return artifact
