"""Balance: the setting that names clusters to their shares of a budget, and units to the cluster of their segment."""

from collections.abc import Mapping

import numpy as np

from dana.core.config import require
from dana.core.errors import ConfigError
from dana.weighting.weights import DROPPED

CLUSTERS = "clusters"
ALLOWED = f"{CLUSTERS}, or {CLUSTERS}:NUMBER=SHARE,NUMBER=SHARE with distinct clusters and shares above 0 that sum to 1"


def parse_balance(text: str) -> dict[int, float]:
    """Share of the budget of each cluster that is named: ``clusters:0=0.7,3=0.3``; empty for ``clusters``, all alike.

    Raises:
        ConfigError: If it is neither.
    """
    name, colon, rest = str(text).partition(":")
    shares: dict[int, float] = {}
    pairs = [part.partition("=") for part in rest.split(",")] if colon else []
    try:
        shares = {int(cluster): float(share) for cluster, _, share in pairs}
    except ValueError as error:
        raise ConfigError(f"balance={text!r}: must be {ALLOWED}") from error
    fits = len(shares) == len(pairs) and all(cluster >= 0 and share > 0 for cluster, share in shares.items())
    fits = fits and (not colon or abs(sum(shares.values()) - 1) < 1e-6)
    require(name == CLUSTERS and fits, "balance", text, ALLOWED)
    return shares


def cluster_shares(named: Mapping[int, float], k: int) -> np.ndarray:
    """Share of the budget of each of k clusters, float64 of shape (k,): those named, or all alike.

    Raises:
        ConfigError: If there is no cluster of such a number.
    """
    if not named:
        return np.full(k, 1 / k)
    for cluster in named:
        require(cluster < k, "balance", f"{CLUSTERS}:{cluster}", f"among the {k} clusters, 0 to {k - 1}")
    return np.array([named.get(cluster, 0.0) for cluster in range(k)])


def segment_clusters(segment: np.ndarray, clusters: np.ndarray) -> np.ndarray:
    """The cluster that most units of each segment are of, of equally frequent ones the first.

    Args:
        segment: Of each unit, DROPPED for none.
        clusters: int of shape (units,), from 0.

    Returns:
        int64 of shape (segments,).
    """
    inside = segment != DROPPED
    k = int(clusters.max(initial=0)) + 1
    pairs, counts = np.unique(segment[inside].astype(np.int64) * k + clusters[inside], return_counts=True)
    ranked = pairs[np.lexsort((pairs, -counts, pairs // k))]
    return ranked[np.unique(ranked // k, return_index=True)[1]] % k
