"""Detectors that benchmarks/detectors.py compares: dana's, and the libraries' with the same parameters."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import torch

from dana.core.registry import DETECTORS
from dana.detectors.base import background_units, fit_detector

SPECS = [
    "iforest",
    "iforest:trees=100",
    "lof",
    "ocsvm",
    "knn",
    "pca",
    "pyod:PCA",
    "robust_covariance",
]
SPECS += ["cosine", "distance", "lda", "density_ratio", "contrastive_knn"]
# scikit-learn's robust covariance takes a minute at 384 dimensions and 7.5 at 768: timed once, up
# to 512 dimensions.
SLOW = ("robust_covariance", "scikit-learn")
SLOW_DIMS = 512


class Ours:
    """A detector of dana on the device."""

    def __init__(self, spec: str, device: str) -> None:
        self.spec, self.device = spec, device

    def build(self) -> "Ours":
        """Create the detector and return self."""
        self.detector = DETECTORS.create(self.spec)
        return self

    def fit(self, rows: np.ndarray) -> None:
        """Fit with seed 0; for a contrastive detector the second half of the rows is the background."""
        is_contrastive = background_units(self.detector) > 0
        task, background = halves(rows) if is_contrastive else (rows, rows[:0])
        self.model = fit_detector(self.detector, self.put(task), 0, self.put(background))

    def score(self, model: "Ours", rows: torch.Tensor) -> torch.Tensor:
        """Score rows on the device."""
        return model.model.score(rows)

    def put(self, rows: np.ndarray) -> torch.Tensor:
        """Copy rows to the device, where an encoder leaves its vectors."""
        return torch.from_numpy(rows).to(self.device)


def halves(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Split rows into task and background."""
    return rows[: len(rows) // 2], rows[len(rows) // 2 :]


class DiscriminantOfHalves:
    """scikit-learn's linear discriminant with the parameters of our defaults."""

    def fit(self, rows: np.ndarray) -> None:
        """Fit a classifier of the first half, the task, against the second."""
        from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

        solver = LinearDiscriminantAnalysis("lsqr", shrinkage="auto", priors=[0.5, 0.5])
        self.solved = solver.fit(rows.astype(np.float64), np.arange(len(rows)) < len(rows) // 2)

    def decision_function(self, rows: np.ndarray) -> np.ndarray:
        """Score rows with dana's sign: higher is further from the task."""
        return -self.solved.decision_function(rows)


class NeighboursOfHalves:
    """Mean distance to the 20 nearest rows of the first half minus that of the second, with scikit-learn."""

    def fit(self, rows: np.ndarray) -> None:
        """Index both halves; "brute" is the faster algorithm in hundreds of dimensions."""
        from sklearn.neighbors import NearestNeighbors

        self.searches = [
            NearestNeighbors(n_neighbors=20, algorithm="brute").fit(half) for half in halves(rows)
        ]

    def decision_function(self, rows: np.ndarray) -> np.ndarray:
        """Score rows by the difference of the mean distances."""
        near, far = (search.kneighbors(rows)[0].mean(1) for search in self.searches)
        return near - far


@dataclass(frozen=True)
class Library:
    """A library's detector and a function that scores rows with dana's sign."""

    path: str
    parameters: dict[str, Any]
    score: Callable[[Any, np.ndarray], np.ndarray] = lambda model, rows: model.decision_function(
        rows
    )

    def build(self) -> Any:
        """Import and create the detector; imported late so that a process only loads what it measures."""
        module, name = self.path.split(":")
        return getattr(import_module(module), name)(**self.parameters)


def libraries(spec: str) -> dict[str, Library]:
    """Return the libraries' versions of a detector, with the parameters of dana's defaults."""
    if spec.startswith("iforest"):
        forest = {
            "n_estimators": DETECTORS.create(spec).trees,
            "max_samples": 256,
            "random_state": 0,
        }
        return {
            "scikit-learn": Library(
                "sklearn.ensemble:IsolationForest", forest, lambda m, rows: -m.score_samples(rows)
            ),
            "PyOD": Library("pyod.models.iforest:IForest", forest),
        }
    if spec == "lof":  # "brute" is the faster algorithm in hundreds of dimensions
        brute = {"n_neighbors": 20, "algorithm": "brute"}
        path, novel = "sklearn.neighbors:LocalOutlierFactor", {"novelty": True, **brute}
        return {
            "scikit-learn": Library(path, novel, lambda m, rows: -m.score_samples(rows)),
            "PyOD": Library("pyod.models.lof:LOF", brute),
        }
    if spec == "ocsvm":
        kernel = {"nu": 0.1, "gamma": "scale"}
        return {
            "scikit-learn": Library(
                "sklearn.svm:OneClassSVM", kernel, lambda m, rows: -m.decision_function(rows)
            ),
            "PyOD": Library("pyod.models.ocsvm:OCSVM", kernel),
        }
    if spec == "knn":
        brute = {"n_neighbors": 5, "algorithm": "brute"}
        path = "sklearn.neighbors:NearestNeighbors"
        return {
            "scikit-learn": Library(path, brute, lambda m, rows: m.kneighbors(rows)[0][:, -1]),
            "PyOD": Library("pyod.models.knn:KNN", brute),
        }
    if spec == "pca":  # PyOD's PCA has another formula: only its speed is compared
        half = {"n_components": 0.5, "svd_solver": "full"}
        return {
            "scikit-learn": Library("sklearn.decomposition:PCA", half, _rebuilt),
            "PyOD": Library("pyod.models.pca:PCA", {}),
        }
    if spec == "pyod:PCA":
        return {"PyOD": Library("pyod.models.pca:PCA", {})}
    if spec in ("lda", "contrastive_knn"):
        name = "DiscriminantOfHalves" if spec == "lda" else "NeighboursOfHalves"
        return {"scikit-learn": Library(f"contestants:{name}", {})}
    if spec in (
        "cosine",
        "distance",
        "density_ratio",
    ):  # products with one or two vectors, in no library
        return {}
    robust = {"support_fraction": 0.75, "random_state": 0}  # PyOD's MCD calls scikit-learn's
    return {
        "scikit-learn": Library(
            "sklearn.covariance:MinCovDet", robust, lambda m, rows: m.mahalanobis(rows)
        )
    }


def _rebuilt(model: Any, rows: np.ndarray) -> np.ndarray:
    return np.square(rows - model.inverse_transform(model.transform(rows))).sum(1)


def contestants(spec: str, dims: int, device: str) -> dict[str, Ours | Library]:
    """Return all implementations of a detector by name, dana's first."""
    implementations = {"dana": Ours(spec, device), **libraries(spec)}
    return {
        by: one for by, one in implementations.items() if (spec, by) != SLOW or dims <= SLOW_DIMS
    }
