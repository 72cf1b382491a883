"""A corpus to a table of one row a unit, in shards that any number of processes make. Flat memory, the same bytes.

Three steps, each of which may be another process on another machine: prepare (learn what the rows need, once), score
shards (any share of them), merge (one table in corpus order).
"""

import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from dana.core.artifacts import MANIFEST, OWN, Artifact, Draft, fingerprint, make, open_artifact, read_manifest
from dana.core.errors import ArtifactError
from dana.core.launch import Share, first, wait_for_all
from dana.core.locks import locked
from dana.core.logging import get_logger, progress, ticking
from dana.core.prefetch import prefetch
from dana.core.seals import refuse_damage
from dana.corpus.unit_stream import Units, draw, units_of
from dana.corpus.units import WholeDocuments
from dana.scoring.inputs import GeneralCorpus
from dana.scoring.settings import Selection
from dana.scoring.shards import Shard, ShardFolder, shards_of

log = get_logger(__name__)


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
    learned: ClassVar[str]
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
        """Learn what the rows need, or read what was learned before.

        Raises:
            ArtifactError: If the folder holds the shards of another table; the difference is named.
        """
        made = make(self.shards.path / self.learned, self.learned, self.depends_on, self.learn)
        return self._loaded(made)

    def prepared(self) -> Any:
        """What :meth:`prepare` left.

        Raises:
            ArtifactError: If it has not run, or ran for something else.
        """
        hint = f"{self.command} --prepare, with the same flags"
        made = open_artifact(self.shards.path / self.learned, self.learned, hint)
        if made.fingerprint != fingerprint(self.depends_on):
            self.prepare()  # names the difference
        return self._loaded(made)

    def _loaded(self, made: Artifact) -> Any:
        """What was learned, once every byte of it is found whole: it decides all rows."""
        self._refuse_damage(made)
        return self.load(made.path / OWN / self.learned)

    def _refuse_damage(self, made: Artifact) -> None:
        refuse_damage(made.path, made.manifest["files"], f"remove {made.path}, then prepare it again: {self.command}")

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

    def next_batch(self) -> None:  # noqa: B027, most keep nothing
        """Called before each batch of units: what was kept of the one before may go."""

    def score(self, fitted: Any, share: Share) -> float:
        """Make the shards of a share that nobody has made yet; returns the seconds spent on rows.

        Args:
            fitted: From :meth:`prepare`.
            share: Which shards.
        """
        return score_shards([self], [fitted], share)

    def expected(self, shards: list[Shard]) -> int | None:
        """About how many units some shards have, for a progress bar; None where nobody has counted."""
        counted = read_manifest(self.shards.path / self.learned).get("counts", {}).get("general_units")
        documents = sum(shard.documents for shard in shards)
        return None if counted is None else round(counted * documents / max(1, self.general.documents))

    def _batches(self, shards: list[Shard]) -> Iterator[tuple[Shard, Units | None]]:
        """Each shard's units, a batch at a time, and None when it is over."""
        splitter = self.selection.splitter()
        for shard in shards:
            for units in units_of(shard.read(), splitter):
                yield shard, units
            yield shard, None

    def whole(self, score: Callable[[], None] | None = None) -> Artifact:
        """All three steps; what was done before is not done again.

        Args:
            score: Makes the missing shards by others. By default the processes of one launch share them.

        Raises:
            ArtifactError: If another command is at it.
        """
        return make_tables([self], score)[0]

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
        return locked(self.shards.path)

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
        prepared = open_artifact(self.shards.path / self.learned, self.learned)
        self._refuse_damage(prepared)  # what is copied gets a seal of its own
        units = self.join(draft, prepared, self.shards.tables(every))
        draft.counts = {"units": units, **prepared.manifest["counts"]}
        draft.seeds = prepared.manifest["seeds"]
        draft.began -= prepared.manifest["seconds"] + self.shards.seconds(every)  # rows take more than joining them


def make_tables(tables: Sequence[ShardedTable], score: Callable[[], None] | None = None) -> list[Artifact]:
    """Tables of one corpus, cut alike, in one pass over its text; what was done before is not done again.

    Args:
        tables: All of one corpus and with the same units.
        score: Makes the missing shards by others. By default the processes of one launch share them.

    Returns:
        An artifact a table, with the bytes that it has when it is made by itself.

    Raises:
        ArtifactError: If another command is at one of them.
    """
    with ExitStack() as held:
        in_order = sorted(tables, key=lambda table: table.folder.resolve())  # the same for whoever else comes
        first(lambda: [held.enter_context(table._alone()) for table in in_order])
        are_done = first(lambda: [table.is_done for table in tables])
        if todo := [table for table, is_done in zip(tables, are_done, strict=True) if not is_done]:
            fitted = [table.prepare() for table in todo]
            score_shards(todo, fitted, Share.of_launch()) if score is None else score()
            wait_for_all()
        return first(lambda: [table._merge() for table in tables])


def score_shards(tables: Sequence[ShardedTable], fitted: Sequence[Any], share: Share) -> float:
    """Make the shards of a share that nobody has made yet, reading and cutting each once for all tables that lack it.

    Args:
        tables: See :func:`make_tables`.
        fitted: From :meth:`ShardedTable.prepare`, one a table.
        share: Which shards.

    Returns:
        The seconds spent on rows.
    """
    first_of, folders = tables[0], [table.shards for table in tables]
    mine = shards_of(first_of.general.artifact.path)[share.number :: share.of]
    lacking = [{shard.number for shard in folder.missing(mine)} for folder in folders]
    missing = [shard for shard in mine if any(shard.number in lacks for lacks in lacking)]
    wanted = sum(map(len, lacking))
    if wanted < len(mine) * len(tables):
        log.info("shards    %d of %d are there already", len(mine) * len(tables) - wanted, len(mine) * len(tables))
    started, busy = time.monotonic(), 0.0
    with progress(what="scoring", unit="units", total=first_of.expected(missing)) as bar, ticking(bar):
        rows: list[list[pa.Table]] = [[] for _ in tables]
        done, begun = 0, started
        for shard, units in prefetch(first_of._batches(missing)):
            takers = [place for place, lacks in enumerate(lacking) if shard.number in lacks]
            if units is not None:
                before = time.monotonic()
                tables[takers[0]].next_batch()
                for place in takers:
                    rows[place].append(tables[place].rows(units, fitted[place]))
                busy += time.monotonic() - before
                done += len(units)
                bar.update(done - bar.n)  # less what the encoder ticked
                continue
            now = time.monotonic()
            for place in takers:
                table = pa.concat_tables([tables[place].schema.empty_table(), *rows[place]]).combine_chunks()
                folders[place].write(shard.number, table, (now - begun) / len(takers))
            rows, begun = [[] for _ in tables], now
        bar.total = done
    spent = time.monotonic() - started
    if missing:
        log.info("shards    %d scored in %.1f s, %.1f %% of it scoring", wanted, spent, 100 * busy / spent)
    return busy
