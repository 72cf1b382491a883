"""Principal components: vectors of a sample to the directions in which they vary most; exact, nothing is random."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dana.core.errors import DataError


@dataclass(frozen=True)
class Reduction:
    """x -> (x - mean) @ directions.

    Attributes:
        mean: float64 of shape (dims,).
        directions: float64 of shape (dims, kept), orthonormal columns, by falling variance.
        variance: float64 of shape (kept,): each one's share of the variance.
    """

    mean: Tensor
    directions: Tensor
    variance: Tensor

    def apply(self, vectors: np.ndarray) -> np.ndarray:
        """Coordinates, float64 of shape (units, kept).

        Args:
            vectors: float64 of shape (units, dims).
        """
        return (vectors - self.mean.numpy()) @ self.directions.numpy()


def fit_reduction(vectors: np.ndarray, count: int, skip_first: int = 0) -> Reduction:
    """The leading principal components of a sample, by the eigenvectors of its covariance.

    They are exact, so the same whatever the seed; only a direction's sign is a convention (scikit-learn's).

    Args:
        vectors: float64 of shape (units, dims), finite.
        count: How many to keep.
        skip_first: Leave out so many before them.

    Raises:
        DataError: If the sample has too few units or dims for so many.

    References:
        Aharoni and Goldberg 2020, section 2.2: n = 50 before the mixture, 2 for plots.
    """
    from sklearn.decomposition import PCA

    most = min(len(vectors) - 1, vectors.shape[1])
    if count + skip_first > most:
        asked = f"pca={count}" + (f" and skip_first={skip_first}" if skip_first else "")
        raise DataError(
            f"{asked}: {len(vectors)} units of {vectors.shape[1]} dims span at most {most} components; keep fewer"
        )
    fitted = PCA(count + skip_first, svd_solver="covariance_eigh").fit(vectors)
    directions = np.ascontiguousarray(fitted.components_[skip_first:].T)
    variance = np.ascontiguousarray(fitted.explained_variance_ratio_[skip_first:])
    return Reduction(*(torch.from_numpy(part) for part in (fitted.mean_, directions, variance)))
