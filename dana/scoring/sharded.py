"""A corpus to a table of one row a unit, in shards that any number of processes make. Flat memory, the same bytes.

A shard is 1,024 documents. Where it begins follows from the corpus alone, so it holds the same rows whichever process
writes it; it is written whole or not at all, and what a killed process did not write the next one does.

Three steps, each of which may be another process on another machine: prepare (learn what the rows need, once), score
shards (any share of them), merge (one table in corpus order).
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

from dana.core.artifacts import MANIFEST, META_DIR, Artifact, Draft, fingerprint, make, open_artifact, read_manifest
from dana.core.errors import ArtifactError
from dana.core.files import check_digests, folder_lock, temp_file
from dana.core.launch import Share, on_rank_0, wait_for_all
from dana.core.logging import get_logger, progress, report_ticks
from dana.core.schemas import DOCUMENTS, Document, part_files
from dana.core.workers import prefetch
from dana.corpus.unit_stream import Units, draw, split_documents
from dana.corpus.units import WholeDocuments
from dana.scoring.inputs import GeneralCorpus
from dana.scoring.settings import Selection

log = get_logger(__name__)

DOCUMENTS_PER_SHARD = 1024
AHEAD = 2  # shards that are read and cut while another is scored
SECONDS = b"dana.seconds"


@dataclass(frozen=True)
class Shard:
    """A row group of a part of a corpus: neighbouring documents.

    Attributes:
        number: From 0, in corpus order.
        part: The Parquet file.
        group: The row group's number there.
        documents: How many rows.
    """

    number: int
    part: Path
    group: int
    documents: int

    def read(self) -> Iterator[Document]:
        """The documents."""
        with pq.ParquetFile(self.part, page_checksum_verification=True) as file:
            table = file.read_row_group(self.group, DOCUMENTS.names)
        columns = (table[name].to_pylist() for name in DOCUMENTS.names)  # half the time of a dictionary a row
        return starmap(Document, zip(*columns, strict=True))


def shards_of(corpus: Path) -> list[Shard]:
    """All shards of a corpus folder, in order."""
    found: list[Shard] = []
    for part in part_files(corpus):
        about = pq.read_metadata(part)
        for group in range(about.num_row_groups):
            found.append(Shard(len(found), part, group, about.row_group(group).num_rows))
    return found


@dataclass(frozen=True)
class ShardFolder:
    """Where the shards of one scoring lie until they are merged.

    Attributes:
        path: The folder.
        scoring: The scoring's fingerprint, which is in each file's name: those of another do not count.
    """

    path: Path
    scoring: str

    def file(self, number: int) -> Path:
        """A shard's file."""
        return self.path / f"shard-{number:06d}-{self.scoring[:16]}.parquet"

    def missing(self, shards: Iterable[Shard]) -> list[Shard]:
        """Those that this scoring has no file of yet."""
        return [shard for shard in shards if not self.file(shard.number).is_file()]

    def write(self, number: int, table: pa.Table, seconds: float) -> None:
        """Write a shard's file aside, put it on the disk, and rename it.

        Args:
            number: Of the shard.
            table: Its scores.
            seconds: That scoring it took; kept beside the scores until they are merged.

        Raises:
            ArtifactError: If the folder is gone.
        """
        timed = table.replace_schema_metadata({SECONDS: f"{seconds:.3f}".encode()})
        try:
            with temp_file(self.file(number)) as temporary:
                pq.write_table(timed, temporary, compression="zstd", write_page_checksum=True)
        except FileNotFoundError as error:
            raise ArtifactError(f"{self.path}: is gone; another process has merged or removed the shards") from error

    def seconds(self, shards: Iterable[Shard]) -> float:
        """How long it took to score some shards, summed over the processes that did."""
        return sum(float(pq.read_schema(self.file(shard.number)).metadata[SECONDS]) for shard in shards)

    def tables(self, shards: Iterable[Shard]) -> Iterator[pa.Table]:
        """Every shard's table, in order.

        Raises:
            ArtifactError: If one is damaged.
        """
        for shard in shards:
            file = self.file(shard.number)
            try:
                table = pq.read_table(file, page_checksum_verification=True)
            except (OSError, pa.ArrowException) as error:
                raise ArtifactError(f"{file}: damaged ({error}); remove it and score again") from error
            yield table.replace_schema_metadata(None)


