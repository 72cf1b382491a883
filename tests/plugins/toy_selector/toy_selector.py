"""Vocabulary selector: a unit's score is the share of its words that no target unit has."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dana.selectors.base import FittedSelector, Selector


@dataclass(frozen=True)
class FittedVocabulary(FittedSelector):
    """The target's words, sorted."""

    words: list[str]

    def score_units(self, units):
        """Share of unknown words, in [0, 1]; higher = more foreign."""
        known = set(self.words)
        return np.array(
            [
                np.mean([word not in known for word in text.split()] or [True])
                for text in units.texts
            ]
        )


@dataclass(frozen=True)
class Vocabulary(Selector):
    """Share of a unit's words that fewer than `least` target units have; higher = more foreign."""

    least: int = 1
    fitted_type: ClassVar[type] = FittedVocabulary

    def learn(self, target, pool, seed):
        """Count in how many target units each word stands."""
        words, counts = np.unique(
            [word for text in target.texts for word in set(text.split())], return_counts=True
        )
        return FittedVocabulary(words[counts >= self.least].tolist())
