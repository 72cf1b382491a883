"""Selection by chance: the paper's Random baseline (D-22), over the same segments as any other selector."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dana.artifacts import read_json, write_json
from dana.rng import derive_seed, hash_uniform
from dana.selectors.base import Units


@dataclass(frozen=True)
class RandomSelector:
    """A uniform score from a hash of the unit's key, so it does not depend on order or batch."""

    def samples(self, task_units: int) -> Mapping[str, int]:
        """None."""
        return {}

    def fit(self, task: Sequence[str], general: Mapping[str, Sequence[str]], seed: int) -> "FittedRandom":
        """Nothing is learned; the seed decides."""
        return FittedRandom(derive_seed(seed, "selector", "random"))

    def load(self, folder: Path) -> "FittedRandom":
        """See :class:`dana.selectors.base.Selector`."""
        return FittedRandom(read_json(folder / "selector.json")["seed"])

    def identity(self) -> dict[str, Any]:
        """See :class:`dana.selectors.base.Selector`."""
        return {"selector": "random"}


@dataclass(frozen=True)
class FittedRandom:
    """A seed."""

    seed: int

    def score(self, units: Units) -> np.ndarray:
        """Uniform in [0, 1)."""
        return hash_uniform(self.seed, units.keys)

    def save(self, folder: Path) -> None:
        """Write the seed."""
        write_json(folder / "selector.json", {"selector": "random", "seed": self.seed})
