"""Fitted clusters: vectors of an encoder through geometry and principal components to their cluster, saved and loaded.

Rows go through in blocks of one size, the last filled up with zeros. A matrix product of one shape sums every row in
one order, so a unit's numbers have the same bits whatever else is asked for, and whichever process asks.
"""

from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
from torch import Tensor

from dana.core import tensors
from dana.encoders.geometry import FittedGeometry, parse_geometry
from dana.studies.clusters.fit import check_numbers
from dana.studies.clusters.mixture import Assigned, Mixture
from dana.studies.clusters.reduction import Reduction, fit_reduction

BLOCK = 512  # rows
REDUCTION = "reduction"


@dataclass(frozen=True)
class Space:
    """Where units are clustered: fitted geometry, then principal components.

    Attributes:
        geometry: Of the detectors, too (:mod:`dana.encoders.geometry`).
        reduction: None where the vectors are taken as they are.
    """

    geometry: FittedGeometry
    reduction: Reduction | None

    def place(self, vectors: Tensor) -> np.ndarray:
        """Points, float64 of shape (units, dims), of an encoder's vectors of shape (units, its dims)."""
        placed = self.geometry.apply(vectors).double().cpu().numpy()
        return placed if self.reduction is None else self.reduction.apply(placed)

    def save(self, folder: Path) -> None:
        """Write geometry and reduction, tensors and parameters."""
        self.geometry.save(folder)
        if self.reduction is not None:
            tensors.save_tensors(self.reduction, folder, REDUCTION)

    @classmethod
    def load(cls, folder: Path) -> "Space":
        """What :meth:`save` wrote."""
        is_reduced = (folder / f"{REDUCTION}.json").is_file()
        reduction = tensors.load_tensors(Reduction, folder, REDUCTION) if is_reduced else None
        return cls(FittedGeometry.load(folder), reduction)


def fit_space(vectors: Tensor, geometry: str, pca: int, skip_first: int = 0) -> Space:
    """Learn geometry and principal components from a sample.

    Args:
        vectors: Shape (units, dims), as an encoder gives them; see :func:`dana.studies.clusters.fit.check_vectors`.
        geometry: Its spec.
        pca: Components to keep; 0 keeps the vectors.
        skip_first: Components to leave out before them.

    Raises:
        DataError: If there are too few for the geometry or the components.
    """
    fitted = parse_geometry(geometry).fit(vectors)
    placed = fitted.apply(vectors).double().cpu().numpy()
    return Space(fitted, fit_reduction(placed, pca, skip_first) if pca else None)


@dataclass(frozen=True)
class FittedClusters:
    """A space and the mixture in it."""

    space: Space
    mixture: Mixture

    def assign(self, vectors: Tensor) -> Assigned:
        """Cluster, responsibilities and log density of each unit.

        Args:
            vectors: Shape (units, dims), as the encoder gives them.

        Raises:
            DataError: If one is not finite.
        """
        check_numbers(vectors)
        parts = []
        for rows in vectors.split(BLOCK):
            block = vectors.new_zeros(BLOCK, vectors.shape[1])
            block[: len(rows)] = rows
            found = self.mixture.assign(self.space.place(block))
            parts.append(Assigned(*(getattr(found, field.name)[: len(rows)] for field in fields(Assigned))))
        return Assigned(*(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(Assigned)))

    def save(self, folder: Path) -> None:
        """Write space and mixture: ``geometry``, ``reduction`` and ``mixture``, ``.safetensors`` and ``.json`` each."""
        self.space.save(folder)
        self.mixture.save(folder)

    @classmethod
    def load(cls, folder: Path) -> "FittedClusters":
        """What :meth:`save` wrote."""
        return cls(Space.load(folder), Mixture.load(folder))
