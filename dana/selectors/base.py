"""Define selectors, which are fitted on target and pool text and score units.

Higher = more foreign to the target text. A plug-in subclasses :class:`Selector` and
:class:`FittedSelector` and is named by an entry point in the group ``dana.selectors``
(docs/extend/selector.md).
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa

from dana.core import tensors
from dana.core.config import require
from dana.core.errors import DataError
from dana.core.logging import get_logger
from dana.core.registry import plugin_errors
from dana.core.rng import derive_seed
from dana.core.schemas import SCORES
from dana.corpus.text import distinct_rows, has_words, normalise
from dana.corpus.unit_stream import Units, draw
from dana.encoders.base import Encoder, encode, encoder_identity
from dana.encoders.cache import DTYPES, create_encoder
from dana.encoders.geometry import parse_geometry

if TYPE_CHECKING:
    from torch import Tensor

log = get_logger(__name__)

FILE = "selector"


@dataclass(frozen=True)
class SelectorContext:
    """Settings of a run that all selectors share, and its encoder, loaded on first use.

    Attributes:
        detector: Detector spec.
        encoder: Encoder spec.
        geometry: Geometry spec (:mod:`dana.encoders.geometry`).
        pool_share: Pool units added to a detector's fit, as a share of the target's units.
        store: Folder of the cache of embeddings, or None; empty rounds as a cache does, without
            one.
        store_dtype: Precision of the cache, ``float16`` or ``int8``.
    """

    detector: str = "knn"
    encoder: str = "static"
    geometry: str = "center+l2"
    pool_share: float = 0.0
    store: str | None = None
    store_dtype: str = "float16"

    def __post_init__(self) -> None:
        parse_geometry(self.geometry)
        require(0 <= self.pool_share <= 1, "pool_share", self.pool_share, "in [0, 1]")
        allowed = f"one of {', '.join(DTYPES)}"
        require(self.store_dtype in DTYPES, "store_dtype", self.store_dtype, allowed)

    @cached_property
    def _encoder(self) -> Encoder:
        return create_encoder(self.encoder, self.store, self.store_dtype)

    def embed(self, texts: Sequence[str]) -> "Tensor":
        """Encode texts as float32 of shape (texts, dims), on the encoder's device."""
        return encode(self._encoder, texts, self.encoder)

    def encoder_identity(self) -> dict[str, Any]:
        """Return all that decides the vectors; see :func:`dana.encoders.base.encoder_identity`."""
        return encoder_identity(self._encoder)


class _Remembering:
    """Encoder with a cache in memory: each text is encoded once."""

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder
        self._vectors: dict[str, Tensor] = {}

    def identity(self) -> dict[str, Any]:
        return encoder_identity(self.encoder)

    def encode(self, texts: Sequence[str]) -> "Tensor":
        import torch

        new = list(dict.fromkeys(text for text in texts if text not in self._vectors))
        if new:
            self._vectors.update(zip(new, self.encoder.encode(new), strict=True))
        if not texts:
            return self.encoder.encode(texts)
        return torch.stack([self._vectors[text] for text in texts])


@dataclass(frozen=True)
class RememberedContext(SelectorContext):
    """Context with a cache in memory, for several fits and selectors that embed the same texts.

    Attributes:
        encoders: Caching encoder by spec and precision, shared by contexts derived from one
            another.
    """

    encoders: dict[tuple[str, str | None], _Remembering] = field(
        default_factory=dict, compare=False
    )

    @classmethod
    def from_context(cls, context: SelectorContext) -> "RememberedContext":
        """Return the context with a cache; one that has a cache is returned unchanged."""
        if isinstance(context, cls):
            return context
        settings = {part.name: getattr(context, part.name) for part in fields(SelectorContext)}
        return cls(**settings)

    @cached_property
    def _encoder(self) -> Encoder:
        dtype = None if self.store is None else self.store_dtype
        key = (self.encoder, dtype)
        if key not in self.encoders:
            encoder = create_encoder(self.encoder, self.store, self.store_dtype)
            self.encoders[key] = _Remembering(encoder)
        return self.encoders[key]


