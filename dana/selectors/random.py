"""Random selector: a uniform score per unit by a hash of seed and unit.

It is the baseline Random of DANA, Table 4.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dana.core.rng import derive_seed, hash_uniform
from dana.corpus.unit_stream import Units
from dana.selectors.base import FittedSelector, Selector


@dataclass(frozen=True)
class FittedRandom(FittedSelector):
    """Seed of the hash."""

    seed: int
    notes: ClassVar[dict[str, bool]] = {"by_chance": True}

    def score_units(self, units: Units) -> np.ndarray:
        """Draw scores uniformly from [0, 1), independent of order and batch."""
        return hash_uniform(self.seed, units.keys)


@dataclass(frozen=True)
class RandomSelector(Selector):
    """Uniform score in [0, 1) by a hash of the seed and the unit; nothing is learned."""

    version: ClassVar[int] = 1
    fitted_type: ClassVar[type] = FittedRandom
    exemptions: ClassVar[dict[str, str]] = {"target_text_scores_lower": "scores are random numbers"}

    def learn(self, target: Units, pool: Mapping[str, Units], seed: int) -> FittedRandom:
        """Derive the seed of the hash."""
        return FittedRandom(derive_seed(seed, "selector", "random"))
