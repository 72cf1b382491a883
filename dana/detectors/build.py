"""Detectors from objects and files: adapters for PyOD's convention; fitted detectors saved as safetensors and JSON."""

from pathlib import Path
from typing import Any

from dana.core import tensors
from dana.core.errors import ArtifactError
from dana.core.registry import DETECTORS
from dana.detectors.pyod import Convention, FittedConvention

FILE = "detector"


def as_detector(candidate: Any) -> Any:
    """A detector of dana's protocol: the object itself, or an adapter around one of PyOD's convention.

    Args:
        candidate: Has ``fit(embeddings, seed)``, or PyOD's ``fit(X)`` and ``decision_function(X)``.
    """
    return Convention(candidate) if hasattr(candidate, "decision_function") else candidate


def save_fitted(fitted: Any, spec: str, folder: Path) -> None:
    """Write a fitted detector as ``detector.safetensors`` and ``detector.json``; no pickle.

    Args:
        fitted: What a detector's `fit` returned.
        spec: The detector's spec, by which it is found again.
        folder: Where.
    """
    tensors.save_tensors(fitted, folder, FILE, detector=spec)


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
        PluginError: If it has to be fitted again and two fits with one seed differ.
    """
    fitted = tensors.load_tensors(detector.fitted_type, folder, FILE)
    if isinstance(fitted, FittedConvention):  # only what it was fitted on is saved
        again = detector.fit(fitted.reference, fitted.seed)
        fitted.check_again(again)
        return again
    return fitted
