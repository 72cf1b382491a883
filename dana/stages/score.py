"""``dana score``: every unit of the general corpus gets an anomaly score. Algorithm 1, stage 1; D-05."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dana.artifacts import Artifact, Draft, make
from dana.errors import DataError
from dana.logging import get_logger, progress
from dana.registry import SELECTORS
from dana.rng import derive_seed
from dana.schemas import SCORES, write_parts
from dana.selectors.base import FittedSelector, Selector, Units
from dana.selectors.detector import DetectorSelector
from dana.stages.selection import GeneralCorpus, Selection, TaskText
from dana.stages.unit_stream import draw
from dana.weights import Moments

log = get_logger(__name__)

MIN_TASK_UNITS = 20


def build_selector(selector: str, detector: str, selection: Selection) -> Selector:
    """The selector of a spec; ``detector`` is the paper's and takes its parts from the other arguments."""
    if selector == "detector":
        return DetectorSelector(detector, selection.encoder, selection.geometry)
    return SELECTORS.create(selector)


def score_stage(
    task: TaskText, general: GeneralCorpus, selection: Selection, selector: Selector, folder: Path
) -> Artifact:
    """Fit the selector on the task, score the whole general corpus and the held-out task text.

    Writes ``part-*.parquet`` (one row a unit, corpus order, :data:`dana.schemas.SCORES`), ``task.parquet`` (the
    same for held-out task units), ``samples.json`` (ids of the general units that were fitted on) and
    ``selector/`` (what was learned).

    Raises:
        DataError: If the task has fewer than 20 units.
    """
    depends_on = {
        "task": task.fingerprint,
        "general": general.fingerprint,
        "selection": selection.identity(),
        "selector": selector.identity(),
    }

    def write(draft: Draft) -> None:
        fitted = _fit(task, general, selection, selector, draft)
        held_out = pa.concat_tables(
            [SCORES.empty_table(), *(_table(units, fitted) for units in task.held_out_units(selection))]
        )
        pq.write_table(held_out, draft.path / "task.parquet", compression="zstd")
        moments = _Watched()
        draft.counts["units"] = write_parts(_scored(general, selection, fitted, moments), draft.path, SCORES)
        draft.counts["held_out_task_units"] = held_out.num_rows
        draft.notes["mean"], draft.notes["std"] = moments.total.mean, moments.total.std

    return make(folder, "scores", depends_on, write)


def _fit(
    task: TaskText, general: GeneralCorpus, selection: Selection, selector: Selector, draft: Draft
) -> FittedSelector:
    texts = task.units(selection)
    if len(texts) < MIN_TASK_UNITS:
        raise DataError(f"the task has {len(texts)} units; selection needs at least {MIN_TASK_UNITS}")
    wanted = {
        name: (derive_seed(selection.seed, "general", name), size)
        for name, size in selector.samples(len(texts)).items()
    }
    samples = draw(general.units(selection), wanted) if wanted else {}
    fitted = selector.fit(texts, {name: sample.texts for name, sample in samples.items()}, selection.seed)
    fitted.save(draft.path / "selector")
    ids = {name: sample.ids for name, sample in samples.items()}
    (draft.path / "samples.json").write_text(json.dumps(ids), encoding="utf-8")
    draft.seeds.update({name: seed for name, (seed, _) in wanted.items()})
    draft.counts["task_units"] = len(texts)
    draft.counts["general_samples"] = {name: len(sample.ids) for name, sample in samples.items()}
    return fitted


class _Watched:
    """Moments of all scores that passed."""

    total = Moments()


def _scored(
    general: GeneralCorpus, selection: Selection, fitted: FittedSelector, moments: _Watched
) -> Iterator[pa.Table]:
    done = 0
    with (
        progress(what="scoring", unit="units") as bar,
        progress(what="  documents", unit="documents", total=general.documents) as documents,
    ):
        for units in general.units(selection):
            table = _table(units, fitted)
            moments.total = moments.total.merge(Moments.of(table["score"].to_numpy()))
            bar.update(len(units))
            documents.update(len(set(units.doc_ids)))
            done += len(units)
            yield table


def _table(units: Units, fitted: FittedSelector) -> pa.Table:
    columns: dict[str, Any] = {
        "doc_id": units.doc_ids,
        "source": units.sources,
        "unit": units.numbers,
        "start": units.starts,
        "end": units.ends,
        "score": fitted.score(units),
    }
    return pa.Table.from_pydict(columns, schema=SCORES)
