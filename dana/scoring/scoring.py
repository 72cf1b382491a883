"""Scoring of a corpus: task text, general text and a selector to an anomaly score a unit. DANA, Algorithm 1.

Three steps, each of which may be another process on another machine: prepare (fit the selector on the task, once),
score shards (any share of them), merge (one table in corpus order). ``dana score`` alone does all three.
"""

import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dana.core.artifacts import (
    MANIFEST,
    OWN,
    Artifact,
    Draft,
    fingerprint,
    make,
    open_artifact,
    read_manifest,
    write_json,
)
from dana.core.errors import ArtifactError, DataError
from dana.core.launch import first, wait_for_all
from dana.core.locks import locked
from dana.core.logging import get_logger, progress, ticking
from dana.core.origin import blamed, origin_of
from dana.core.rng import derive_seed
from dana.core.schemas import HELD_OUT_TASK, SCORES, write_parts
from dana.core.statistics import Moments
from dana.corpus.unit_stream import Units, draw, units_of
from dana.scoring.inputs import GeneralCorpus, Selection, TaskText
from dana.scoring.prefetch import prefetch
from dana.scoring.score_table import score_table
from dana.scoring.shards import Shard, ShardFolder, Share, shards_of
from dana.selectors.base import FittedSelector, Selector
from dana.selectors.build import create_selector
from dana.selectors.detector import DetectorSelector

log = get_logger(__name__)

MIN_TASK_UNITS = 20
SAMPLES = f"{OWN}/samples.json"
LEARNED = f"{OWN}/selector"
SELECTOR = "selector"  # beside the shards: the artifact that holds these three until they are merged


def build_selector(selector: str, detector: str, selection: Selection) -> Selector:
    """The selector of a spec, in the context of a selection and its detector."""
    return create_selector(selector, selection.context(detector))


def detector_selector(detector: str, selection: Selection) -> DetectorSelector:
    """A detector over the selection's encoder and geometry: what is ranked is what is deployed."""
    return DetectorSelector(context=selection.context(detector))


