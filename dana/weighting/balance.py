"""Balance: ranked segments and the clusters of their units to an order whose every beginning is spread by shares."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dana.core.config import require
from dana.core.errors import ConfigError, DataError
from dana.core.logging import get_logger
from dana.weighting.weights import DROPPED, Budget

log = get_logger(__name__)

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


@dataclass(frozen=True)
class Balance:
    """Over which clusters a budget is spread.

    Attributes:
        clusters: int of shape (units,), the cluster of each unit of the corpus.
        shares: float64 of shape (k,), of the budget, sums to 1.
    """

    clusters: np.ndarray
    shares: np.ndarray

    def order(self, order: np.ndarray, segment: np.ndarray, amounts: np.ndarray, budget: Budget) -> np.ndarray:
        """Segments of `order` in another one, of which any beginning holds the clusters in their shares.

        A segment's place is what it and the better segments of its cluster hold, over the share of that cluster. So
        within a cluster the order stays, and where one is used up the rest of the budget goes to the others, in
        proportion to their shares. A cluster with a share of 0 is left out.

        Args:
            order: Segment numbers, best first.
            segment: Of each unit, DROPPED for none.
            amounts: Of each segment, see :meth:`dana.weighting.weights.Budget.count`.
            budget: Says what is counted.

        Raises:
            DataError: If no segment is of a cluster that has a share.
        """
        own = segment_clusters(segment, self.clusters)[order]
        place = np.full(order.size, np.inf)
        for cluster in np.flatnonzero(self.shares):
            rows = np.flatnonzero(own == cluster)
            place[rows] = budget.held(order[rows], amounts) / self.shares[cluster]
        found = order[np.argsort(place, kind="stable")[: int(np.isfinite(place).sum())]]
        named = ", ".join(map(str, np.flatnonzero(self.shares)))
        if not found.size:
            raise DataError(f"balance: no segment is mostly of cluster {named}; name others")
        held, most = budget.held(found, amounts)[-1], budget.most(amounts)
        if held < most:
            log.warning("weights   cluster %s: holds less than the budget, %g of %g; all is kept", named, held, most)
        return found


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
