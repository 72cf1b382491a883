"""``dana score``: every unit of the general corpus gets an anomaly score. Algorithm 1, stage 1; D-05.

Three steps, each of which may be another process on another machine: prepare (fit the selector on the task, once),
score shards (any share of them), merge (one table in corpus order). ``dana score`` alone does all three.
"""

import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dana.artifacts import MANIFEST, Artifact, Draft, fingerprint, make, open_artifact, write_json
from dana.errors import ArtifactError, DataError
from dana.logging import get_logger, progress
from dana.registry import SELECTORS
from dana.rng import derive_seed
from dana.schemas import SCORES, write_parts
from dana.selectors.base import FittedSelector, Selector, Units
from dana.selectors.detector import DetectorSelector
from dana.stages.pipeline import ahead
from dana.stages.selection import GeneralCorpus, Selection, TaskText
from dana.stages.shards import Shard, ShardFolder, shards_of
from dana.stages.team import Share
from dana.stages.unit_stream import draw, units_of
from dana.weights import Moments

log = get_logger(__name__)

MIN_TASK_UNITS = 20
TASK = "task.parquet"
SAMPLES = "samples.json"
SELECTOR = "selector"


def build_selector(selector: str, detector: str, selection: Selection) -> Selector:
    """The selector of a spec; ``detector`` is the paper's and takes its parts from the other arguments."""
    if selector == "detector":
        return DetectorSelector(detector, selection.encoder, selection.geometry, selection.store, selection.store_dtype)
    made = SELECTORS.create(selector)
    encodes = is_dataclass(made) and not isinstance(made, type) and "store" in {field.name for field in fields(made)}
    return replace(made, store=selection.store, store_dtype=selection.store_dtype) if encodes else made


@dataclass(frozen=True)
class Scoring:
    """One scoring of one corpus.

    Attributes:
        task: What to look for.
        general: Where.
        selection: How text is cut.
        selector: What scores it.
        folder: Where ``part-*.parquet`` goes (:data:`dana.schemas.SCORES`, one row a unit, corpus order), with
            ``task.parquet`` (the same for held-out task units), ``samples.json`` (ids of the general units that
            were fitted on) and ``selector/`` (what was learned).
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
            "selection": self.selection.identity(),
            "selector": self.selector.identity(),
        }

    @property
    def shards(self) -> ShardFolder:
        """Where shards wait to be merged."""
        return ShardFolder(self.folder.with_name(f"{self.folder.name}-shards"))

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
        return self.selector.load(made.path / SELECTOR)

    def prepared(self) -> FittedSelector:
        """What :meth:`prepare` left.

        Raises:
            ArtifactError: If it has not run, or ran for something else.
        """
        made = open_artifact(self.shards.path / SELECTOR, "selector", "dana score --prepare, with the same flags")
        if made.fingerprint != fingerprint(self.depends_on):
            self.prepare()  # names the difference
        return self.selector.load(made.path / SELECTOR)

    def _fit(self, draft: Draft) -> None:
        texts = self.task.units(self.selection)
        if len(texts) < MIN_TASK_UNITS:
            raise DataError(f"the task has {len(texts)} units; selection needs at least {MIN_TASK_UNITS}")
        wanted = {
            name: (derive_seed(self.selection.seed, "general", name), size)
            for name, size in self.selector.samples(len(texts)).items()
        }
        samples = draw(ahead(self.general.units(self.selection)), wanted) if wanted else {}
        found = {name: sample.texts for name, sample in samples.items()}
        fitted = self.selector.fit(texts, found, self.selection.seed)
        fitted.save(draft.path / SELECTOR)
        held_out = [table(units, fitted) for units in self.task.held_out_units(self.selection)]
        together = pa.concat_tables([SCORES.empty_table(), *held_out])
        pq.write_table(together, draft.path / TASK, compression="zstd")
        write_json(draft.path / SAMPLES, {name: sample.ids for name, sample in samples.items()})
        draft.seeds.update({name: seed for name, (seed, _) in wanted.items()})
        draft.counts = {
            "task_units": len(texts),
            "general_samples": {name: len(sample.ids) for name, sample in samples.items()},
            "held_out_task_units": together.num_rows,
        }
        draft.notes |= getattr(fitted, "notes", {})

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
        total = sum(shard.documents for shard in missing)
        with progress(what="scoring", unit="documents", total=total) as bar:
            scored: list[pa.Table] = []
            for shard, units in ahead(self._batches(missing)):
                if units is not None:
                    before = time.monotonic()
                    scored.append(table(units, fitted))
                    busy += time.monotonic() - before
                    continue
                self.shards.write(shard.number, pa.concat_tables([SCORES.empty_table(), *scored]).combine_chunks())
                scored = []
                bar.update(shard.documents)
        spent = time.monotonic() - started
        if missing:
            log.info("shards    %d scored in %.1f s, %.1f %% of it scoring", len(missing), spent, 100 * busy / spent)
        return busy

    def _batches(self, shards: list[Shard]) -> Iterator[tuple[Shard, Units | None]]:
        """Each shard's units, a batch at a time, and None when it is over."""
        splitter = self.selection.splitter()
        for shard in shards:
            for units in units_of(shard.read(), splitter):
                yield shard, units
            yield shard, None

    def merge(self) -> Artifact:
        """Join all shards, in corpus order, and remove them.

        Raises:
            ArtifactError: If some are missing.
        """
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
        for name in (TASK, SAMPLES):
            shutil.copyfile(made.path / name, draft.path / name)
        shutil.copytree(made.path / SELECTOR, draft.path / SELECTOR)
        moments = Moments()

        def watched() -> Iterator[pa.Table]:
            nonlocal moments
            for shard in self.shards.tables(every):  # in corpus order, so that sums round alike whoever scored what
                moments = moments.merge(Moments.of(shard["score"].to_numpy()))
                yield shard

        draft.counts = {"units": write_parts(watched(), draft.path, SCORES), **made.manifest["counts"]}
        draft.seeds = made.manifest["seeds"]
        draft.notes |= {"mean": moments.mean, "std": moments.std}
        draft.notes |= {key: made.manifest[key] for key in ("audit",) if key in made.manifest}


def score_all(scoring: Scoring) -> Artifact:
    """All three steps in one process; what was done before is not done again."""
    if not scoring.is_done:
        scoring.score(scoring.prepare(), Share())
    return scoring.merge()


def table(units: Units, fitted: FittedSelector) -> pa.Table:
    """Units and their scores, :data:`dana.schemas.SCORES`."""
    of = pa.array(units.of)
    columns: list[Any] = [
        pa.array([document.doc_id for document in units.documents], pa.string()).take(of),
        pa.array([document.source for document in units.documents], pa.string()).take(of),
        pa.array(units.numbers),
        pa.array(units.starts),
        pa.array(units.ends),
        pa.array(np.asarray(fitted.score(units), dtype=np.float64)),
    ]
    return pa.Table.from_arrays(columns, schema=SCORES)