class FittedSelector(ABC):
    """A selector after its fit, which scores units.

    `save` covers frozen dataclasses of tensors, numbers, text and lists; others override it.
    """

    def score(self, units: Units | Sequence[str]) -> np.ndarray:
        """Score units.

        Args:
            units: Units of a pool, or plain texts.

        Returns:
            Anomaly scores, float64 of shape (units,), higher = more foreign to the target text.
        """
        return self.score_units(as_units(units, "units"))

    @abstractmethod
    def score_units(self, units: Units) -> np.ndarray:
        """Score units for :meth:`score`; a unit's score must not depend on others of the batch."""

    def save(self, folder: Path) -> None:
        """Write ``selector.safetensors`` and ``selector.json``."""
        tensors.save_tensors(self, folder, FILE)


@dataclass(frozen=True)
class Selector(ABC):
    """Unfitted selector: a frozen dataclass of parameters.

    Subclasses define `learn` and `fitted_type`.

    Attributes:
        context: Settings of the run, set by :func:`dana.selectors.build.create_selector`.
        takes: Settings of :class:`SelectorContext` that decide the scores. A parameter of the
            selector with the same name overrides the run's setting unless it is None.
        cross_fits: True if the selector already scores each document with a fit that excluded it;
            otherwise :mod:`dana.selectors.build` does so.
        fitted_type: Class that `learn` returns, for loading.
    """

    context: SelectorContext = field(default=SelectorContext(), kw_only=True)
    takes: ClassVar[tuple[str, ...]] = ()
    cross_fits: ClassVar[bool] = False
    fitted_type: ClassVar[type]

    @property
    def uses(self) -> tuple[str, ...]:
        """Settings of the run that decide the scores: of `takes`, those no parameter overrides."""
        return tuple(name for name in self.takes if getattr(self, name, None) is None)

    @cached_property
    def settings(self) -> SelectorContext:
        """The context with the selector's parameters in place of the run's settings."""
        parameters = {name: getattr(self, name) for name in self.takes if name not in self.uses}
        if not parameters:
            return self.context
        return replace(self.context, **parameters)

    def samples(self, target_units: int) -> Mapping[str, int]:
        """Return the size of each pool sample that `learn` needs, by name.

        Samples are disjoint and drawn in this order.
        """
        return {}

    def runs(self) -> Mapping[str, int]:
        """Return the run length of each sample that is drawn as runs of consecutive units.

        Other samples are drawn as single units.
        """
        return {}

    def fit(
        self,
        target: Units | Iterable[str],
        pool: Units | Iterable[str] | Mapping[str, Units | Sequence[str]] = (),
        seed: int = 0,
    ) -> Any:
        """Fit the selector.

        Args:
            target: The target's units, or their texts. Of texts with the same words only the first
                is used, as ``dana score`` does.
            pool: Pool units or texts to draw samples from; or the samples by name.
            seed: Root seed.

        Returns:
            An object of `fitted_type`.

        Raises:
            DataError: If an item is not text, or a sample is missing or empty.
        """
        units = as_units(target, "target")
        distinct = distinct_rows(units.texts)
        if distinct.size < len(units):
            log.info(
                "fit       %s of %s target texts repeat the words of others and are dropped",
                f"{len(units) - distinct.size:,}",
                f"{len(units):,}",
            )
            units = units.rows(distinct)
        sizes = self.samples(len(units))
        if isinstance(pool, Mapping):
            samples = {name: as_units(sample, f"pool[{name!r}]") for name, sample in pool.items()}
        else:
            requests = {}
            for name, size in sizes.items():
                requests[name] = (derive_seed(seed, "general", name), size)
            samples = draw([as_units(pool, "pool")], requests, self.runs())
        _check_samples(sizes, samples)
        return self.learn(units, samples, seed)

    @abstractmethod
    def learn(self, target: Units, pool: Mapping[str, Units], seed: int) -> FittedSelector:
        """Fit for :meth:`fit`.

        Args:
            target: The target's units, distinct.
            pool: The samples by name, smaller than requested if the pool is small.
            seed: Root seed.
        """

    def load(self, folder: Path) -> Any:
        """Load a selector that :meth:`FittedSelector.save` wrote."""
        return tensors.load_tensors(self.fitted_type, folder, FILE)

    def identity(self) -> dict[str, Any]:
        """Return all that decides the scores besides texts, seed and code.

        These are the parameters and the settings of the run.
        """
        parameters = {part.name for part in fields(self)} - {"context"}
        values = {name: getattr(self, name) for name in sorted(parameters - set(self.takes))}
        values |= {name: getattr(self.settings, name) for name in self.takes}
        if "encoder" in self.takes:
            values["encoder"] = self.settings.encoder_identity()
        return {"selector": type(self).__name__, **values}


