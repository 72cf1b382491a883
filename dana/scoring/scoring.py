"""Fit a selector on target text and score every unit of a pool with it. DANA, Algorithm 1."""

import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dana.core.artifacts import META_DIR, Artifact, Draft, get_notes, read_manifest, write_json
from dana.core.errors import DataError
from dana.core.logging import get_logger, progress, report_ticks
from dana.core.registry import origin_of, plugin_errors
from dana.core.rng import derive_seed
from dana.core.schemas import HELD_OUT_TARGET, SCORES, write_parts
from dana.core.statistics import Moments
from dana.corpus.unit_stream import Units
from dana.scoring.inputs import PoolText, TargetText
from dana.scoring.ranking.measures import auroc_interval, check_scores, rank_correlation
from dana.scoring.saved_selector import LEARNED, describe
from dana.scoring.settings import Selection
from dana.scoring.sharded import ShardedTable, shards_of
from dana.selectors.base import (
    FittedSelector,
    Selector,
    fill_short,
    largest_score,
    score_table,
)
from dana.selectors.build import create_selector

log = get_logger(__name__)

MIN_TARGET_UNITS = 20
MOST_COMPARED = 500_000  # about so many pool units are compared with held-out target text
SAMPLES = f"{META_DIR}/samples.json"


def build_selector(selector: str, detector: str, selection: Selection) -> Selector:
    """Create a selector.

    Args:
        selector: Spec of the selector.
        detector: Spec of the detector, for a selector that has one.
        selection: Settings of the run that selectors share.

    Raises:
        PluginError: If no selector has this name.
        ConfigError: If a parameter of a spec is unknown or out of range.
    """
    return create_selector(selector, selection.context(detector))


@dataclass(frozen=True)
class Scoring(ShardedTable):
    """The scores of one pool by one selector.

    Attributes:
        target: Text to fit the selector on.
        pool: Pool to score.
        selection: How text is cut.
        selector: Selector that scores.
        folder: Folder of the scores: ``part-*.parquet`` (:data:`dana.core.schemas.SCORES`, one row
            per unit, pool order) and, in ``__dana__/``, ``held_out_target.parquet`` (scores of
            held-out target units), ``samples.json`` (ids of the pool units that were fitted on)
            and ``selector/`` (the fitted selector, for
            :func:`dana.scoring.saved_selector.load_selector`).
        spec: Spec of the selector; None if it was built in Python, so that the saved selector has
            no description.
        allowed: True if scores that rank held-out target text below chance are only warned of,
            and not refused.
    """

    target: TargetText
    pool: PoolText
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
            "target": self.target.artifact.fingerprint,
            "pool": self.pool.artifact.fingerprint,
            "selection": self.selection.cut(),
            "selector": {**self.selector.identity(), "code": origin_of(self.selector)},
        }

    def load(self, folder: Path) -> FittedSelector:
        model: FittedSelector = self.selector.load(folder)
        return model

    def rows(self, units: Units, model: FittedSelector) -> pa.Table:
        return score_table(units, model, self.selection.min_words)

    def fit(self, draft: Draft) -> None:
        """Fit the selector on the target text, and write what comes of it into a draft.

        The folder gets the fitted selector, the scores of the held-out target text and the ids of
        the pool units that were fitted on. The manifest gets the numbers of units, the seeds of the
        samples of the pool, and the selector's own notes.

        Raises:
            DataError: If the target text has fewer than 20 units, or a sample of the pool is empty.
            PluginError: If the selector fails, or does not return one finite score per unit.
        """
        target = self.target.units(self.selection)
        if len(target) < MIN_TARGET_UNITS:
            raise DataError(
                f"the target text has {len(target)} units; "
                f"scoring needs at least {MIN_TARGET_UNITS}"
            )
        seeds: dict[str, int] = {}
        requests: dict[str, tuple[int, int]] = {}  # seed and size of each sample
        for name, size in self.selector.samples(len(target)).items():
            seeds[name] = derive_seed(self.selection.seed, "general", name)
            requests[name] = (seeds[name], size)
        samples: dict[str, Units] = {}
        pool_units = None  # the units of the pool are counted only while samples are drawn
        if requests:
            pool_units, samples = self.draw_samples(requests, self.selector.runs())
        model = self._fit_selector(target, samples)
        model.save(draft.path / LEARNED)
        if self.spec is not None:
            describe(draft.path / LEARNED, self.spec, self.selector, self.selection)
        held_out = self._held_out_scores(model)
        pq.write_table(held_out, draft.path / HELD_OUT_TARGET, compression="zstd")
        sample_ids = {name: sample.ids for name, sample in samples.items()}
        write_json(draft.path / SAMPLES, sample_ids)
        draft.seeds |= seeds
        sample_sizes = {name: len(sample) for name, sample in samples.items()}
        draft.counts = {
            "target_units": len(target),
            "pool_samples": sample_sizes,
            "held_out_target_units": held_out.num_rows,
        }
        if pool_units is not None:
            draft.counts["pool_units"] = pool_units
        draft.notes |= getattr(model, "notes", {})

    def _fit_selector(self, target: Units, samples: Mapping[str, Units]) -> FittedSelector:
        """Fit the selector and return it; its encoder advances a progress bar.

        Raises:
            DataError: If a sample is empty.
            PluginError: If the selector fails.
        """
        total = len(target) + sum(len(sample) for sample in samples.values())
        errors_of_selector = plugin_errors("selector", type(self.selector).__name__, self.selector)
        with (
            progress(what="fitting", unit="units", total=total) as bar,
            report_ticks(bar),
            errors_of_selector,
        ):
            model: FittedSelector = self.selector.fit(target, samples, self.selection.seed)
            # A selector without an encoder has not advanced the bar.
            bar.update(total - bar.n)
        return model

    def _held_out_scores(self, model: FittedSelector) -> pa.Table:
        """Return the scores of the held-out target units, :data:`dana.core.schemas.SCORES`.

        Short units have the largest score of the others.
        """
        tables = [SCORES.empty_table()]
        for units in self.target.held_out_units(self.selection):
            tables.append(score_table(units, model, self.selection.min_words))
        return fill_short(pa.concat_tables(tables), largest_score(tables))

    def join(self, draft: Draft, fitted: Artifact, shards: Iterator[pa.Table]) -> int:
        pool_shards = shards_of(self.pool.artifact.path)
        # Short units get the largest score of the whole pool, so all shards are read before the
        # first one is written.
        largest = largest_score(self.shard_folder.tables(pool_shards, ["score", "short"]))
        units = write_scores(draft, fitted, shards, largest)
        check_scores(self.folder, draft.notes, self.allowed)
        return units

    def _merge(self) -> Artifact:
        """Do as :meth:`ShardedTable._merge`, and check the scores of a finished table, too.

        Such a table is only opened, so that :meth:`join`, which checks new scores, is not called.

        Raises:
            DataError: If the scores rank held-out target text below chance.
            ArtifactError: See :meth:`ShardedTable._merge`.
        """
        if self.is_done:
            check_scores(self.folder, read_manifest(self.folder), self.allowed)
        return super()._merge()


