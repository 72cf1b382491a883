"""Contract of generators: pairs of keywords and text of one label to a writer of texts of that label from keywords."""

from collections.abc import Sequence
from typing import Any, Protocol

from dana.core.registry import Registry
from dana.studies.augmentation.keywords import Keywords

GENERATORS = Registry("dana.generators")

Pair = tuple[Keywords, str]


class FittedGenerator(Protocol):
    """Writes texts of the label that it was fitted to."""

    def generate(self, keywords: Sequence[Keywords], seeds: Sequence[int]) -> list[str]:
        """A text for each keyword sequence; it depends on no other one's keywords or seed.

        Args:
            keywords: What each text is to be about; an empty sequence leaves it to the generator.
            seeds: One a text: the same keywords and seed give the same text.
        """
        ...


class Generator(Protocol):
    """A generator: a frozen dataclass of settings, registered under the entry-point group ``dana.generators``."""

    def identity(self) -> dict[str, Any]:
        """Plain values for a fingerprint: all that decides a text besides pairs, keywords and seeds.

        Raises:
            DanaError: If something that it needs, such as a checkpoint, is not there or not of the right kind.
        """
        ...

    def fit(self, pairs: Sequence[Pair], seed: int) -> FittedGenerator:
        """Learn to write texts of one label.

        Args:
            pairs: Each text of the label with its keywords, see
                :func:`dana.studies.augmentation.keywords.extract_keywords`; at least one.
            seed: The same pairs and seed give the same generator.
        """
        ...
