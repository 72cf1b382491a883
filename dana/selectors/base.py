"""Selectors: task texts and general samples in, a fitted scorer of units out; higher = more foreign to the task.

A selector of your own subclasses :class:`Selector`, what it fits to :class:`FittedSelector`, and one entry point in the
group ``dana.selectors`` names it (docs/extend/selector.md).
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from dana.core import tensors
from dana.core.config import require
from dana.core.errors import DataError
from dana.core.rng import derive_seed
from dana.corpus.unit_stream import Units, draw
from dana.encoders.base import Encoder, encode, encoder_identity
from dana.encoders.cache import DTYPES, create_encoder
from dana.encoders.geometry import parse_geometry

if TYPE_CHECKING:
    from torch import Tensor

FILE = "selector"


@dataclass(frozen=True)
class SelectorContext:
    """The settings of a run that selectors share, and its encoder, loaded on first use.

    Attributes:
        detector: Detector spec.
        encoder: Encoder spec.
        geometry: Geometry spec (:mod:`dana.encoders.geometry`).
        general_share: General units that a detector is fitted on along with the task, as a share of the task's units.
        store: Folder of an embedding store to encode through, or None; empty to round like a store and keep nothing.
        store_dtype: How the store rounds, ``float16`` or ``int8``.
    """

    detector: str = "knn"
    encoder: str = "minilm"
    geometry: str = "center+l2"
    general_share: float = 0.0
    store: str | None = None
    store_dtype: str = "float16"

    def __post_init__(self) -> None:
        parse_geometry(self.geometry)
        require(0 <= self.general_share <= 1, "general_share", self.general_share, "in [0, 1]")
        require(self.store_dtype in DTYPES, "store_dtype", self.store_dtype, f"one of {', '.join(DTYPES)}")

    @cached_property
    def _encoder(self) -> Encoder:
        return create_encoder(self.encoder, self.store, self.store_dtype)

    def embed(self, texts: Sequence[str]) -> "Tensor":
        """Vectors of texts, float32 of shape (texts, dims), on the encoder's device."""
        return encode(self._encoder, texts, self.encoder)

    def encoder_identity(self) -> dict[str, Any]:
        """All that decides the vectors; see :func:`dana.encoders.base.encoder_identity`."""
        return encoder_identity(self._encoder)


class _Remembering:
    """An encoder, and the vectors of all texts that it was asked for: each is encoded once."""

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder
        self._vectors: dict[str, Tensor] = {}

    def identity(self) -> dict[str, Any]:
        return encoder_identity(self.encoder)

    def encode(self, texts: Sequence[str]) -> "Tensor":
        import torch

        if new := list(dict.fromkeys(text for text in texts if text not in self._vectors)):
            self._vectors.update(zip(new, self.encoder.encode(new), strict=True))
        return torch.stack([self._vectors[text] for text in texts]) if texts else self.encoder.encode(texts)


@dataclass(frozen=True)
class RememberedContext(SelectorContext):
    """A context in which each text is encoded once, for fits and selectors that embed the same texts again.

    Attributes:
        encoders: What contexts made of one another share: an encoder and its vectors by spec and rounding.
    """

    encoders: dict[tuple[str, str | None], _Remembering] = field(default_factory=dict, compare=False)

    @classmethod
    def of(cls, context: SelectorContext) -> "RememberedContext":
        """The same settings with a memory; one that has a memory keeps it."""
        if isinstance(context, cls):
            return context
        return cls(**{part.name: getattr(context, part.name) for part in fields(SelectorContext)})

    @cached_property
    def _encoder(self) -> Encoder:
        key = self.encoder, None if self.store is None else self.store_dtype
        if key not in self.encoders:
            self.encoders[key] = _Remembering(create_encoder(self.encoder, self.store, self.store_dtype))
        return self.encoders[key]


class FittedSelector(ABC):
    """What a selector learned. A frozen dataclass of tensors, numbers, text and lists needs no other `save`."""

    def score(self, units: Units | Sequence[str]) -> np.ndarray:
        """Anomaly scores, float64 of shape (units,), higher = more foreign to the task.

        Args:
            units: Units of a corpus, or plain texts.
        """
        return self.score_units(as_units(units, "units"))

    @abstractmethod
    def score_units(self, units: Units) -> np.ndarray:
        """See :meth:`score`. A unit's score must not depend on the others of the batch."""

    def save(self, folder: Path) -> None:
        """Write ``selector.safetensors`` and ``selector.json``."""
        tensors.save_tensors(self, folder, FILE)


