"""The paper's selector: an anomaly detector over the embeddings of task units. DANA section 3, Algorithm 1."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dana.artifacts import write_json
from dana.detectors.base import FittedDetector, as_detector, restore, save_fitted
from dana.encoders.base import Encoder
from dana.encoders.store import create_encoder
from dana.errors import DataError
from dana.geometry import FittedGeometry, parse_geometry
from dana.registry import DETECTORS
from dana.rng import derive_seed
from dana.selectors.base import Units

GEOMETRY_SAMPLE = 2000  # general units whose mean (or covariance) the geometry step learns
CONTAMINATION = 10  # Algorithm 1 adds one general unit to every ten of the task


@dataclass(frozen=True)
class DetectorSelector:
    """Embed, put into a geometry, score by distance from the task.

    Attributes:
        detector: Detector spec, for example ``knn:k=10``.
        encoder: Encoder spec, for example ``minilm``.
        geometry: Geometry spec, for example ``center+l2``.
        store: Folder of an embedding store to encode through, or None.
        store_dtype: How the store rounds.
    """

    detector: str
    encoder: str = "minilm"
    geometry: str = "center+l2"
    store: str | None = None
    store_dtype: str = "float16"

    def __post_init__(self) -> None:
        parse_geometry(self.geometry)

    @cached_property
    def _encoder(self) -> Encoder:
        return create_encoder(self.encoder, self.store, self.store_dtype)

    @cached_property
    def _detector(self) -> Any:
        return as_detector(DETECTORS.create(self.detector))

    def samples(self, task_units: int) -> Mapping[str, int]:
        """``geometry`` for its mean, ``contamination`` to be fitted with the task (the paper's N = t/10)."""
        return {"contamination": max(1, task_units // CONTAMINATION), "geometry": GEOMETRY_SAMPLE}

    def fit(self, task: Sequence[str], general: Mapping[str, Sequence[str]], seed: int) -> "FittedDetectorSelector":
        """Fit geometry and detector on P ∪ N.

        Raises:
            DataError: If a sample is empty.
        """
        for name, texts in general.items():
            if not texts:
                raise DataError(f"the general corpus is too small: nothing is left for the {name} sample")
        geometry = parse_geometry(self.geometry).fit(self._encoder.encode(general["geometry"]))
        both = self._encoder.encode([*task, *general["contamination"]])
        fitted = self._detector.fit(geometry.apply(both), derive_seed(seed, "selector", "detector"))
        return FittedDetectorSelector(self, self._encoder, geometry, fitted)

    def load(self, folder: Path) -> "FittedDetectorSelector":
        """See :class:`dana.selectors.base.Selector`."""
        geometry = FittedGeometry.load(folder / "geometry")
        return FittedDetectorSelector(self, self._encoder, geometry, restore(self._detector, folder / "detector"))

    def identity(self) -> dict[str, Any]:
        """See :class:`dana.selectors.base.Selector`."""
        return {
            "selector": "detector",
            "detector": self.detector,
            "geometry": self.geometry,
            "encoder": self._encoder.identity(),
        }


@dataclass(frozen=True)
class FittedDetectorSelector:
    """Encoder, fitted geometry and fitted detector."""

    selector: DetectorSelector
    encoder: Encoder
    geometry: FittedGeometry
    detector: FittedDetector

    def score(self, units: Units) -> np.ndarray:
        """See :class:`dana.selectors.base.FittedSelector`."""
        embeddings = self.encoder.encode(units.texts)
        with torch.inference_mode():
            scores = self.detector.to(embeddings.device).score(self.geometry.apply(embeddings))
        return scores.double().cpu().numpy()

    def save(self, folder: Path) -> None:
        """Write ``selector.json`` and, beside it, the geometry and the detector."""
        save_fitted(self.detector, self.selector.detector, folder / "detector")
        self.geometry.save(folder / "geometry")
        write_json(folder / "selector.json", self.selector.identity())
