"""Finished seeds on disk beside the artifact, which a rerun of the same fine-tuning reads instead of training."""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dana.core.artifacts import MANIFEST, Draft, canonical, differing, make, read_json, read_manifest, write_json
from dana.core.errors import ArtifactError, Contradiction
from dana.core.logging import get_logger
from dana.core.seals import flaws
from dana.finetuning.results import SeedResult
from dana.train.execution import refuse_precision

log = get_logger(__name__)

RESULT = "result.json"
OUTPUTS = "probabilities.npy"


@dataclass(frozen=True)
class Seeds:
    """The finished seeds of one fine-tuning, a folder each: ``seed-0``, ``seed-1``, and so on.

    A seed is written by whichever process ran it, aside first and committed by one rename, so that a killed run
    loses only the seeds it was in.

    Attributes:
        folder: Where they lie, ``OUT-seeds``.
        depends_on: What every seed is made from: model, task, data, hyper-parameters, precision; not which seeds
            are run, so that a rerun may ask for more.
    """

    folder: Path
    depends_on: dict[str, Any]

    def place(self, seed: int) -> Path:
        """A seed's folder."""
        return self.folder / f"seed-{seed}"

    def count(self) -> int:
        """How many are finished."""
        return sum((place / MANIFEST).is_file() for place in self.folder.glob("seed-*"))

    def has(self, seed: int) -> bool:
        """Whether a seed is finished and whole; one that is damaged is removed with a warning.

        Raises:
            ArtifactError: If it is of another fine-tuning; the difference is named.
            ConfigError: If it was run in another precision.
        """
        place = self.place(seed)
        if not (place / MANIFEST).is_file():
            return False
        try:
            manifest = read_manifest(place)
            damaged = "; ".join(flaws(place, manifest["files"], digests=True))
        except ArtifactError as error:
            manifest, damaged = {}, str(error)
        if damaged:
            log.warning("%s: the seed is run again", damaged)
            shutil.rmtree(place)
            return False
        refuse_others(self.folder, manifest["depends_on"], self._depends_on(seed))
        return True

    def run(self, seed: int, train: Callable[[], SeedResult]) -> SeedResult:
        """Run a seed and commit what it gave.

        Args:
            seed: The seed.
            train: Runs it.
        """

        def write(draft: Draft) -> None:
            result = train()
            one = {"seed": seed, "epoch": result.epoch, "dev_scores": result.dev_scores, "seconds": result.seconds}
            write_json(draft.path / RESULT, one)
            np.save(draft.path / OUTPUTS, result.outputs, allow_pickle=False)

        make(self.place(seed), "seed", self._depends_on(seed), write)
        return self.read(seed)

    def read(self, seed: int) -> SeedResult:
        """What a finished seed gave."""
        outputs = np.load(self.place(seed) / OUTPUTS, allow_pickle=False)
        return SeedResult(**read_json(self.place(seed) / RESULT), outputs=outputs)

    def remove(self) -> None:
        """Forget them all."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _depends_on(self, seed: int) -> dict[str, Any]:
        return json.loads(canonical({**self.depends_on, "seed": seed}))  # as it is read back


def refuse_others(folder: Path, there: dict[str, Any], now: dict[str, Any]) -> None:
    """Refuse what another fine-tuning left.

    Args:
        folder: Where it is.
        there: What it was made from.
        now: What is asked for.

    Raises:
        Contradiction: Naming the settings that differ.
        ConfigError: If only the precision differs.
    """
    before, precision = there.get("precision"), now["precision"]
    same = {"precision": precision}
    if differences := "; ".join(differing({**there, **same}, now)):
        raise Contradiction(folder, "finetune", {**there, **same}, now, differences)
    refuse_precision(folder, before, precision)
