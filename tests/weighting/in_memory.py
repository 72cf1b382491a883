"""Weighing straight from the formulas of the paper, unit by unit: what the package equals to the last bit."""

from types import SimpleNamespace

import numpy as np
import pyarrow as pa
from scipy.special import expit

from dana.core.rng import derive_seed, hash_uniform, unit_keys
from dana.weighting.selection import Pool, UnitGroups, segment_in_document, weigh_pool


def score_table(scores, documents=None, **columns):
    """Units of one document, or of documents by their numbers, with scores and further columns."""
    rows = np.arange(len(scores))
    documents = np.zeros(len(scores), dtype=int) if documents is None else np.asarray(documents)
    units = (rows - np.searchsorted(documents, documents)).astype(np.int32)
    keys = {"doc_id": [f"d{number:06d}" for number in documents], "unit": units}
    return pa.table({**keys, "score": np.asarray(scores, dtype=float), **columns})


def segment_numbers(documents, settings):
    """Of each unit, from 0; -1 in a dropped tail."""
    rows = np.arange(documents.size)
    starts = (
        np.zeros(1, dtype=int)
        if settings.stream
        else np.flatnonzero(np.diff(documents, prepend=-1))
    )
    of = np.searchsorted(starts, rows, side="right") - 1
    key = np.stack([of, (rows - starts[of]) // settings.gamma], axis=1)
    number = np.unique(key, axis=0, return_inverse=True)[1].reshape(-1)
    enough = np.bincount(number) >= settings.min_tail
    return np.where(enough, np.cumsum(enough) - 1, -1)[number]


def shrunken(score, segment, means, sizes):
    """Means drawn to the mean of all by variance components (analysis of variance of unequal groups)."""
    inside = segment >= 0
    residual = np.square(score[inside] - means[segment[inside]]).sum()
    units, groups = sizes.sum(), sizes.size
    within = residual / (units - groups) if units > groups else 0.0
    between = 0.0
    if groups > 1:
        average = (sizes * means).sum() / units
        spread = (sizes * np.square(means - average)).sum() / (groups - 1)
        between = (spread - within) * (groups - 1) / (units - np.square(sizes).sum() / units)
    between = max(between, 1e-6 * within)
    worth = 1 / np.maximum(between + within / np.maximum(sizes, 1), 1e-300)
    mean = (worth * means).sum() / worth.sum()
    return mean + (means - mean) * between / np.maximum(between + within / sizes, 1e-300)


def sigmoid_of(values, settings):
    """Weights of values by the moments and the quantile of all."""
    mean = values.mean()
    deviation = (np.square(values - mean).sum() / values.size) ** 0.5
    standard = (values - mean) / deviation if deviation > 0 else np.zeros_like(values)
    midpoint = (
        np.quantile(standard, settings.share) if settings.midpoint is None else settings.midpoint
    )
    return expit(settings.sharpness * (midpoint - standard))


def running_amounts(order, amounts, budget):
    """What each beginning of an order holds."""
    counts = amounts[order]
    if budget.kind == "documents":
        counts = np.isin(np.arange(order.size), np.unique(counts, return_index=True)[1])
    return np.cumsum(counts)


def spread(order, clusters, amounts, settings, shares):
    """The order by what each cluster holds up to a segment over its share."""
    key = np.full(order.size, np.inf)
    for cluster in np.flatnonzero(shares):
        rows = np.flatnonzero(clusters[order] == cluster)
        key[rows] = (
            running_amounts(order[rows], amounts, settings.effective_budget) / shares[cluster]
        )
    return order[np.argsort(key, kind="stable")[: int(np.isfinite(key).sum())]]


def apply_policy(table, settings, shares=None):
    """What the package makes of a table."""
    pool = Pool.from_tables([table], table.num_rows)
    tokens = table["tokens"].to_numpy() if "tokens" in table.column_names else None
    groups = None
    if shares is not None:
        names = [f"g{number}" for number in range(len(shares))]
        groups = UnitGroups(table["group"].to_numpy(), shares, names)
    result = weigh_pool(pool, settings, tokens, groups)
    segment = result.segment if settings.stream else segment_in_document(pool, result.segment)
    return SimpleNamespace(
        segment=segment, weight=result.weight, counts=result.counts, notes=result.notes
    )


def weights(table, settings, shares=None):
    """Segment, what decides its weight, and weight of each unit of a table with every column that the settings need."""
    score = table["score"].to_numpy()
    documents = np.unique(table["doc_id"].to_numpy(), return_inverse=True)[1]
    segment = segment_numbers(documents, settings)
    if settings.policy == "sigmoid":
        return segment, score, sigmoid_of(score, settings)
    inside = segment >= 0
    if not inside.any():
        return segment, np.full(score.size, np.inf), np.zeros(score.size)
    sizes = np.bincount(segment[inside]).astype(float)
    plain = np.bincount(segment[inside], weights=score[inside]) / sizes
    means = shrunken(score, segment, plain, sizes) if settings.shrink else plain
    order = np.argsort(means, kind="stable")
    first = np.unique(segment, return_index=True)[1][-sizes.size :]
    if settings.policy == "sampled":
        ids, units = table["doc_id"].to_pylist(), table["unit"].to_numpy()
        keys = np.array([unit_keys(ids[row], units[row : row + 1])[0] for row in first])
        u = hash_uniform(derive_seed(settings.seed, "weights", "sampled"), keys)
        relevance = sigmoid_of(means, settings)
        with np.errstate(divide="ignore", over="ignore"):
            key = np.where(relevance > 0, np.log(np.maximum(u, 2.0**-60)) / relevance, -np.inf)
        order = np.argsort(-key, kind="stable")[: int((relevance > 0).sum())]
    budget = settings.effective_budget
    counts = table["tokens"].to_numpy() if budget.kind == "tokens" else np.ones(score.size)
    amounts = (
        documents[first]
        if budget.kind == "documents"
        else np.bincount(segment[inside], counts[inside])
    )
    if shares is not None:
        groups = table["group"].to_numpy()[inside]
        by_group = np.stack(
            [np.bincount(segment[inside], groups == one) for one in range(len(shares))]
        )
        order = spread(order, by_group.argmax(axis=0), amounts, settings, shares)
    if settings.below is None:
        limit = round(budget.amount * inside.sum()) if budget.kind == "share" else budget.amount
        rows = order[
            : max(1, np.searchsorted(running_amounts(order, amounts, budget), limit, side="right"))
        ]
    else:
        rows = np.flatnonzero(plain < settings.below)
    values = np.append(means, np.inf)[segment]
    return segment, values, (np.isin(segment, rows) & inside).astype(float)
