"""Mixtures fitted by scikit-learn: points to a candidate for every number of clusters, from several beginnings."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dana.core.errors import DataError
from dana.core.rng import derive_seed
from dana.studies.clusters.mixture import Mixture
from dana.studies.clusters.settings import ClusterSettings


@dataclass(frozen=True)
class Fit:
    """One fit, from one beginning.

    Attributes:
        seed: Its number, from 0.
        log_likelihood: Mean log density of the points, nats.
        bic: Bayesian information criterion: the lower, the better.
        iterations: Steps that expectation maximisation took.
        converged: Whether it ended before the most steps allowed.
        clusters: int of shape (units,), the most likely component of each point.
    """

    seed: int
    log_likelihood: float
    bic: float
    iterations: int
    converged: bool
    clusters: np.ndarray


@dataclass(frozen=True)
class Candidate:
    """A number of clusters.

    Attributes:
        k: How many.
        fits: One a seed.
        mixture: Of the likeliest fit that leaves no cluster empty; None if every fit leaves one.
        best: Its place among the fits; -1 if there is none.
    """

    k: int
    fits: tuple[Fit, ...]
    mixture: Mixture | None
    best: int


def check_vectors(vectors: Tensor, k: int) -> None:
    """Check that vectors can be clustered.

    Args:
        vectors: Shape (units, dims).
        k: The most clusters that are asked for.

    Raises:
        DataError: If a number is not finite, or there are fewer distinct vectors than clusters.
    """
    check_numbers(vectors)
    if len(vectors) < k:
        raise DataError(f"k={k}: there are {len(vectors)} distinct units to fit on; ask for at most so many clusters")
    if (distinct := len(torch.unique(vectors, dim=0))) < k:
        alike = "all units have the same vector" if distinct == 1 else f"the units have {distinct} distinct vectors"
        raise DataError(f"k={k}: {alike}; nothing tells so many clusters apart")


def check_numbers(vectors: Tensor) -> None:
    """Check every number of vectors of shape (units, dims).

    Raises:
        DataError: Naming the first bad one.
    """
    finite = torch.isfinite(vectors).all(1)
    if not finite.all():
        bad = int((~finite).nonzero()[0])
        raise DataError(f"vector {bad} of {len(vectors)} is not finite ({int((~finite).sum())} in all)")


def fit_candidates(points: np.ndarray, ks: Sequence[int], settings: ClusterSettings, seed: int) -> list[Candidate]:
    """Fit mixtures of every size from every beginning.

    One thread computes: k-means, the beginning, sums in another order with two, and the last bits would differ.

    Args:
        points: float64 of shape (units, dims); of vectors that passed :func:`check_vectors`.
        ks: Numbers of clusters.
        settings: Shape, steps and number of beginnings.
        seed: Root seed.

    References:
        Aharoni and Goldberg 2020, section 2.2 and appendix A.3.
    """
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):
        return [_candidate(points, k, settings, seed) for k in ks]


def _candidate(points: np.ndarray, k: int, settings: ClusterSettings, seed: int) -> Candidate:
    fits: list[Fit] = []
    mixture, best = None, -1
    for number in range(settings.seeds):
        fit, fitted = _fit(points, k, settings, derive_seed(seed, "clusters", number) % 2**32, number)
        fits.append(fit)
        is_full = len(np.unique(fit.clusters)) == k
        if is_full and (best < 0 or fit.log_likelihood > fits[best].log_likelihood):
            mixture, best = fitted, number
    return Candidate(k, tuple(fits), mixture, best)


def _fit(points: np.ndarray, k: int, settings: ClusterSettings, seed: int, number: int) -> tuple[Fit, Mixture]:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.mixture import GaussianMixture

    model = GaussianMixture(k, covariance_type=settings.covariance, max_iter=settings.iterations, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # it is in the table of fits
        model.fit(points)
    mixture = Mixture.of_fitted(model)
    assigned = mixture.assign(points)
    likelihood = float(assigned.log_densities.mean())
    bic = float(model.bic(points))
    return Fit(number, likelihood, bic, int(model.n_iter_), bool(model.converged_), assigned.clusters), mixture
