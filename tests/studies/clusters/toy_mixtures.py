"""Mixtures written down by hand."""

import numpy as np
from sklearn.mixture import GaussianMixture


def round_mixture(means, weights=None, variances=None):
    """Components that are round, of variance 1 unless told."""
    means = np.array(means, dtype=np.float64)
    k, dims = means.shape
    scale = np.ones(k) if variances is None else np.array(variances, dtype=np.float64)
    mixture = GaussianMixture(k)
    mixture.weights_ = np.array(weights or [1 / k] * k)
    mixture.means_ = means
    mixture.covariances_ = scale[:, None, None] * np.eye(dims)
    mixture.precisions_cholesky_ = scale[:, None, None] ** -0.5 * np.eye(dims)
    return mixture
