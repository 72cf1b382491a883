"""Plane of a mixture: points and components to the two directions in which the points vary most, and to ellipses."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from dana.studies.clusters.mixture import Mixture
from dana.studies.clusters.reduction import fit_reduction


@dataclass(frozen=True)
class Plane:
    """A flat picture of points and clusters.

    Attributes:
        points: float64 of shape (units, 2).
        ellipses: A row a component: cluster, x, y (its mean), width, height (whole axes), angle (degrees, of the axis
            `width`, counter-clockwise).
        variance: Share of the points' variance along x and along y.
    """

    points: np.ndarray
    ellipses: pd.DataFrame
    variance: tuple[float, float]


def plane_of(points: np.ndarray, mixture: Mixture) -> Plane:
    """Points and mixture on the plane of the points' two leading principal components.

    A normal distribution seen along two directions is normal, so each ellipse is that of the component itself.

    Args:
        points: float64 of shape (units, dims), dims at least 2, in the mixture's space.
        mixture: With means and covariances there.

    References:
        Aharoni and Goldberg 2020, Figure 3.
    """
    flat = fit_reduction(points, 2)
    directions = flat.directions.numpy()
    means = flat.apply(mixture.means.numpy())
    covariances = directions.T @ mixture.covariances.numpy() @ directions
    rows = [
        {"cluster": at, "x": x, "y": y, **ellipse_of(covariance)}
        for at, ((x, y), covariance) in enumerate(zip(means.tolist(), covariances, strict=True))
    ]
    x, y = flat.variance.tolist()
    return Plane(flat.apply(points), pd.DataFrame(rows), (x, y))


def ellipse_of(covariance: np.ndarray) -> dict[str, float]:
    """Axes 2√2 times the standard deviation along each, which hold 63 % of a normal distribution; angle in degrees.

    Args:
        covariance: Shape (2, 2).
    """
    variances, directions = np.linalg.eigh(covariance)
    (x, y) = directions[:, 1]  # of the longer axis
    height, width = 2 * np.sqrt(2 * np.maximum(variances, 0))
    return {"width": float(width), "height": float(height), "angle": float(np.degrees(np.arctan2(y, x)) % 180)}
