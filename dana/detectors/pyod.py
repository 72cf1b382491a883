"""Adapter for PyOD detectors and other objects with ``fit(X)`` and ``decision_function(X)``.

Higher = more anomalous, as in PyOD. The learned state of such an object cannot be saved as
safetensors and JSON, so the rows of the fit are saved, and loading fits the object again.
"""

import copy
import inspect
import pkgutil
import random
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from dana.core import tensors
from dana.core.errors import ConfigError, PluginError, suggestion
from dana.core.logging import get_logger
from dana.detectors.base import check_rows
from dana.detectors.components import ComponentDistance

log = get_logger(__name__)

FILE = "detector"
TOLERANCE = 1e-6  # allowed difference of two fits, relative to the largest score
PROBE = 8  # rows scored together and alone, to detect scores that depend on the batch


@dataclass(frozen=True)
class FittedConvention:
    """A fitted object with PyOD's interface.

    Instead of a pickle, the rows of the fit are saved, and loading fits again. Loading fails if a
    second fit with the same seed gives other scores, which would then depend on the process.

    Attributes:
        seed: Seed of the fit.
        row_by_row: Whether every row is scored alone, because scores depend on the batch.
        reference: Rows of the fit, shape (rows, dims).
        probe: Scores of the first rows, shape (at most 8,).
        model: The fitted object.
    """

    seed: int
    row_by_row: bool
    reference: Tensor
    probe: Tensor
    model: Any = field(default=None, compare=False, repr=False, metadata={"saved": False})

    def score(self, embeddings: Tensor) -> Tensor:
        """Compute the object's scores, on the CPU; higher = more anomalous."""
        check_rows(embeddings, self.reference.shape[1])
        rows = embeddings.double().cpu().numpy()
        if len(rows) == 0:
            return torch.zeros(0, dtype=torch.float64, device=embeddings.device)
        parts = rows[:, None, :] if self.row_by_row else [rows]
        scores = np.concatenate([_scores(self.model, part) for part in parts])
        return torch.from_numpy(scores.astype(np.float64)).to(embeddings.device)

    def to(self, device: torch.device | str) -> "FittedConvention":
        """Return the detector unchanged: it runs on the CPU."""
        return self


@dataclass(frozen=True)
class Convention:
    """Adapter of an unfitted object with PyOD's interface; the object is never changed.

    Attributes:
        candidate: Object with ``fit(X)`` and ``decision_function(X)``.
    """

    candidate: Any
    version: ClassVar[int] = 1
    fitted_type: ClassVar[type] = FittedConvention

    @property
    def made_by(self) -> Any:
        """The wrapped object, whose code decides the scores; see :func:`dana.core.registry.origin_of`."""
        return self.candidate

    def fit(self, embeddings: Tensor, seed: int) -> FittedConvention:
        """Fit a copy with ``random_state``, if it has one, and the global random generators set from the seed."""
        check_rows(embeddings, at_least=2)
        model = copy.deepcopy(self.candidate)
        if hasattr(model, "random_state"):
            model.random_state = seed % 2**32
        rows = embeddings.double().cpu().numpy()
        probe = rows[:PROBE]
        with _naming_divisions(model, rows):
            with _seeding(seed):
                model.fit(rows.copy())
            together = _scores(model, probe)
            alone = np.concatenate([_scores(model, row[None]) for row in probe])
        row_by_row = not np.allclose(together, alone, rtol=1e-6, atol=1e-9)
        if row_by_row:
            slow = "depend on the batch, so each row is scored alone, which is much slower"
            log.warning("detector  scores of %s %s", type(model).__name__, slow)
        scores = torch.from_numpy((alone if row_by_row else together).astype(np.float64))
        return FittedConvention(seed, row_by_row, embeddings.clone(), scores, model)


# In warnings of numpy and scikit-learn.
DIVISIONS = ("divide by zero", "invalid value", "Degrees of freedom", "Duplicate values")
EXPLODED = 1e6  # times the median of the scores of fitted rows: a density of 1 / 0


@contextmanager
def _naming_divisions(model: Any, rows: np.ndarray) -> Iterator[None]:
    """Say in one line that a model divides by zero while it is fitted, instead of the libraries' warnings.

    Other warnings are passed on, each once.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    divides = _has_exploded(model)
    others = {}
    for warning in caught:
        if any(words in str(warning.message) for words in DIVISIONS):
            divides = True
        else:
            others[str(warning.message), warning.filename, warning.lineno] = warning
    for warning in others.values():
        warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    if divides:
        log.warning(
            "detector  %s divides by zero, as densities do where rows are equal (%s of %s fitted "
            "rows are copies of others); its scores may say nothing. Drop repeats or take another",
            type(model).__name__,
            f"{len(rows) - len(np.unique(rows, axis=0)):,}",
            f"{len(rows):,}",
        )


def _has_exploded(model: Any) -> bool:
    """Return True if some fitted rows have scores of another order than most, which PyOD's models keep."""
    scores = np.abs(np.asarray(getattr(model, "decision_scores_", []), dtype=np.float64))
    return scores.size > 0 and bool(scores.max() > EXPLODED * max(np.median(scores), 1e-6))