@dataclass(frozen=True)
class Scoring:
    """One scoring of one corpus.

    Attributes:
        task: What to look for.
        general: Where.
        selection: How text is cut.
        selector: What scores it.
        folder: Where ``part-*.parquet`` goes (:data:`dana.core.schemas.SCORES`, one row a unit, corpus order), with,
            in ``__dana__/``, ``held_out_task.parquet`` (the same for held-out task units), ``samples.json`` (ids of
            the general units that were fitted on) and ``selector/`` (what was learned).
    """

    task: TaskText
    general: GeneralCorpus
    selection: Selection
    selector: Selector
    folder: Path

    @property
    def depends_on(self) -> dict[str, Any]:
        """All that decides the scores."""
        return {
            "task": self.task.fingerprint,
            "general": self.general.fingerprint,
            "selection": self.selection.cut(),
            "selector": {**self.selector.identity(), "code": origin_of(self.selector)},
        }

    @property
    def shards(self) -> ShardFolder:
        """Where shards wait to be merged."""
        return ShardFolder(self.folder.with_name(f"{self.folder.name}-shards"), fingerprint(self.depends_on))

    @property
    def is_done(self) -> bool:
        """Whether the folder holds scores; :meth:`merge` refuses those of something else."""
        return (self.folder / MANIFEST).is_file()

    def prepare(self) -> FittedSelector:
        """Fit the selector, or read what was fitted before.

        Raises:
            DataError: If the task has fewer than 20 units.
            ArtifactError: If the folder holds the shards of another scoring; the difference is named.
        """
        made = make(self.shards.path / SELECTOR, "selector", self.depends_on, self._fit)
        return self.selector.load(made.path / LEARNED)

    def prepared(self) -> FittedSelector:
        """What :meth:`prepare` left.

        Raises:
            ArtifactError: If it has not run, or ran for something else.
        """
        made = open_artifact(self.shards.path / SELECTOR, "selector", "dana score --prepare, with the same flags")
        if made.fingerprint != fingerprint(self.depends_on):
            self.prepare()  # names the difference
        return self.selector.load(made.path / LEARNED)

    def _fit(self, draft: Draft) -> None:
        task = self.task.units(self.selection)
        if len(task) < MIN_TASK_UNITS:
            raise DataError(f"the task has {len(task)} units; selection needs at least {MIN_TASK_UNITS}")
        wanted = {
            name: (derive_seed(self.selection.seed, "general", name), size)
            for name, size in self.selector.samples(len(task)).items()
        }
        units, samples = self._draw(wanted) if wanted else (None, {})
        self.selector.announce_cost(len(task), self.general.documents)
        total = sum(map(len, [task, *samples.values()]))
        blame = blamed("selector", type(self.selector).__name__, self.selector)
        with progress(what="fitting", unit="units", total=total) as bar, ticking(bar), blame:
            fitted = self.selector.fit(task, samples, self.selection.seed)
            bar.update(total - bar.n)
        fitted.save(draft.path / LEARNED)
        held_out = [score_table(units, fitted) for units in self.task.held_out_units(self.selection)]
        together = pa.concat_tables([SCORES.empty_table(), *held_out])
        pq.write_table(together, draft.path / HELD_OUT_TASK, compression="zstd")
        write_json(draft.path / SAMPLES, {name: sample.ids for name, sample in samples.items()})
        draft.seeds.update({name: seed for name, (seed, _) in wanted.items()})
        draft.counts = {
            "task_units": len(task),
            "general_samples": {name: len(sample) for name, sample in samples.items()},
            "held_out_task_units": together.num_rows,
            **({} if units is None else {"general_units": units}),
        }
        draft.notes |= getattr(fitted, "notes", {})

    def _draw(self, wanted: Mapping[str, tuple[int, int]]) -> tuple[int, dict[str, Units]]:
        """One pass through the corpus: how many units it has, and the samples."""
        count = 0

        def watched() -> Iterator[Units]:
            nonlocal count
            with progress(what="drawing samples", unit="documents", total=self.general.documents) as bar:
                for units in prefetch(self.general.units(self.selection)):
                    yield units
                    count += len(units)
                    bar.update(len(units.documents))

        samples = draw(watched(), wanted, self.selector.runs())
        return count, samples

    def score(self, fitted: FittedSelector, share: Share) -> float:
        """Score the shards of a share that nobody has scored yet; returns the seconds spent scoring.

        Args:
            fitted: From :meth:`prepare`.
            share: Which shards.
        """
        mine = shards_of(self.general.artifact.path)[share.number :: share.of]
        missing = self.shards.missing(mine)
        if len(missing) < len(mine):
            log.info("shards    %d of %d are there already", len(mine) - len(missing), len(mine))
        started, busy = time.monotonic(), 0.0
        with progress(what="scoring", unit="units", total=self._expected(missing)) as bar, ticking(bar):
            scored: list[pa.Table] = []
            done, begun = 0, started
            for shard, units in prefetch(self._batches(missing)):
                if units is not None:
                    before = time.monotonic()
                    scored.append(score_table(units, fitted))
                    busy += time.monotonic() - before
                    done += len(units)
                    bar.update(done - bar.n)  # less what the encoder ticked
                    continue
                table, now = pa.concat_tables([SCORES.empty_table(), *scored]).combine_chunks(), time.monotonic()
                self.shards.write(shard.number, table, now - begun)
                scored, begun = [], now
            bar.total = done
        spent = time.monotonic() - started
        if missing:
            log.info("shards    %d scored in %.1f s, %.1f %% of it scoring", len(missing), spent, 100 * busy / spent)
        return busy

    def _expected(self, shards: list[Shard]) -> int | None:
        """About how many units some shards have; None where nobody has counted."""
        counted = read_manifest(self.shards.path / SELECTOR).get("counts", {}).get("general_units")
        documents = sum(shard.documents for shard in shards)
        return None if counted is None else round(counted * documents / max(1, self.general.documents))

    def _batches(self, shards: list[Shard]) -> Iterator[tuple[Shard, Units | None]]:
        """Each shard's units, a batch at a time, and None when it is over."""
        splitter = self.selection.splitter()
        for shard in shards:
            for units in units_of(shard.read(), splitter):
                yield shard, units
            yield shard, None

    def whole(self) -> Artifact:
        """All three steps; the processes of one launch share the shards, and what was done before is not done again.

        Raises:
            ArtifactError: If another command is at it.
        """
        with ExitStack() as held:
            first(lambda: held.enter_context(self._alone()))
            if not first(lambda: self.is_done):
                self.score(self.prepare(), Share.of_launch())
                wait_for_all()
            return first(self._merge)

    def merge(self) -> Artifact:
        """Join all shards, in corpus order, and remove them.

        Raises:
            ArtifactError: If some are missing, or another process is scoring them all.
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
                f"{missing[0].number}; dana score, with the same flags, scores what is missing"
            )
        artifact = make(self.folder, "scores", self.depends_on, lambda draft: self._join(draft, every))
        shutil.rmtree(self.shards.path, ignore_errors=True)
        return artifact

    def _join(self, draft: Draft, every: list[Shard]) -> None:
        made = open_artifact(self.shards.path / SELECTOR, "selector")
        for name in (HELD_OUT_TASK, SAMPLES):
            shutil.copyfile(made.path / name, draft.path / name)
        shutil.copytree(made.path / LEARNED, draft.path / LEARNED)
        moments = Moments()

        def watched() -> Iterator[pa.Table]:
            nonlocal moments
            for shard in self.shards.tables(every):  # in corpus order, so that sums round alike whoever scored what
                moments = moments.merge(Moments.of(shard["score"].to_numpy()))
                yield shard

        draft.counts = {"units": write_parts(watched(), draft.path, SCORES), **made.manifest["counts"]}
        draft.seeds = made.manifest["seeds"]
        draft.notes |= {"mean": moments.mean, "std": moments.std}
        draft.began -= made.manifest["seconds"] + self.shards.seconds(every)  # scores take more than joining them
        draft.notes |= {key: made.manifest[key] for key in ("audit", "choice") if key in made.manifest}
