"""Description of clusters: a sample of units and its vectors to a fitted model, and tables of units, fits and words."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.mixture import GaussianMixture
from torch import Tensor

from dana.core.artifacts import OWN
from dana.corpus.unit_stream import Units
from dana.studies.clusters.model import FittedClusters, choose, fit_clusters, fit_components
from dana.studies.clusters.settings import ClusterSettings

WORD = r"(?u)\b[^\W\d_]+(?:['’][^\W\d_]+)+\b|\b[^\W\d_]{2,}\b"  # two letters or more; I've is one word
FEWEST_UNITS = 3  # of a cluster, that a word of its name must be in
LIFT = 3.0  # so many times as frequent as in the other clusters: what is said everywhere names none
IN_NAME = 3  # words
FOLDER = f"{OWN}/mixture"  # of a clusters artifact, where a description lies
TABLES = ("sample", "assignments", "fits", "choice", "ellipses")  # of a description, each a file


@dataclass(frozen=True)
class ClusterDescription:
    """A model, what it was chosen by, and what its clusters are.

    Attributes:
        fitted: The model.
        names: Of the clusters.
        reason: Why there are so many.
        variance: Share of the sample's variance along x and y of the map.
        sample: A row a unit that was fitted on: doc_id, source, unit, text, cluster, responsibility, log_density,
            nearness (log of weight times density of its own component: how near it is to its cluster's centre), x, y.
        assignments: See :class:`dana.studies.clusters.model.MixtureFits`.
        fits: The table of all fits, see there.
        choice: Of :func:`dana.studies.clusters.model.choose`.
        ellipses: On the map, a row a component: cluster, x, y (its mean), width, height (whole axes), angle (degrees,
            of the axis `width`, counter-clockwise).
    """

    fitted: FittedClusters
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
        """Write the model and every table; the rest is in the notes."""
        self.fitted.save(folder)
        for name in TABLES:
            getattr(self, name).to_parquet(folder / f"{name}.parquet", index=False)

    @classmethod
    def load(cls, folder: Path, notes: dict[str, Any]) -> "ClusterDescription":
        """Read what :meth:`save` wrote.

        Raises:
            ArtifactError: If the model is damaged.
        """
        tables = {name: pd.read_parquet(folder / f"{name}.parquet") for name in TABLES}
        x, y = notes["map_variance"]
        return cls(FittedClusters.load(folder), notes["names"], notes["reason"], (x, y), **tables)


def describe_clusters(
    sample: Units, vectors: Tensor, geometry: str, settings: ClusterSettings, seed: int
) -> ClusterDescription:
    """Fit clusters, see :func:`dana.studies.clusters.model.fit_clusters`, and describe them.

    Args:
        sample: Distinct units.
        vectors: Theirs; this and the rest as there.
        geometry: See there.
        settings: See there.
        seed: See there.
    """
    fitted, fits = fit_clusters(vectors, geometry, settings, seed)
    k, reason, choice = choose(fits)
    assignment = fitted.assign(vectors)
    likeliest = assignment.responsibilities[np.arange(len(sample)), assignment.clusters]
    places, ellipses, variance = cluster_plane(fitted.place(vectors), fitted.mixture)
    columns = {"doc_id": sample.doc_ids, "source": sample.sources, "unit": sample.numbers, "text": sample.texts}
    columns |= {"cluster": assignment.clusters, "responsibility": likeliest, "log_density": assignment.log_densities}
    columns |= {"nearness": assignment.log_densities + np.log(likeliest), "x": places[:, 0], "y": places[:, 1]}
    return ClusterDescription(
        fitted=fitted,
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
    """A name a cluster: the three words that set it apart most; its number where none does.

    A word's weight is the square root of its share of the cluster's words times log(1 + A / f), where f is how often it
    comes in all texts and A the mean number of words of a cluster. Root and lift stand for a list of stop words, which
    would be one language's: only words at least three times as frequent in the cluster as in all others count.

    Args:
        texts: Units.
        clusters: int of shape (units,), from 0.
        k: How many clusters there are.

    References:
        Grootendorst 2022, BERTopic: neural topic modeling with a class-based TF-IDF procedure, section 3.3; the root is
        its implementation's `reduce_frequent_words`.
    """
    vectorizer = CountVectorizer(token_pattern=WORD)
    try:
        counts = vectorizer.fit_transform(texts)
    except ValueError:  # not one word in all texts
        return [f"cluster {cluster}" for cluster in range(k)]
    members = np.eye(k)[clusters].T  # a row a cluster
    by_cluster, units = members @ counts, members @ (counts > 0)
    sizes, totals = by_cluster.sum(1, keepdims=True), by_cluster.sum(0)
    shares = by_cluster / np.maximum(sizes, 1)
    elsewhere = (totals - by_cluster) / np.maximum(sizes.sum() - sizes, 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        is_own = (units >= FEWEST_UNITS) & (shares / elsewhere >= LIFT)
    weights = np.where(is_own, np.sqrt(shares) * np.log1p(sizes.mean() / totals), 0)
    strongest = np.argsort(-weights, axis=1, kind="stable")[:, :IN_NAME]  # of equal ones the first in the alphabet
    words = vectorizer.get_feature_names_out()
    names = [", ".join(words[row[own[row]]]) for row, own in zip(strongest, is_own, strict=True)]
    return [name or f"cluster {cluster}" for cluster, name in enumerate(names)]


def cluster_plane(points: np.ndarray, mixture: GaussianMixture) -> tuple[np.ndarray, pd.DataFrame, tuple[float, float]]:
    """Points and mixture on the plane of the points' two leading principal components.

    A normal distribution seen along two directions is normal, so each ellipse is that of the component itself.

    Args:
        points: float64 of shape (units, dims), dims at least 2, in the mixture's space.
        mixture: With a covariance matrix a component.

    Returns:
        float64 of shape (units, 2); the ellipses, see :class:`ClusterDescription`; the share of the points' variance
        along x and along y.

    References:
        Aharoni and Goldberg 2020, Figure 3.
    """
    plane = fit_components(points, 2)
    covariances = plane.components_ @ mixture.covariances_ @ plane.components_.T
    rows = [
        {"cluster": cluster, "x": x, "y": y, **ellipse_of(covariance)}
        for cluster, ((x, y), covariance) in enumerate(zip(plane.transform(mixture.means_), covariances, strict=True))
    ]
    x, y = plane.explained_variance_ratio_.tolist()
    return plane.transform(points), pd.DataFrame(rows), (x, y)


def ellipse_of(covariance: np.ndarray) -> dict[str, float]:
    """Axes 2√2 times the standard deviation along each, which hold 63 % of a normal distribution; angle in degrees.

    Args:
        covariance: Shape (2, 2).
    """
    variances, directions = np.linalg.eigh(covariance)
    (x, y) = directions[:, 1]  # of the longer axis
    height, width = 2 * np.sqrt(2 * np.maximum(variances, 0))
    return {"width": float(width), "height": float(height), "angle": float(np.degrees(np.arctan2(y, x)) % 180)}