class ScoreSummary:
    """Mean and deviation of a pool's scores, the number of its short units, and a sample.

    It is filled while the shards of the pool pass through :meth:`gather`, in pool order.

    Attributes:
        moments: Mean and deviation of the scores, without those of short units.
        short: Number of short units.
    """

    def __init__(self) -> None:
        self.moments = Moments()
        self.short = 0
        self._sample: list[pa.Table] = []  # every `_step`-th shard
        self._step = 1
        self._count = 0  # of shards so far

    def gather(self, shards: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """Yield the shards as they are, and take note of their scores."""
        # The shards come in pool order, so that sums round alike whichever process scored one.
        for shard in shards:
            scores = shard["score"].to_numpy()
            short = shard["short"].to_numpy()
            if short.any():
                scores = scores[~short]
                self.short += int(short.sum())
            self.moments = self.moments.merge(Moments.from_scores(scores))
            if self._count % self._step == 0:
                self._sample.append(shard)
            self._count += 1
            sampled_units = sum(len(table) for table in self._sample)
            # The number of shards is not known before the last one. A sample that gets too large is
            # thinned: every second of its shards stays, and half as many are taken from now on, so
            # that the shards of the sample always have equal distances.
            if sampled_units > MOST_COMPARED:
                self._sample = self._sample[::2]
                self._step *= 2
            yield shard

    def sample(self) -> pa.Table:
        """Return the scores of whole shards, of :data:`MOST_COMPARED` units or fewer.

        There are more only if a single shard has more.
        """
        return pa.concat_tables([SCORES.empty_table(), *self._sample])


def write_scores(
    draft: Draft, fit: Artifact, shards: Iterable[pa.Table], largest: float | None
) -> int:
    """Write scores into a draft, with the fitted selector and what it was fitted on.

    The manifest gets the number of short units, the mean and the standard deviation of the scores,
    how they separate held-out target text from the pool, and the notes of the fit. The number of
    short units is logged if there are any.

    Args:
        draft: Draft of a scores artifact.
        fit: Artifact that holds the fitted selector: that of :meth:`Scoring.fit`, or a scores
            artifact.
        shards: Tables of scores in pool order.
        largest: Largest score of the pool (:func:`dana.selectors.base.largest_score`), which short
            units get.

    Returns:
        Number of rows.
    """
    for name in (HELD_OUT_TARGET, SAMPLES):
        shutil.copyfile(fit.path / name, draft.path / name)
    shutil.copytree(fit.path / LEARNED, draft.path / LEARNED)
    summary = ScoreSummary()
    filled = (fill_short(shard, largest) for shard in shards)
    units = write_parts(summary.gather(filled), draft.path, SCORES)
    draft.counts["short_units"] = summary.short
    if summary.short:
        log.info(
            "scores    %s of %s units have too few words to be scored and come last",
            f"{summary.short:,}",
            f"{units:,}",
        )
    draft.notes |= get_notes(fit.manifest)
    draft.notes |= {"mean": summary.moments.mean, "std": summary.moments.std}
    held_out = pq.read_table(draft.path / HELD_OUT_TARGET)
    draft.notes |= _against_chance(held_out, summary.sample())
    return units


def _against_chance(target: pa.Table, pool: pa.Table) -> dict[str, float]:
    """Compare the scores of held-out target text with those of pool text, without short units.

    Args:
        target: Scores of held-out target units, :data:`dana.core.schemas.SCORES`.
        pool: Scores of pool units.

    Returns:
        ``auroc``, ``auroc_low`` and ``auroc_high`` (:func:`auroc_interval`), and under ``length``
        the rank correlation of the scores of pool units and their lengths in characters; empty if
        the target text or the pool has no unit that is not short.
    """
    target = target.filter(pc.invert(target["short"]))
    pool = pool.filter(pc.invert(pool["short"]))
    if not len(target) or not len(pool):
        return {}
    pool_scores = pool["score"].to_numpy()
    scores = (target["score"].to_numpy(), pool_scores)
    documents = (target["doc_id"].to_numpy(), pool["doc_id"].to_numpy())
    separation = auroc_interval([scores], [documents])  # of a single fit
    lengths = pool["end"].to_numpy() - pool["start"].to_numpy()
    correlation = rank_correlation(pool_scores, lengths)
    return {**separation, "length": correlation}