def key_columns(units: Units) -> list[Any]:
    """The columns that every table of units begins with: doc_id, source, unit, start, end."""
    of = pa.array(units.owners)
    return [
        pa.array([document.doc_id for document in units.documents], pa.string()).take(of),
        pa.array([document.source for document in units.documents], pa.string()).take(of),
        pa.array(units.numbers),
        pa.array(units.starts),
        pa.array(units.ends),
    ]


class ShardedTable(ABC):
    """One table of one corpus. A subclass is a frozen dataclass that says what is learned first and what a row is.

    Attributes:
        general: The corpus.
        selection: How its text is cut.
        folder: Where ``part-*.parquet`` of `schema` goes, one row a unit, in corpus order.
        kind: What the folder holds, for example ``scores``.
        learned: What the rows need, for example ``selector``: an artifact of this name lies beside the shards until
            they are merged, and what it has under ``__dana__/`` of the same name is what :meth:`load` reads.
        command: That makes it, for messages.
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
        """All that decides the rows."""

    @abstractmethod
    def learn(self, draft: Draft) -> None:
        """Write what the rows need into a draft, under ``__dana__/`` and the name `learned`, with counts and seeds."""

    @abstractmethod
    def load(self, folder: Path) -> Any:
        """What :meth:`learn` wrote there."""

    @abstractmethod
    def rows(self, units: Units, fitted: Any) -> pa.Table:
        """A row of `schema` a unit; none depends on the others."""

    @abstractmethod
    def join(self, draft: Draft, prepared: Artifact, shards: Iterator[pa.Table]) -> int:
        """Write the table into a draft; returns its rows.

        Args:
            draft: Its counts, seeds and seconds are filled in by others.
            prepared: What :meth:`learn` wrote.
            shards: In corpus order.
        """

    @property
    def shards(self) -> ShardFolder:
        """Where shards wait to be merged."""
        return ShardFolder(self.folder.with_name(f"{self.folder.name}-shards"), fingerprint(self.depends_on))

    @property
    def is_done(self) -> bool:
        """Whether the folder holds the table; :meth:`merge` refuses that of something else."""
        return (self.folder / MANIFEST).is_file()

    def prepare(self) -> Any:
        """Learn what the rows need, or read what was learned before, once every byte of it is found whole.

        Raises:
            ArtifactError: If the folder holds the shards of another table; the difference is named.
        """
        learned = make(self.shards.path / self.model_name, self.model_name, self.depends_on, self.learn)
        self._refuse_damage(learned)
        return self.load(learned.path / META_DIR / self.model_name)

    def load_prepared(self) -> Any:
        """What :meth:`prepare` left.

        Raises:
            ArtifactError: If it has not run, or ran for something else.
        """
        command = f"{self.command} --prepare, with the same flags"
        open_artifact(self.shards.path / self.model_name, self.model_name, command)
        return self.prepare()

    def _refuse_damage(self, made: Artifact) -> None:
        check_digests(made.path, made.manifest["files"], f"remove {made.path}, then prepare it again: {self.command}")

    def draw_samples(
        self, wanted: Mapping[str, tuple[int, int]], runs: Mapping[str, int] | None = None
    ) -> tuple[int, dict[str, Units]]:
        """One pass through the corpus: how many units it has, and samples; see :func:`dana.corpus.unit_stream.draw`."""
        count = 0

        def watched() -> Iterator[Units]:
            nonlocal count
            with progress(what="drawing samples", unit="documents", total=self.general.documents) as bar:
                for units in prefetch(self.general.units(self.selection)):
                    yield units
                    count += len(units)
                    bar.update(len(units.documents))

        samples = draw(watched(), wanted, runs)
        return count, samples

    def score(self, fitted: Any, share: Share) -> float:
        """Make the shards of a share that nobody has made yet; returns the seconds spent on rows.

        Args:
            fitted: From :meth:`prepare`.
            share: Which shards.
        """
        mine = shards_of(self.general.artifact.path)[share.number :: share.of]
        missing = self.shards.missing(mine)
        if len(missing) < len(mine):
            log.info("shards    %d of %d are there already", len(mine) - len(missing), len(mine))
        busy, done = 0.0, 0
        with progress(what="scoring", unit="units", total=self._expected(missing)) as bar, report_ticks(bar):
            for shard, batches in prefetch(self._cut(missing), AHEAD):
                began = time.monotonic()
                rows = [self.schema.empty_table()]
                for units in batches:
                    rows.append(self.rows(units, fitted))
                    done += len(units)
                    bar.update(done - bar.n)  # less what the encoder ticked
                spent = time.monotonic() - began
                self.shards.write(shard.number, pa.concat_tables(rows).combine_chunks(), spent)
                busy += spent
            bar.total = done
        return busy

    def _expected(self, shards: list[Shard]) -> int | None:
        """About how many units some shards have, for a progress bar; None where nobody has counted."""
        counted = read_manifest(self.shards.path / self.model_name).get("counts", {}).get("general_units")
        documents = sum(shard.documents for shard in shards)
        return None if counted is None else round(counted * documents / max(1, self.general.documents))

    def _cut(self, shards: list[Shard]) -> Iterator[tuple[Shard, list[Units]]]:
        """Each shard with its units, in batches."""
        splitter = self.selection.splitter()
        for shard in shards:
            yield shard, list(split_documents(shard.read(), splitter))

    def run(self) -> Artifact:
        """All three steps, shared by the processes of one launch; what was done before is not done again.

        Raises:
            ArtifactError: If another command is at it.
        """
        with ExitStack() as held:
            on_rank_0(lambda: held.enter_context(self._alone()))
            if not on_rank_0(lambda: self.is_done):
                self.score(self.prepare(), Share.of_launch())
                wait_for_all()
            return on_rank_0(self._merge)

    def merge(self) -> Artifact:
        """Join all shards, in corpus order, and remove them.

        Raises:
            ArtifactError: If some are missing, or another process is making them all.
        """
        with self._alone():
            return self._merge()

    def _alone(self) -> AbstractContextManager[None]:
        """Held by whoever merges: it removes the shards, under the hands of any other."""
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        return folder_lock(self.shards.path)

    def _merge(self) -> Artifact:
        every = shards_of(self.general.artifact.path)
        missing = self.shards.missing(every)
        if missing and not self.is_done:
            raise ArtifactError(
                f"{self.shards.path}: {len(missing)} of {len(every)} shards are not scored yet, the first is number "
                f"{missing[0].number}; {self.command}, with the same flags, scores what is missing"
            )
        artifact = make(self.folder, self.kind, self.depends_on, lambda draft: self._join(draft, every))
        shutil.rmtree(self.shards.path, ignore_errors=True)
        return artifact

    def _join(self, draft: Draft, every: list[Shard]) -> None:
        prepared = open_artifact(self.shards.path / self.model_name, self.model_name)
        self._refuse_damage(prepared)  # what is copied gets a seal of its own
        units = self.join(draft, prepared, self.shards.tables(every))
        draft.counts = {"units": units, **prepared.manifest["counts"]}
        draft.seeds = prepared.manifest["seeds"]
        draft.start -= prepared.manifest["seconds"] + self.shards.seconds(every)  # rows take more than joining them
