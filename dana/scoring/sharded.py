"""Compute one row per unit of a corpus, in shards that any number of processes share. Memory is flat.

A shard is 1,024 documents. Its boundaries depend on the corpus alone, so its rows are the same
whichever process writes it. It is written whole or not at all; the next process scores what a
killed one did not write.

Three steps, each of which may run as another process on another machine: prepare (fit the model,
once), score shards (any share of them), merge (one table in corpus order).
"""

import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from itertools import starmap
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
from dana.core.files import folder_lock, temp_file
from dana.core.launch import Share, on_rank_0, wait_for_all
from dana.core.logging import get_logger, progress, report_ticks
from dana.core.schemas import DOCUMENTS, Document, part_files
from dana.core.workers import prefetch
from dana.corpus.unit_stream import Units, draw, split_documents
from dana.corpus.units import WholeDocuments
from dana.encoders.cache import flush_all
from dana.scoring.inputs import GeneralCorpus
from dana.scoring.settings import Selection

log = get_logger(__name__)

DOCUMENTS_PER_SHARD = 1024
FLUSH_SECONDS = 5.0
AHEAD = 2  # shards read and cut ahead of scoring
SECONDS = b"dana.seconds"


@dataclass(frozen=True)
class Shard:
    """A row group of a part of a corpus: neighbouring documents.

    Attributes:
        number: From 0, in corpus order.
        part: The Parquet file.
        group: Number of the row group in the file.
        documents: Number of rows.
    """

    number: int
    part: Path
    group: int
    documents: int

    def read(self) -> Iterator[Document]:
        """Yield the documents."""
        with pq.ParquetFile(self.part, page_checksum_verification=True) as file:
            table = file.read_row_group(self.group, DOCUMENTS.names)
        columns = (
            table[name].to_pylist() for name in DOCUMENTS.names
        )  # half the time of to_pylist on the table
        return starmap(Document, zip(*columns, strict=True))


def shards_of(corpus: Path) -> list[Shard]:
    """List the shards of a corpus folder, in order."""
    shards: list[Shard] = []
    for part in part_files(corpus):
        metadata = pq.read_metadata(part)
        for group in range(metadata.num_row_groups):
            shards.append(Shard(len(shards), part, group, metadata.row_group(group).num_rows))
    return shards


@dataclass(frozen=True)
class ShardFolder:
    """Folder of one table's shards until they are merged.

    Attributes:
        path: The folder.
        scoring: Fingerprint of the table. It is part of each file name, so that shards of other
            tables are ignored.
    """

    path: Path
    scoring: str

    def file(self, number: int) -> Path:
        """Return the path of a shard's file."""
        return self.path / f"shard-{number:06d}-{self.scoring[:16]}.parquet"

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
        return sum(
            float(pq.read_schema(self.file(shard.number)).metadata[SECONDS]) for shard in shards
        )

    def tables(self, shards: Iterable[Shard]) -> Iterator[pa.Table]:
        """Yield the table of each shard, in order.

        Raises:
            ArtifactError: If a file is damaged.
        """
        for shard in shards:
            file = self.file(shard.number)
            try:
                table = pq.read_table(file, page_checksum_verification=True)
            except (OSError, pa.ArrowException) as error:
                raise ArtifactError(
                    f"{file}: damaged ({error}); remove it and score again"
                ) from error
            yield table.replace_schema_metadata(None)


def key_columns(units: Units) -> list[Any]:
    """Return the first columns of every table of units: doc_id, source, unit, start, end."""
    owners = pa.array(units.owners)
    names = (
        [getattr(document, name) for document in units.documents] for name in ("doc_id", "source")
    )
    columns = [pa.array(values, pa.string()).take(owners) for values in names]
    return columns + [pa.array(numbers) for numbers in (units.numbers, units.starts, units.ends)]


