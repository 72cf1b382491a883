"""Create selectors from specs, cross-fitted if they are contrastive.

A contrastive model overfits its pool sample: an n-gram model gives its own sentences a low
cross-entropy, a linear model pushes its negatives away. Units of the sample would look more foreign
than equal units outside it. So the pool is split in halves by a hash of each document, the selector
is fitted once on the samples of each half, and every document is scored by the fit on the other
half.

References:
    Chernozhukov et al. 2018, Double/debiased machine learning, section 3 (cross-fitting).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from dana.core.artifacts import read_json, write_json
from dana.core.errors import ConfigError, PluginError
from dana.core.logging import get_logger
from dana.core.registry import DETECTORS, SELECTORS, origin_of
from dana.core.rng import derive_seed, document_key, hash_uniform
from dana.corpus.unit_stream import Units
from dana.selectors.base import FittedSelector, Selector, SelectorContext

log = get_logger(__name__)

BACKGROUND = "background"  # name of the sample that a contrastive selector is fitted on
MANY = 1000  # any number of target units, for which a contrastive selector needs a background


def half_of(units: Units, seed: int) -> np.ndarray:
    """Assign each unit's document, or each plain text, to a half of the pool.

    Args:
        units: Units of a pool or a sample, or plain texts.
        seed: Root seed of the selection.

    Returns:
        0 or 1 for each unit, int64 of shape (units,).
    """
    doc_ids = [document.doc_id for document in units.documents]
    document_keys = np.array([document_key(doc_id) for doc_id in doc_ids], dtype=np.uint64)
    is_plain_text = np.array([not doc_id for doc_id in doc_ids])
    keys = np.where(is_plain_text[units.owners], units.keys, document_keys[units.owners])
    numbers = hash_uniform(derive_seed(seed, "selector", "half"), keys)
    return (numbers < 0.5).astype(np.int64)


@dataclass(frozen=True)
class FittedHalves(FittedSelector):
    """Two fits of one selector, on either half of the pool.

    Attributes:
        halves: The fit on each half's samples.
        seed: Seed of the halves.
    """

    halves: tuple[FittedSelector, FittedSelector]
    seed: int

    @property
    def notes(self) -> dict[str, Any]:
        """Notes of the first fit, for the manifest."""
        return getattr(self.halves[0], "notes", {})

    def score_units(self, units: Units) -> np.ndarray:
        """Score each unit by the fit on the half without its document."""
        half = half_of(units, self.seed)
        scores = np.zeros(len(units))
        for number, fit in enumerate(self.halves):
            rows = np.flatnonzero(half != number)
            if rows.size:
                scores[rows] = fit.score(units.rows(rows))
        return scores

    def save(self, folder: Path) -> None:
        """Write both fits, each in a folder of its own."""
        for number, fit in enumerate(self.halves):
            fit.save(folder / str(number))
        write_json(folder / "selector.json", {"halves_seed": self.seed})


@dataclass(frozen=True)
class CrossFitted(Selector):
    """Selector fitted twice, once on each half of the pool, with samples twice as large.

    Attributes:
        inner: The contrastive selector, with a sample named ``background``.
    """

    inner: Selector

    version: ClassVar[int] = 1
    cross_fits: ClassVar[bool] = True

    @cached_property
    def _selector(self) -> Selector:
        return replace(self.inner, context=self.context)

    @property
    def takes(self) -> tuple[str, ...]:  # type: ignore[override]
        """Settings of the run that the inner selector uses."""
        return self.inner.uses

    @property
    def exemptions(self) -> dict[str, str]:
        """Conformance checks that the inner selector cannot pass, with reasons."""
        return getattr(self.inner, "exemptions", {})

    def samples(self, target_units: int) -> Mapping[str, int]:
        return {name: 2 * size for name, size in self._selector.samples(target_units).items()}

    def runs(self) -> Mapping[str, int]:
        return self._selector.runs()

    def learn(self, target: Units, pool: Mapping[str, Units], seed: int) -> FittedHalves:
        """Fit on the samples of each half; on all units twice if a half lacks a sample."""
        samples_of_halves: list[dict[str, Units]] = [{}, {}]
        for name, sample in pool.items():
            half = half_of(sample, seed)
            for number, samples in enumerate(samples_of_halves):
                samples[name] = sample.rows(np.flatnonzero(half == number))
        has_all_samples = all(all(map(len, samples.values())) for samples in samples_of_halves)
        if not has_all_samples:
            log.warning(
                "selector  too few pool documents for two halves: "
                "units are scored by a fit that includes them"
            )
            samples_of_halves = [dict(pool), dict(pool)]
        first_samples, second_samples = samples_of_halves
        first = self._selector.fit(target, first_samples, seed)
        second = self._selector.fit(target, second_samples, seed)
        return FittedHalves((first, second), seed)

    def load(self, folder: Path) -> FittedHalves:
        first = self._selector.load(folder / "0")
        second = self._selector.load(folder / "1")
        return FittedHalves((first, second), read_json(folder / "selector.json")["halves_seed"])

    def identity(self) -> dict[str, Any]:
        return {
            **self._selector.identity(),
            "cross_fitted": True,
            "inner_code": origin_of(self._selector),
        }


def create_selector(spec: str, context: SelectorContext) -> Selector:
    """Create the selector of a spec in the context of a run.

    Contrastive selectors are cross-fitted.

    Args:
        spec: Spec of a selector, or of a detector, which is applied to the run's encoder.
        context: Settings of the run.

    Raises:
        PluginError: If the name is unknown, or its class is not a
            :class:`dana.selectors.base.Selector`.
        ConfigError: If a parameter of the spec is unknown or out of range.
    """
    selector = plain_selector(spec, context)
    is_contrastive = BACKGROUND in selector.samples(MANY)
    if is_contrastive and not selector.cross_fits:
        return CrossFitted(selector, context=context)
    return selector


def plain_selector(spec: str, context: SelectorContext) -> Selector:
    """Create the selector of a spec without cross-fitting; see :func:`create_selector`."""
    name, _, parameters = str(spec).partition(":")
    if name == "detector" and ":" in parameters.partition("=")[0]:
        # detector:knn:k=10, with parameters of the detector
        spec = parameters
        name = parameters.partition(":")[0]
    if name not in SELECTORS.entries() and name in DETECTORS.entries():
        from dana.selectors.detector import DetectorSelector

        return DetectorSelector(spec, context=context)
    selector = SELECTORS.create(spec)
    if not isinstance(selector, Selector):
        package = type(selector).__module__.partition(".")[0]
        problem = f"{type(selector).__name__} is no subclass of dana.selectors.base.Selector"
        raise PluginError(f"selector {spec!r} of {package}: {problem}")
    if selector.context != SelectorContext():
        raise ConfigError(f"{spec!r}: context is not a parameter, the run sets it; remove it")
    return replace(selector, context=context)