def _check_samples(names: Iterable[str], samples: Mapping[str, Units]) -> None:
    """Check that there is each sample that a selector needs, and that it has a unit."""
    for name in names:
        if name not in samples:
            raise DataError(f"pool: needs a sample {name!r}; has {', '.join(samples) or 'none'}")
        if not len(samples[name]):
            raise DataError(
                f"pool: too few units: nothing is left for the {name} sample; give more text"
            )


def as_units(units: Units | Iterable[str], name: str) -> Units:
    """Convert a list of texts, cleaned, to units of one unnamed document.

    Units are returned unchanged.

    Raises:
        DataError: If it is a single text, a table or not a list, or an item is not text.
    """
    if isinstance(units, Units):
        return units
    is_table = isinstance(units, Mapping) or hasattr(units, "columns")
    if isinstance(units, str) or is_table or not isinstance(units, Iterable):
        raise DataError(f"{name} is a {type(units).__name__}; give a list of texts")
    texts = []
    for row, text in enumerate(units):
        if not isinstance(text, str):
            raise DataError(f"{name}[{row}] is a {type(text).__name__}, not text")
        texts.append(normalise(text))
    return Units.of_texts(texts)


def score_table(units: Units, model: FittedSelector, min_words: int = 0) -> pa.Table:
    """Score units; return them with their scores (:data:`dana.core.schemas.SCORES`).

    Args:
        units: The units.
        model: A fitted selector.
        min_words: A unit with fewer words is marked as short. It has the selector's own score until
            :func:`fill_short` knows the whole table.

    Raises:
        PluginError: If the selector does not return one finite number per unit.
    """
    with plugin_errors("selector", type(model).__qualname__, model):
        scores = checked_scores(model.score(units), len(units))
    short = pa.array([not has_words(text, min_words) for text in units.texts], pa.bool_())
    return pa.Table.from_arrays([*units.key_columns(), pa.array(scores), short], schema=SCORES)


def largest_score(tables: Iterable[pa.Table]) -> float | None:
    """Find the largest score of the units that are not short; None if all are.

    Args:
        tables: Columns ``score`` and ``short``.
    """
    largest: float | None = None
    for table in tables:
        is_short = table["short"].to_numpy()
        scores = table["score"].to_numpy()[~is_short]
        if scores.size and (largest is None or scores.max() > largest):
            largest = float(scores.max())
    return largest


def fill_short(table: pa.Table, largest: float | None) -> pa.Table:
    """Give short units the largest score, as they say nothing about the target text.

    Args:
        table: Scores, :data:`dana.core.schemas.SCORES`.
        largest: From :func:`largest_score`; None leaves the scores.
    """
    short = table["short"].to_numpy()
    if largest is None or not short.any():
        return table
    scores = np.where(short, largest, table["score"].to_numpy())
    return table.set_column(table.schema.names.index("score"), SCORES.field("score"), [scores])


def checked_scores(scores: Any, count: int) -> np.ndarray:
    """Check the scores of a component and convert them to float64.

    Raises:
        ValueError: If there is not one finite number per unit.
    """
    numbers = np.asarray(scores, dtype=np.float64)
    if numbers.shape != (count,):
        raise ValueError(f"expected scores of shape ({count},), got {numbers.shape}")
    if not np.isfinite(numbers).all():
        row = int(np.flatnonzero(~np.isfinite(numbers))[0])
        raise ValueError(f"the score of unit {row} of {count} is {numbers[row]}, not finite")
    return numbers
