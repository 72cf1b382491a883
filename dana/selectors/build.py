"""Selectors from specs: a name and the context of a run to a selector, cross-fitted where it learns from background.

What learns from general units has seen them: an n-gram model gives its own sentences a low cross-entropy, a linear
model pushes its own negatives away. Where the samples are a good part of the corpus, units in a sample would look more
foreign than equal ones outside it. So the corpus is halved by a hash of each document, the selector is fitted once on
the samples of each half, and every document gets its score from the fit that has seen nothing of it.

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

BACKGROUND = "background"  # name of the sample of general units that a selector learns to tell the task from
MANY = 1000  # task units, of any number; a selector that learns from background asks for some


def half_of(units: Units, seed: int) -> np.ndarray:
    """Half of the corpus that each unit's document is in, int64 of shape (units,), 0 or 1; of plain texts, each text's.

    Args:
        units: Of a corpus, of a sample of it, or plain texts.
        seed: Root seed of the selection.
    """
    of_document = np.array([document_key(document.doc_id) for document in units.documents], dtype=np.uint64)
    nameless = np.array([not document.doc_id for document in units.documents])
    keys = np.where(nameless[units.owners], units.keys, of_document[units.owners])
    return (hash_uniform(derive_seed(seed, "selector", "half"), keys) < 0.5).astype(np.int64)


@dataclass(frozen=True)
class FittedHalves(FittedSelector):
    """Two fits of one selector.

    Attributes:
        halves: The fit on each half's samples.
        seed: Decides the halves.
    """

    halves: tuple[FittedSelector, FittedSelector]
    seed: int

    @property
    def notes(self) -> dict[str, Any]:
        """Of the first fit, for the manifest."""
        return getattr(self.halves[0], "notes", {})

    def score_units(self, units: Units) -> np.ndarray:
        """Each unit's score by the fit that has seen nothing of its document."""
        half, scores = half_of(units, self.seed), np.zeros(len(units))
        for number, fitted in enumerate(self.halves):
            rows = np.flatnonzero(half != number)
            if rows.size:
                scores[rows] = fitted.score(units.rows(rows))
        return scores

    def save(self, folder: Path) -> None:
        """Write both fits, each in a folder of its own."""
        for number, fitted in enumerate(self.halves):
            fitted.save(folder / str(number))
        write_json(folder / "selector.json", {"halves_seed": self.seed})


@dataclass(frozen=True)
class CrossFitted(Selector):
    """A selector fitted twice, on either half of the corpus; needs samples twice as large.

    Attributes:
        inner: The selector; it asks for a sample named ``background``.
    """

    inner: Selector

    version: ClassVar[int] = 1
    cross_fits: ClassVar[bool] = True

    @cached_property
    def _selector(self) -> Selector:
        return replace(self.inner, context=self.context)

    @property
    def takes(self) -> tuple[str, ...]:  # type: ignore[override]
        """What the selector uses of the run's settings."""
        return self.inner.uses

    @property
    def exemptions(self) -> dict[str, str]:
        """Checks of the conformance suite that the selector cannot pass, and why."""
        return getattr(self.inner, "exemptions", {})

    def samples(self, task_units: int) -> Mapping[str, int]:
        """The selector's, for two fits."""
        return {name: 2 * size for name, size in self._selector.samples(task_units).items()}

    def runs(self) -> Mapping[str, int]:
        """See :meth:`dana.selectors.base.Selector.runs`."""
        return self._selector.runs()

    def learn(self, task: Units, general: Mapping[str, Units], seed: int) -> FittedHalves:
        """Fit on the samples' units of each half; on all of them twice where a half lacks a sample."""
        half = {name: half_of(sample, seed) for name, sample in general.items()}
        parts = [
            {name: sample.rows(np.flatnonzero(half[name] == number)) for name, sample in general.items()}
            for number in (0, 1)
        ]
        if not all(len(sample) for part in parts for sample in part.values()):
            log.warning(
                "selector  too few general documents for two fits: units are scored by a fit that has seen them"
            )
            parts = [dict(general), dict(general)]
        first, second = (self._selector.fit(task, part, seed) for part in parts)
        return FittedHalves((first, second), seed)

    def load(self, folder: Path) -> FittedHalves:
        """See :meth:`dana.selectors.base.Selector.load`."""
        first, second = (self._selector.load(folder / str(number)) for number in (0, 1))
        return FittedHalves((first, second), read_json(folder / "selector.json")["halves_seed"])

    def identity(self) -> dict[str, Any]:
        """The selector's own, and that it is fitted on halves."""
        return {**self._selector.identity(), "cross_fitted": True, "inner_code": origin_of(self._selector)}


def create_selector(spec: str, context: SelectorContext) -> Selector:
    """The selector of a spec, in the context of a run; one that asks for a sample named ``background`` is cross-fitted.

    Args:
        spec: Of a selector; or of a detector, which stands for that detector over the run's encoder.
        context: The settings of the run.

    Raises:
        PluginError: If there is none of that name, or it is no subclass of :class:`dana.selectors.base.Selector`.
        ConfigError: If a parameter of the spec is unknown or refused.
    """
    made = plain_selector(spec, context)
    learns = not made.cross_fits and BACKGROUND in made.samples(MANY)
    return CrossFitted(made, context=context) if learns else made


def plain_selector(spec: str, context: SelectorContext) -> Selector:
    """The selector of a spec as it is, fitted once on all that it asks for; see :func:`create_selector`."""
    name = str(spec).partition(":")[0]
    if name not in SELECTORS.entries() and name in DETECTORS.entries():
        from dana.selectors.detector import DetectorSelector

        return DetectorSelector(spec, context=context)
    made = SELECTORS.create(spec)
    if not isinstance(made, Selector):
        package = type(made).__module__.partition(".")[0]
        said = f"{type(made).__name__} is no subclass of dana.selectors.base.Selector"
        raise PluginError(f"selector {spec!r} of {package}: {said}")
    if made.context != SelectorContext():
        raise ConfigError(f"{spec!r}: context is set by the run, it is no parameter of a spec")
    return replace(made, context=context)