@contextmanager
def _seeding(seed: int) -> Iterator[None]:
    """Seed the global generators of Python, numpy and torch, and restore their state on exit."""
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    with torch.random.fork_rng():
        random.seed(seed)
        np.random.seed(seed % 2**32)  # noqa: NPY002
        torch.manual_seed(seed)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)  # noqa: NPY002


def _scores(model: Any, rows: np.ndarray) -> np.ndarray:
    """Score rows by a deep copy, because some detectors change their state while scoring."""
    return np.ravel(copy.deepcopy(model).decision_function(rows))


def pyod_detector(name: str, **parameters: Any) -> Convention | ComponentDistance:
    """Create a PyOD detector by name; higher = more anomalous.

    Detectors whose scores depend on the batch (ECOD and COPOD append the query to their training
    set) are scored row by row: 0.1 s per row when fitted on 4,000 rows of 384 dims, where LODA
    takes 0.01 ms. ``pyod:PCA`` with its defaults, the paper's PCA, is computed by
    :mod:`dana.detectors.components`: equal scores, faster, on the embeddings' device.

    Cost: that of PyOD, plus a copy of the fitted model per call.

    Args:
        name: Class name in any case, for example ``LODA``, ``GMM``, ``INNE`` or ``HBOS``, which are
            fitted in seconds; parameters follow: ``pyod:KNN,n_neighbors=10``.
        parameters: Parameters of the class.

    Raises:
        PluginError: If the name is unknown (the nearest is suggested), or a package it needs is
            missing.
        ConfigError: If a parameter is unknown.

    References:
        Zhao, Nasrullah and Li 2019, PyOD: a Python toolbox for scalable outlier detection.
    """
    import pyod.models

    plain = name.replace("_", "").lower()
    modules = {
        module.name.replace("_", ""): module.name
        for module in pkgutil.iter_modules(pyod.models.__path__)
    }
    if plain not in modules:
        raise PluginError(f"unknown PyOD detector {name!r}{suggestion(plain, modules)}")
    try:
        module = import_module(f"pyod.models.{modules[plain]}")
    except ImportError as error:
        raise PluginError(f"pyod:{name} needs a package that is not installed: {error}") from error
    classes = [value for attribute, value in vars(module).items() if attribute.lower() == plain]
    if not classes or not hasattr(classes[0], "decision_function"):
        raise PluginError(
            f"unknown PyOD detector {name!r}: pyod.models.{modules[plain]} has no such class"
        )
    allowed_names = inspect.signature(classes[0]).parameters
    for parameter in parameters.keys() - allowed_names.keys():
        raise ConfigError(
            f"pyod:{name}: unknown parameter {parameter!r}{suggestion(parameter, allowed_names)}"
        )
    return (
        Convention(classes[0](**parameters))
        if parameters or plain != "pca"
        else ComponentDistance()
    )


def as_detector(candidate: Any) -> Any:
    """Return a detector with dana's interface: the object itself, or an adapter for one with PyOD's interface.

    Args:
        candidate: Object with ``fit(embeddings, seed)``, or with PyOD's ``fit(X)`` and
            ``decision_function(X)``.
    """
    return Convention(candidate) if hasattr(candidate, "decision_function") else candidate


def save_fitted(detector: Any, spec: str, folder: Path) -> None:
    """Write a fitted detector as ``detector.safetensors`` and ``detector.json`` with its spec; no pickle."""
    tensors.save_tensors(detector, folder, FILE, detector=spec)


def restore(detector: Any, folder: Path) -> Any:
    """Load a detector saved by :func:`save_fitted`, given its unfitted detector.

    Raises:
        ArtifactError: If it is missing, or its fields are not those of the detector's class.
        PluginError: If it has to be fitted again and two fits with one seed differ.
    """
    state = tensors.load_tensors(detector.fitted_type, folder, FILE)
    if not isinstance(state, FittedConvention):
        return state
    again = detector.fit(state.reference, state.seed)  # only the rows of the fit were saved
    difference = float((state.probe - again.probe).abs().max())
    if not difference <= TOLERANCE * float(state.probe.abs().max()):
        differ = (
            f"two fits with seed {state.seed} on the same rows differ (scores by {difference:.2g})"
        )
        remedy = "give it a fixed random_state or use another detector"
        raise PluginError(f"{type(again.model).__name__}: {differ}; {remedy}")
    return again
