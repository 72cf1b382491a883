"""Select text from a scored pool: scores, segments, means, order, selected segments, weights. DANA, section 3.2.

Columns of units are arrays over all units of the pool, in its order.
"""

import gzip
import io
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from tokenizers import Tokenizer

from dana.core.artifacts import META_DIR
from dana.core.errors import DataError
from dana.core.logging import get_logger, progress
from dana.core.rng import derive_seed, document_key, hash_uniform, unit_keys_of
from dana.core.schemas import read_rows
from dana.models.folder import load_own_tokenizer, tokenizer_identity
from dana.weighting.formulas import (
    DROPPED,
    Components,
    of_units,
    segment_groups,
    segment_ids,
    segment_means,
    segment_sizes,
    segment_sums,
    sigmoid,
    standardise,
)
from dana.weighting.settings import WeighSettings

log = get_logger(__name__)

LARGEST_SCORE = 1e100  # so that sums of squares are finite
SELECTED_TEXT = f"{META_DIR}/selected.jsonl.gz"  # in a weights folder; Parquet readers skip it
COMPRESSION = 6  # of gzip: 9 makes it 4 % smaller in 2.7 times the time
UNITS_AT_A_TIME = 1 << 13  # whose texts are in memory
SHOWN = 2  # passages of each place that are shown: the best, the middle and the last
LONGEST_SHOWN = 400  # characters of a passage that is shown


@dataclass(frozen=True)
class Pool:
    """Scored units in pool order.

    Attributes:
        score: float64 of shape (units,), higher = more foreign.
        document_starts: int64 of shape (documents,), row of each document's first unit.
        doc_ids: Name of each document.
        short: Mask of the units with too few words to count in a mean, shape (units,); None if
            there are none.
    """

    score: np.ndarray
    document_starts: np.ndarray
    doc_ids: pa.ChunkedArray
    short: np.ndarray | None = None

    @classmethod
    def from_tables(cls, tables: Iterable[pa.Table | pa.RecordBatch], units: int) -> "Pool":
        """Collect the scores of all units; a document may go on in the next table.

        Args:
            tables: Columns ``doc_id``, ``unit`` and ``score``, rows of a document adjacent; and
                ``short``, if it is known.
            units: Number of rows of all tables.

        Raises:
            DataError: If a score is not finite or beyond ±1e100 (names the first such row), or no unit
            has enough words.
        """
        score = np.empty(units)
        short = np.zeros(units, dtype=bool)
        document_starts = [np.empty(0, dtype=np.int64)]
        doc_ids: list[pa.Array] = []
        last_doc_id = None
        row = 0
        for table in tables:
            if table.num_rows == 0:
                continue
            end = row + table.num_rows
            score[row:end] = table["score"].to_numpy()
            _check_scores(score[row:end], row)
            if "short" in table.schema.names:
                short[row:end] = table["short"].to_numpy(zero_copy_only=False)
            starts = find_document_starts(table)
            # A plain array, also of a dictionary or a chunked column.
            first_ids = pa.array(table["doc_id"].take(pa.array(starts)).to_pylist())
            continues_last = first_ids[0].as_py() == last_doc_id and table["unit"][0].as_py() != 0
            if continues_last:  # its first row is counted already
                starts = starts[1:]
                first_ids = first_ids[1:]
            document_starts.append(row + starts)
            doc_ids.append(first_ids)
            last_doc_id = table["doc_id"][-1].as_py()
            row = end
        # The ids of a caller's own table may be numbers.
        id_type = doc_ids[0].type if doc_ids else pa.string()
        all_ids = pa.chunked_array(doc_ids, id_type)
        if short.all() and units:
            raise DataError(
                f"none of the {units:,} units has enough words to be weighed; score the pool with "
                "--set selection.min_words=0, which counts every unit"
            )
        return cls(score, np.concatenate(document_starts), all_ids, short if short.any() else None)

    @property
    def units(self) -> int:
        """Number of units."""
        return self.score.size

    @property
    def document(self) -> np.ndarray:
        """Document of each unit, numbered from 0; shape (units,)."""
        sizes = np.diff(self.document_starts, append=self.units)
        return np.repeat(np.arange(sizes.size, dtype=np.int32), sizes)

    @property
    def counted(self) -> np.ndarray | None:
        """Mask of the units that count in means; None if all do."""
        return None if self.short is None else ~self.short

    def segment_ids(self, settings: WeighSettings) -> np.ndarray:
        """Cut the units into segments, numbered over the pool; shape (units,), DROPPED for none."""
        starts = np.zeros(1, dtype=np.int64) if settings.stream else self.document_starts
        return segment_ids(starts, self.units, settings.gamma, settings.min_tail)


