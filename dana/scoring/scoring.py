"""Scoring of a corpus: task text, general text and a selector to an anomaly score a unit. DANA, Algorithm 1."""

import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq

from dana.core.artifacts import META_DIR, Artifact, Draft, get_notes, write_json
from dana.core.errors import DataError
from dana.core.logging import progress, report_ticks
from dana.core.registry import origin_of, plugin_errors
from dana.core.rng import derive_seed
from dana.core.schemas import HELD_OUT_TASK, SCORES, write_parts
from dana.core.statistics import Moments
from dana.corpus.unit_stream import Units
from dana.scoring.inputs import GeneralCorpus, TaskText
from dana.scoring.saved_selector import LEARNED, describe, score_table
from dana.scoring.settings import Selection
from dana.scoring.sharded import ShardedTable
from dana.selectors.base import FittedSelector, Selector
from dana.selectors.build import create_selector

MIN_TASK_UNITS = 20
SAMPLES = f"{META_DIR}/samples.json"


def build_selector(selector: str, detector: str, selection: Selection) -> Selector:
    """The selector of a spec, in the context of a selection and its detector."""
    return create_selector(selector, selection.context(detector))


@dataclass(frozen=True)
class Scoring(ShardedTable):
    """One scoring of one corpus.

    Attributes:
        task: What to look for.
        general: Where.
        selection: How text is cut.
        selector: What scores it.
        folder: Where ``part-*.parquet`` goes (:data:`dana.core.schemas.SCORES`, one row a unit, corpus order), with,
            in ``__dana__/``, ``held_out_task.parquet`` (the same for held-out task units), ``samples.json`` (ids of
            the general units that were fitted on) and ``selector/`` (what was learned, for
            :func:`dana.scoring.saved_selector.load_selector`).
        spec: How the selector was named; one that no name makes cannot be loaded without its maker.
    """

    task: TaskText
    general: GeneralCorpus
    selection: Selection
    selector: Selector
    folder: Path
    spec: str | None = None
    kind: ClassVar[str] = "scores"
    model_name: ClassVar[str] = "selector"
    schema: ClassVar[pa.Schema] = SCORES
    command: ClassVar[str] = "dana score"

    @property
    def depends_on(self) -> dict[str, Any]:
        """All that decides the scores."""
        return {
            "task": self.task.artifact.fingerprint,
            "general": self.general.artifact.fingerprint,
            "selection": self.selection.cut(),
            "selector": {**self.selector.identity(), "code": origin_of(self.selector)},
        }

    def load(self, folder: Path) -> FittedSelector:
        """The fitted selector."""
        return self.selector.load(folder)

    def rows(self, units: Units, fitted: FittedSelector) -> pa.Table:
        """Units and their scores."""
        return score_table(units, fitted)

    def learn(self, draft: Draft) -> None:
        """Fit the selector on the task, and score held-out task text.

        Raises:
            DataError: If the task has fewer than 20 units.
        """
        task = self.task.units(self.selection)
        if len(task) < MIN_TASK_UNITS:
            raise DataError(f"the task has {len(task)} units; selection needs at least {MIN_TASK_UNITS}")
        wanted = {
            name: (derive_seed(self.selection.seed, "general", name), size)
            for name, size in self.selector.samples(len(task)).items()
        }
        units, samples = self.draw_samples(wanted, self.selector.runs()) if wanted else (None, {})
        total = sum(map(len, [task, *samples.values()]))
        blame = plugin_errors("selector", type(self.selector).__name__, self.selector)
        with progress(what="fitting", unit="units", total=total) as bar, report_ticks(bar), blame:
            fitted = self.selector.fit(task, samples, self.selection.seed)
            bar.update(total - bar.n)
        fitted.save(draft.path / LEARNED)
        if self.spec is not None:
            describe(draft.path / LEARNED, self.spec, self.selector, self.selection)
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

    def join(self, draft: Draft, prepared: Artifact, shards: Iterator[pa.Table]) -> int:
        """The table, with what was learned and the scores' mean and deviation."""
        return write_scores(draft, prepared, shards)


def write_scores(draft: Draft, prepared: Artifact, shards: Iterable[pa.Table]) -> int:
    """Write a table of scores into a draft, with what was learned and their mean and deviation; returns its rows.

    Args:
        draft: Of a scores artifact.
        prepared: What the selector was fitted to: the folder that :meth:`Scoring.learn` filled, or a scores artifact.
        shards: In corpus order.
    """
    for name in (HELD_OUT_TASK, SAMPLES):
        shutil.copyfile(prepared.path / name, draft.path / name)
    shutil.copytree(prepared.path / LEARNED, draft.path / LEARNED)
    moments = Moments()

    def watched() -> Iterator[pa.Table]:
        nonlocal moments
        for shard in shards:  # in corpus order, so that sums round alike whoever scored what
            moments = moments.merge(Moments.of(shard["score"].to_numpy()))
            yield shard

    units = write_parts(watched(), draft.path, SCORES)
    draft.notes |= get_notes(prepared.manifest) | {"mean": moments.mean, "std": moments.std}
    return units
