"""Fit clusters to a sample of units and describe them: names, tables of units and fits, a map."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.mixture import GaussianMixture
from torch import Tensor

from dana.core.artifacts import META_DIR
from dana.corpus.unit_stream import Units
from dana.studies.clusters.model import FittedClusters, choose_k, fit_clusters, fit_components
from dana.studies.clusters.settings import ClusterSettings

# Two letters or more; I've is one word.
WORD = r"(?u)\b[^\W\d_]+(?:['’][^\W\d_]+)+\b|\b[^\W\d_]{2,}\b"
FEWEST_UNITS = 3  # a word names a cluster only if it is in so many of its units
LIFT = 3.0  # and if it is so many times as frequent as in the other clusters
IN_NAME = 3  # words of a name
FOLDER = f"{META_DIR}/mixture"  # folder of the description in a clusters artifact
# Fields that are saved as Parquet files.
TABLES = ("sample", "assignments", "fits", "choice", "ellipses")


@dataclass(frozen=True)
class ClusterDescription:
    """A fitted model with the tables that describe its choice and its clusters.

    Attributes:
        model: The model.
        names: Name of each cluster.
        reason: Why this number of clusters was chosen.
        variance: Share of the sample's variance along x and y of the map.
        sample: One row per unit of the sample: doc_id, source, unit, text, cluster, responsibility,
            log_density, nearness (log of weight times density under its own component; higher is
            nearer to the centre), x, y.
        assignments: See :class:`dana.studies.clusters.model.MixtureFits`.
        fits: The table of all fits, see there.
        choice: Candidates, from :func:`dana.studies.clusters.model.choose_k`.
        ellipses: One row per component: cluster, x, y (its mean on the map), width, height (full
            axes), angle (of the axis `width`, in degrees, counter-clockwise).
    """

    model: FittedClusters
    names: list[str]
    reason: str
    variance: tuple[float, float]
    sample: pd.DataFrame
    assignments: pd.DataFrame
    fits: pd.DataFrame
    choice: pd.DataFrame
    ellipses: pd.DataFrame

    @property
    def k(self) -> int:
        """Number of clusters."""
        return len(self.names)

    def save(self, folder: Path) -> None:
        """Write the model and the tables. Names, reason and variance are saved in the manifest."""
        self.model.save(folder)
        for name in TABLES:
            getattr(self, name).to_parquet(folder / f"{name}.parquet", index=False)

    @classmethod
    def load(cls, folder: Path, notes: dict[str, Any]) -> "ClusterDescription":
        """Read what :meth:`save` wrote.

        Args:
            folder: Folder of the model and the tables.
            notes: Manifest of the artifact, with names, reason and map_variance.

        Raises:
            ArtifactError: If the model is damaged.
        """
        tables = {name: pd.read_parquet(folder / f"{name}.parquet") for name in TABLES}
        x, y = notes["map_variance"]
        return cls(FittedClusters.load(folder), notes["names"], notes["reason"], (x, y), **tables)


def describe_clusters(
    sample: Units, vectors: Tensor, geometry: str, settings: ClusterSettings, seed: int
) -> ClusterDescription:
    """Fit clusters to a sample of units and describe them.

    Args:
        sample: Distinct units.
        vectors: Their vectors, shape (units, dims).
        geometry: Spec of the geometry, see :func:`dana.studies.clusters.model.fit_clusters`.
        settings: How units are clustered.
        seed: Root seed.
    """
    model, fits = fit_clusters(vectors, geometry, settings, seed)
    k, reason, choice = choose_k(fits)
    assignment = model.assign(vectors)
    likeliest = assignment.responsibilities[np.arange(len(sample)), assignment.clusters]
    points, ellipses, variance = cluster_plane(model.project(vectors), model.mixture)
    columns = {
        "doc_id": sample.doc_ids,
        "source": sample.sources,
        "unit": sample.numbers,
        "text": sample.texts,
        "cluster": assignment.clusters,
        "responsibility": likeliest,
        "log_density": assignment.log_densities,
        "nearness": assignment.log_densities + np.log(likeliest),
        "x": points[:, 0],
        "y": points[:, 1],
    }
    return ClusterDescription(
        model=model,
        names=cluster_names(sample.texts, assignment.clusters, k),
        reason=reason,
        variance=variance,
        sample=pd.DataFrame(columns),
        assignments=fits.assignments,
        fits=fits.table,
        choice=choice,
        ellipses=ellipses,
    )


def cluster_names(texts: Sequence[str], clusters: np.ndarray, k: int) -> list[str]:
    """Name each cluster by its three most distinctive words, or by its number if it has none.

    Words are ranked by class-based TF-IDF: the square root of the word's share of the cluster's
    words times log(1 + A / f), with f its frequency in all texts and A the mean number of words per
    cluster. A word must be at least three times as frequent in the cluster as in all others. With
    the square root, this replaces a list of stop words, which would serve one language only.

    Args:
        texts: Units.
        clusters: Cluster of each unit from 0, int of shape (units,).
        k: Number of clusters.

    References:
        Grootendorst 2022, BERTopic: neural topic modeling with a class-based TF-IDF procedure,
        section 3.3; the root is its implementation's `reduce_frequent_words`.
    """
    vectorizer = CountVectorizer(token_pattern=WORD)
    try:
        counts = vectorizer.fit_transform(texts)
    except ValueError:  # no text has a word
        return [f"cluster {cluster}" for cluster in range(k)]
    members = np.eye(k)[clusters].T  # shape (k, units)
    by_cluster = members @ counts  # occurrences of each word, shape (k, words)
    units = members @ (counts > 0)  # units with each word, shape (k, words)
    sizes = by_cluster.sum(1, keepdims=True)
    totals = by_cluster.sum(0)
    shares = by_cluster / np.maximum(sizes, 1)
    elsewhere = (totals - by_cluster) / np.maximum(sizes.sum() - sizes, 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        is_distinctive = (units >= FEWEST_UNITS) & (shares / elsewhere >= LIFT)
    weights = np.where(is_distinctive, np.sqrt(shares) * np.log1p(sizes.mean() / totals), 0)
    ranking = np.argsort(-weights, axis=1, kind="stable")  # ties in alphabetical order
    words = vectorizer.get_feature_names_out()
    names = []
    for cluster in range(k):
        best = ranking[cluster, :IN_NAME]
        best = best[is_distinctive[cluster, best]]
        names.append(", ".join(words[best]) or f"cluster {cluster}")
    return names


def cluster_plane(
    points: np.ndarray, mixture: GaussianMixture
) -> tuple[np.ndarray, pd.DataFrame, tuple[float, float]]:
    """Project points and mixture on the points' two leading principal components.

    A projected normal distribution is normal, so the ellipses are those of the components.

    Args:
        points: float64 of shape (units, dims), dims at least 2, in the mixture's space.
        mixture: Mixture with one full covariance matrix per component.

    Returns:
        The projected points, float64 of shape (units, 2); the ellipses, see
        :class:`ClusterDescription`; the share of the points' variance along x and along y.

    References:
        Aharoni and Goldberg 2020, Figure 3.
    """
    plane = fit_components(points, 2)
    covariances = plane.components_ @ mixture.covariances_ @ plane.components_.T
    means = plane.transform(mixture.means_)
    rows = []
    for cluster, covariance in enumerate(covariances):
        x, y = means[cluster]
        rows.append({"cluster": cluster, "x": x, "y": y, **ellipse_of(covariance)})
    x, y = plane.explained_variance_ratio_.tolist()
    return plane.transform(points), pd.DataFrame(rows), (x, y)


def ellipse_of(covariance: np.ndarray) -> dict[str, float]:
    """Compute the ellipse that holds 63 % of a normal distribution.

    Its half axes are √2 standard deviations along the principal axes.

    Args:
        covariance: Shape (2, 2).

    Returns:
        width and height (full axes, the longer first) and the angle of the longer one in degrees,
        in [0, 180).
    """
    variances, directions = np.linalg.eigh(covariance)
    x, y = directions[:, 1]  # of the longer axis
    height, width = 2 * np.sqrt(2 * np.maximum(variances, 0))
    return {
        "width": float(width),
        "height": float(height),
        "angle": float(np.degrees(np.arctan2(y, x)) % 180),
    }