def find_document_starts(table: pa.Table | pa.RecordBatch) -> np.ndarray:
    """Find the row of each document's first unit, int64 of shape (documents,), ascending.

    Args:
        table: Columns ``doc_id`` and ``unit``, rows of a document adjacent. A document may lack its
            first units.
    """
    doc_id = table["doc_id"]
    if isinstance(doc_id, pa.ChunkedArray):
        doc_id = doc_id.combine_chunks()
    number = doc_id.dictionary_encode().indices.to_numpy(zero_copy_only=False)
    is_new = np.diff(number, prepend=-1) != 0
    # Unit 0 begins a document, too: two neighbours may have the same id.
    return np.flatnonzero(is_new | (table["unit"].to_numpy() == 0))


def _check_scores(score: np.ndarray, first_row: int) -> None:
    """Refuse scores that are not finite or too large; the first of them is that of `first_row`."""
    is_bad = ~(np.abs(score) <= LARGEST_SCORE)  # not "> LARGEST_SCORE": NaN is bad, too
    if is_bad.any():
        row = int(is_bad.argmax())
        problem = f"beyond ±{LARGEST_SCORE:g}" if np.isfinite(score[row]) else "not finite"
        raise DataError(f"scores[{first_row + row}] is {score[row]:.3g}, {problem}")


@dataclass(frozen=True)
class Segments:
    """The segments of a pool, numbered from 0 in its order.

    Attributes:
        ids: Segment of each unit, shape (units,), DROPPED for none.
        sizes: Units of each segment, shape (segments,), short ones included.
        means: Mean score of each segment over its units that are not short, shape (segments,);
            infinite without one.
        ranked_means: The means that rank the segments: shrunken, if the settings say so.
        components: Variance components that shrank the means; None without shrinkage.
    """

    ids: np.ndarray
    sizes: np.ndarray
    means: np.ndarray
    ranked_means: np.ndarray
    components: Components | None

    @property
    def starts(self) -> np.ndarray:
        """Row of each segment's first unit."""
        is_new = np.diff(self.ids, prepend=DROPPED) != 0
        return np.flatnonzero(is_new & (self.ids != DROPPED))

    @property
    def units(self) -> int:
        """Number of units in segments."""
        return int(self.sizes.sum())


def cut_segments(pool: Pool, settings: WeighSettings) -> Segments:
    """Cut a pool into segments and average their scores.

    Raises:
        DataError: If no unit, or none with enough words, is in a segment (names ``min_tail``).
    """
    ids = pool.segment_ids(settings)
    sizes = segment_sizes(ids)
    if sizes.size == 0:
        text = "the pool" if settings.stream else "every document"
        raise DataError(
            f"min_tail={settings.min_tail}: no segment is left, {text} has fewer units; lower min_tail"
        )
    counted_ids = ids
    if pool.short is not None:
        counted_ids = ids.copy()
        counted_ids[pool.short] = DROPPED
        if (counted_ids == DROPPED).all():
            raise DataError(
                f"min_tail={settings.min_tail}: only units with too few words are left in segments; "
                "lower min_tail"
            )
    means = segment_means(pool.score, counted_ids, sizes.size)
    if not settings.shrink:
        return Segments(ids, sizes, means, means, None)
    components = Components.estimate(pool.score, counted_ids, sizes.size)
    ranked_means = components.shrink(means, segment_sizes(counted_ids, sizes.size))
    return Segments(ids, sizes, means, ranked_means, components)


