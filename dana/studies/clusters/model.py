"""Fitted clusters: vectors to geometry, principal components and a Gaussian mixture, its size chosen of several.

Fitted and applied by scikit-learn. Rows are assigned in blocks of one size, the last filled up with zeros: a matrix
product of one shape sums every row in one order, so a unit's numbers have the same bits whatever else is asked for, and
whichever process asks.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, product
from pathlib import Path

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
# What is saved, under the names of scikit-learn's attributes: all that is needed to transform and to assign.
OF_MIXTURE = ("weights_", "means_", "covariances_", "precisions_cholesky_")
OF_COMPONENTS = ("mean_", "components_")
MARGIN = 0.1  # of stability: numbers of clusters so near to the best count as equally stable
RULE = f"of the numbers whose stability is within {MARGIN} of the best, the one with the lowest BIC"


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
class FittedClusters:
    """The space in which units are clustered, and the mixture in it.

    Attributes:
        geometry: Of the detectors, too (:mod:`dana.encoders.geometry`).
        components: Principal components; None where the vectors are taken as they are.
        mixture: With a covariance matrix a component, the heaviest component first.
    """

    geometry: FittedGeometry
    components: PCA | None
    mixture: GaussianMixture

    def place(self, vectors: Tensor) -> np.ndarray:
        """Points of the space that is clustered, float64 of shape (units, dims), of an encoder's vectors."""
        placed = self.geometry.apply(vectors).double().cpu().numpy()
        return placed if self.components is None else self.components.transform(placed)

    def assign(self, vectors: Tensor) -> Assigned:
        """Cluster, responsibilities and log density of each unit.

        Args:
            vectors: Shape (units, dims), as the encoder gives them.

        Raises:
            DataError: If one is not finite.
        """
        check_vectors(vectors)
        parts = []
        for rows in vectors.split(BLOCK):
            block = vectors.new_zeros(BLOCK, vectors.shape[1])
            block[: len(rows)] = rows
            with np.errstate(divide="ignore"):  # a component of weight 0 has no density
                # What score_samples and predict_proba give, of which either would compute all densities again.
                densities, log_shares = self.mixture._estimate_log_prob_resp(self.place(block))
            parts.append((np.exp(log_shares[: len(rows)]), densities[: len(rows)]))
        responsibilities, log_densities = (np.concatenate(part) for part in zip(*parts, strict=True))
        return Assigned(responsibilities.argmax(1).astype(np.int32), responsibilities, log_densities)

    def save(self, folder: Path) -> None:
        """Write ``mixture.safetensors``, which has the principal components too, and the geometry's files."""
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
            mixture, components = GaussianMixture(len(arrays["weights_"])), PCA()
            for name in OF_MIXTURE:
                setattr(mixture, name, arrays.pop(name))
        except (OSError, SafetensorError, KeyError) as error:
            raise ArtifactError(f"{folder / FILE}: damaged: {error}") from error
        for name, array in arrays.items():
            setattr(components, name, array)
        return cls(geometry, components if arrays else None, mixture)


def fit_components(points: np.ndarray, count: int, skip_first: int = 0) -> PCA:
    """The leading principal components of a sample. They are exact: nothing is random.

    Args:
        points: float64 of shape (units, dims), finite.
        count: How many to keep.
        skip_first: Leave out so many before them.

    Raises:
        DataError: If the sample has too few units or dims for so many.

    References:
        Aharoni and Goldberg 2020, section 2.2: n = 50 before the mixture, 2 for plots.
    """
    most = min(len(points) - 1, points.shape[1])
    if count + skip_first > most:
        asked = f"pca={count}" + (f" and skip_first={skip_first}" if skip_first else "")
        raise DataError(
            f"{asked}: {len(points)} units of {points.shape[1]} dims span at most {most} components; keep fewer"
        )
    fitted = PCA(count + skip_first, svd_solver="covariance_eigh").fit(points)
    fitted.components_ = np.ascontiguousarray(fitted.components_[skip_first:])  # as when read back, to the last bit
    return fitted


@dataclass(frozen=True)
class MixtureFits:
    """Mixtures of several sizes, each from several beginnings.

    Attributes:
        table: A row a fit: k, seed (its number, from 0), log_likelihood (mean a unit, nats), bic (the lower, the
            better), iterations, converged, kept (whether it is the likeliest of its k that leaves no cluster empty).
        assignments: A row a unit, a column a fit, ``k5-0``: the unit's cluster in it.
        mixtures: Number of clusters to the mixture that is kept; none where every fit leaves a cluster empty.
    """

    table: pd.DataFrame
    assignments: pd.DataFrame
    mixtures: dict[int, GaussianMixture]


def fit_mixtures(points: np.ndarray, ks: Sequence[int], settings: ClusterSettings, seed: int) -> MixtureFits:
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
    rows, assignments, mixtures = [], {}, {}
    kept: dict[int, int] = {}
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # it is in the table of fits
        for k, number in product(ks, range(settings.seeds)):
            beginning = derive_seed(seed, "clusters", number) % 2**32
            kind, steps = settings.covariance, settings.iterations
            fitted = GaussianMixture(k, covariance_type=kind, max_iter=steps, random_state=beginning).fit(points)
            mixture = _of_full_covariances(fitted)
            clusters = mixture.predict(points).astype(np.int32)
            row = {"k": k, "seed": number, "log_likelihood": mixture.score(points), "bic": fitted.bic(points)}
            rows.append({**row, "iterations": fitted.n_iter_, "converged": fitted.converged_})
            assignments[f"k{k}-{number}"] = clusters
            is_likeliest = k not in kept or row["log_likelihood"] > rows[kept[k]]["log_likelihood"]
            if is_likeliest and len(np.unique(clusters)) == k:
                mixtures[k], kept[k] = mixture, len(rows) - 1
    table = pd.DataFrame(rows)
    return MixtureFits(table.assign(kept=table.index.isin(kept.values())), pd.DataFrame(assignments), mixtures)


