"""Fusion selector: a weighted sum of several selectors' scores, each standardised on a pool sample.

Lexical and embedding selectors err on different texts, so their sum is better than either.
``--selector auto`` learns the weights by cross-validation (:mod:`dana.scoring.ranking.auto`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from dana.core.artifacts import read_json, write_json
from dana.core.config import require
from dana.core.errors import ConfigError
from dana.core.logging import get_logger
from dana.core.registry import origin_of
from dana.core.statistics import Moments
from dana.corpus.unit_stream import Units
from dana.selectors.base import FittedSelector, Selector
from dana.selectors.build import create_selector

log = get_logger(__name__)


@dataclass(frozen=True)
class FittedFusion(FittedSelector):
    """Fitted selectors, and the weight and scale of each.

    Attributes:
        parts: Fitted selectors.
        weights: Weight of each, not negative.
        moments: Mean and standard deviation of each one's scores of its pool sample.
    """

    parts: tuple[FittedSelector, ...]
    weights: tuple[float, ...]
    moments: tuple[tuple[float, float], ...]

    def score_units(self, units: Units) -> np.ndarray:
        """Compute Σ w_k (s_k - mean_k) / std_k; a selector with std_k = 0 adds nothing."""
        scores = np.zeros(len(units))
        for part, weight, (mean, std) in zip(self.parts, self.weights, self.moments, strict=True):
            if weight and std > 0:
                scores += weight * (part.score(units) - mean) / std
        return scores

    def save(self, folder: Path) -> None:
        """Write each selector to its own folder, and the weights and moments."""
        for number, part in enumerate(self.parts):
            part.save(folder / str(number))
        write_json(folder / "selector.json", {"weights": self.weights, "moments": self.moments})


@dataclass(frozen=True)
class FusionSelector(Selector):
    """Weighted sum of standardised scores; higher = more foreign.

    Attributes:
        parts: Specs of selectors or detectors, joined by ``+``: ``moore_lewis+lexical+svm``.
        weights: One number per part, joined by ``+``, scaled to sum to 1; equal by default.

    References:
        Kittler, Hatef, Duin and Matas 1998, On combining classifiers (the sum rule).
    """

    parts: str = "lexical+svm"
    weights: str | float | None = None
    version: ClassVar[int] = 1
    cross_fits: ClassVar[bool] = True

    def __post_init__(self) -> None:
        names = self._specs
        require(all(names), "parts", self.parts, "specs joined by +")
        require(len(set(names)) == len(names), "parts", self.parts, "specs joined by +, each once")
        fusions = {name.partition(":")[0] for name in names} & {"fusion", "auto"}
        require(not fusions, "parts", self.parts, "specs joined by +, without fusion and auto")
        allowed = f"{len(names)} numbers joined by +, as many as parts"
        require(len(self._shares) == len(names), "weights", self.weights, allowed)

    @property
    def _specs(self) -> list[str]:
        return self.parts.split("+")

    @cached_property
    def _shares(self) -> tuple[float, ...]:
        if self.weights is None:
            return (1 / len(self._specs),) * len(self._specs)
        try:
            numbers = [float(number) for number in str(self.weights).split("+")]
        except ValueError as error:
            raise ConfigError(f"weights={self.weights!r}: must be numbers joined by +") from error
        total = sum(numbers)
        is_allowed = min(numbers) >= 0 and 0 < total < float("inf")
        require(is_allowed, "weights", self.weights, "numbers from 0, joined by +, not all 0")
        return tuple(number / total for number in numbers)

    @cached_property
    def _selectors(self) -> Sequence[Selector]:
        return [create_selector(spec, self.context) for spec in self._specs]

    @property
    def takes(self) -> tuple[str, ...]:  # type: ignore[override]
        """Settings of the run that any part uses."""
        names: set[str] = set()
        for part in self._selectors:
            names.update(part.uses)
        return tuple(sorted(names))

    def samples(self, target_units: int) -> Mapping[str, int]:
        """Return the largest size of each sample over the parts."""
        sizes: dict[str, int] = {}
        for part in self._selectors:
            for name, size in part.samples(target_units).items():
                sizes[name] = max(size, sizes.get(name, 0))
        return sizes

    def learn(self, target: Units, pool: Mapping[str, Units], seed: int) -> FittedFusion:
        """Fit every part, and measure mean and deviation of its scores on a pool sample.

        Cross-fitted parts score each unit by the fit on the other half.
        """
        fits = []
        moments = []
        for spec, part in zip(self._specs, self._selectors, strict=True):
            sizes = part.samples(len(target))
            samples = {name: pool[name].first(size) for name, size in sizes.items()}
            fit = part.fit(target, samples, seed)
            names = [name for name in samples if name != "contamination"]
            measured = target
            if names:
                measured = samples[names[0]]
            scores = Moments.from_scores(fit.score(measured))
            if not scores.std > 0:
                log.warning(
                    "fusion    %s gives all %d pool units the same score and adds nothing",
                    spec,
                    len(measured),
                )
            fits.append(fit)
            moments.append((scores.mean, scores.std))
        return FittedFusion(tuple(fits), self._shares, tuple(moments))

    def load(self, folder: Path) -> FittedFusion:
        description = read_json(folder / "selector.json")
        parts = [part.load(folder / str(number)) for number, part in enumerate(self._selectors)]
        weights = [float(weight) for weight in description["weights"]]
        moments = [(float(mean), float(std)) for mean, std in description["moments"]]
        return FittedFusion(tuple(parts), tuple(weights), tuple(moments))

    def identity(self) -> dict[str, Any]:
        parts = [{**part.identity(), "code": origin_of(part)} for part in self._selectors]
        return {"selector": "FusionSelector", "weights": list(self._shares), "parts": parts}
