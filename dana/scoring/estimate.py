"""Estimate the time and disk of a scoring run from a small sample of its text."""

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
from dana.core.launch import processes
from dana.core.logging import messages
from dana.core.schemas import Document
from dana.core.storage import file_size, pyarrow_source
from dana.corpus.documents import Tally, read_documents
from dana.corpus.hub import is_hub
from dana.corpus.inputs import Inputs
from dana.corpus.sources import expand, find_files, format_of
from dana.corpus.unit_stream import Units, split_documents
from dana.encoders.cache import create_encoder
from dana.scoring.settings import Selection
from dana.selectors.base import Selector

DOCUMENTS = 400  # to read, over all files
UNITS = 2000  # to score
SHARES = (
    0.02,
    0.02,
    0.08,
)  # of a fit: the first loads what fits need, the others tell what a unit costs
LEAST = 20  # units of a sample
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
    task: Sequence[Document],
    share: float = 1.0,
) -> Cost:
    """Estimate the time and disk that a scoring run takes on this machine, from small fits of its selector.

    Args:
        sources: Files, folders, globs and URLs of the general text.
        out: Folder of the run, which is not read.
        selection: How text is cut, embedded and stored.
        inputs: How records become documents.
        on_bad_record: ``fail`` or ``skip``.
        selector: Selector that fits and scores, without a cache on disk.
        task: Text to fit on; empty takes general text in its place.
        share: Share of the documents that sampling keeps; all of them are read.

    Raises:
        ConfigError: If there are no sources, no document, or one source is a streamed dataset of
            unknown size.
    """
    require(bool(sources), "general", sources, "at least one file, folder or glob")
    documents, total_documents, reading = sample_documents(sources, out, inputs, on_bad_record)
    characters = sum(len(document.text) for document in documents) / len(documents)
    if total_documents * characters < SMALL and not is_dry():
        return Cost("", 0.0)
    splitter, document_count, began = (
        selection.splitter(),
        total_documents * share,
        time.monotonic(),
    )
    units = Units.join(list(split_documents(documents, splitter)))
    splitting, unit_count = (
        (time.monotonic() - began) / len(documents),
        document_count * len(units) / len(documents),
    )
    task_units = Units.join(list(split_documents(task, splitter))) if task else units
    fitting, rate = _probe(selector, task_units.first(selection.max_task_units), units, unit_count)
    scoring = (
        unit_count * rate + 2 * document_count * splitting
    )  # cut once to draw samples, once to score
    disk = document_count * characters * CORPUS_SHARE + unit_count * SCORE_BYTES
    if selection.store and "encoder" in selector.uses:
        dims = create_encoder(selection.encoder).encode(["a"]).shape[1]
        disk += unit_count * ({"float16": 2, "int8": 1}[selection.store_dtype] * dims + 20)
    what = f"read {document_count:,.0f} documents and score {unit_count:,.0f} units, into {out}"
    return Cost(what, reading + fitting + scoring / processes(), disk, reading=reading)


def _probe(
    selector: Selector, task: Units, general: Units, unit_count: float
) -> tuple[float, float]:
    """Measure the seconds of a fit, extrapolated from small ones, and those of scoring one unit, encoding included.

    Args:
        selector: Selector that fits and scores.
        task: Units to fit on.
        general: A sample of the general units.
        unit_count: Number of general units.
    """
    sizes = {name: min(size, unit_count) for name, size in selector.samples(len(task)).items()}
    parts = [
        np.arange(first, len(general), len(sizes) + 1) for first in range(len(sizes) + 1)
    ]  # of all documents
    seconds = []
    with messages(quiet=True):
        for share in SHARES:
            pairs = zip(sizes.items(), parts[1:], strict=True)
            samples = {
                name: general.rows(part[: max(LEAST, round(share * size))])
                for (name, size), part in pairs
            }
            rows = np.linspace(
                0,
                len(task) - 1,
                min(len(task), max(LEAST, round(share * len(task)))),
                dtype=np.int64,
            )
            began = time.monotonic()
            model = selector.fit(task.rows(rows), samples, 0)
            seconds.append(time.monotonic() - began)
        slope = max(0.0, seconds[2] - seconds[1]) / (SHARES[2] - SHARES[1])
        rest, began = general.rows(parts[0][:UNITS]), time.monotonic()
        model.score(rest)
    return seconds[2] + slope * (1 - SHARES[2]), (time.monotonic() - began) / len(rest)


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
        raise ConfigError(
            f"{dataset}: is streamed, so its size is unknown; name files, or run without --dry-run"
        )
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
    sample = [texts[row] for row in np.random.default_rng(0).permutation(len(texts))[:512]]
    encoder, warm = create_encoder(spec), max(1, len(sample) // 4)
    dims, began = encoder.encode(sample[:warm]).shape[1], time.monotonic()
    encoder.encode(sample[warm:] or sample)
    return len(sample[warm:] or sample) / (time.monotonic() - began), dims
