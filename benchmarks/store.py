"""What an embedding store costs and saves: rows a second appended and read back, and bytes a row on disk.

    DANA_DATA=... OMP_NUM_THREADS=1 python benchmarks/store.py [ENCODER ...]

Sentences of the general text, in the batches of scoring, through an encoder that costs nothing (384 numbers, so what is
measured is the store), `hashing:384` and `minilm`. Filling ends with everything on disk; reading begins with a store
opened anew (in the page cache) and must not encode: the benchmark stops if it does. Rates are of processor time.
"""

import os
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from dana.encoders.maintenance import describe_store
from torch import Tensor

from dana.core.registry import ENCODERS
from dana.corpus.documents import Tally, read_documents
from dana.corpus.unit_stream import units_of
from dana.corpus.units import parse_units
from dana.encoders.base import Encoder
from dana.encoders.store import StoredEncoder

BATCH = 8192
SENTENCES = {"null": 200_000, "hashing:384": 100_000, "minilm": 4_000}


@dataclass(frozen=True)
class NullEncoder:
    """The same vector for every text."""

    def identity(self) -> dict[str, Any]:
        """Nothing to tell."""
        return {"encoder": "null"}

    def encode(self, texts: Sequence[str]) -> Tensor:
        """Views of one row."""
        return torch.linspace(-1, 1, 384).expand(len(texts), 384)


@dataclass(frozen=True)
class Refuses:
    """Stands for an encoder that must not be needed."""

    encoder: Encoder

    def identity(self) -> dict[str, Any]:
        """That of the encoder."""
        return self.encoder.identity()

    def encode(self, texts: Sequence[str]) -> Tensor:
        """Raises."""
        raise SystemExit(f"{len(texts)} texts are not in the store")


def distinct_sentences(most: int) -> list[str]:
    """Different sentences of the general text."""
    documents = read_documents([os.environ["DANA_DATA"] + "/general"], "skip", Tally())
    found: dict[str, None] = {}
    for units in units_of(documents, parse_units("sentence").splitter(None)):
        found.update(dict.fromkeys(units.texts))
        if len(found) >= most:
            break
    return list(found)[:most]


def rate(encoder: Encoder, texts: Sequence[str]) -> float:
    """Texts a second of processor time, in batches; a store is closed within it."""
    started = time.process_time()
    for first in range(0, len(texts), BATCH):
        encoder.encode(texts[first : first + BATCH])
    if isinstance(encoder, StoredEncoder):
        encoder.close()
    return len(texts) / (time.process_time() - started)


def main() -> None:
    """Print a row an encoder and dtype."""
    counts = {name: SENTENCES[name] for name in sys.argv[1:] or SENTENCES}
    sentences = distinct_sentences(max(counts.values()))
    names = ("alone/s", "fill/s", "read/s", "bytes", "files")
    print(f"{'encoder':<12} {'dtype':<8} {'sentences':>9} " + " ".join(f"{name:>11}" for name in names))
    for name, count in counts.items():
        encoder = NullEncoder() if name == "null" else ENCODERS.create(name)
        texts = sentences[:count]
        encoder.encode(texts[:8])
        alone = rate(encoder, texts)
        for dtype in ("float16", "int8"):
            with tempfile.TemporaryDirectory() as folder:
                fill = rate(StoredEncoder(encoder, Path(folder), dtype), texts)
                read = rate(StoredEncoder(Refuses(encoder), Path(folder), dtype), texts)
                (part,) = describe_store(Path(folder))
            rates = f"{alone:>11,.0f} {fill:>11,.0f} {read:>11,.0f} {part.size / part.rows:>11.1f} {part.segments:>11}"
            print(f"{name:<12} {dtype:<8} {count:>9,} {rates}", flush=True)
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3:,.0f} MB")


if __name__ == "__main__":
    main()
