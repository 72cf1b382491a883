"""The three policies: a table of anomaly scores to a segment and a weight a unit. DANA, section 3.2."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from dana.core.errors import DataError
from dana.core.rng import unit_keys
from dana.core.statistics import Moments, effective_sample_size
from dana.weighting.balance import Balance
from dana.weighting.documents import document_starts
from dana.weighting.settings import WeighSettings
from dana.weighting.weights import (
    DROPPED,
    Budget,
    Components,
    drawn_order,
    segment_ids,
    segment_means,
    sigmoid,
    standardise,
)


@dataclass(frozen=True)
class Weighed:
    """What a policy makes of a table.

    Attributes:
        segment: int64 of shape (units,), position of each unit's segment in its document (with ``stream``: in the
            corpus), from 0; -1 for a unit of a dropped tail.
        weight: float64 of shape (units,), in [0, 1], 1 = in-domain.
        components: What the means of segments were shrunk by; None where they were not.
        counts: Units and segments, in and kept, for a manifest.
        notes: Midpoint, variance components, effective sample size, for a manifest.
    """

    segment: np.ndarray
    weight: np.ndarray
    components: Components | None
    counts: dict[str, Any]
    notes: dict[str, Any]


def apply_policy(
    table: pa.Table, settings: WeighSettings, tokens: np.ndarray | None = None, balance: Balance | None = None
) -> Weighed:
    """Weigh the units of a corpus.

    Args:
        table: ``doc_id``, ``unit`` and ``score`` of every unit of each document, in order.
        settings: The policy and its parameters.
        tokens: Shape (units,), of each unit, where the budget is in tokens.
        balance: Clusters that the budget is spread over, where it is.
    """
    score = table["score"].to_numpy()
    segment = corpus_segments(table, settings)
    counts: dict[str, Any] = {}
    notes: dict[str, Any] = {}
    components = None
    if settings.policy == "sigmoid":
        weight, notes["midpoint"] = sigmoid_weights(score, settings, settings.share)
    else:
        order, components = segment_order(table, segment, settings)
        if components is not None:
            notes["shrunk"] = asdict(components)
        if settings.below is None:
            amounts = segment_amounts(table, segment, settings.kept, tokens)
            order = order if balance is None else balance.order(order, segment, amounts, settings.kept)
            kept = order[: settings.kept.count(order, amounts)]
        else:
            kept = _below(settings.below, segment_means(score, segment))
        weight = (np.isin(segment, kept) & (segment != DROPPED)).astype(np.float64)
        counts["segments"] = {"in": int(segment.max()) + 1, "kept": int(kept.size)}
    counts["units"] = unit_counts(weight, segment)
    notes["effective_sample_size"] = effective_sample_size(weight)
    return Weighed(within_documents(segment, table, settings), weight, components, counts, notes)


def corpus_segments(table: pa.Table, settings: WeighSettings) -> np.ndarray:
    """Segment of each unit, numbered over the corpus from 0; DROPPED for a dropped tail. int64 of shape (units,)."""
    starts = np.array([0]) if settings.stream else document_starts(table)
    return segment_ids(starts, table.num_rows, settings.gamma, settings.min_tail)


def require_segments(segment: np.ndarray, settings: WeighSettings) -> None:
    """Refuse to rank segments where every unit is of a dropped tail.

    Raises:
        DataError: Naming ``min_tail``.
    """
    if not (segment != DROPPED).any():
        whole = "the corpus" if settings.stream else "every document"
        raise DataError(f"min_tail={settings.min_tail}: {whole} is shorter; no segment is left")


def within_documents(segment: np.ndarray, table: pa.Table, settings: WeighSettings) -> np.ndarray:
    """Segments numbered within each document, so that a row's key says where it is; with ``stream`` as they are."""
    if settings.stream:
        return segment
    return np.where(segment == DROPPED, DROPPED, table["unit"].to_numpy().astype(np.int64) // settings.gamma)


def unit_counts(weight: np.ndarray, segment: np.ndarray) -> dict[str, int]:
    """Units in, kept and dropped by reason, for a manifest."""
    return {
        "in": int(weight.size),
        "kept": int((weight > 0).sum()),
        "dropped_by_weight": int(((weight == 0) & (segment != DROPPED)).sum()),
        "dropped_short_tail": int(((weight == 0) & (segment == DROPPED)).sum()),
    }


def sigmoid_weights(score: np.ndarray, settings: WeighSettings, share: float) -> tuple[np.ndarray, float]:
    """Continuous weights, and the midpoint α on standardised scores: the one given, or their quantile at `share`."""
    standard = standardise(score, Moments.of(score))
    given = settings.midpoint
    midpoint = float(np.quantile(standard, share)) if given is None else given
    return sigmoid(standard, settings.sharpness, midpoint), midpoint


def segment_order(
    table: pa.Table, segment: np.ndarray, settings: WeighSettings
) -> tuple[np.ndarray, Components | None]:
    """Segments as a policy wants them, the best first, and what their means were shrunk by.

    Args:
        table: See :func:`apply_policy`.
        segment: Of each unit, from :func:`corpus_segments`.
        settings: ``segments`` orders by the means, ties to the earlier; ``sampled`` draws.

    Raises:
        DataError: If no unit is in a segment.
    """
    require_segments(segment, settings)
    score = table["score"].to_numpy()
    components = Components.of(score, segment) if settings.shrink else None
    means = ranked_means(score, segment, components)
    if settings.policy == "segments":
        return np.argsort(means, kind="stable"), components
    rows = _first_rows(segment)
    ids, units = table["doc_id"].take(rows).to_pylist(), table["unit"].to_numpy()[rows]
    keys = np.array([unit_keys(doc_id, np.array([unit]))[0] for doc_id, unit in zip(ids, units, strict=True)])
    relevance, _ = sigmoid_weights(means, settings, settings.share)
    return drawn_order(relevance, keys, settings.seed), components


def _below(threshold: float, means: np.ndarray) -> np.ndarray:
    """Numbers of the segments whose mean score, as it is, is below a threshold."""
    kept = np.flatnonzero(means < threshold)
    if not kept.size:
        raise DataError(f"below={threshold:g}: no segment's mean score is; the lowest is {means.min():.4g}")
    return kept


def ranked_means(score: np.ndarray, segment: np.ndarray, components: Components | None) -> np.ndarray:
    """Mean score of each segment, shrunk where `components` say by what: what segments are ranked by."""
    means = segment_means(score, segment)
    return means if components is None else components.shrink(means, np.bincount(segment[segment != DROPPED]))


def segment_amounts(table: pa.Table, segment: np.ndarray, budget: Budget, tokens: np.ndarray | None) -> np.ndarray:
    """What a budget counts of each segment: its units, its tokens, or the number of its document.

    Args:
        table: See :func:`apply_policy`.
        segment: Of each unit, from :func:`corpus_segments`.
        budget: Says what is counted.
        tokens: Shape (units,), where tokens are.
    """
    inside = segment != DROPPED
    if budget.kind == "documents":
        return np.searchsorted(document_starts(table), _first_rows(segment), side="right")
    amounts = np.ones(segment.size) if tokens is None else tokens
    return np.bincount(segment[inside], weights=amounts[inside])


def _first_rows(segment: np.ndarray) -> np.ndarray:
    """Row of the first unit of each segment."""
    inside = np.flatnonzero(segment != DROPPED)
    return inside[np.searchsorted(segment[inside], np.arange(int(segment.max()) + 1))]