@dataclass(frozen=True)
class Weights:
    """Weights of the units of a pool.

    Attributes:
        segment: Segment of each unit, shape (units,), numbered over the pool; DROPPED for none.
        weight: Float of shape (units,), in [0, 1].
        ranked_means: float64 of shape (segments,), the mean that ranks a segment (with ``below``, its
            plain mean decides); None where each unit's score decides its own weight.
        components: Variance components that shrank the means of segments, if any.
        counts: Segments read and selected, for the manifest.
        notes: Midpoint or variance components, for the manifest.
    """

    segment: np.ndarray
    weight: np.ndarray
    ranked_means: np.ndarray | None = None
    components: Components | None = None
    counts: dict[str, Any] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class UnitGroups:
    """Groups that a budget is balanced over.

    Attributes:
        group: Group of each unit, int of shape (units,), from 0.
        shares: Share of the budget of each group, shape (groups,), summing to 1.
        names: How the setting names each group.
    """

    group: np.ndarray
    shares: np.ndarray
    names: Sequence[str]

    @property
    def wanted(self) -> str:
        """Names of the groups that have a share, for messages."""
        return ", ".join(self.names[number] for number in np.flatnonzero(self.shares).tolist())


def weigh_pool(
    pool: Pool,
    settings: WeighSettings,
    tokens: np.ndarray | None = None,
    groups: UnitGroups | None = None,
    segments: Segments | None = None,
) -> Weights:
    """Weigh the units of a pool by the policy of the settings.

    Args:
        pool: At least one unit.
        settings: The policy and its parameters.
        tokens: Tokens of each unit, for a budget in tokens.
        groups: Groups of the units, for a balanced budget.
        segments: Segments of the pool, if they are cut already.

    Raises:
        DataError: If no unit is in a segment, or nothing can be selected.
    """
    if settings.policy == "sigmoid":
        weight, midpoint = continuous_weights(pool.score, settings, pool.counted)
        segment = pool.segment_ids(settings)
        return Weights(segment, weight, notes={"midpoint": midpoint})
    if segments is None:
        segments = cut_segments(pool, settings)
    is_selected = np.zeros(segments.sizes.size, dtype=bool)
    is_selected[select_segments(pool, segments, settings, tokens, groups)] = True
    weight = of_units(is_selected, segments.ids, False).astype(np.float32)
    counts = {"segments": {"in": is_selected.size, "selected": int(is_selected.sum())}}
    notes = {}
    if segments.components is not None:
        notes["shrunk"] = asdict(segments.components)
    return Weights(segments.ids, weight, segments.ranked_means, segments.components, counts, notes)


def continuous_weights(
    score: np.ndarray, settings: WeighSettings, counted: np.ndarray | None = None
) -> tuple[np.ndarray, float]:
    """Compute sigmoid weights of scores, or of segment means.

    Args:
        score: Scores or means.
        settings: Settings of the weighing.
        counted: Mask of those that mean and deviation are computed on; None takes all.

    Returns:
        The weights, and the midpoint α: that of the settings, or else the β-quantile of the
        standardised scores.
    """
    standard = standardise(score, counted)
    midpoint = settings.midpoint
    if midpoint is None:
        midpoint = float(np.quantile(standard, settings.share))
    return sigmoid(standard, settings.sharpness, midpoint), midpoint