@dataclass(frozen=True)
class Selector(ABC):
    """A way of choosing text: a frozen dataclass of parameters; subclasses define `learn` and `fitted_type`.

    Attributes:
        context: The settings of the run; :func:`dana.selectors.build.create_selector` sets them.
        takes: Names of the settings of :class:`SelectorContext` that decide the scores. A parameter of the selector
            with such a name and a value other than None goes before the run's.
        cross_fits: Whether it sees to it that no document is scored by a fit that has seen it
            (:mod:`dana.selectors.build`), so that nobody else need.
        fitted_type: Class of what `learn` returns, for loading.
    """

    context: SelectorContext = field(default=SelectorContext(), kw_only=True)
    takes: ClassVar[tuple[str, ...]] = ()
    cross_fits: ClassVar[bool] = False
    fitted_type: ClassVar[type]

    @property
    def uses(self) -> tuple[str, ...]:
        """The settings of the run that decide the scores: all that it takes and that its own parameters do not give."""
        return tuple(name for name in self.takes if getattr(self, name, None) is None)

    @cached_property
    def settings(self) -> SelectorContext:
        """The context, with the selector's own parameters before the run's."""
        own = {name: getattr(self, name) for name in self.takes if name not in self.uses}
        return replace(self.context, **own) if own else self.context

    def samples(self, task_units: int) -> Mapping[str, int]:
        """Named samples of general units that `learn` wants, and their sizes; disjoint, the first drawn first."""
        return {}

    def runs(self) -> Mapping[str, int]:
        """Samples that are wanted in whole runs of consecutive units of a document, and the units of a run."""
        return {}

    def fit(
        self,
        task: Units | Iterable[str],
        general: Units | Iterable[str] | Mapping[str, Units | Sequence[str]] = (),
        seed: int = 0,
    ) -> Any:
        """Learn what the task looks like.

        Args:
            task: The task's units, or their texts.
            general: General units or their texts, of which the samples are drawn; or the samples by name.
            seed: Root seed.

        Returns:
            An object of `fitted_type`.

        Raises:
            DataError: If a text is none, or a sample that the selector wants is missing or empty.
        """
        units = as_units(task, "task")
        wanted = self.samples(len(units))
        if isinstance(general, Mapping):
            samples = {name: as_units(sample, f"general[{name!r}]") for name, sample in general.items()}
        else:
            seeded = {name: (derive_seed(seed, "general", name), size) for name, size in wanted.items()}
            samples = draw([as_units(general, "general")], seeded, self.runs())
        for name in wanted:
            if name not in samples:
                raise DataError(f"general: has no sample {name!r}; it has {', '.join(samples) or 'none'}")
            if not len(samples[name]):
                raise DataError(f"the general corpus is too small: nothing is left for the {name} sample")
        return self.learn(units, samples, seed)

    @abstractmethod
    def learn(self, task: Units, general: Mapping[str, Units], seed: int) -> FittedSelector:
        """See :meth:`fit`; `general` holds the samples asked for, by name, smaller where the corpus is small."""

    def load(self, folder: Path) -> Any:
        """What `fit` returned and :meth:`FittedSelector.save` wrote."""
        return tensors.load_tensors(self.fitted_type, folder, FILE)

    def identity(self) -> dict[str, Any]:
        """All that decides the scores besides texts, seed and code: parameters, and the settings that it takes."""
        parameters = {part.name for part in fields(self)} - {"context"}
        values = {name: getattr(self, name) for name in sorted(parameters - set(self.takes))}
        values |= {name: getattr(self.settings, name) for name in self.takes}
        encoder = {"encoder": self.settings.encoder_identity()} if "encoder" in self.takes else {}
        return {"selector": type(self).__name__, **values, **encoder}


def as_units(units: Units | Iterable[str], name: str) -> Units:
    """Units as they are; texts as the units of one nameless document.

    Raises:
        DataError: If it is one text, a table or no list at all, or some item is not text.
    """
    if isinstance(units, Units):
        return units
    if not isinstance(units, Iterable) or isinstance(units, str | Mapping) or hasattr(units, "columns"):  # of a table
        raise DataError(f"{name} is a {type(units).__name__}; give a list of texts")
    texts = list(units)
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            raise DataError(f"{name}[{row}] is a {type(text).__name__}, not text")
    return Units.of_texts(texts)


def checked_scores(scores: Any, count: int) -> np.ndarray:
    """Scores of a component as float64; inside :func:`dana.core.registry.plugin_errors`, which names the component.

    Raises:
        ValueError: If they are other than a finite number a unit.
    """
    numbers = np.asarray(scores, dtype=np.float64)
    if numbers.shape != (count,):
        raise ValueError(f"scores of shape {numbers.shape} for {count} units")
    if not np.isfinite(numbers).all():
        row = int(np.flatnonzero(~np.isfinite(numbers))[0])
        raise ValueError(f"the score of unit {row} of {count} is {numbers[row]}")
    return numbers
