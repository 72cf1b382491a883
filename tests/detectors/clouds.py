"""Normal clouds of rows, and the detectors that are fitted on them."""

import torch

from dana.core.registry import DETECTORS
from dana.detectors.base import fit_detector

CONTRASTIVE = ["distance", "lda", "density_ratio", "contrastive_knn", "svm"]
ONE_CLASS = ["lof", "ocsvm", "knn", "pca", "robust_covariance", "cosine"]


def cloud(rows, dims, seed):
    return torch.randn(rows, dims, generator=torch.Generator().manual_seed(seed))


def fit(spec, inside):
    """Fit a detector; contrastive ones get as many rows of another cloud."""
    return fit_detector(DETECTORS.create(spec), inside, 0, cloud(*inside.shape, 2) + 1)
