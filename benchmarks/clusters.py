"""Time the assignment of cached vectors to clusters: 970,843 units, 384 dims, 50 components, 15 clusters.

    OMP_NUM_THREADS=1 python benchmarks/clusters.py [UNITS]

Synthetic sentences and vectors of 15 clouds are written to an embedding cache in half precision,
and a mixture is fitted on 10,000 of them; this is not timed. Timed is what `dana studies clusters`
does with a unit after reading its document: look the sentence up in the cache, unpack, centre,
normalise, project, and compute cluster, responsibility and log density, in batches of 8,192, with
one process and with two that share the units. ``after the store`` is the time without the look-up.
Processor time is what idle cores would need; wall time depends on the load of the machine.
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
    """Encoder that ignores the texts and returns points of 15 clouds."""

    def identity(self) -> dict[str, Any]:
        """Return a constant, as the module has another name in each process."""
        return {"encoder": "clouds", "code": "of this benchmark"}

    def encode(self, texts: Sequence[str]) -> Tensor:
        """Draw points from the clouds, seeded by the first text."""
        if not FILLING:
            raise SystemExit(f"{len(texts)} texts are not in the store")
        draw = torch.Generator().manual_seed(int(texts[0].split()[1]))
        centres = 2 * torch.randn(CLUSTERS, DIMS, generator=torch.Generator().manual_seed(0))
        clouds = torch.randint(CLUSTERS, (len(texts),), generator=draw)
        return centres[clouds] + torch.randn(len(texts), DIMS, generator=draw)


FILLING = False  # stays False in the processes that are timed


def sentences(first: int, end: int) -> list[str]:
    """Build distinct sentences of about 60 characters."""
    return [
        f"Sentence {number} stands for one of a pool that nobody wrote."
        for number in range(first, end)
    ]


def fill(store: Path, units: int) -> None:
    """Encode all sentences into the cache."""
    global FILLING
    FILLING = True
    encoder = StoredEncoder(Clouds(), store)
    for first in range(0, units, BATCH):
        encoder.encode(sentences(first, min(first + BATCH, units)))
    FILLING = False


def assign(folder: Path, first: int, end: int) -> tuple[float, float]:
    """Assign units `first` to `end`; return processor seconds in total and without the look-up in the cache."""
    model, encoder = (
        FittedClusters.load(folder / "model"),
        StoredEncoder(Clouds(), folder / "store"),
    )
    torch.set_num_threads(1)
    model.assign(encoder.encode(sentences(first, first + 1)))  # opens the store
    began, after = time.process_time(), 0.0
    for start in range(first, end, BATCH):
        vectors = encoder.encode(sentences(start, min(start + BATCH, end)))
        before = time.process_time()
        model.assign(vectors)
        after += time.process_time() - before
    return time.process_time() - began, after


def main() -> None:
    """Fill the cache, fit the mixture, and print the seconds of one process and of two."""
    units = int(sys.argv[1]) if len(sys.argv) > 1 else UNITS
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        fill(folder / "store", units)
        sample = StoredEncoder(Clouds(), folder / "store").encode(sentences(0, min(FIT, units)))
        model, _ = fit_clusters(sample, "center+l2", ClusterSettings(k=[CLUSTERS], seeds=1), 0)
        model.save(folder / "model")
        for processes in (1, 2):
            bounds = [units * part // processes for part in range(processes + 1)]
            began = time.monotonic()
            with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
                parts = list(pool.map(assign, [folder] * processes, bounds[:-1], bounds[1:]))
            wall = time.monotonic() - began
            total, after = max(part[0] for part in parts), max(part[1] for part in parts)
            print(
                f"{units:,} units, processes: {processes}; processor seconds of the slowest {total:.1f}, "
                f"after the store {after:.1f}; wall {wall:.1f}, start of the processes included",
                flush=True,
            )


if __name__ == "__main__":
    main()
