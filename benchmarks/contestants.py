"""Who takes part in benchmarks/detectors.py: each of our detectors, and the libraries' with the same parameters."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import torch

from dana.core.registry import DETECTORS
from dana.detectors.base import background_units, fit_detector

SPECS = ["iforest", "iforest:trees=100", "lof", "ocsvm", "knn", "pca", "pyod:PCA", "robust_covariance"]
SPECS += ["cosine", "distance", "lda", "density_ratio", "contrastive_knn"]
# scikit-learn's robust covariance takes a minute at 384 dimensions and 7.5 at 768: timed once, and not above this.
SLOW = ("robust_covariance", "scikit-learn")
SLOW_DIMS = 512


class Ours:
    """dana's detector, on the device."""

    def __init__(self, spec: str, device: str) -> None:
        self.spec, self.device = spec, device

    def build(self) -> "Ours":
        """Itself, with the detector."""
        self.detector = DETECTORS.create(self.spec)
        return self

    def fit(self, rows: np.ndarray) -> None:
        """Fit with seed 0; a contrastive detector on halves, of which the second is the background."""
        is_contrastive = background_units(self.detector) > 0
        task, background = halves(rows) if is_contrastive else (rows, rows[:0])
        self.fitted = fit_detector(self.detector, self.put(task), 0, self.put(background))

    def score(self, model: "Ours", rows: torch.Tensor) -> torch.Tensor:
        """Scores, on the device."""
        return model.fitted.score(rows)

    def put(self, rows: np.ndarray) -> torch.Tensor:
        """Rows where the encoder leaves them."""
        return torch.from_numpy(rows).to(self.device)


def halves(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Task and background."""
    return rows[: len(rows) // 2], rows[len(rows) // 2 :]


class DiscriminantOfHalves:
    """scikit-learn's linear discriminant with the parameters of our defaults."""

    def fit(self, rows: np.ndarray) -> None:
        """Tell the first half, the task, from the second."""
        from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

        solver = LinearDiscriminantAnalysis("lsqr", shrinkage="auto", priors=[0.5, 0.5])
        self.solved = solver.fit(rows.astype(np.float64), np.arange(len(rows)) < len(rows) // 2)

    def decision_function(self, rows: np.ndarray) -> np.ndarray:
        """Our sign."""
        return -self.solved.decision_function(rows)


class NeighboursOfHalves:
    """Mean distance to the 20 nearest of the first half minus that of the second, by scikit-learn."""

    def fit(self, rows: np.ndarray) -> None:
        """Two searches; "brute" is the faster algorithm in hundreds of dimensions."""
        from sklearn.neighbors import NearestNeighbors

        self.searches = [NearestNeighbors(n_neighbors=20, algorithm="brute").fit(half) for half in halves(rows)]

    def decision_function(self, rows: np.ndarray) -> np.ndarray:
        """The difference of the means."""
        near, far = (search.kneighbors(rows)[0].mean(1) for search in self.searches)
        return near - far


@dataclass(frozen=True)
class Library:
    """A library's detector, and how it gives scores of our sign."""

    path: str
    parameters: dict[str, Any]
    score: Callable[[Any, np.ndarray], np.ndarray] = lambda model, rows: model.decision_function(rows)

    def build(self) -> Any:
        """Unfitted; imported only now, so that a process holds no more than it measures."""
        module, name = self.path.split(":")
        return getattr(import_module(module), name)(**self.parameters)


def libraries(spec: str) -> dict[str, Library]:
    """Those that have this detector, with the parameters of our defaults."""
    if spec.startswith("iforest"):
        forest = {"n_estimators": DETECTORS.create(spec).trees, "max_samples": 256, "random_state": 0}
        return {
            "scikit-learn": Library("sklearn.ensemble:IsolationForest", forest, lambda m, rows: -m.score_samples(rows)),
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
            "scikit-learn": Library("sklearn.svm:OneClassSVM", kernel, lambda m, rows: -m.decision_function(rows)),
            "PyOD": Library("pyod.models.ocsvm:OCSVM", kernel),
        }
    if spec == "knn":
        brute = {"n_neighbors": 5, "algorithm": "brute"}
        path = "sklearn.neighbors:NearestNeighbors"
        return {
            "scikit-learn": Library(path, brute, lambda m, rows: m.kneighbors(rows)[0][:, -1]),
            "PyOD": Library("pyod.models.knn:KNN", brute),
        }
    if spec == "pca":  # PyOD's PCA is another formula: its speed is compared, its scores are not
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
    if spec in ("cosine", "distance", "density_ratio"):  # a product with one or two vectors, as lda: no library's
        return {}
    robust = {"support_fraction": 0.75, "random_state": 0}  # PyOD's MCD calls scikit-learn's
    return {"scikit-learn": Library("sklearn.covariance:MinCovDet", robust, lambda m, rows: m.mahalanobis(rows))}


def _rebuilt(model: Any, rows: np.ndarray) -> np.ndarray:
    return np.square(rows - model.inverse_transform(model.transform(rows))).sum(1)


def contestants(spec: str, dims: int, device: str) -> dict[str, Ours | Library]:
    """Ours first, then the libraries."""
    found = {"dana": Ours(spec, device), **libraries(spec)}
    return {by: one for by, one in found.items() if (spec, by) != SLOW or dims <= SLOW_DIMS}
