"""Remembered vectors: texts to vectors kept in memory, for fits and selectors that embed the same texts again."""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import TYPE_CHECKING

from dana.encoders.base import Encoder
from dana.encoders.cache import create_encoder
from dana.selectors.base import SelectorContext

if TYPE_CHECKING:
    from torch import Tensor


class Remembered:
    """One encoder, loaded once for all contexts that share a memory, and the vectors of the texts it was asked for."""

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder
        self.forget()

    def forget(self) -> None:
        """Forget all vectors."""
        import torch

        self.places: dict[str, int] = {}  # text to its row
        self.vectors = torch.empty(0)  # of shape (texts, dims)

    def add(self, texts: Sequence[str], vectors: "Tensor") -> None:
        """Keep the vectors of distinct texts that are not there yet."""
        import torch

        self.vectors = torch.cat([self.vectors, vectors]) if self.places else vectors
        self.places.update(zip(texts, range(len(self.places), len(self.places) + len(texts)), strict=True))


@dataclass(frozen=True)
class Memory:
    """What contexts share: a part an encoder and rounding, wherever vectors are stored besides."""

    parts: dict[tuple[str, str | None], Remembered] = field(default_factory=dict)

    def forget(self) -> None:
        """Forget all vectors; encoders stay."""
        for part in self.parts.values():
            part.forget()


@dataclass(frozen=True)
class RememberedContext(SelectorContext):
    """A context in which each text is encoded once, until its memory forgets.

    Attributes:
        memory: May be that of other contexts, too, for selectors of several tasks over the same text.
    """

    memory: Memory = field(default_factory=Memory, compare=False)

    @classmethod
    def of(cls, context: SelectorContext, memory: Memory | None = None) -> "RememberedContext":
        """The same settings with a memory, a new one where none is given; one that has a memory keeps it."""
        if isinstance(context, cls) and memory is None:
            return context
        settings = {part.name: getattr(context, part.name) for part in fields(SelectorContext)}
        return cls(**settings, memory=memory or Memory())

    @cached_property
    def _part(self) -> Remembered:
        key = self.encoder, self.store_dtype if self.store else None
        if key not in self.memory.parts:
            self.memory.parts[key] = Remembered(create_encoder(self.encoder, self.store, self.store_dtype))
        return self.memory.parts[key]

    @cached_property
    def _encoder(self) -> Encoder:
        return self._part.encoder

    def embed(self, texts: Sequence[str]) -> "Tensor":
        """Vectors of texts, float32 of shape (texts, dims)."""
        if not texts:
            return super().embed(texts)
        places = self._part.places
        if new := list(dict.fromkeys(text for text in texts if text not in places)):
            self._part.add(new, super().embed(new))
        return self._part.vectors[[self._part.places[text] for text in texts]]
