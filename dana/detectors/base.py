"""The contract of a detector: fitted on task embeddings, it scores embeddings; higher = more anomalous.

A one-class detector is fitted on the task alone; a contrastive one is told, too, what general text looks like. Fitting
uses scikit-learn or PyOD. Scoring is tensor code on the embeddings' device, and a row's score does not depend on the
other rows of the batch.
"""

from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor

from dana.core import tensors
from dana.core.errors import DataError

# Most float32 numbers in a block: on a CPU 8 MB, which fits its cache; on a GPU 256 MB.
CPU_BLOCK = 1 << 21
BLOCK = 1 << 26
BACKGROUND = 5000  # general units that dana's contrastive detectors ask for


class FittedDetector(Protocol):
    """A frozen dataclass of tensors and JSON values: the state that scoring needs."""

    def score(self, embeddings: Tensor) -> Tensor:
        """Anomaly scores, float64 of shape (units,), higher = more anomalous, on the embeddings' device.

        Raises:
            DataError: If a row is not finite, or the width is not the fitted one.
        """
        ...

    def to(self, device: torch.device | str) -> "FittedDetector":
        """The same detector with its tensors on a device."""
        ...


class Detector(Protocol):
    """A frozen dataclass of parameters.

    A contrastive detector has a class attribute ``background``, the number of general units it wants, and is fitted by
    ``fit(embeddings, seed, background)``; see :func:`fit_detector`.

    Attributes:
        fitted_type: Class of what `fit` returns, for loading.

    A class that cannot pass a check of :mod:`dana.selectors.checks` says so itself, in a class attribute
    ``exemptions = {check: reason}``.
    """

    fitted_type: ClassVar[type]

    def fit(self, embeddings: Tensor, seed: int) -> FittedDetector:
        """Learn from task embeddings of shape (units, dims); the same seed gives the same detector.

        Raises:
            DataError: If there are too few rows, or one is not finite.
        """
        ...


def background_units(detector: Any) -> int:
    """How many general units a detector wants to see at fit; 0 for a one-class detector."""
    return getattr(detector, "background", 0)


def fit_detector(detector: Any, embeddings: Tensor, seed: int, background: Tensor | None = None) -> Any:
    """Fit a detector of either kind; returns its `fitted_type`.

    Args:
        detector: One-class or contrastive.
        embeddings: Of the task, shape (units, dims).
        seed: The same seed gives the same detector.
        background: Of general units, shape (units, dims); read by a contrastive detector only.

    Raises:
        DataError: If rows are too few or not finite, or a contrastive detector is given no background.
    """
    if not background_units(detector):
        return detector.fit(embeddings, seed)
    if background is None:
        raise DataError("a contrastive detector is fitted on task and general units; there is no background")
    return detector.fit(embeddings, seed, background)


class OnDevice:
    """Moves every tensor field of a frozen dataclass."""

    def to(self, device: torch.device | str) -> Any:
        """The same object with its tensors on a device."""
        return tensors.to_device(self, device)


def check_rows(embeddings: Tensor, dims: int | None = None, at_least: int = 0) -> None:
    """Check shape, row count, width and that every number is finite.

    Raises:
        DataError: Naming the first bad row, or the sizes.
    """
    if embeddings.ndim != 2:
        raise DataError(f"embeddings have shape {tuple(embeddings.shape)}; must be (units, dims)")
    if len(embeddings) < at_least:
        raise DataError(f"{len(embeddings)} rows to fit on; needs at least {at_least}")
    if dims is not None and embeddings.shape[1] != dims:
        raise DataError(f"embeddings have {embeddings.shape[1]} dims, the detector was fitted on {dims}")
    if torch.isfinite(embeddings.sum()):  # one pass: the sum of a row that is not finite is not finite
        return
    bad = (~torch.isfinite(embeddings).all(1)).nonzero().flatten()
    if len(bad):
        raise DataError(f"row {int(bad[0])} of the embeddings is not finite ({len(bad)} in all)")


def classes(embeddings: Tensor, background: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Both classes of a contrastive fit, checked: float64 rows, and whether each is of the task, for scikit-learn."""
    check_classes(embeddings, background)
    rows = torch.cat([embeddings, background]).double().cpu().numpy()
    return rows, np.arange(len(rows)) < len(embeddings)


def check_classes(embeddings: Tensor, background: Tensor) -> None:
    """Check both classes of a contrastive fit: three task rows, two general ones, of one width, not all equal.

    Raises:
        DataError: Naming the first bad row, or the sizes.
    """
    check_rows(embeddings, at_least=3)
    try:
        check_rows(background, embeddings.shape[1], at_least=2)
    except DataError as error:
        raise DataError(f"background: {error}") from error
    first = embeddings[0]
    if torch.equal(embeddings, first.expand_as(embeddings)) and torch.equal(background, first.expand_as(background)):
        raise DataError("all rows of task and background are the same: nothing tells them apart")


def block_rows(device: torch.device, per_row: int) -> int:
    """How many rows at a time, if each takes `per_row` numbers of memory; at least one."""
    return max(1, (CPU_BLOCK if device.type == "cpu" else BLOCK) // max(1, per_row))


def blocks(embeddings: Tensor, per_row: int) -> Iterator[Tensor]:
    """Rows as float32, in blocks small enough that `per_row` numbers a row stay within memory."""
    for block in embeddings.split(block_rows(embeddings.device, per_row)):
        yield block.float()


def score_blocks(embeddings: Tensor, per_row: int, score: Callable[[Tensor], Tensor]) -> Tensor:
    """Scores, float64 of shape (units,), computed a block at a time; nothing waits for the device in between.

    Args:
        embeddings: Shape (units, dims).
        per_row: Numbers that `score` holds for a row at once.
        score: Takes float32 of shape (rows, dims), none, one or many rows, and gives (rows,).
    """
    return torch.cat([score(block).double() for block in blocks(embeddings, per_row)])
