"""The share of a pool to keep, from its scores and held-out task text: the perplexity minimum, capped by likeness."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from dana.core.errors import DataError
from dana.core.rng import generator
from dana.weighting.documents import Texts, document_numbers
from dana.weighting.mixture import PoolSample, Scored, in_domain, in_domain_probability
from dana.weighting.perplexity import PerplexityCurve, perplexity_curve
from dana.weighting.pool import Block, Pool
from dana.weighting.purity import LEAST_UNITS, deciding, tells_apart
from dana.weighting.segments import Segments
from dana.weighting.settings import WeighSettings

MOST_UNITS = 200_000  # of the pool whose n-grams are counted; of a larger one, those of documents drawn at random


@dataclass(frozen=True)
class Cut:
    """One cut of the ranked pool.

    Attributes:
        share: Of the pool's units.
        units: In it, of the whole pool.
        perplexity: Of held-out task text under an n-gram model of the cut; None where it has no known word.
        perplexity_random: The same of as many random units.
        above_best: Nats a token above the cut of least perplexity.
        standard_error: Of that, over held-out documents.
        in_domain: Estimated share of the cut's units that is like the task; None where that is unknown.
    """

    share: float
    units: int
    perplexity: float | None
    perplexity_random: float | None
    above_best: float | None
    standard_error: float
    in_domain: float | None


@dataclass(frozen=True)
class Amount:
    """How much to keep, and why.

    Attributes:
        beta: Share of the units.
        by_perplexity: The smallest cut within one standard error of the least perplexity.
        by_likeness: Share of the pool that is like the task rather than not; None where that is unknown.
        reason: The choice in words.
        held_out_documents: Of the task, that chose.
        counted_units: Of the pool, that the n-gram models saw in all.
        curve: All cuts, ascending.
    """

    beta: float
    by_perplexity: float
    by_likeness: float | None
    reason: str
    held_out_documents: int
    counted_units: int
    curve: tuple[Cut, ...]


def choose_amount(
    held_out: pa.Table, task: Path, pool: Pool, segments: Segments, corpus: Path, settings: WeighSettings
) -> Amount:
    """Choose beta: the amount of least perplexity, but no more than there is text like the task.

    Two readings. (a) N-gram models are trained on growing cuts of the ranked pool; the smallest cut under which
    held-out task text costs at most one standard error more than under the best one. (b) The share of the pool that is
    more likely like the task than not (:func:`dana.weighting.mixture.in_domain_probability`). The smaller of the two is
    chosen: a small pool's perplexity falls by any text at first, whatever it is about. Where (b) is unknown or 0, (a).

    Args:
        held_out: Of :data:`dana.core.schemas.SCORES`, of task text that nothing was fitted on.
        task: Folder of the documents that it is of.
        pool: Of the same schema, the scored corpus.
        segments: Of the pool.
        corpus: Folder of its documents.
        settings: Of the weighing; its policy says whether units or segments are ranked.

    Raises:
        DataError: If there is no held-out text, or no word is twice in the pool.
    """
    if held_out.num_rows == 0:
        raise DataError("beta='auto': the task has no held-out text to choose by; give a share in (0, 1]")
    drawn, values, segment = _sample(pool, segments, settings)
    order = np.argsort(values, kind="stable")
    segment = np.unique(segment, return_inverse=True)[1]
    places = generator(settings.seed, "weights", "random cuts").permutation(int(segment.max()) + 1)[segment]
    of_task = Scored(deciding(held_out, settings, segments.components), document_numbers(held_out))
    texts = list(_texts(drawn, corpus)), list(_texts(held_out, task))
    curve = perplexity_curve(texts[0], order, np.argsort(places, kind="stable"), texts[1], of_task.documents)
    if not np.isfinite(curve.per_token).any():
        raise DataError("beta='auto': no word is twice in the pool, so none can be learned; give a share in (0, 1]")
    probability, likeness = _likeness(of_task, Scored(values, document_numbers(drawn)), settings.seed)
    found = _rule(curve, likeness)
    cuts = _cuts(curve, None if probability is None else probability[order], pool.rows)
    return replace(found, counted_units=drawn.num_rows, curve=cuts)


def _rule(curve: PerplexityCurve, likeness: float | None) -> Amount:
    """The smaller reading, and why in words."""
    best, smallest = float(curve.shares[curve.best]), float(curve.shares[curve.smallest])
    perplexity, random = np.exp(curve.per_token[curve.best]), np.exp(curve.random_per_token[curve.best])
    said = f"a model of the best {_percent(best)} of the pool predicts held-out task text best (perplexity "
    said += f"{perplexity:.4g}, {random:.4g} of as much random text)"
    said += f", one of {_percent(smallest)} as well to within a standard error" if smallest < best else ""
    if likeness == 0:
        said += "; by the scores none of the pool is like the task"
    elif likeness is None:
        said += "; how much of the pool is like the task cannot be told by the scores"
    elif likeness < smallest:
        said += f"; but no more than {_percent(likeness)} of the pool is like the task"
    else:
        said += f"; up to {_percent(likeness)} of the pool is like the task"
    beta = min(smallest, likeness) if likeness else smallest
    return Amount(beta, smallest, likeness, said, curve.tokens.size, 0, ())


def _likeness(of_task: Scored, of_pool: Scored, seed: int) -> tuple[np.ndarray | None, float | None]:
    """Probability that each unit of the pool is like the task, and the share of the pool that may be kept by it."""
    if of_task.scores.size < LEAST_UNITS:
        return None, None
    sample = PoolSample(of_pool.scores.size, seed)
    sample.add(of_pool.scores, of_pool.documents)
    found = in_domain(of_task, np.zeros(of_task.scores.size), sample, 1.0)
    if not tells_apart(found):
        return None, None
    probability = in_domain_probability(of_task, of_pool, found.pool.value)
    return probability, float((probability >= 0.5).mean())


def _cuts(curve: PerplexityCurve, probability: np.ndarray | None, units: int) -> tuple[Cut, ...]:
    """The curve in plain numbers; `probability` of the pool's units, the best first."""
    rows = zip(curve.shares, curve.per_token, curve.random_per_token, curve.standard_errors, strict=True)
    return tuple(
        Cut(
            float(share),
            max(1, round(share * units)),
            _finite(np.exp(nats)),
            _finite(np.exp(drawn)),
            _finite(nats - curve.per_token[curve.best]),
            float(error),
            None if probability is None else float(probability[: max(1, round(share * probability.size))].mean()),
        )
        for share, nats, drawn, error in rows
    )


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _sample(pool: Pool, segments: Segments, settings: WeighSettings) -> tuple[pa.Table, np.ndarray, np.ndarray]:
    """Units in segments, what decides their weights, and their segments; of a large pool, of documents at random.

    Of few huge documents maybe none is drawn. Every n-th unit is taken then, of about all documents.
    """
    random, share = generator(settings.seed, "weights", "counted"), min(1.0, MOST_UNITS / segments.units)
    step, before = -(-segments.units // MOST_UNITS), 0
    drawn: list[tuple[pa.Table, np.ndarray, np.ndarray]] = []
    spare: list[tuple[pa.Table, np.ndarray, np.ndarray]] = []
    for block in pool.blocks(["start", "end", "score"], settings):
        inside = block.inside
        by_segment = block.of_units(segments.values(block.first, block.after), np.inf)
        decides = block.table["score"].to_numpy() if settings.policy == "sigmoid" else by_segment
        chosen = inside
        if share < 1:
            chosen = inside & (random.random(block.starts.size) < share)[block.documents - block.document]
            if not drawn:
                place = before + np.cumsum(inside) - 1
                spare.append(_rows(block, decides, inside & (place % step == 0)))
            before += int(inside.sum())
        if chosen.any():
            drawn.append(_rows(block, decides, chosen))
    tables, values, numbers = zip(*(drawn or spare), strict=True)
    return pa.concat_tables(tables), np.concatenate(values), np.concatenate(numbers)


def _rows(block: Block, decides: np.ndarray, chosen: np.ndarray) -> tuple[pa.Table, np.ndarray, np.ndarray]:
    return block.table.filter(pa.array(chosen)), decides[chosen], block.segment[chosen]


def _texts(table: pa.Table, documents: Path) -> Iterator[str]:
    """Text of each row."""
    for text, rows in Texts(documents).of(table):
        for start, end in zip(table["start"][rows].to_pylist(), table["end"][rows].to_pylist(), strict=True):
            yield text[start:end]
