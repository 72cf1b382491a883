"""Fit Gaussian mixtures to vectors, choose the number of components, and assign units to clusters.

Vectors go through the geometry and principal components first; scikit-learn fits and applies the
mixture. Units are assigned in blocks of fixed size, the last one padded with zeros: products of
matrices of one shape sum in one order, so a unit gets the same bits in any batch and any process.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import GaussianMixture
from threadpoolctl import threadpool_limits
from torch import Tensor

from dana.core.errors import ArtifactError, DataError
from dana.core.rng import derive_seed
from dana.encoders.geometry import FittedGeometry, parse_geometry
from dana.studies.clusters.settings import ClusterSettings

BLOCK = 512  # rows
FILE = "mixture.safetensors"
# Arrays that are saved, named as scikit-learn's attributes: enough to transform and to assign.
OF_MIXTURE = ("weights_", "means_", "covariances_", "precisions_cholesky_")
OF_COMPONENTS = ("mean_", "components_")
# Numbers of clusters whose stability is this close to the best count as equally stable.
MARGIN = 0.1
RULE = f"of the numbers whose stability is within {MARGIN} of the best, the one with the lowest BIC"


@dataclass(frozen=True)
class ClusterAssignment:
    """Cluster, responsibilities and log density of units.

    Attributes:
        clusters: Most likely component of each unit, int32 of shape (units,).
        responsibilities: float64 of shape (units, k); rows sum to 1.
        log_densities: Natural logarithm of the mixture's density, float64 of shape (units,); lower
            is more of an outlier.
    """

    clusters: np.ndarray
    responsibilities: np.ndarray
    log_densities: np.ndarray


@dataclass(frozen=True)
class FittedClusters:
    """A Gaussian mixture with the transforms of its input.

    Attributes:
        geometry: Transform that detectors use, too (:mod:`dana.encoders.geometry`).
        components: Principal components; None without PCA.
        mixture: Mixture with one full covariance matrix per component, the heaviest component
            first.
    """

    geometry: FittedGeometry
    components: PCA | None
    mixture: GaussianMixture

    def project(self, vectors: Tensor) -> np.ndarray:
        """Transform vectors of the encoder to the mixture's space: float64, shape (units, dims)."""
        points = self.geometry.apply(vectors).double().cpu().numpy()
        return points if self.components is None else self.components.transform(points)

    def assign(self, vectors: Tensor) -> ClusterAssignment:
        """Score units under the mixture: most likely component, responsibilities and log density.

        Args:
            vectors: Vectors of the encoder, shape (units, dims).

        Raises:
            DataError: If a vector is not finite.
        """
        check_vectors(vectors)
        responsibilities = []
        log_densities = []
        for rows in vectors.split(BLOCK):
            block = vectors.new_zeros(BLOCK, vectors.shape[1])
            block[: len(rows)] = rows
            with np.errstate(divide="ignore"):  # a component of weight 0 has no density
                # score_samples and predict_proba in one pass over the densities.
                densities, log_shares = self.mixture._estimate_log_prob_resp(self.project(block))
            responsibilities.append(np.exp(log_shares[: len(rows)]))
            log_densities.append(densities[: len(rows)])
        shares = np.concatenate(responsibilities)
        clusters = shares.argmax(1).astype(np.int32)
        return ClusterAssignment(clusters, shares, np.concatenate(log_densities))

    def save(self, folder: Path) -> None:
        """Write mixture and components to ``mixture.safetensors``, and the geometry's files."""
        self.geometry.save(folder)
        arrays = {name: getattr(self.mixture, name) for name in OF_MIXTURE}
        if self.components is not None:
            arrays |= {name: getattr(self.components, name) for name in OF_COMPONENTS}
        save_file(arrays, folder / FILE)

    @classmethod
    def load(cls, folder: Path) -> "FittedClusters":
        """Read what :meth:`save` wrote.

        Raises:
            ArtifactError: If a file is missing or damaged.
        """
        geometry = FittedGeometry.load(folder)
        try:
            arrays = load_file(folder / FILE)
            mixture = GaussianMixture(len(arrays["weights_"]))
            for name in OF_MIXTURE:
                setattr(mixture, name, arrays.pop(name))
        except (OSError, SafetensorError, KeyError) as error:
            raise ArtifactError(f"{folder / FILE}: damaged: {error}") from error
        if not arrays:
            return cls(geometry, None, mixture)
        components = PCA()
        for name, array in arrays.items():
            setattr(components, name, array)
        return cls(geometry, components, mixture)


