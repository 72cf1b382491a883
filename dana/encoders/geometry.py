"""Geometry: embeddings are centred, whitened or normalised before the detector, fitted on general units.

It changes the ranking of units more than the choice of the detector does: a vector's norm follows the length of its
text, and embeddings share one large mean direction (``docs/design.md``, Geometry).

=============  ===============================================================
``none``       the encoder's vectors, as in the paper
``l2``         each row to length 1
``center+l2``  subtract the mean of a general sample, then ``l2`` (default)
``whiten:K``   the K leading principal directions of the sample, each to variance 1, then ``l2``
=============  ===============================================================

Dimensions that never vary in the sample (MiniLM has three) are dropped by all but ``none``.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dana.core import tensors
from dana.core.errors import ConfigError, DataError

if TYPE_CHECKING:
    from torch import Tensor

KINDS = ("none", "l2", "center+l2", "whiten:K")


@dataclass(frozen=True)
class FittedGeometry:
    """x -> normalise((x - shift) @ directions).

    Attributes:
        normalise: Whether rows end with length 1.
        shift: Shape (dims,).
        directions: Shape (dims, kept dims), or empty (0, 0) for no rotation.
        kept: int64 of shape (kept dims,): the dimensions that vary.
    """

    normalise: bool
    shift: "Tensor"
    directions: "Tensor"
    kept: "Tensor"

    def apply(self, embeddings: "Tensor") -> "Tensor":
        """Vectors of shape (units, kept dims), float32, on the embeddings' device. A zero row stays zero.

        Raises:
            DataError: If the embeddings have another width than the sample had.
        """
        from torch.nn.functional import normalize

        if embeddings.shape[1] != self.shift.numel():
            raise DataError(
                f"embeddings have {embeddings.shape[1]} dims, the geometry was fitted on {self.shift.numel()}"
            )
        here = tensors.to_device(self, embeddings.device)
        x = embeddings.float() - here.shift
        x = x @ here.directions if here.directions.numel() else x[:, here.kept]
        return normalize(x) if self.normalise else x

    def save(self, folder: Path) -> None:
        """Write tensors and parameters; see :mod:`dana.core.tensors`."""
        tensors.save_tensors(self, folder, "geometry")

    @classmethod
    def load(cls, folder: Path) -> "FittedGeometry":
        """Read what :meth:`save` wrote."""
        return tensors.load_tensors(cls, folder, "geometry")


@dataclass(frozen=True)
class Geometry:
    """A parsed specification.

    Attributes:
        center: Subtract the sample's mean.
        normalise: Rows to length 1.
        whiten: Leading principal directions to keep, or None.
    """

    center: bool = False
    normalise: bool = False
    whiten: int | None = None

    def fit(self, sample: "Tensor") -> FittedGeometry:
        """Learn shift and directions.

        Args:
            sample: Shape (units, dims), embeddings of a general sample.

        Raises:
            DataError: If the sample is too small, or holds a non-finite value.
        """
        import torch

        if len(sample) < 2:
            raise DataError(f"the general sample has {len(sample)} units; the geometry needs at least 2")
        finite = torch.isfinite(sample).all(1)
        if not finite.all():
            raise DataError(f"row {int((~finite).nonzero()[0])} of the general sample is not finite")
        exact = sample.double()
        dims = exact.shape[1]
        mean = exact.mean(0) if self.center else exact.new_zeros(dims)
        kept = torch.arange(dims, device=sample.device)
        if self.normalise:
            spread = exact.std(0)
            kept = kept[spread > 1e-6 * spread.max()]
            if len(kept) == 0:
                raise DataError("all rows of the general sample are the same: nothing to learn a geometry from")
        directions = exact.new_zeros(0, 0)
        if self.whiten is not None:
            directions = _whitening(exact - mean, self.whiten)
        return FittedGeometry(self.normalise, mean.float(), directions.float(), kept)


def _whitening(centred: "Tensor", count: int) -> "Tensor":
    """Shape (dims, count): principal directions over the square root of their variance."""
    from torch.linalg import eigh

    variance, directions = eigh(centred.T @ centred / (len(centred) - 1))
    alive = int((variance > 1e-7 * variance[-1]).sum())
    if count > alive:
        raise DataError(f"whiten:{count}: the general sample spans {alive} dimensions; choose at most that")
    leading = variance.argsort(descending=True)[:count]
    scaled = directions[:, leading] / variance[leading].sqrt()
    largest = scaled.gather(0, scaled.abs().argmax(0, keepdim=True))
    return scaled * largest.sign()  # an eigenvector's sign is arbitrary; this one is the same on every machine


def parse_geometry(spec: str) -> Geometry:
    """Read ``none``, ``l2``, ``center+l2`` or ``whiten:K``.

    Raises:
        ConfigError: If it is none of them.
    """
    plain = {"none": Geometry(), "l2": Geometry(normalise=True), "center+l2": Geometry(center=True, normalise=True)}
    kind, _, count = spec.partition(":")
    if kind == "whiten" and count.isdigit() and int(count) > 0:
        return Geometry(center=True, normalise=True, whiten=int(count))
    if spec not in plain:
        raise ConfigError(f"geometry={spec!r}: must be one of {', '.join(KINDS)}, for example whiten:128")
    return plain[spec]