def select_segments(
    pool: Pool,
    segments: Segments,
    settings: WeighSettings,
    tokens: np.ndarray | None,
    groups: UnitGroups | None,
) -> np.ndarray:
    """Select the segments of lowest mean (or lowest draw) that fit into the budget.

    Returns:
        Numbers of the selected segments.

    Raises:
        DataError: If no mean is below ``below``, all weights to draw by are 0, or no segment is of a
            group that has a share.
    """
    if settings.below is not None:
        is_below = segments.means < settings.below
        if not is_below.any():
            lowest = segments.means.min()
            raise DataError(
                f"below={settings.below:g}: must be above {lowest:.4g}, the lowest segment mean"
            )
        return np.flatnonzero(is_below)
    if settings.policy == "sampled":
        order = draw_order(pool, segments, settings)
        if order.size == 0:
            raise DataError(
                f"midpoint={settings.midpoint}: the weight of every segment is 0; raise midpoint, "
                "or leave it out"
            )
    else:
        order = np.argsort(segments.ranked_means, kind="stable")
        finite = segments.means[np.isfinite(segments.means)]
        if order.size > 1 and finite.min() == finite.max():
            log.warning(
                "weights   all segments have the same score, so the first ones of the pool are selected"
            )
    budget = settings.effective_budget
    limit = budget.max_amount(segments.units)
    counted_by = _segment_amounts(pool, segments, budget.kind, tokens)
    if groups is not None:
        group = segment_groups(segments.ids, groups.group)
        order = balance_order(order, group, groups, counted_by, budget.kind)
    running = running_amounts(order, counted_by, budget.kind)
    if groups is not None and running[-1] < limit:
        log.warning(
            "weights   group %s: has %g of a budget of %g; all of it is selected",
            groups.wanted,
            running[-1],
            limit,
        )
    return fill_budget(order, running, limit)


def draw_order(pool: Pool, segments: Segments, settings: WeighSettings) -> np.ndarray:
    """Draw segments without replacement, with probability proportional to their sigmoid weight λ.

    The key of a segment is -ln u / λ, which ranks as u^(1/λ) does; u is a hash of the segment, so
    the draw does not depend on the order of the pool. Sampling joins the generality of continuous
    weights with the speed of discrete ones (DANA, appendix C).

    Returns:
        Numbers of the segments in the order of their draw; those with a weight of 0, and of nothing
        but short units, are left out.

    References:
        Efraimidis and Spirakis 2006, Weighted random sampling with a reservoir, algorithm A.
    """
    document = _document_of_segment(pool, segments)
    first_unit = segments.starts - pool.document_starts[document]
    document_keys = np.array(
        [document_key(str(doc_id)) for doc_id in pool.doc_ids.to_pylist()], dtype=np.uint64
    )
    segment_keys = unit_keys_of(document_keys[document], first_unit)
    seed = derive_seed(settings.seed, "weights", "sampled")
    # hash_uniform can be 0, whose logarithm is infinite.
    log_u = np.log(np.maximum(hash_uniform(seed, segment_keys), 2.0**-60))
    has_words = np.isfinite(segments.ranked_means)
    weight = np.zeros(has_words.size)
    weight[has_words], _ = continuous_weights(segments.ranked_means[has_words], settings)
    # The key of a tiny weight overflows; its segment still comes before those of weight 0.
    with np.errstate(divide="ignore", over="ignore"):
        draw = np.minimum(-log_u / weight, np.finfo(np.float64).max)
    order = np.argsort(np.where(weight > 0, draw, np.inf), kind="stable")
    return order[: np.count_nonzero(weight > 0)]


def _document_of_segment(pool: Pool, segments: Segments) -> np.ndarray:
    """Return the document of each segment's first unit, int64 of shape (segments,)."""
    return np.searchsorted(pool.document_starts, segments.starts, side="right") - 1


def _segment_amounts(
    pool: Pool, segments: Segments, kind: str, tokens: np.ndarray | None
) -> np.ndarray:
    """Return what a budget counts each segment by; see :func:`running_amounts`."""
    if kind == "tokens":
        assert tokens is not None
        return segment_sums(tokens, segments.ids)
    if kind == "documents":
        return _document_of_segment(pool, segments)
    return segments.sizes