def fit_components(points: np.ndarray, count: int, skip_first: int = 0) -> PCA:
    """Fit the leading principal components of a sample by the eigenvectors of its covariance.

    Args:
        points: float64 of shape (units, dims), finite.
        count: Number of components.
        skip_first: Number of leading components to leave out before them.

    Raises:
        DataError: If the sample has too few units or dims.

    References:
        Aharoni and Goldberg 2020, section 2.2: n = 50 before the mixture, 2 for plots.
    """
    rank = min(len(points) - 1, points.shape[1])
    if count + skip_first > rank:
        request = f"pca={count} and skip_first={skip_first}" if skip_first else f"pca={count}"
        raise DataError(
            f"{request}: {len(points)} units of {points.shape[1]} dims have at most {rank}"
            " components; lower it"
        )
    pca = PCA(count + skip_first, svd_solver="covariance_eigh").fit(points)
    # Contiguous, as in a loaded model, so that both give the same bits.
    pca.components_ = np.ascontiguousarray(pca.components_[skip_first:])
    return pca


@dataclass(frozen=True)
class MixtureFits:
    """Mixtures of several sizes, each fitted from several initialisations.

    Attributes:
        table: One row per fit: k, seed (its number, from 0), log_likelihood (mean per unit, nats),
            bic (lower is better), iterations, converged, kept (True for the likeliest fit of its k
            without an empty cluster).
        assignments: Cluster of each unit (rows) in each fit (columns, for example ``k5-0``).
        mixtures: The kept mixture of each k; a k all of whose fits have an empty cluster is
            missing.
    """

    table: pd.DataFrame
    assignments: pd.DataFrame
    mixtures: dict[int, GaussianMixture]


def fit_mixtures(
    points: np.ndarray, ks: Sequence[int], settings: ClusterSettings, seed: int
) -> MixtureFits:
    """Fit Gaussian mixtures of every size from every initialisation.

    Runs in one thread: the summation order of k-means, and so the last bits, depend on the number
    of threads.

    Args:
        points: float64 of shape (units, dims), of vectors that passed :func:`check_vectors`.
        ks: Numbers of clusters.
        settings: Covariance, iterations and number of seeds.
        seed: Root seed.

    References:
        Aharoni and Goldberg 2020, section 2.2 and appendix A.3.
    """
    rows: list[dict[str, Any]] = []
    assignments: dict[str, np.ndarray] = {}
    mixtures: dict[int, GaussianMixture] = {}
    likeliest: dict[int, int] = {}  # row of the likeliest fit of each k without an empty cluster
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the table has a column of it
        for k, number in product(ks, range(settings.seeds)):
            unfitted = GaussianMixture(
                k,
                covariance_type=settings.covariance,
                max_iter=settings.iterations,
                random_state=derive_seed(seed, "clusters", number) % 2**32,
            )
            fit = unfitted.fit(points)
            mixture = _of_full_covariances(fit)
            clusters = mixture.predict(points).astype(np.int32)
            log_likelihood = mixture.score(points)
            assignments[f"k{k}-{number}"] = clusters
            is_likeliest = (
                k not in likeliest or log_likelihood > rows[likeliest[k]]["log_likelihood"]
            )
            if is_likeliest and len(np.unique(clusters)) == k:
                mixtures[k] = mixture
                likeliest[k] = len(rows)
            row = {
                "k": k,
                "seed": number,
                "log_likelihood": log_likelihood,
                "bic": fit.bic(points),
                "iterations": fit.n_iter_,
                "converged": fit.converged_,
            }
            rows.append(row)
    table = pd.DataFrame(rows)
    table["kept"] = table.index.isin(likeliest.values())
    return MixtureFits(table, pd.DataFrame(assignments), mixtures)


def _of_full_covariances(fit: GaussianMixture) -> GaussianMixture:
    """Convert a mixture to one full covariance matrix per component, the heaviest of them first."""
    k, dims = fit.means_.shape
    order = np.argsort(-fit.weights_, kind="stable")
    mixture = GaussianMixture(k)
    for name in OF_MIXTURE:
        array = getattr(fit, name)
        if name.startswith(("covariances", "precisions")):
            if fit.covariance_type == "tied":
                array = np.broadcast_to(array, (k, dims, dims))
            elif fit.covariance_type in ("diag", "spherical"):
                # A component has one number per dimension, or a single one.
                array = array.reshape(k, -1)[:, :, None] * np.eye(dims)
        setattr(mixture, name, np.ascontiguousarray(array[order]))
    return mixture


