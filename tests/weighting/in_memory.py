"""Weighing with everything in memory, straight from the formulas: what passes over blocks equal to the last bit."""

from types import SimpleNamespace

import numpy as np
from scipy.special import expit

from dana.core.rng import derive_seed, hash_uniform, unit_keys
from dana.weighting.pool import Pool
from dana.weighting.selection import weigh_in_memory


def segment_numbers(documents, settings):
    """Of each unit, from 0; -1 in a dropped tail."""
    rows = np.arange(documents.size)
    starts = np.zeros(1, dtype=int) if settings.stream else np.flatnonzero(np.diff(documents, prepend=-1))
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
    midpoint = np.quantile(standard, settings.share) if settings.midpoint is None else settings.midpoint
    return expit(settings.sharpness * (midpoint - standard))


def held(order, amounts, budget):
    """What each beginning of an order holds."""
    counted = amounts[order]
    if budget.kind == "documents":
        counted = np.isin(np.arange(order.size), np.unique(counted, return_index=True)[1])
    return np.cumsum(counted)


def spread(order, clusters, amounts, settings, shares):
    """The order by what each cluster holds up to a segment over its share."""
    place = np.full(order.size, np.inf)
    for cluster in np.flatnonzero(shares):
        rows = np.flatnonzero(clusters[order] == cluster)
        place[rows] = held(order[rows], amounts, settings.effective_budget) / shares[cluster]
    return order[np.argsort(place, kind="stable")[: int(np.isfinite(place).sum())]]


def apply_policy(table, settings, shares=None):
    """What the package makes of a table."""
    pool = (
        Pool(table)
        if shares is None
        else Pool(table.drop_columns("group")).with_columns(group=table["group"].to_numpy())
    )
    segment, weight, rule = weigh_in_memory(pool, settings, shares)
    return SimpleNamespace(segment=segment, weight=weight, counts=rule.counts, notes=rule.notes)


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
            place = np.where(relevance > 0, np.log(np.maximum(u, 2.0**-60)) / relevance, -np.inf)
        order = np.argsort(-place, kind="stable")[: int((relevance > 0).sum())]
    kind = settings.effective_budget.kind
    counted = table["tokens"].to_numpy() if kind == "tokens" else np.ones(score.size)
    amounts = documents[first] if kind == "documents" else np.bincount(segment[inside], weights=counted[inside])
    if shares is not None:
        of = np.stack(
            [np.bincount(segment[inside], table["group"].to_numpy()[inside] == one) for one in range(len(shares))]
        )
        order = spread(order, of.argmax(axis=0), amounts, settings, shares)
    if settings.below is None:
        most = (
            round(settings.effective_budget.amount * inside.sum())
            if kind == "share"
            else settings.effective_budget.amount
        )
        kept = order[: max(1, np.searchsorted(held(order, amounts, settings.effective_budget), most, side="right"))]
    else:
        kept = np.flatnonzero(plain < settings.below)
    values = np.append(means, np.inf)[segment]
    return segment, values, (np.isin(segment, kept) & inside).astype(float)