def running_amounts(order: np.ndarray, counted_by: np.ndarray, kind: str) -> np.ndarray:
    """Count the units, tokens or documents of each prefix of a ranking; float64 of shape (segments,).

    Args:
        order: Segments, best first.
        counted_by: Number of units or tokens of each segment; for documents, the row of its document
            in :attr:`Pool.doc_ids`.
        kind: What is counted. A document counts once, at its first segment.
    """
    amounts = counted_by[order]
    if kind == "documents":
        _, first_of_document = np.unique(amounts, return_index=True)
        amounts = np.zeros(order.size)
        amounts[first_of_document] = 1
    return np.cumsum(amounts, dtype=np.float64)


def fill_budget(order: np.ndarray, running: np.ndarray, limit: float) -> np.ndarray:
    """Return the longest prefix of a ranking whose amount is at most `limit`, at least one segment."""
    fitting = int(np.searchsorted(running, limit, side="right"))
    return order[: max(1, fitting)]


def balance_order(
    order: np.ndarray, group: np.ndarray, groups: UnitGroups, counted_by: np.ndarray, kind: str
) -> np.ndarray:
    """Order segments such that every prefix holds the groups in their shares.

    A segment's priority is the amount of its group up to and including it, divided by the group's
    share. So the ranking within a group stays. Where a group is used up, the rest of the budget
    goes to the others in proportion to their shares. A group with a share of 0 is left out.

    Args:
        order: Segments, best first.
        group: Group of each segment.
        groups: Shares and names of the groups.
        counted_by: As for :func:`running_amounts`.
        kind: As for :func:`running_amounts`.

    Raises:
        DataError: If no segment is of a group that has a share.
    """
    priority = np.full(group.size, np.inf)
    for number in np.flatnonzero(groups.shares):
        members = order[group[order] == number]
        priority[members] = running_amounts(members, counted_by, kind) / groups.shares[number]
    order = order[np.isfinite(priority[order])]
    if order.size == 0:
        raise DataError(
            f"balance: no segment is mostly of group {groups.wanted}; name other groups"
        )
    return order[np.argsort(priority[order], kind="stable")]


def segment_in_document(pool: Pool, segment: np.ndarray) -> np.ndarray:
    """Number segments from 0 within each document; shape (units,), DROPPED for none.

    Args:
        pool: The units.
        segment: Segment of each unit, numbered over the pool and cut at every document's end.
    """
    sizes = np.diff(pool.document_starts, append=pool.units)
    first_segment = segment[pool.document_starts]
    number = np.repeat(first_segment, sizes)
    np.subtract(segment, number, out=number)  # in place, because pools have many units
    number[segment == DROPPED] = DROPPED
    return number