def choose_k(fits: MixtureFits) -> tuple[int, str, pd.DataFrame]:
    """Choose the number of clusters: the lowest BIC of those that are about as stable as the best.

    They are those whose stability is at most 0.1 below the best. BIC alone favours ever more
    clusters when there are many units; stability falls when clusters are split at random.

    Returns:
        The number; the reason, in a sentence; one row per candidate: k, log_likelihood (mean per
        unit) and bic of its kept fit, stability (mean adjusted Rand index between its fits),
        chosen. NaN if it has no kept fit.

    Raises:
        DataError: If no candidate has a fit without an empty cluster.

    References:
        Schwarz 1978, Estimating the dimension of a model. Ben-Hur, Elisseeff and Guyon 2002, A
        stability based method for discovering structure in clustered data.
    """
    ks = fits.table["k"].unique()
    kept = fits.table[fits.table["kept"]].set_index("k")
    table = kept[["log_likelihood", "bic"]].reindex(ks).reset_index()
    stabilities = []
    for k in ks:
        assignments = fits.assignments.filter(regex=f"^k{k}-").to_numpy()
        stabilities.append(seed_stability(list(assignments.T)))
    table["stability"] = stabilities
    if table["bic"].isna().all():
        raise DataError(f"k={', '.join(map(str, ks))}: every fit has an empty cluster; lower it")
    best = table["stability"][table["bic"].notna()].max()
    is_stable = ~(table["stability"] < best - MARGIN)  # True for NaN, the stability of one seed
    table["chosen"] = table.index == np.nanargmin(table["bic"].where(is_stable))
    choice = table[table["chosen"]].iloc[0]
    reason = f"{choice['k']} clusters"
    if len(ks) > 1:
        reason += f", chosen of {len(ks)} numbers: {RULE}"
    agreement = "" if np.isnan(choice["stability"]) else f", stability {choice['stability']:.2f}"
    reason += f" (BIC {choice['bic']:,.0f}{agreement})"
    return int(choice["k"]), reason, table


def seed_stability(clusters: Sequence[np.ndarray]) -> float:
    """Average the adjusted Rand index over all pairs of clusterings of the same units.

    Returns:
        1 for identical clusterings, about 0 for random ones, NaN for fewer than two.

    References:
        Hubert and Arabie 1985, Comparing partitions.
    """
    agreements = [adjusted_rand_score(*pair) for pair in combinations(clusters, 2)]
    return float(np.mean(agreements)) if agreements else float("nan")


def check_vectors(vectors: Tensor, k: int = 1) -> None:
    """Check that vectors can be clustered.

    Args:
        vectors: Shape (units, dims).
        k: Largest number of clusters to fit.

    Raises:
        DataError: If a vector is not finite, or there are fewer distinct vectors than clusters.
    """
    finite = torch.isfinite(vectors).all(1)
    if not finite.all():
        bad = (~finite).nonzero()
        raise DataError(f"vector {int(bad[0])} of {len(vectors)} is not finite ({len(bad)} in all)")
    distinct = len(torch.unique(vectors, dim=0)) if k > 1 else k
    if distinct < k:
        raise DataError(
            f"k={k}: must be at most {distinct}, as {len(vectors)} units have {distinct} distinct"
            " vectors"
        )


def fit_clusters(
    vectors: Tensor, geometry: str, settings: ClusterSettings, seed: int
) -> tuple[FittedClusters, MixtureFits]:
    """Fit mixtures with every candidate number of clusters to vectors and choose one.

    Args:
        vectors: Encoder vectors of distinct units, shape (units, dims).
        geometry: Spec of the geometry (:mod:`dana.encoders.geometry`).
        settings: How units are clustered; ``auto`` leaves out candidates above the number of units.
        seed: Root seed.

    Returns:
        The chosen model and all fits.

    Raises:
        DataError: If there are too few distinct vectors, or every fit has an empty cluster.
    """
    ks = [k for k in settings.candidates if not settings.is_auto or k <= len(vectors)]
    check_vectors(vectors, max(ks, default=min(settings.candidates)))
    space = parse_geometry(geometry).fit(vectors)
    points = space.apply(vectors).double().cpu().numpy()
    components = None
    if settings.pca:
        components = fit_components(points, settings.pca, settings.skip_first)
        points = components.transform(points)
    fits = fit_mixtures(points, ks, settings, seed)
    k, _, _ = choose_k(fits)
    return FittedClusters(space, components, fits.mixtures[k]), fits
