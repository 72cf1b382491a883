"""What a clustering learns: a sample and its vectors to a fitted model, and to tables of its units, fits and words."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from torch import Tensor

from dana.corpus.unit_stream import Units
from dana.studies.clusters.choice import KChoice, choose
from dana.studies.clusters.fit import Candidate, check_vectors, fit_candidates
from dana.studies.clusters.model import FittedClusters, fit_space
from dana.studies.clusters.names import cluster_names, cluster_words
from dana.studies.clusters.plane import plane_of
from dana.studies.clusters.settings import ClusterSettings

# Files beside the model: the units it was fitted on, with their texts and places on the map; their cluster in every
# fit; a row a fit; a row a number of clusters; the words of each cluster; its ellipse on the map.
SAMPLE, ASSIGNMENTS = "sample.parquet", "fits.parquet"
FITS, CHOICE, WORDS, ELLIPSES = "fits.csv", "choice.csv", "words.csv", "ellipses.csv"


@dataclass(frozen=True)
class LearnedClusters:
    """A model and what it was chosen by.

    Attributes:
        fitted: The model.
        choice: Of the number of clusters.
        names: Of the clusters.
        variance: Share of the points' variance along x and y of the map.
        sample: A row a unit: doc_id, source, unit, text, cluster, responsibility, log_density, x, y.
        assignments: A row a unit, a column a fit, ``k5-0``: the unit's cluster in it.
        fits: A row a fit: k, seed, log_likelihood, bic, iterations, converged, kept.
        words: Of :func:`dana.studies.clusters.names.cluster_words`.
        ellipses: Of :class:`dana.studies.clusters.plane.Plane`.
    """

    fitted: FittedClusters
    choice: KChoice
    names: list[str]
    variance: tuple[float, float]
    sample: pd.DataFrame
    assignments: pd.DataFrame
    fits: pd.DataFrame
    words: pd.DataFrame
    ellipses: pd.DataFrame

    def save(self, folder: Path) -> None:
        """Write the model and every table."""
        self.fitted.save(folder)
        self.sample.to_parquet(folder / SAMPLE, index=False)
        self.assignments.to_parquet(folder / ASSIGNMENTS, index=False)
        self.fits.to_csv(folder / FITS, index=False)
        self.choice.table.to_csv(folder / CHOICE, index=False)
        self.words.to_csv(folder / WORDS, index=False)
        self.ellipses.to_csv(folder / ELLIPSES, index=False)


def fit_clusters(
    vectors: Tensor, geometry: str, settings: ClusterSettings, seed: int
) -> tuple[FittedClusters, list[Candidate], KChoice]:
    """Fit a mixture of every number of clusters to vectors, and choose one: the model, all fits, and the choice.

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
    space = fit_space(vectors, geometry, settings.pca, settings.skip_first)
    candidates = fit_candidates(space.place(vectors), ks, settings, seed)
    choice = choose(candidates)
    return FittedClusters(space, choice.mixture), candidates, choice


def learn_clusters(
    sample: Units, vectors: Tensor, geometry: str, settings: ClusterSettings, seed: int
) -> LearnedClusters:
    """:func:`fit_clusters`, and what the clusters are.

    Args:
        sample: Distinct units.
        vectors: Theirs; this and the rest as there.
        geometry: See there.
        settings: See there.
        seed: See there.
    """
    fitted, candidates, choice = fit_clusters(vectors, geometry, settings, seed)
    points = fitted.space.place(vectors)
    found = fitted.assign(vectors)
    words = cluster_words(sample.texts, found.clusters, choice.k)
    plane = plane_of(points, choice.mixture)
    likeliest = found.responsibilities[np.arange(len(sample)), found.clusters]
    columns = {"doc_id": sample.doc_ids, "source": sample.sources, "unit": sample.numbers, "text": sample.texts}
    columns |= {"cluster": found.clusters, "responsibility": likeliest, "log_density": found.log_densities}
    columns |= {"x": plane.points[:, 0], "y": plane.points[:, 1]}
    return LearnedClusters(
        fitted=fitted,
        choice=choice,
        names=cluster_names(words, choice.k),
        variance=plane.variance,
        sample=pd.DataFrame(columns),
        assignments=pd.DataFrame({f"k{one.k}-{fit.seed}": fit.clusters for one in candidates for fit in one.fits}),
        fits=_fit_rows(candidates),
        words=words,
        ellipses=plane.ellipses,
    )


def _fit_rows(candidates: Sequence[Candidate]) -> pd.DataFrame:
    return pd.DataFrame(
        {"k": one.k, "seed": fit.seed, "log_likelihood": fit.log_likelihood, "bic": fit.bic}
        | {"iterations": fit.iterations, "converged": fit.converged, "kept": place == one.best}
        for one in candidates
        for place, fit in enumerate(one.fits)
    )