class ShardedTable(ABC):
    """A table of one row per unit of a corpus. Subclasses are frozen dataclasses that fit a model and compute rows.

    Attributes:
        general: The corpus.
        selection: How its text is cut.
        folder: Folder of the table: ``part-*.parquet`` of `schema`, one row per unit, in corpus
            order.
        kind: Kind of the table's artifact, for example ``scores``.
        model_name: Name of the fitted model's artifact, for example ``selector``. It lies beside
            the shards; merging them moves it to ``__dana__/<model_name>``, where :meth:`load` reads
            it.
        schema: Columns of a row.
        command: Command that makes the table, for messages.
    """

    general: GeneralCorpus
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
    def learn(self, draft: Draft) -> None:
        """Fit the model and write it into a draft, under ``__dana__/<model_name>``, with counts and seeds."""

    @abstractmethod
    def load(self, folder: Path) -> Any:
        """Read the model that :meth:`learn` wrote."""

    @abstractmethod
    def rows(self, units: Units, model: Any) -> pa.Table:
        """Compute one row of `schema` per unit, each independent of the others."""

    @abstractmethod
    def join(self, draft: Draft, fit: Artifact, shards: Iterator[pa.Table]) -> int:
        """Write the table into a draft and return its number of rows.

        Args:
            draft: Draft of the table; the caller sets counts, seeds and seconds.
            fit: Artifact of :meth:`learn`.
            shards: Tables of the shards in corpus order.
        """

    @property
    def shards(self) -> ShardFolder:
        """Folder of the shards."""
        return ShardFolder(
            self.folder.with_name(f"{self.folder.name}-shards"), fingerprint(self.depends_on)
        )

    @property
    def is_done(self) -> bool:
        """Whether the folder holds a table; :meth:`merge` checks that it is this one."""
        return (self.folder / MANIFEST).is_file()

    def prepare(self) -> Any:
        """Fit the model, or load it if it was fitted before.

        Raises:
            ArtifactError: If the folder holds the shards of another table; the difference is named.
        """
        fit = make(self.shards.path / self.model_name, self.model_name, self.depends_on, self.learn)
        return self.load(fit.path / META_DIR / self.model_name)

    def load_prepared(self) -> Any:
        """Load the model that :meth:`prepare` fitted.

        Raises:
            ArtifactError: If there is none, or it is of another table.
        """
        command = f"{self.command} --prepare, with the same flags"
        open_artifact(self.shards.path / self.model_name, self.model_name, command)
        return self.prepare()

    def draw_samples(
        self, sample_sizes: Mapping[str, tuple[int, int]], runs: Mapping[str, int] | None = None
    ) -> tuple[int, dict[str, Units]]:
        """Count the units of the corpus and draw samples, in one pass; see :func:`dana.corpus.unit_stream.draw`."""
        count = 0

        def count_units() -> Iterator[Units]:
            nonlocal count
            with progress(
                what="drawing samples", unit="documents", total=self.general.documents
            ) as bar:
                for units in prefetch(self.general.units(self.selection)):
                    yield units
                    count += len(units)
                    bar.update(len(units.documents))

        samples = draw(count_units(), sample_sizes, runs)
        return count, samples

    def score(self, model: Any, share: Share) -> float:
        """Score the shards of a share that have no file yet.

        Args:
            model: Model of :meth:`prepare`.
            share: This process's share of the shards.

        Returns:
            Seconds spent on computing rows.
        """
        shards = shards_of(self.general.artifact.path)[share.number :: share.of]
        missing = self.shards.missing(shards)
        if len(missing) < len(shards):
            log.info(
                "shards    %d of %d are already scored", len(shards) - len(missing), len(shards)
            )
        busy, last_flush, unit_count = 0.0, 0.0, 0
        with (
            progress(what="scoring", unit="units", total=self._estimate_units(missing)) as bar,
            report_ticks(bar),
        ):
            for shard, batches in prefetch(self._cut(missing), AHEAD):
                began, rows = time.monotonic(), [self.schema.empty_table()]
                for units in batches:
                    rows.append(self.rows(units, model))
                    unit_count += len(units)
                    bar.update(unit_count - bar.n)  # the encoder has ticked some of them
                spent = time.monotonic() - began
                if busy + spent - last_flush > FLUSH_SECONDS:  # of encoding, which a kill may lose
                    flush_all()
                    last_flush = busy + spent
                self.shards.write(shard.number, pa.concat_tables(rows).combine_chunks(), spent)
                busy += spent
            bar.total = unit_count
        return busy

    def _estimate_units(self, shards: list[Shard]) -> int | None:
        """Estimate the number of units of shards for a progress bar; None if the corpus' units were not counted."""
        general_units = (
            read_manifest(self.shards.path / self.model_name).get("counts", {}).get("general_units")
        )
        documents = sum(shard.documents for shard in shards)
        return (
            None
            if general_units is None
            else round(general_units * documents / max(1, self.general.documents))
        )

    def _cut(self, shards: list[Shard]) -> Iterator[tuple[Shard, list[Units]]]:
        """Yield each shard with its batches of units."""
        splitter = self.selection.splitter()
        return ((shard, list(split_documents(shard.read(), splitter))) for shard in shards)

    def run(self) -> Artifact:
        """Prepare, score and merge, shared by the processes of one launch; resumes after a kill.

        Raises:
            ArtifactError: If another command is making the same table.
        """
        with ExitStack() as stack:
            on_rank_0(lambda: stack.enter_context(self._lock()))
            if not on_rank_0(lambda: self.is_done):
                self.score(self.prepare(), Share.of_launch())
                wait_for_all()
            return on_rank_0(self._merge)

    def merge(self) -> Artifact:
        """Join all shards in corpus order and remove them.

        Raises:
            ArtifactError: If shards are missing, or another command is making the same table.
        """
        with self._lock():
            return self._merge()

    def _lock(self) -> AbstractContextManager[None]:
        """Lock the shards: merging removes them, so only one process may."""
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        return folder_lock(self.shards.path)

    def _merge(self) -> Artifact:
        every = shards_of(self.general.artifact.path)
        missing = self.shards.missing(every)
        if missing and not self.is_done:
            count = f"{len(missing)} of {len(every)} shards"
            problem = f"{count} are not scored yet, the first is number {missing[0].number}"
            raise ArtifactError(
                f"{self.shards.path}: {problem}; run {self.command} with the same flags to score them"
            )
        artifact = make(
            self.folder, self.kind, self.depends_on, lambda draft: self._join(draft, every)
        )
        shutil.rmtree(self.shards.path, ignore_errors=True)
        return artifact

    def _join(self, draft: Draft, every: list[Shard]) -> None:
        fit = open_artifact(self.shards.path / self.model_name, self.model_name)
        units = self.join(draft, fit, self.shards.tables(every))
        draft.counts = {"units": units, **fit.manifest["counts"]}
        draft.seeds = fit.manifest["seeds"]
        draft.start -= fit.manifest["seconds"] + self.shards.seconds(
            every
        )  # the manifest counts all three steps
