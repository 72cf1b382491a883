"""What assigning stored vectors to clusters costs: seconds for 970,843 units, 384 dims, 50 components, 15 clusters.

    OMP_NUM_THREADS=1 python benchmarks/clusters.py [UNITS]

Made-up sentences and vectors of 15 clouds are put into an embedding store in half precision, and a mixture is fitted on
10,000 of them; none of that is timed. Timed is what `dana clusters` does to a unit besides reading its document: look
the sentence up in the store, unpack, centre, normalise, project, and compute cluster, responsibility and log density,
in batches of 8,192; by one process, and by two that share the units. ``assign`` is the part after the store.
Seconds of processor time say what two cores of their own would take; wall time is as long as the machine is busy.
"""

import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dana.encoders.cache import StoredEncoder
from dana.studies.clusters.model import FittedClusters, fit_clusters
from dana.studies.clusters.settings import ClusterSettings

UNITS, BATCH, DIMS, CLUSTERS, FIT = 970_843, 8192, 384, 15, 10_000


@dataclass(frozen=True)
class Clouds:
    """Stands for an encoder: points of 15 clouds, whatever the texts are."""

    def identity(self) -> dict[str, Any]:
        """The same in every process, whatever the module is called there."""
        return {"encoder": "clouds", "code": "of this benchmark"}

    def encode(self, texts: Sequence[str]) -> Tensor:
        """Seeded by the first text."""
        if not FILLING:
            raise SystemExit(f"{len(texts)} texts are not in the store")
        draw = torch.Generator().manual_seed(int(texts[0].split()[1]))
        centres = 2 * torch.randn(CLUSTERS, DIMS, generator=torch.Generator().manual_seed(0))
        own = torch.randint(CLUSTERS, (len(texts),), generator=draw)
        return centres[own] + torch.randn(len(texts), DIMS, generator=draw)


FILLING = False  # in the processes that are timed


def sentences(first: int, end: int) -> list[str]:
    """Distinct made-up sentences of 60 characters or so."""
    return [f"Sentence {number} stands for one of a corpus that nobody wrote." for number in range(first, end)]


def fill(store: Path, units: int) -> None:
    """Encode everything once."""
    global FILLING
    FILLING = True
    encoder = StoredEncoder(Clouds(), store)
    for first in range(0, units, BATCH):
        encoder.encode(sentences(first, min(first + BATCH, units)))
    encoder.close()
    FILLING = False


def assign(folder: Path, first: int, end: int) -> tuple[float, float]:
    """Processor seconds of all, and of the part after the store."""
    fitted, encoder = FittedClusters.load(folder / "model"), StoredEncoder(Clouds(), folder / "store")
    torch.set_num_threads(1)
    fitted.assign(encoder.encode(sentences(first, first + 1)))  # opens the store
    began, after = time.process_time(), 0.0
    for start in range(first, end, BATCH):
        vectors = encoder.encode(sentences(start, min(start + BATCH, end)))
        before = time.process_time()
        fitted.assign(vectors)
        after += time.process_time() - before
    return time.process_time() - began, after


def main() -> None:
    """Print seconds of one process and of two."""
    units = int(sys.argv[1]) if len(sys.argv) > 1 else UNITS
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        fill(folder / "store", units)
        sample = StoredEncoder(Clouds(), folder / "store").encode(sentences(0, min(FIT, units)))
        fitted, _ = fit_clusters(sample, "center+l2", ClusterSettings(k=[CLUSTERS], seeds=1), 0)
        fitted.save(folder / "model")
        for processes in (1, 2):
            bounds = [units * part // processes for part in range(processes + 1)]
            began = time.monotonic()
            with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
                parts = list(pool.map(assign, [folder] * processes, bounds[:-1], bounds[1:]))
            wall = time.monotonic() - began
            used, after = max(part[0] for part in parts), max(part[1] for part in parts)
            print(
                f"{units:,} units, processes: {processes}; processor seconds of the slowest {used:.1f}, "
                f"after the store {after:.1f}; wall {wall:.1f}, start of the processes included",
                flush=True,
            )


if __name__ == "__main__":
    main()
