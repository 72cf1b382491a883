"""Settings of a selection: how text is cut into units, embedded and placed."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dana.core.config import require
from dana.core.registry import ENCODERS
from dana.core.storage import is_url
from dana.corpus.units import Splitter, has_rules, parse_units

if TYPE_CHECKING:
    from dana.selectors.base import SelectorContext


@dataclass(frozen=True)
class Selection:
    """How text is cut, embedded and placed.

    Attributes:
        units: ``sentence`` or ``window:N`` word-pieces of the encoder's tokenizer.
        language: ISO 639-1 code of the text, for where its sentences end.
        encoder: Encoder spec, for example ``minilm`` or ``transformer:bert-base-uncased``.
        geometry: ``none``, ``l2``, ``center+l2`` or ``whiten:K`` (docs/design.md, Geometry).
        max_task_units: Fit on at most so many task units, drawn at random; fitting kNN, LOF and one-class SVM
            grows with them, and beyond some thousand the scores hardly change.
        general_share: General units that a detector is fitted on along with the task, as a share of its units: none by
            default, a tenth in Algorithm 1 of the paper.
        seed: Root seed of every split, sample and detector.
        store: Folder of an embedding store: what was encoded once, for any task or corpus, is looked up. A run
            takes OUT/embeddings where none is named, and no store for ``none``.
        store_dtype: ``float16`` or ``int8``: how the store rounds.
    """

    units: str = "sentence"
    language: str = "en"
    encoder: str = "minilm"
    geometry: str = "center+l2"
    max_task_units: int = 4000
    general_share: float = 0.0
    seed: int = 0
    store: str | None = None
    store_dtype: str = "float16"

    def __post_init__(self) -> None:
        local = not is_url(self.store or "") and not Path(self.store or "").is_file()
        require(local, "store", self.store, "a local folder, or a place for a new one")
        require(self.max_task_units >= 1, "max_task_units", self.max_task_units, "at least 1")
        self.context("")  # checks what selectors share
        parse_units(self.units)
        has_rules(self.language)

    def identity(self) -> dict[str, Any]:
        """Plain values for a fingerprint; the encoder is added by whoever loads it. Where a store is does not count."""
        left_out = {"store"} if self.store else {"store", "store_dtype"}
        if parse_units(self.units).needs_tokenizer:
            left_out.add("language")  # windows end anywhere
        return {key: value for key, value in asdict(self).items() if key not in left_out}

    def cut(self) -> dict[str, Any]:
        """The part of :meth:`identity` that decides which units there are; a selector's own identity has the rest."""
        names = {"units", "language", "max_task_units", "seed"}
        if parse_units(self.units).needs_tokenizer:
            names |= {"encoder"}
        return {key: value for key, value in self.identity().items() if key in names}

    def context(self, detector: str) -> "SelectorContext":
        """What selectors share; `detector` is a spec."""
        from dana.selectors.base import SelectorContext

        shared = (self.encoder, self.geometry, self.general_share, self.store, self.store_dtype)
        return SelectorContext(detector, *shared)

    def splitter(self) -> Splitter:
        """Text to character spans of its units. Windows need the encoder's tokenizer."""
        spec = parse_units(self.units)
        tokenizer = getattr(ENCODERS.create(self.encoder), "tokenizer", None) if spec.needs_tokenizer else None
        return spec.splitter(tokenizer, self.language)
