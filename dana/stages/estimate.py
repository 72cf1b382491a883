"""``dana score --dry-run``: what scoring will cost, from a sample, before anything is written."""

import resource
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from dana.config import require
from dana.corpus.documents import Tally, read_documents
from dana.corpus.readers import HUB, expand, format_of
from dana.encoders.store import create_encoder
from dana.errors import ConfigError
from dana.logging import get_logger
from dana.schemas import Document
from dana.stages.settings import RunSettings
from dana.stages.team import Team

log = get_logger(__name__)

DOCUMENTS = 400  # to read, over all files
UNITS = 512  # to encode
SCORE_BYTES = 24  # of a row of scores, compressed
CORPUS_SHARE = 0.4  # of the text's bytes, compressed
PACKED = (".gz", ".zst")


@dataclass(frozen=True)
class Sample:
    """Documents from all over the sources.

    Attributes:
        documents: Some of them.
        expected: How many there are, roughly; exact for Parquet.
        seconds: Reading took, a document.
    """

    documents: list[Document]
    expected: float
    seconds: float


def estimate(settings: RunSettings) -> str:
    """A table of what ``dana score`` will need here.

    Raises:
        ConfigError: If the sources cannot be looked at without reading all of them.
    """
    require(bool(settings.general), "general", settings.general, "at least one file, folder or glob")
    sample = _sample(settings.general, settings.on_bad_record)
    characters = np.mean([len(document.text) for document in sample.documents])
    started = time.monotonic()
    splitter = settings.selection.splitter()
    spans = [splitter(document.text) for document in sample.documents]
    splitting = (time.monotonic() - started) / len(sample.documents)
    units = sum(map(len, spans)) / len(sample.documents)
    rate, dims = _encoding_rate(sample.documents, spans, settings) if settings.selector == "detector" else (None, 0)
    world = Team.of_launch().world
    total = sample.expected * units
    seconds = sample.expected * sample.seconds  # one process reads
    scoring = sample.expected * splitting + (total / rate if rate else 0.0)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    stored = {"float16": 2, "int8": 1}[settings.selection.store_dtype] * dims + 20 if settings.selection.store else 0
    reading, encoding = _duration(seconds), f"{rate:,.0f} units/s" if rate else "none"
    disk = (sample.expected * characters * CORPUS_SHARE + total * SCORE_BYTES) / 1e9
    parts = f"reading {reading}, scoring {_duration(scoring)} over {world} process(es)"
    rows = [
        ("documents", f"{sample.expected:,.0f}", f"sampled {len(sample.documents)}, {characters:,.0f} characters each"),
        ("units", f"{total:,.0f}", f"{units:.1f} a document"),
        ("encoding", encoding, f"{settings.selection.encoder}, one process, after a warm-up"),
        ("time", _duration(seconds + scoring / world), parts),
        (
            "memory",
            f"{memory * 1.3:,.0f} MB a process",
            "of which the sample took three quarters; the corpus adds none",
        ),
        ("disk", f"{disk:,.2f} GB", "corpus and scores"),
    ]
    if stored:
        rows.append(("store", f"{total * stored / 1e9:,.2f} GB", f"{stored} bytes a distinct unit"))
    return "\n".join(f"{name:<10} {value:>22}   {why}" for name, value, why in rows)


def _sample(sources: list[str], on_bad_record: str) -> Sample:
    files: list[Path] = []
    for source in sources:
        if source.startswith(HUB):
            raise ConfigError(f"{source}: a dry run cannot know the size of a streamed dataset")
        files += expand(source)
    each = max(1, DOCUMENTS // len(files))
    documents: list[Document] = []
    expected, seconds = 0.0, 0.0
    for file in files:
        started = time.monotonic()
        some = list(islice(_documents(file, on_bad_record), each))
        seconds += time.monotonic() - started
        documents += some
        expected += _expected(file, some, len(some) < each)
    if not documents:
        raise ConfigError(f"{', '.join(sources)}: no document in the sample")
    return Sample(documents, expected, seconds / len(documents))


def _documents(file: Path, on_bad_record: str) -> Iterator[Document]:
    return read_documents([str(file)], on_bad_record, Tally())


def _expected(file: Path, some: list[Document], whole: bool) -> float:
    """How many documents a file has, from its size and those that were read."""
    if whole or not some:
        return len(some)
    if format_of(file) == ".parquet":
        return pq.read_metadata(file).num_rows
    text = "\n".join(document.text for document in some).encode("utf-8", "replace")
    size = len(zlib.compress(text, 6)) if file.suffix in PACKED else len(text) * 1.05
    return file.stat().st_size / (size / len(some))


def _encoding_rate(documents: list[Document], spans: list, settings: RunSettings) -> tuple[float, int]:
    """Units encoded a second, and their dimensions."""
    texts = [document.text[a:b] for document, own in zip(documents, spans, strict=True) for a, b in own]
    chosen = np.random.default_rng(0).permutation(len(texts))[:UNITS]
    some = [texts[row] for row in chosen]
    encoder = create_encoder(settings.selection.encoder)
    warm = max(1, len(some) // 4)
    dims = encoder.encode(some[:warm]).shape[1]
    started = time.monotonic()
    encoder.encode(some[warm:] or some)
    return len(some[warm:] or some) / (time.monotonic() - started), dims


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:,.1f} h"
