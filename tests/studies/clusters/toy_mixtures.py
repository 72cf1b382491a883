"""Mixtures written down by hand."""

import numpy as np
import torch

from dana.studies.clusters.mixture import Mixture


def round_mixture(means, weights=None, variances=None):
    """Components that are round, of variance 1 unless told."""
    means = torch.tensor(means, dtype=torch.float64)
    k, dims = means.shape
    weights = torch.tensor(weights or [1 / k] * k, dtype=torch.float64)
    scale = np.ones(k) if variances is None else np.asarray(variances)
    covariances = torch.from_numpy(scale[:, None, None] * np.eye(dims))
    return Mixture(weights, means, covariances)
