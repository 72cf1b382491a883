"""Adapter: any PyOD detector, and any object with PyOD's ``fit(X)`` and ``decision_function(X)``, as a dana detector.

In that convention, too, higher = more anomalous. What such an object has learned cannot be saved as safetensors and
JSON, as any detector of dana's is; so it is fitted again.
"""

import copy
import inspect
import pkgutil
import random
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
TOLERANCE = 1e-6  # between two fits, of the largest score
PROBE = 8  # rows scored together and alone, to see whether a detector's scores depend on the batch


@dataclass(frozen=True)
class FittedConvention:
    """A fitted object of PyOD's convention.

    The rows it was fitted on are saved, and loading fits it again: there is no pickle. Loading refuses an object whose
    second fit with the same seed gives other scores: they would depend on the process.

    Attributes:
        seed: It was fitted with.
        row_by_row: Its scores depend on the batch, so every row is scored alone.
        reference: Shape (rows, dims), what it was fitted on.
        probe: Shape (at most 8,), its scores of the first of these rows.
        model: The fitted object.
    """

    seed: int
    row_by_row: bool
    reference: Tensor
    probe: Tensor
    model: Any = field(default=None, compare=False, repr=False, metadata={"saved": False})

    def score(self, embeddings: Tensor) -> Tensor:
        """The object's own scores, on the CPU; higher = more anomalous."""
        check_rows(embeddings, self.reference.shape[1])
        rows = embeddings.double().cpu().numpy()
        if len(rows) == 0:
            return torch.zeros(0, dtype=torch.float64, device=embeddings.device)
        parts = rows[:, None, :] if self.row_by_row else [rows]
        scores = np.concatenate([_scores(self.model, part) for part in parts])
        return torch.from_numpy(scores.astype(np.float64)).to(embeddings.device)

    def to(self, device: torch.device | str) -> "FittedConvention":
        """Itself: such detectors live on the CPU."""
        return self


@dataclass(frozen=True)
class Convention:
    """An unfitted object of PyOD's convention as a dana detector; the object is never changed.

    Attributes:
        candidate: Has ``fit(X)`` and ``decision_function(X)``.
    """

    candidate: Any
    version: ClassVar[int] = 1
    fitted_type: ClassVar[type] = FittedConvention

    @property
    def made_by(self) -> Any:
        """Whose code decides the scores, see :func:`dana.core.registry.origin_of`."""
        return self.candidate

    def fit(self, embeddings: Tensor, seed: int) -> FittedConvention:
        """Fit a copy; ``random_state`` is set where the object has one, and every global generator it may draw from."""
        check_rows(embeddings, at_least=2)
        model = copy.deepcopy(self.candidate)
        if hasattr(model, "random_state"):
            model.random_state = seed % 2**32
        rows = embeddings.double().cpu().numpy()
        with _seeded(seed):
            model.fit(rows.copy())
        probe = rows[:PROBE]
        together = _scores(model, probe)
        alone = np.concatenate([_scores(model, row[None]) for row in probe])
        row_by_row = not np.allclose(together, alone, rtol=1e-6, atol=1e-9)
        if row_by_row:
            slow = "depend on the batch, so each row is scored alone, which takes much longer"
            log.warning("detector  scores of %s %s", type(model).__name__, slow)
        scores = torch.from_numpy((alone if row_by_row else together).astype(np.float64))
        return FittedConvention(seed, row_by_row, embeddings.clone(), scores, model)


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Seed the global generators of Python, numpy and torch, for libraries that draw from them, and put them back."""
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
    """Scores of shape (rows,), by a deep copy: some detectors write into themselves while scoring."""
    return np.ravel(copy.deepcopy(model).decision_function(rows))


def pyod_detector(name: str, **parameters: Any) -> Convention | ComponentDistance:
    """A detector of the PyOD library by its name; higher = more anomalous.

    Detectors whose scores depend on the batch (ECOD and COPOD append the query to their training set) are
    scored row by row: 0.1 s a row when fitted on 4,000 rows of 384 dims, where LODA takes 0.01 ms.
    ``pyod:PCA`` with its defaults, the paper's PCA, is fitted and scored by :mod:`dana.detectors.components`: the
    same scores, sooner and on the embeddings' device.

    Cost: the library's own, plus a copy of the fitted model a call.

    Args:
        name: Class name in any case, for example ``LODA``, ``GMM``, ``INNE`` or ``HBOS``, which are fitted in seconds;
            parameters follow: ``pyod:KNN,n_neighbors=10``.
        parameters: Of the class.

    Raises:
        PluginError: If there is none (the nearest is suggested), or a package it needs is missing.
        ConfigError: If it has no such parameter.

    References:
        Zhao, Nasrullah and Li 2019, PyOD: a Python toolbox for scalable outlier detection.
    """
    import pyod.models

    plain = name.replace("_", "").lower()
    modules = {module.name.replace("_", ""): module.name for module in pkgutil.iter_modules(pyod.models.__path__)}
    if plain not in modules:
        raise PluginError(f"unknown PyOD detector {name!r}{suggestion(plain, modules)}")
    try:
        module = import_module(f"pyod.models.{modules[plain]}")
    except ImportError as error:
        raise PluginError(f"pyod:{name} needs a package that is not installed: {error}") from error
    classes = [value for attribute, value in vars(module).items() if attribute.lower() == plain]
    if not classes or not hasattr(classes[0], "decision_function"):
        raise PluginError(f"pyod.models.{modules[plain]} holds no detector named {name!r}")
    known = inspect.signature(classes[0]).parameters
    for parameter in parameters.keys() - known.keys():
        raise ConfigError(f"pyod:{name}: unknown parameter {parameter!r}{suggestion(parameter, known)}")
    return Convention(classes[0](**parameters)) if parameters or plain != "pca" else ComponentDistance()


def as_detector(candidate: Any) -> Any:
    """A detector of dana's protocol: the object itself, or an adapter around one of PyOD's convention.

    Args:
        candidate: Has ``fit(embeddings, seed)``, or PyOD's ``fit(X)`` and ``decision_function(X)``.
    """
    return Convention(candidate) if hasattr(candidate, "decision_function") else candidate


def save_fitted(fitted: Any, spec: str, folder: Path) -> None:
    """Write a fitted detector as ``detector.safetensors`` and ``detector.json``, which names its spec; no pickle."""
    tensors.save_tensors(fitted, folder, FILE, detector=spec)


def restore(detector: Any, folder: Path) -> Any:
    """Read what :func:`save_fitted` wrote, given the detector that it was fitted by.

    Raises:
        ArtifactError: If there is none, or its fields are not those of the detector's class.
        PluginError: If it has to be fitted again and two fits with one seed differ.
    """
    fitted = tensors.load_tensors(detector.fitted_type, folder, FILE)
    if not isinstance(fitted, FittedConvention):
        return fitted
    again = detector.fit(fitted.reference, fitted.seed)  # only what it was fitted on is saved
    difference = float((fitted.probe - again.probe).abs().max())
    if not difference <= TOLERANCE * float(fitted.probe.abs().max()):
        differ = f"two fits with seed {fitted.seed} on the same rows differ (scores by {difference:.2g})"
        remedy = "give it a seed of its own (random_state) or take another detector"
        raise PluginError(f"{type(again.model).__name__}: {differ}; every process fits it again: {remedy}")
    return again
