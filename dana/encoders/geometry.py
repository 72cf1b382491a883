"""Center, whiten or normalise embeddings before the detector, fitted on pool units.

This changes the ranking of units more than the choice of detector does: the norm of a vector
depends on the length of its text, and embeddings share one large mean direction
(``docs/design.md``, Geometry).

=============  ===============================================================
``none``       the encoder's vectors, as in the paper
``l2``         scale each row to length 1
``center+l2``  subtract the mean of a pool sample, then ``l2`` (default)
``whiten:K``   project on the K leading principal directions, scale to variance 1, then ``l2``
=============  ===============================================================

All but ``none`` drop dimensions that never vary in the sample (MiniLM has three).
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dana.core import tensors
from dana.core.config import require
from dana.core.errors import DataError

if TYPE_CHECKING:
    from torch import Tensor

KINDS = ("none", "l2", "center+l2", "whiten:K")


@dataclass(frozen=True)
class FittedGeometry:
    """A fitted transformation, x -> normalise((x - shift) @ directions).

    Attributes:
        normalise: Whether rows are scaled to length 1.
        shift: Shape (dims,).
        directions: Shape (dims, kept dims), or empty (0, 0) for no rotation.
        kept: int64 of shape (kept dims,): the dimensions that vary.
    """

    normalise: bool
    shift: "Tensor"
    directions: "Tensor"
    kept: "Tensor"

    def apply(self, embeddings: "Tensor") -> "Tensor":
        """Transform embeddings to float32 of shape (units, kept dims), on their device.

        A zero row stays zero.

        Raises:
            DataError: If the embeddings have other dims than the sample.
        """
        from torch.nn.functional import normalize

        if embeddings.shape[1] != self.shift.numel():
            raise DataError(
                f"expected embeddings of {self.shift.numel()} dims, as fitted, "
                f"got {embeddings.shape[1]}"
            )
        local = tensors.to_device(self, embeddings.device)
        rows = embeddings.float() - local.shift
        rows = rows @ local.directions if local.directions.numel() else rows[:, local.kept]
        if self.normalise:
            return normalize(rows)
        return rows

    def save(self, folder: Path) -> None:
        """Write tensors and parameters; see :mod:`dana.core.tensors`."""
        tensors.save_tensors(self, folder, "geometry")

    @classmethod
    def load(cls, folder: Path) -> "FittedGeometry":
        """Read what :meth:`save` wrote."""
        return tensors.load_tensors(cls, folder, "geometry")


@dataclass(frozen=True)
class Geometry:
    """Parameters of a geometry.

    Attributes:
        center: Subtract the sample's mean.
        normalise: Scale rows to length 1.
        whiten: Number of leading principal directions, or None.
    """

    center: bool = False
    normalise: bool = False
    whiten: int | None = None

    def fit(self, sample: "Tensor") -> FittedGeometry:
        """Fit shift and directions.

        Args:
            sample: Embeddings of a pool sample, shape (units, dims).

        Raises:
            DataError: If the sample is too small, or holds a non-finite value.
        """
        import torch

        if len(sample) < 2:
            raise DataError(
                f"the pool sample has {len(sample)} units; the geometry needs at least 2"
            )
        finite = torch.isfinite(sample).all(1)
        if not finite.all():
            raise DataError(f"row {int((~finite).nonzero()[0])} of the pool sample is not finite")
        exact = sample.double()
        dims = exact.shape[1]
        mean = exact.mean(0) if self.center else exact.new_zeros(dims)
        columns = torch.arange(dims, device=sample.device)
        if self.normalise:
            spread = exact.std(0)
            columns = columns[spread > 1e-6 * spread.max()]
            if len(columns) == 0:
                raise DataError(
                    "all rows of the pool sample are equal; the geometry needs different units"
                )
        directions = exact.new_zeros(0, 0)
        if self.whiten is not None:
            directions = _whitening(exact - mean, self.whiten)
        return FittedGeometry(self.normalise, mean.float(), directions.float(), columns)


def _whitening(rows: "Tensor", count: int) -> "Tensor":
    """Compute principal directions of centred rows, divided by their standard deviation.

    Returns:
        Shape (dims, count).
    """
    from torch.linalg import eigh

    variance, directions = eigh(rows.T @ rows / (len(rows) - 1))
    rank = int((variance > 1e-7 * variance[-1]).sum())
    if count > rank:
        raise DataError(
            f"whiten:{count}: the pool sample spans {rank} dimensions; choose at most whiten:{rank}"
        )
    leading = variance.argsort(descending=True)[:count]
    whitening = directions[:, leading] / variance[leading].sqrt()
    # An eigenvector's sign is arbitrary; this one is the same on every machine.
    largest = whitening.gather(0, whitening.abs().argmax(0, keepdim=True))
    signed: Tensor = whitening * largest.sign()
    return signed


def parse_geometry(spec: str) -> Geometry:
    """Parse ``none``, ``l2``, ``center+l2`` or ``whiten:K``.

    Raises:
        ConfigError: If `spec` is none of them.
    """
    plain = {
        "none": Geometry(),
        "l2": Geometry(normalise=True),
        "center+l2": Geometry(center=True, normalise=True),
    }
    kind, _, count = spec.partition(":")
    if kind == "whiten" and count.isdecimal() and int(count) > 0:
        return Geometry(center=True, normalise=True, whiten=int(count))
    require(spec in plain, "geometry", spec, f"one of {', '.join(KINDS)}, for example whiten:128")
    return plain[spec]
