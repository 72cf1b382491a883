"""Detector selector: score embedded units by an anomaly detector (DANA, Algorithm 1)."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from dana.core.artifacts import write_json
from dana.core.registry import DETECTORS, origin_of, plugin_errors
from dana.core.rng import derive_seed
from dana.corpus.unit_stream import Units
from dana.detectors.base import FittedDetector, background_units, fit_detector
from dana.detectors.pyod import as_detector, restore, save_fitted
from dana.encoders.geometry import FittedGeometry, parse_geometry
from dana.selectors.base import FittedSelector, Selector, checked_scores

GEOMETRY_SAMPLE = 2000  # pool units on which the geometry is fitted


@dataclass(frozen=True)
class DetectorSelector(Selector):
    """Anomaly detector over the embeddings of units, in a geometry fitted on pool units.

    ``DetectorSelector("knn").fit(target, pool).score(texts)``. A parameter that is None takes the
    run's setting.

    Attributes:
        detector: Detector spec, for example ``knn:k=10``.
        encoder: Encoder spec, for example ``minilm``.
        geometry: Geometry spec, for example ``center+l2``.
        pool_share: Pool units added to the fit of a one-class detector, as a share of the
            task's units. Algorithm 1 adds a tenth; this ruins detectors by neighbours
            (docs/results/ranking.md), so the run's default is 0. A contrastive detector gets
            pool units as a class of their own instead.
    """

    detector: str | None = None
    encoder: str | None = None
    geometry: str | None = None
    pool_share: float | None = None
    version: ClassVar[int] = 1
    takes: ClassVar[tuple[str, ...]] = ("detector", "encoder", "geometry", "pool_share")

    @cached_property
    def _detector(self) -> Any:
        return as_detector(DETECTORS.create(self.settings.detector))

    @property
    def detector_origin(self) -> dict[str, Any]:
        """Class and version of the detector; see :func:`dana.core.registry.origin_of`."""
        return origin_of(self._detector)

    def samples(self, target_units: int) -> Mapping[str, int]:
        """Return ``background`` for a contrastive detector, else ``geometry``.

        The geometry of a contrastive detector is fitted on its background. Before ``geometry``
        comes ``contamination``, if any, which is added to the task.
        """
        # With auto the ranking has not chosen yet.
        background = 0
        if self.settings.detector != "auto":
            background = background_units(self._detector)
        if background:
            return {"background": background}
        share = self.settings.pool_share
        if not share:
            return {"geometry": GEOMETRY_SAMPLE}
        return {"contamination": max(1, int(target_units * share)), "geometry": GEOMETRY_SAMPLE}

    def learn(
        self, target: Units, pool: Mapping[str, Units], seed: int
    ) -> "FittedDetectorSelector":
        """Encode the texts, then fit; see :meth:`fit_embedded`."""
        names = self.samples(len(target))
        samples = {name: self.settings.embed(pool[name].texts) for name in names}
        return self.fit_embedded(self.settings.embed(target.texts), samples, seed)

    def fit_embedded(
        self, target: Tensor, pool: Mapping[str, Tensor], seed: int
    ) -> "FittedDetectorSelector":
        """Fit geometry and detector on embeddings, as the ranking does.

        Args:
            target: Target embeddings, shape (units, dims).
            pool: Embeddings of each sample by name, shape (units, dims).
            seed: Root seed.

        Raises:
            PluginError: If the detector raises an error that is not one of dana's.
        """
        names = self.samples(len(target))
        spec = parse_geometry(self.settings.geometry)
        background = None
        if "background" in names:
            geometry = spec.fit(pool["background"])
            background = geometry.apply(pool["background"])
        else:
            geometry = spec.fit(pool["geometry"])
        if "contamination" in names:
            target = torch.cat([target, pool["contamination"]])
        rows = geometry.apply(target)
        detector_seed = derive_seed(seed, "selector", "detector")
        with plugin_errors("detector", self.settings.detector, self._detector):
            detector = fit_detector(self._detector, rows, detector_seed, background)
        return FittedDetectorSelector(self, geometry, detector)

    def load(self, folder: Path) -> "FittedDetectorSelector":
        geometry = FittedGeometry.load(folder / "geometry")
        return FittedDetectorSelector(self, geometry, restore(self._detector, folder / "detector"))

    def identity(self) -> dict[str, Any]:
        return {**super().identity(), "detector_code": self.detector_origin}


@dataclass(frozen=True)
class FittedDetectorSelector(FittedSelector):
    """Fitted geometry and fitted detector, with their selector."""

    selector: DetectorSelector
    geometry: FittedGeometry
    detector: FittedDetector

    def score_units(self, units: Units) -> np.ndarray:
        return self.score_embedded(self.selector.settings.embed(units.texts))

    def score_embedded(self, embeddings: Tensor) -> np.ndarray:
        """Score embeddings, float64 of shape (units,), higher = more foreign.

        Args:
            embeddings: Output of the encoder, shape (units, dims).

        Raises:
            PluginError: If the detector raises an error that is not one of dana's, or a score is
                not finite.
        """
        blame = plugin_errors("detector", self.selector.settings.detector, self.selector._detector)
        with blame, torch.inference_mode():
            scores = self.detector.to(embeddings.device).score(self.geometry.apply(embeddings))
            return checked_scores(scores.cpu(), len(embeddings))

    def save(self, folder: Path) -> None:
        """Write ``selector.json``, the geometry and the detector."""
        save_fitted(self.detector, self.selector.settings.detector, folder / "detector")
        self.geometry.save(folder / "geometry")
        write_json(folder / "selector.json", self.selector.identity())