def selected_runs(weight: np.ndarray, document_starts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Find first and last row of each run of adjacent units of one document with a weight above 0."""
    is_selected = weight > 0
    is_start = np.zeros(weight.size, dtype=bool)
    is_start[document_starts] = True
    continues = is_selected & np.append(False, is_selected[:-1]) & ~is_start
    is_continued = np.append(continues[1:], False)
    first = np.flatnonzero(is_selected & ~continues)
    last = np.flatnonzero(is_selected & ~is_continued)
    return first, last


def sample_documents(document: np.ndarray, size: int, random: np.random.Generator) -> np.ndarray:
    """Draw random whole documents, about `size` units in all.

    A pool of at most `size` units is taken whole. If none of a few huge documents is drawn, every
    n-th unit is taken.

    Args:
        document: Number of each unit's document, ascending.
        size: About how many units to take.
        random: Generator of the draw.

    Returns:
        Mask of the units.
    """
    units = document.size
    if units <= size:
        return np.ones(units, dtype=bool)
    is_drawn = random.random(int(document[-1]) + 1) < size / units
    mask: np.ndarray = is_drawn[document]
    if mask.any():
        return mask
    step = math.ceil(units / size)
    mask = np.arange(units) % step == 0
    return mask


def read_units(scores: Path, names: list[str], mask: np.ndarray) -> pa.Table:
    """Read columns of some units of a table.

    Args:
        scores: Folder of the table.
        names: Columns.
        mask: Whether each unit is read, shape (units,).
    """
    batches = []
    row = 0
    for batch in read_rows(scores, names):
        batches.append(batch.filter(pa.array(mask[row : row + batch.num_rows])))
        row += batch.num_rows
    return pa.Table.from_batches(batches)


class Texts:
    """Texts of a pool, requested in its order; one batch of documents is in memory.

    Args:
        pool: Folder of the documents.
    """

    def __init__(self, pool: Path) -> None:
        self._folder = pool
        self._documents = self._read()
        self._doc_id: str | None = None
        self._text = ""

    def _read(self) -> Iterator[tuple[str, pa.StringScalar]]:
        for batch in read_rows(self._folder, ["doc_id", "text"], rows=1 << 10):
            # Texts stay in Arrow's memory, because most documents are skipped.
            yield from zip(batch["doc_id"].to_pylist(), batch["text"], strict=True)

    def text_of(self, doc_id: str) -> str:
        """Return the text of a document: the last one requested, or a later one.

        Raises:
            DataError: If the document is not in the pool, or out of order.
        """
        while self._doc_id != doc_id:
            self._doc_id, text = next(self._documents, (None, None))
            if text is None:
                raise DataError(
                    f"{self._folder}: document {doc_id!r} of the scores is missing or out of order; "
                    "score this pool again"
                )
            if self._doc_id == doc_id:
                self._text = text.as_py()
        return self._text

    def of_units(self, table: pa.Table | pa.RecordBatch) -> list[str]:
        """Return the text of each unit of a table (``doc_id``, ``start``, ``end``)."""
        columns = [table[name].to_pylist() for name in ("doc_id", "start", "end")]
        return [
            self.text_of(doc_id)[start:end] for doc_id, start, end in zip(*columns, strict=True)
        ]


def places_to_show(scores: np.ndarray) -> dict[int, tuple[str, int]]:
    """Choose the passages that stand for a whole selection: the best, the middle and the last by score.

    Args:
        scores: Mean score of each passage; lower = more in-domain. Of shape (passages,).

    Returns:
        Place (``best``, ``middle`` or ``last``) and rank, from 1, by row of `scores`; two rows a
        place, fewer where there are not so many passages.
    """
    order = np.argsort(scores, kind="stable")
    count = len(order)
    first_ranks = {"best": 0, "last": count - SHOWN, "middle": (count - SHOWN) // 2}
    places: dict[int, tuple[str, int]] = {}
    for place, first in first_ranks.items():
        for rank in range(max(first, 0), min(first + SHOWN, count)):
            places.setdefault(int(order[rank]), (place, rank + 1))  # none is shown twice
    return places


def write_selected_text(
    path: Path, scores_folder: Path, pool_folder: Path, pool: Pool, weight: np.ndarray
) -> tuple[int, list[dict[str, Any]]]:
    """Write the selected text: one JSON line per run of adjacent units with a weight above 0, gzipped.

    A line is contiguous text of one document: ``id``, ``doc_id``, ``source``, ``first_unit``,
    ``last_unit``, ``start``, ``end`` (characters), ``score`` (mean) and ``text``.

    Args:
        path: The file.
        scores_folder: Folder of the units.
        pool_folder: Folder of the documents.
        pool: The scored units.
        weight: Weight of each unit.

    Returns:
        Number of lines; and passages from the whole selection to show (:func:`places_to_show`),
        each with ``place``, ``rank``, ``source``, ``score`` and the beginning of its ``text``.

    Raises:
        DataError: If a document is not in the pool, or out of order.
    """
    first, last = selected_runs(weight, pool.document_starts)
    means = np.array(
        [_passage_mean(pool, start, end + 1) for start, end in zip(first, last, strict=True)]
    )
    places = places_to_show(means)
    # Only the first and the last unit of each run are read; a run of one unit is both.
    is_first = np.zeros(pool.units, dtype=bool)
    is_first[first] = True
    is_last = np.zeros(pool.units, dtype=bool)
    is_last[last] = True
    runs = read_units(scores_folder, ["doc_id", "source", "unit", "start"], is_first)
    last_units = read_units(scores_folder, ["unit", "end"], is_last)
    runs = runs.append_column("last_unit", last_units["unit"])
    runs = runs.append_column("end", last_units["end"])
    texts = Texts(pool_folder)
    shown = []
    row = 0
    # Without time and name in the header, equal content gives equal bytes.
    with (
        path.open("wb") as raw,
        gzip.GzipFile("", "wb", COMPRESSION, raw, mtime=0) as archive,
        io.TextIOWrapper(archive, encoding="utf-8") as stream,
        progress(what="selected text", unit="passages", total=first.size) as bar,
    ):
        for batch in runs.to_batches(max_chunksize=UNITS_AT_A_TIME):
            for run in batch.to_pylist():
                text = texts.text_of(run["doc_id"])[run["start"] : run["end"]]
                record = {
                    "id": f"{run['doc_id']}:{run['unit']}-{run['last_unit']}",
                    "doc_id": run["doc_id"],
                    "source": run["source"],
                    "first_unit": run["unit"],
                    "last_unit": run["last_unit"],
                    "start": run["start"],
                    "end": run["end"],
                    "score": float(means[row]),
                    "text": text,
                }
                stream.write(json.dumps(record, ensure_ascii=False) + "\n")
                if row in places:
                    shown.append(_passage(record, *places[row]))
                row += 1
            bar.update(batch.num_rows)
    return row, sorted(shown, key=itemgetter("rank"))


def _passage_mean(pool: Pool, start: int, end: int) -> float:
    """Average the scores of a passage over its units that are not short; over all, if all are."""
    score = pool.score[start:end]
    if pool.short is not None and not pool.short[start:end].all():
        score = score[~pool.short[start:end]]
    return float(score.mean())


def _passage(record: dict[str, Any], place: str, rank: int) -> dict[str, Any]:
    """Describe a passage of the selected text for the manifest, with the beginning of its text on one line."""
    text = " ".join(record["text"].split())
    if len(text) > LONGEST_SHOWN:
        text = text[: LONGEST_SHOWN - 1] + "…"
    return {
        "place": place,
        "rank": rank,
        "source": record["source"],
        "score": record["score"],
        "text": text,
    }


def counting_tokenizer(settings: WeighSettings) -> tuple[Tokenizer, str] | None:
    """Load the tokenizer that counts a budget in tokens, with a digest of all that decides its counts.

    Returns None, and loads nothing, if the budget is not in tokens.

    Raises:
        ArtifactError: If the tokenizer cannot be read.
        ConfigError: If it is not a fast tokenizer.
    """
    if settings.effective_budget.kind != "tokens":
        return None
    own_tokenizer = load_own_tokenizer(str(settings.tokenizer))
    split = own_tokenizer.split_special_tokens
    treatment = "are text" if split else "are tokens"  # hashed: other words change all digests
    digest = tokenizer_identity(own_tokenizer, treatment)
    tokenizer: Tokenizer = own_tokenizer.backend_tokenizer
    tokenizer.encode_special_tokens = split  # True: "[MASK]" in a text is plain text
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer, digest


def count_tokens(scores: Path, pool: Path, tokenizer: Tokenizer) -> np.ndarray:
    """Count the tokens of each unit without special tokens, int32 of shape (units,).

    Args:
        scores: Folder of the units.
        pool: Folder of their documents.
        tokenizer: Fast tokenizer from :func:`counting_tokenizer`; it runs on all cores.

    Raises:
        DataError: If a document is not in the pool.
    """
    texts = Texts(pool)
    counts = []
    with progress(what="counting tokens", unit="units") as bar:
        for batch in read_rows(scores, ["doc_id", "start", "end"], rows=UNITS_AT_A_TIME):
            encodings = tokenizer.encode_batch_fast(texts.of_units(batch), add_special_tokens=False)
            counts.append(np.array([len(tokens) for tokens in encodings], dtype=np.int32))
            bar.update(batch.num_rows)
    return np.concatenate(counts)
