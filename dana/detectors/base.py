"""What a detector is: fitted on task embeddings, it scores others; higher = more anomalous.

Fitting borrows from scikit-learn and PyOD. Scoring is ours: exact tensor code on whatever device the
embeddings are on, a row at a time in effect, so a score never depends on the rest of the batch.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from dana import tensors
from dana.errors import ArtifactError, DataError
from dana.registry import DETECTORS

# Most numbers in a block. On a CPU 8 MB, which its cache holds; elsewhere 256 MB, which keeps a GPU busy.
CPU_BLOCK = 1 << 21
BLOCK = 1 << 26
FILE = "detector"


class FittedDetector(Protocol):
    """A frozen dataclass of tensors and JSON values: all that was learned."""

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

    Attributes:
        fitted_type: Class of what `fit` returns, for loading.

    A class that cannot pass a check of :mod:`dana.detectors.checks` says so itself, in a class attribute
    ``exemptions = {check: reason}``.
    """

    fitted_type: ClassVar[type]

    def fit(self, embeddings: Tensor, seed: int) -> FittedDetector:
        """Learn from task embeddings of shape (units, dims); the same seed gives the same detector.

        Raises:
            DataError: If there are too few rows, or one is not finite.
        """
        ...


class OnDevice:
    """Moves every tensor field of a frozen dataclass."""

    def to(self, device: torch.device | str) -> Any:
        """The same object with its tensors on a device."""
        return tensors.to_device(self, device)


def check_rows(embeddings: Tensor, dims: int | None = None, at_least: int = 0) -> None:
    """Refuse what no detector can work with.

    Raises:
        DataError: Naming the first bad row, or the sizes.
    """
    if embeddings.ndim != 2:
        raise DataError(f"embeddings have shape {tuple(embeddings.shape)}; must be (units, dims)")
    if len(embeddings) < at_least:
        raise DataError(f"{len(embeddings)} rows to fit on; needs at least {at_least}")
    if dims is not None and embeddings.shape[1] != dims:
        raise DataError(f"embeddings have {embeddings.shape[1]} dims, the detector was fitted on {dims}")
    if torch.isfinite(embeddings.sum()):  # one cheap pass: what is not finite stays so in a sum
        return
    bad = (~torch.isfinite(embeddings).all(1)).nonzero().flatten()
    if len(bad):
        raise DataError(f"row {int(bad[0])} of the embeddings is not finite ({len(bad)} in all)")


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


def as_detector(candidate: Any) -> Any:
    """A detector of our protocol: the object itself, or an adapter around one of PyOD's convention.

    Args:
        candidate: Has ``fit(embeddings, seed)``, or PyOD's ``fit(X)`` and ``decision_function(X)``.
    """
    if hasattr(candidate, "decision_function"):
        from dana.detectors.pyod import Convention

        return Convention(candidate)
    return candidate


def save_fitted(fitted: Any, spec: str, folder: Path) -> None:
    """Write a fitted detector as ``detector.safetensors`` and ``detector.json``; no pickle.

    Args:
        fitted: What a detector's `fit` returned.
        spec: The detector's spec, by which it is found again.
        folder: Where.
    """
    tensors.save(fitted, folder, FILE, detector=spec)


def load_fitted(folder: Path) -> Any:
    """Read what :func:`save_fitted` wrote.

    Raises:
        ArtifactError: If there is no detector in the folder, or another version of its class wrote it.
        PluginError: If its plug-in is not installed.
    """
    about = tensors.read_about(folder, FILE)
    if "detector" not in about:
        raise ArtifactError(f"{folder / FILE}.json: names no detector")
    return restore(as_detector(DETECTORS.create(about["detector"])), folder)


def restore(detector: Any, folder: Path) -> Any:
    """Read a fitted detector, given the detector it came from; for one that has no registered name.

    Raises:
        ArtifactError: If there is none, or its fields are not those of the detector's class.
    """
    try:
        fitted = tensors.load(detector.fitted_type, folder, FILE)
    except TypeError as error:
        raise ArtifactError(f"{folder / FILE}.json: not a fitted {type(detector).__name__}: {error}") from error
    if hasattr(fitted, "model"):  # PyOD's convention: what it was fitted on is what was saved
        return detector.fit(fitted.reference, fitted.seed)
    return fitted
