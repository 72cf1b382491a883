"""Define the interface of detectors: fitted on target embeddings, they score embeddings; higher = more anomalous.

A one-class detector is fitted on target embeddings alone, a contrastive one on target and pool
embeddings. Fitting uses scikit-learn or PyOD. Scoring is tensor code on the embeddings' device, and
a row's score does not depend on the other rows of the batch.
"""

from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor

from dana.core import tensors
from dana.core.errors import DataError

# Float32 numbers in a block, at most: 8 MB on a CPU, to fit its cache; 256 MB on a GPU.
CPU_BLOCK = 1 << 21
BLOCK = 1 << 26
BACKGROUND = 5000  # pool units that dana's contrastive detectors are fitted on


class FittedDetector(Protocol):
    """Learned state of a detector: a frozen dataclass of tensors and JSON values."""

    def score(self, embeddings: Tensor) -> Tensor:
        """Compute anomaly scores on the embeddings' device.

        Args:
            embeddings: Shape (units, dims).

        Returns:
            float64 of shape (units,), higher = more anomalous.

        Raises:
            DataError: If a row is not finite, or `dims` differs from the fit.
        """
        ...

    def to(self, device: torch.device | str) -> "FittedDetector":
        """Return the detector with its tensors on a device."""
        ...


class Detector(Protocol):
    """Unfitted detector: a frozen dataclass of parameters.

    A contrastive detector has a class attribute ``background``, the number of pool units for its
    fit, and the method ``fit(embeddings, seed, background)``; see :func:`fit_detector`. A class
    that cannot pass a check of :mod:`dana.selectors.checks` lists it in a class attribute
    ``exemptions = {check: reason}``.

    Attributes:
        fitted_type: Class of the fitted detector, for loading.
    """

    fitted_type: ClassVar[type]

    def fit(self, embeddings: Tensor, seed: int) -> FittedDetector:
        """Fit the detector on target embeddings.

        Args:
            embeddings: Shape (units, dims).
            seed: The same seed gives the same detector.

        Raises:
            DataError: If there are too few rows, or one is not finite.
        """
        ...


def background_units(detector: Any) -> int:
    """Return the number of pool units that a detector is fitted on; 0 for a one-class detector."""
    return getattr(detector, "background", 0)


def fit_detector(
    detector: Any, embeddings: Tensor, seed: int, background: Tensor | None = None
) -> Any:
    """Fit a one-class or contrastive detector; returns its `fitted_type`.

    Args:
        detector: One-class or contrastive.
        embeddings: Target embeddings, shape (units, dims).
        seed: The same seed gives the same detector.
        background: Pool embeddings, shape (units, dims); used by contrastive detectors only.

    Raises:
        DataError: If rows are too few or not finite, or a contrastive detector is given no
            background.
    """
    if not background_units(detector):
        return detector.fit(embeddings, seed)
    if background is None:
        raise DataError("background: a contrastive detector needs embeddings of pool units")
    return detector.fit(embeddings, seed, background)


class OnDevice:
    """Mixin that moves the tensor fields of a frozen dataclass."""

    def to(self, device: torch.device | str) -> Any:
        """Return the object with its tensors on a device."""
        return tensors.to_device(self, device)


def check_rows(embeddings: Tensor, dims: int | None = None, at_least: int = 0) -> None:
    """Check shape, row count and width of embeddings, and that all numbers are finite.

    Raises:
        DataError: Naming the first bad row, or the sizes.
    """
    if embeddings.ndim != 2:
        raise DataError(f"embeddings have shape {tuple(embeddings.shape)}; must be (units, dims)")
    if len(embeddings) < at_least:
        raise DataError(f"{len(embeddings)} rows to fit on; needs at least {at_least}")
    if dims is not None and embeddings.shape[1] != dims:
        raise DataError(
            f"embeddings have {embeddings.shape[1]} dims; expected {dims}, as in the fit"
        )
    if torch.isfinite(
        embeddings.sum()
    ):  # one pass: the sum of a row that is not finite is not finite
        return
    bad = (~torch.isfinite(embeddings).all(1)).nonzero().flatten()
    if len(bad):
        raise DataError(f"row {int(bad[0])} of the embeddings is not finite ({len(bad)} in all)")


def stack_classes(embeddings: Tensor, background: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Check both classes of a contrastive fit and stack them for scikit-learn.

    Returns:
        float64 rows of shape (units, dims), and a mask of shape (units,) that is True for task
        rows.
    """
    check_classes(embeddings, background)
    rows = torch.cat([embeddings, background]).double().cpu().numpy()
    return rows, np.arange(len(rows)) < len(embeddings)


def check_classes(embeddings: Tensor, background: Tensor) -> None:
    """Check both classes of a contrastive fit: at least three task and two pool rows of one width, not all equal.

    Raises:
        DataError: Naming the first bad row, or the sizes.
    """
    check_rows(embeddings, at_least=3)
    try:
        check_rows(background, embeddings.shape[1], at_least=2)
    except DataError as error:
        raise DataError(f"background: {error}") from error
    first = embeddings[0]
    if torch.equal(embeddings, first.expand_as(embeddings)) and torch.equal(
        background, first.expand_as(background)
    ):
        raise DataError(
            "all rows of task and background are equal; a contrastive detector needs two classes"
        )


def block_rows(device: torch.device, per_row: int) -> int:
    """Return the number of rows in a block, at least one, if each row needs `per_row` numbers of memory."""
    return max(1, (CPU_BLOCK if device.type == "cpu" else BLOCK) // max(1, per_row))


def blocks(embeddings: Tensor, per_row: int) -> Iterator[Tensor]:
    """Yield rows as float32 in blocks of bounded memory, at `per_row` numbers per row."""
    for block in embeddings.split(block_rows(embeddings.device, per_row)):
        yield block.float()


def score_blocks(embeddings: Tensor, per_row: int, score: Callable[[Tensor], Tensor]) -> Tensor:
    """Score embeddings block by block, without synchronising the device; returns float64 of shape (units,).

    Args:
        embeddings: Shape (units, dims).
        per_row: Numbers that `score` holds in memory per row.
        score: Maps float32 of shape (rows, dims), also of 0 rows, to shape (rows,).
    """
    return torch.cat([score(block).double() for block in blocks(embeddings, per_row)])
