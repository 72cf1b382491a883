"""Neighbours among clusters: a mixture to the distances between its means, and to the nearest of each."""

import numpy as np

from dana.studies.clusters.mixture import Mixture


def mean_distances(mixture: Mixture) -> np.ndarray:
    """Euclidean distances between means, in the space that was clustered; shape (k, k), 0 on the diagonal."""
    means = mixture.means.numpy()
    return np.linalg.norm(means[:, None] - means[None], axis=2)


def nearest_clusters(distances: np.ndarray) -> np.ndarray:
    """The nearest other cluster of each, int of shape (k,).

    Args:
        distances: Of :func:`mean_distances`.
    """
    return (distances + np.diag(np.full(len(distances), np.inf))).argmin(1)
