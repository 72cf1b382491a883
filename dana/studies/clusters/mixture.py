"""Gaussian mixture: points to the log density of each component, and to the cluster each point most likely is of.

Fitted by scikit-learn (:mod:`dana.studies.clusters.fit`); what is saved is what a mixture is, its weights, means and
covariances, and the densities are computed from these.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dana.core import tensors

FILE = "mixture"


@dataclass(frozen=True)
class Assigned:
    """Where units belong.

    Attributes:
        clusters: int32 of shape (units,), the most likely component of each.
        responsibilities: float64 of shape (units, k), rows sum to 1.
        log_densities: float64 of shape (units,), natural logarithm of the mixture's density; the lower, the more of an
            outlier.
    """

    clusters: np.ndarray
    responsibilities: np.ndarray
    log_densities: np.ndarray


@dataclass(frozen=True)
class Mixture:
    """Weighted normal distributions.

    Attributes:
        weights: float64 of shape (k,), sum 1.
        means: float64 of shape (k, dims).
        covariances: float64 of shape (k, dims, dims), whatever shape they were fitted in.
    """

    weights: Tensor
    means: Tensor
    covariances: Tensor

    @property
    def k(self) -> int:
        """How many components there are."""
        return len(self.weights)

    @cached_property
    def _whitening(self) -> np.ndarray:
        """Shape (k, dims, dims): W with W Wᵀ = the inverse covariance, upper triangular."""
        from scipy.linalg import cholesky, solve_triangular

        eye = np.eye(self.means.shape[1])
        lower = [cholesky(covariance, lower=True) for covariance in self.covariances.numpy()]
        return np.stack([solve_triangular(factor, eye, lower=True).T for factor in lower])

    def joint(self, points: np.ndarray) -> np.ndarray:
        """Log of weight times density of every component, float64 of shape (units, k).

        Equal to scikit-learn's ``GaussianMixture`` of the same parameters to rounding.

        Args:
            points: float64 of shape (units, dims).
        """
        with np.errstate(divide="ignore"):  # a component of weight 0 has no density
            weights = np.log(self.weights.numpy())
        found = np.empty((len(points), self.k))
        for at, (mean, whitening) in enumerate(zip(self.means.numpy(), self._whitening, strict=True)):
            distance = np.square((points - mean) @ whitening).sum(1)
            scale = np.log(np.diagonal(whitening)).sum() - 0.5 * len(mean) * np.log(2 * np.pi)
            found[:, at] = weights[at] + scale - 0.5 * distance
        return found

    def assign(self, points: np.ndarray) -> Assigned:
        """Cluster, responsibilities and log density of each point of shape (units, dims)."""
        from scipy.special import logsumexp

        joint = self.joint(points)
        density = logsumexp(joint, axis=1)
        return Assigned(joint.argmax(1).astype(np.int32), np.exp(joint - density[:, None]), density)

    def save(self, folder: Path) -> None:
        """Write ``mixture.safetensors`` and ``mixture.json``; see :mod:`dana.core.tensors`."""
        tensors.save_tensors(self, folder, FILE)

    @classmethod
    def load(cls, folder: Path) -> "Mixture":
        """What :meth:`save` wrote."""
        return tensors.load_tensors(cls, folder, FILE)

    @classmethod
    def of_fitted(cls, fitted: Any) -> "Mixture":
        """The parameters of a fitted ``GaussianMixture`` of scikit-learn, the heaviest component first.

        Args:
            fitted: Of any covariance type.
        """
        k, dims = fitted.means_.shape
        found, kind = fitted.covariances_, fitted.covariance_type
        if kind == "tied":
            found = np.broadcast_to(found, (k, dims, dims))
        elif kind != "full":  # spherical: one number a component; diag: one a dimension
            found = np.reshape(found, (k, -1))[:, :, None] * np.eye(dims)
        order = np.argsort(-fitted.weights_, kind="stable")
        parts = [part[order] for part in (fitted.weights_, fitted.means_, found)]
        return cls(*(torch.from_numpy(np.ascontiguousarray(part, dtype=np.float64)) for part in parts))
