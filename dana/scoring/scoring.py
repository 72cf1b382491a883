"""Fit a selector on task text and score every unit of a corpus with it. DANA, Algorithm 1."""

import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq

from dana.core.artifacts import META_DIR, Artifact, Draft, get_notes, read_manifest, write_json
from dana.core.errors import DataError
from dana.core.logging import progress, report_ticks
from dana.core.registry import origin_of, plugin_errors
from dana.core.rng import derive_seed
from dana.core.schemas import HELD_OUT_TASK, SCORES, write_parts
from dana.core.statistics import Moments
from dana.corpus.unit_stream import Units
from dana.scoring.inputs import GeneralCorpus, TaskText
from dana.scoring.ranking.measures import auroc_interval, check_scores, rank_correlation
from dana.scoring.saved_selector import LEARNED, describe
from dana.scoring.settings import Selection
from dana.scoring.sharded import ShardedTable
from dana.selectors.base import FittedSelector, Selector, score_table
from dana.selectors.build import create_selector

MIN_TASK_UNITS = 20
MOST_COMPARED = 500_000  # general units, about, that held-out task text is compared with
SAMPLES = f"{META_DIR}/samples.json"


def build_selector(selector: str, detector: str, selection: Selection) -> Selector:
    """Create the selector of a spec, in the context of a selection and its detector."""
    return create_selector(selector, selection.context(detector))


@dataclass(frozen=True)
class Scoring(ShardedTable):
    """The scores of one corpus by one selector.

    Attributes:
        task: Text to fit the selector on.
        general: Corpus to score.
        selection: How text is cut.
        selector: Selector that scores.
        folder: Folder of the scores: ``part-*.parquet`` (:data:`dana.core.schemas.SCORES`, one row
            per unit, corpus order) and, in ``__dana__/``, ``held_out_task.parquet`` (scores of
            held-out task units), ``samples.json`` (ids of the general units that were fitted on)
            and ``selector/`` (the fitted selector, for
            :func:`dana.scoring.saved_selector.load_selector`).
        spec: Spec of the selector; None if it was built in Python, so that the saved selector has
            no description.
        allowed: Whether scores are written that rank held-out task text below chance.
    """

    task: TaskText
    general: GeneralCorpus
    selection: Selection
    selector: Selector
    folder: Path
    spec: str | None = None
    allowed: bool = False
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
        return self.selector.load(folder)

    def rows(self, units: Units, model: FittedSelector) -> pa.Table:
        return score_table(units, model)

    def learn(self, draft: Draft) -> None:
        """Fit the selector on the task and score the held-out task text.

        Raises:
            DataError: If the task has fewer than 20 units.
        """
        task = self.task.units(self.selection)
        if len(task) < MIN_TASK_UNITS:
            raise DataError(
                f"the task has {len(task)} units; scoring needs at least {MIN_TASK_UNITS}"
            )
        requests = {}
        for name, size in self.selector.samples(len(task)).items():
            requests[name] = (derive_seed(self.selection.seed, "general", name), size)
        samples: dict[str, Units] = {}
        general_units = None
        if requests:
            general_units, samples = self.draw_samples(requests, self.selector.runs())
        model = self._fit(task, samples)
        model.save(draft.path / LEARNED)
        if self.spec is not None:
            describe(draft.path / LEARNED, self.spec, self.selector, self.selection)
        tables = [SCORES.empty_table()]
        for units in self.task.held_out_units(self.selection):
            tables.append(score_table(units, model))
        held_out = pa.concat_tables(tables)
        pq.write_table(held_out, draft.path / HELD_OUT_TASK, compression="zstd")
        write_json(draft.path / SAMPLES, {name: sample.ids for name, sample in samples.items()})
        draft.seeds |= {name: seed for name, (seed, _) in requests.items()}
        draft.counts = {
            "task_units": len(task),
            "general_samples": {name: len(sample) for name, sample in samples.items()},
            "held_out_task_units": held_out.num_rows,
        }
        if general_units is not None:
            draft.counts["general_units"] = general_units
        draft.notes |= getattr(model, "notes", {})

    def _fit(self, task: Units, samples: Mapping[str, Units]) -> FittedSelector:
        """Fit the selector, with a progress bar that its encoder advances."""
        total = len(task) + sum(len(sample) for sample in samples.values())
        blame = plugin_errors("selector", type(self.selector).__name__, self.selector)
        with progress(what="fitting", unit="units", total=total) as bar, report_ticks(bar), blame:
            model = self.selector.fit(task, samples, self.selection.seed)
            bar.update(total - bar.n)
        return model

    def join(self, draft: Draft, fit: Artifact, shards: Iterator[pa.Table]) -> int:
        units = write_scores(draft, fit, shards)
        check_scores(self.folder, draft.notes, self.allowed)
        return units

    def _merge(self) -> Artifact:
        if self.is_done:
            check_scores(self.folder, read_manifest(self.folder), self.allowed)
        return super()._merge()


class ScoreSummary:
    """Mean and deviation of a pool's scores, and a sample of them, gathered shard by shard in corpus order."""

    def __init__(self) -> None:
        self.moments = Moments()
        self._sample: list[pa.Table] = []
        self._step = 1
        self._count = 0

    def gather(self, shards: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """Yield the shards as they are, and take note of their scores."""
        # In corpus order, so that sums round alike whichever process scored a shard.
        for shard in shards:
            self.moments = self.moments.merge(Moments.of(shard["score"].to_numpy()))
            if self._count % self._step == 0:
                self._sample.append(shard)
            self._count += 1
            if sum(len(table) for table in self._sample) > MOST_COMPARED:
                self._sample = self._sample[::2]
                self._step *= 2
            yield shard

    def sample(self) -> pa.Table:
        """Return the scores of about :data:`MOST_COMPARED` units or fewer, in whole shards."""
        return pa.concat_tables([SCORES.empty_table(), *self._sample])


def write_scores(draft: Draft, fit: Artifact, shards: Iterable[pa.Table]) -> int:
    """Write scores into a draft, with the fitted selector and their mean and standard deviation.

    Args:
        draft: Draft of a scores artifact.
        fit: Artifact that holds the fitted selector: that of :meth:`Scoring.learn`, or a scores
            artifact.
        shards: Tables of scores in corpus order.

    Returns:
        Number of rows.
    """
    for name in (HELD_OUT_TASK, SAMPLES):
        shutil.copyfile(fit.path / name, draft.path / name)
    shutil.copytree(fit.path / LEARNED, draft.path / LEARNED)
    summary = ScoreSummary()
    units = write_parts(summary.gather(shards), draft.path, SCORES)
    draft.notes |= get_notes(fit.manifest)
    draft.notes |= {"mean": summary.moments.mean, "std": summary.moments.std}
    held_out = pq.read_table(draft.path / HELD_OUT_TASK)
    draft.notes |= _against_chance(held_out, summary.sample())
    return units


def _against_chance(task: pa.Table, general: pa.Table) -> dict[str, float]:
    """Compute AUROC with its interval, and the rank correlation of general units' scores and lengths, as ``length``."""
    if not len(task) or not len(general):
        return {}
    scores = (task["score"].to_numpy(), general["score"].to_numpy())
    documents = (task["doc_id"].to_numpy(), general["doc_id"].to_numpy())
    lengths = general["end"].to_numpy() - general["start"].to_numpy()
    correlation = rank_correlation(general["score"].to_numpy(), lengths)
    return {**auroc_interval([scores], [documents]), "length": correlation}
