"""Representative units: log densities to the units nearest to each cluster's centre, and to those farthest from all."""

from collections.abc import Sequence

import numpy as np

from dana.report.examples import is_readable


def representatives(
    texts: Sequence[str], documents: Sequence[str], clusters: np.ndarray, order: np.ndarray, most: int
) -> dict[int, list[int]]:
    """The first units of each cluster in some order: of distinct documents and texts, readable ones.

    A cluster without a single readable unit, of headings or numbers say, is represented by what it has.

    Args:
        texts: Units.
        documents: Which document each is of; empty for plain texts, each of its own.
        clusters: int of shape (units,).
        order: Number of shape (units,): of a cluster the lowest come first.
        most: So many of each.

    Returns:
        Cluster to places of units, for every cluster that has some.
    """
    readable = np.array([is_readable(text) for text in texts], dtype=bool)
    found: dict[int, list[int]] = {int(cluster): [] for cluster in np.unique(clusters)}
    able = readable | ~np.isin(clusters, np.unique(clusters[readable]))
    seen: set[tuple[int, str]] = set()
    for place in np.argsort(order, kind="stable").tolist():
        cluster, text = int(clusters[place]), " ".join(texts[place].split())
        marks = {(cluster, text), *([(cluster, f"\0{documents[place]}")] if documents[place] else [])}
        if len(found[cluster]) < most and able[place] and not marks & seen:
            found[cluster].append(place)
            seen |= marks
    return found


def log_density_of_own(log_densities: np.ndarray, responsibilities: np.ndarray) -> np.ndarray:
    """Log of weight times density of each unit's own component: how near its cluster's centre it is.

    Args:
        log_densities: Of the mixture, shape (units,).
        responsibilities: Of the likeliest component, shape (units,).
    """
    return log_densities + np.log(responsibilities)
