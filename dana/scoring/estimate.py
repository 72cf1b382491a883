"""Estimate the time, memory and disk of a scoring run from a small sample of its text."""

import resource
import time
import zlib
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from dana.core.announce import Cost, is_dry
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
SMALL = 200_000  # characters; to score fewer takes less than a minute
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
) -> Cost:
    """Estimate the time, memory and disk that a scoring run takes on this machine.

    Args:
        sources: Files, folders, globs and URLs of the general text.
        out: Folder of the run, which is not read.
        selection: How text is cut, embedded and stored.
        inputs: How records become documents.
        on_bad_record: ``fail`` or ``skip``.
        selector: Selector that scores. The time to embed its samples is estimated, that of the fit is not.
        processes: Number of processes that share the scoring.
        share: Share of the documents that sampling keeps; all of them are read.

    Raises:
        ConfigError: If there are no sources, no document, or one source is a streamed dataset of unknown size.
    """
    require(bool(sources), "general", sources, "at least one file, folder or glob")
    documents, total_documents, reading = sample_documents(sources, out, inputs, on_bad_record)
    characters = sum(len(document.text) for document in documents) / len(documents)
    if total_documents * characters < SMALL and not is_dry():
        return Cost("", 0.0)
    splitter, began = selection.splitter(), time.monotonic()
    texts = [document.text[start:end] for document in documents for start, end in splitter(document.text)]
    splitting, units = (time.monotonic() - began) / len(documents), len(texts) / len(documents)
    rate, dims = encoding_rate(texts, selection.encoder) if "encoder" in selector.uses else (None, 0)
    document_count = total_documents * share
    unit_count = document_count * units
    fit_units = selection.max_task_units + min(unit_count, sum(selector.samples(selection.max_task_units).values()))
    fitting = fit_units / rate if rate else 0.0
    scoring = document_count * splitting + (unit_count / rate if rate else 0.0)
    seconds = reading + fitting + scoring / processes
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    disk = document_count * characters * CORPUS_SHARE + unit_count * SCORE_BYTES
    parts = f"reading {format_duration(reading)}, scoring {format_duration(scoring)} over {processes} process(es)"
    fits = f"encodes up to {fit_units:,.0f} units of task and general text; plus the fits" if rate else "the fits"
    rows = [
        ("documents", f"{document_count:,.0f}", f"sampled {len(documents)}, {characters:,.0f} characters each"),
        ("units", f"{unit_count:,.0f}", f"{units:.1f} a document"),
        ("encoding", f"{rate:,.0f} units/s" if rate else "none", f"{selection.encoder}, one process, after a warm-up"),
        ("fitting", format_duration(fitting) if rate else "unknown", fits),
        ("time", format_duration(seconds), f"{parts}, and fitting"),
        ("memory", f"{memory * 1.3:,.0f} MB a process", "1.3 times what the sample took; the corpus adds none"),
        ("disk", f"{disk / 1e9:,.2f} GB", "corpus and scores"),
    ]
    if selection.store:
        unit_bytes = {"float16": 2, "int8": 1}[selection.store_dtype] * dims + 20
        where = f"{unit_bytes} bytes a distinct unit, in {selection.store}; none with --store none"
        rows.append(("store", f"{unit_count * unit_bytes / 1e9:,.2f} GB", where))
    table = "\n".join(f"{name:<10} {value:>22}   {why}" for name, value, why in rows)
    return Cost(f"read and score {unit_count:,.0f} units, into {out}", seconds, disk, table)


def sample_documents(
    sources: Sequence[str], out: Path, inputs: Inputs, on_bad_record: str, count: int = DOCUMENTS
) -> tuple[list[Document], float, float]:
    """Read the head of every file; return its documents, the estimated number in all and the seconds to read all.

    Args:
        sources: Files, folders, globs and URLs.
        out: Folder of the run, which is not read.
        inputs: How records become documents.
        on_bad_record: ``fail`` or ``skip``.
        count: Number of documents to read over all files, at least one of each.

    Raises:
        ConfigError: If there is no document, or a source is a streamed data set.
    """
    for dataset in filter(is_hub, sources):
        raise ConfigError(f"{dataset}: is streamed, so its size is unknown; name files, or run without --dry-run")
    files = [(source, file) for source in find_files(sources, out) for file in expand(source)]
    each = max(1, count // len(files))
    documents: list[Document] = []
    total_documents, seconds = 0.0, 0.0
    for source, file in files:
        began = time.monotonic()
        head = list(islice(read_documents([source], on_bad_record, Tally(), inputs=inputs), each))
        seconds += time.monotonic() - began
        documents += head
        if len(head) < each:
            total_documents += len(head)
        elif format_of(file) == ".parquet":
            total_documents += pq.read_metadata(pyarrow_source(file)).num_rows
        else:
            text = "\n".join(document.text for document in head).encode("utf-8", "replace")
            size = len(zlib.compress(text, 6)) if file.suffix in PACKED else len(text) * 1.05
            total_documents += file_size(file) / (size / len(head))
    if not documents:
        raise ConfigError(f"{', '.join(sources)}: no document in the sample")
    return documents, total_documents, total_documents * seconds / len(documents)


def encoding_rate(texts: list[str], spec: str) -> tuple[float, int]:
    """Measure how many units are encoded per second; return it with the number of dimensions."""
    sample = [texts[row] for row in np.random.default_rng(0).permutation(len(texts))[:UNITS]]
    encoder, warm = create_encoder(spec), max(1, len(sample) // 4)
    dims, began = encoder.encode(sample[:warm]).shape[1], time.monotonic()
    encoder.encode(sample[warm:] or sample)
    return len(sample[warm:] or sample) / (time.monotonic() - began), dims
