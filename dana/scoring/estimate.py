"""Cost of a scoring before it runs: sources to a table of time, memory and disk, measured on a sample."""

import resource
import time
import zlib
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from dana.core.config import require
from dana.core.errors import ConfigError
from dana.core.logging import format_duration
from dana.core.schemas import Document
from dana.core.storage import file_size, pyarrow_source
from dana.corpus.documents import Tally, read_documents
from dana.corpus.hub import is_hub
from dana.corpus.inputs import Inputs
from dana.corpus.sources import expand, find_files, format_of
from dana.encoders.cache import create_encoder
from dana.scoring.settings import Selection
from dana.selectors.base import Selector

DOCUMENTS = 400  # to read, over all files
UNITS = 512  # to encode
SCORE_BYTES = 24  # of a row of scores, compressed
CORPUS_SHARE = 0.4  # of the text's bytes, compressed
PACKED = (".gz", ".zst")


def estimate(
    sources: Sequence[str],
    out: Path,
    selection: Selection,
    inputs: Inputs,
    on_bad_record: str,
    selector: Selector,
    processes: int,
    share: float = 1.0,
) -> str:
    """A table of the time, memory and disk that a scoring takes on this machine.

    Args:
        sources: Files, folders, globs and URLs of the general text.
        out: Folder of the run, which is left out of the sources.
        selection: How text is cut, embedded and stored.
        inputs: How records become documents.
        on_bad_record: ``fail`` or ``skip``.
        selector: What scores. The units that it is fitted on are counted where it embeds them; its fits are not.
        processes: How many will share the scoring.
        share: Of the documents, read all the same, that hygiene keeps by sampling.

    Raises:
        ConfigError: If there are no sources, or one cannot be sampled without reading all of it.
    """
    require(bool(sources), "general", sources, "at least one file, folder or glob")
    documents, expected, reading = _sample(sources, out, inputs, on_bad_record)
    characters = np.mean([len(document.text) for document in documents])
    splitter, began = selection.splitter(), time.monotonic()
    texts = [document.text[start:end] for document in documents for start, end in splitter(document.text)]
    splitting = (time.monotonic() - began) / len(documents)
    units = len(texts) / len(documents)
    rate, dims = _encoding_rate(texts, selection.encoder) if "encoder" in selector.uses else (None, 0)
    kept = expected * share
    total = kept * units
    fitted = selection.max_task_units + min(total, sum(selector.samples(selection.max_task_units).values()))
    fitting = fitted / rate if rate else 0.0
    scoring = kept * splitting + (total / rate if rate else 0.0)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    disk = (kept * characters * CORPUS_SHARE + total * SCORE_BYTES) / 1e9
    parts = f"reading {format_duration(reading)}, scoring {format_duration(scoring)} over {processes} process(es)"
    fits = f"encodes up to {fitted:,.0f} units of task and general text; the fits come on top" if rate else "the fits"
    rows = [
        ("documents", f"{kept:,.0f}", f"sampled {len(documents)}, {characters:,.0f} characters each"),
        ("units", f"{total:,.0f}", f"{units:.1f} a document"),
        ("encoding", f"{rate:,.0f} units/s" if rate else "none", f"{selection.encoder}, one process, after a warm-up"),
        ("fitting", format_duration(fitting) if rate else "unknown", fits),
        ("time", format_duration(reading + fitting + scoring / processes), f"{parts}, and fitting"),
        ("memory", f"{memory * 1.3:,.0f} MB a process", "1.3 times what the sample took; the corpus adds none"),
        ("disk", f"{disk:,.2f} GB", "corpus and scores"),
    ]
    if selection.store:
        stored = {"float16": 2, "int8": 1}[selection.store_dtype] * dims + 20
        where = f"{stored} bytes a distinct unit, in {selection.store}; none with --store none"
        rows.append(("store", f"{total * stored / 1e9:,.2f} GB", where))
    return "\n".join(f"{name:<10} {value:>22}   {why}" for name, value, why in rows)


def _sample(
    sources: Sequence[str], out: Path, inputs: Inputs, on_bad_record: str
) -> tuple[list[Document], float, float]:
    """Documents from the beginning of every file; how many there are in all, exact for Parquet; seconds to read all."""
    for source in filter(is_hub, sources):
        raise ConfigError(f"{source}: a dry run cannot know the size of a streamed dataset")
    files = [(source, file) for source in find_files(sources, out) for file in expand(source)]
    each = max(1, DOCUMENTS // len(files))
    documents: list[Document] = []
    expected, seconds = 0.0, 0.0
    for found, file in files:
        began = time.monotonic()
        some = list(islice(read_documents([found], on_bad_record, Tally(), inputs=inputs), each))
        seconds += time.monotonic() - began
        documents += some
        if len(some) < each:
            expected += len(some)
        elif format_of(file) == ".parquet":
            expected += pq.read_metadata(pyarrow_source(file)).num_rows
        else:
            text = "\n".join(document.text for document in some).encode("utf-8", "replace")
            size = len(zlib.compress(text, 6)) if file.suffix in PACKED else len(text) * 1.05
            expected += file_size(file) / (size / len(some))
    if not documents:
        raise ConfigError(f"{', '.join(sources)}: no document in the sample")
    return documents, expected, expected * seconds / len(documents)


def _encoding_rate(texts: list[str], spec: str) -> tuple[float, int]:
    """Units encoded a second, and their dimensions."""
    some = [texts[row] for row in np.random.default_rng(0).permutation(len(texts))[:UNITS]]
    encoder = create_encoder(spec)
    warm = max(1, len(some) // 4)
    dims = encoder.encode(some[:warm]).shape[1]
    began = time.monotonic()
    encoder.encode(some[warm:] or some)
    return len(some[warm:] or some) / (time.monotonic() - began), dims