def _of_full_covariances(fitted: GaussianMixture) -> GaussianMixture:
    """The same mixture with a covariance matrix a component, the heaviest component first."""
    k, dims = fitted.means_.shape
    order = np.argsort(-fitted.weights_, kind="stable")
    mixture = GaussianMixture(k)
    for name in OF_MIXTURE:
        array = getattr(fitted, name)
        if name.startswith(("covariances", "precisions")):
            if fitted.covariance_type == "tied":
                array = np.broadcast_to(array, (k, dims, dims))
            elif fitted.covariance_type != "full":  # spherical: one number a component; diag: one a dimension
                array = array.reshape(k, -1)[:, :, None] * np.eye(dims)
        setattr(mixture, name, np.ascontiguousarray(array[order]))
    return mixture


def choose(fits: MixtureFits) -> tuple[int, str, pd.DataFrame]:
    """The number of clusters to take: :data:`RULE`.

    More clusters always fit better; the criterion charges for them, but with many units hardly, and stability falls
    where clusters are split at random.

    Returns:
        The number; the reason, in a sentence; a row a candidate: k, log_likelihood (mean a unit) and bic of its
        likeliest fit, stability (mean adjusted Rand index between its fits), chosen. NaN where every fit leaves a
        cluster empty.

    Raises:
        DataError: If every fit of every candidate leaves a cluster empty.

    References:
        Schwarz 1978, Estimating the dimension of a model. Ben-Hur, Elisseeff and Guyon 2002, A stability based method
        for discovering structure in clustered data.
    """
    ks = fits.table["k"].unique()
    table = fits.table[fits.table["kept"]].set_index("k")[["log_likelihood", "bic"]].reindex(ks).reset_index()
    table["stability"] = [seed_stability(list(fits.assignments.filter(regex=f"^k{k}-").to_numpy().T)) for k in ks]
    if table["bic"].isna().all():
        raise DataError(f"k={', '.join(map(str, ks))}: every fit leaves a cluster empty; ask for fewer clusters")
    best = table["stability"][table["bic"].notna()].max()
    is_stable = ~(table["stability"] < best - MARGIN)  # NaN, of one seed, is no reason
    table["chosen"] = table.index == np.nanargmin(table["bic"].where(is_stable))
    chosen = table[table["chosen"]].iloc[0]
    reason = f"{chosen['k']} clusters" + (f", chosen of {len(ks)} numbers: {RULE}" if len(ks) > 1 else "")
    agreement = "" if np.isnan(chosen["stability"]) else f", stability {chosen['stability']:.2f}"
    return int(chosen["k"]), f"{reason} (BIC {chosen['bic']:,.0f}{agreement})", table


def seed_stability(clusters: Sequence[np.ndarray]) -> float:
    """Mean adjusted Rand index over all pairs of clusterings of the same units; NaN of fewer than two.

    1 means that all group alike, 0 that they agree as random ones do.

    References:
        Hubert and Arabie 1985, Comparing partitions.
    """
    agreements = [adjusted_rand_score(*pair) for pair in combinations(clusters, 2)]
    return float(np.mean(agreements)) if agreements else float("nan")


def check_vectors(vectors: Tensor, k: int = 1) -> None:
    """Check that vectors can be clustered.

    Args:
        vectors: Shape (units, dims).
        k: The most clusters that are asked for.

    Raises:
        DataError: If a number is not finite, or there are fewer distinct vectors than clusters.
    """
    finite = torch.isfinite(vectors).all(1)
    if not finite.all():
        bad = (~finite).nonzero()
        raise DataError(f"vector {int(bad[0])} of {len(vectors)} is not finite ({len(bad)} in all)")
    distinct = len(torch.unique(vectors, dim=0)) if k > 1 else k
    if distinct < k:
        units = f"there are {len(vectors)} distinct units to fit on, of {distinct} distinct vectors"
        raise DataError(f"k={k}: {units}; ask for at most so many clusters")


def fit_clusters(
    vectors: Tensor, geometry: str, settings: ClusterSettings, seed: int
) -> tuple[FittedClusters, MixtureFits]:
    """Fit a mixture of every number of clusters to vectors, and choose one: the model, and all fits.

    Args:
        vectors: Of distinct units, shape (units, dims), as an encoder gives them.
        geometry: Spec of the geometry (:mod:`dana.encoders.geometry`).
        settings: How they are clustered; ``auto`` leaves out numbers above that of the units.
        seed: Root seed.

    Raises:
        DataError: If there are too few units, or nothing tells so many clusters apart.
    """
    ks = [k for k in settings.candidates if not settings.is_auto or k <= len(vectors)]
    check_vectors(vectors, max(ks, default=min(settings.candidates)))
    fitted = parse_geometry(geometry).fit(vectors)
    points = fitted.apply(vectors).double().cpu().numpy()
    components = fit_components(points, settings.pca, settings.skip_first) if settings.pca else None
    fits = fit_mixtures(points if components is None else components.transform(points), ks, settings, seed)
    return FittedClusters(fitted, components, fits.mixtures[choose(fits)[0]]), fits
