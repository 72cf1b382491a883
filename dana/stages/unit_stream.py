"""Documents of a corpus artifact as a stream of unit batches, and random samples drawn from it."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from heapq import heappush, heappushpop
from pathlib import Path
from typing import Any

import numpy as np

from dana.rng import hash_uniform
from dana.schemas import Document, iterate_documents
from dana.selectors.base import Units
from dana.units import Span, Splitter

# Odd, so that the keys of one document's units are all different (Weyl sequence).
STRIDE = np.uint64(0x9E3779B97F4A7C15)


def document_key(doc_id: str) -> int:
    """A stable uint64 for a document."""
    return int.from_bytes(blake2b(doc_id.encode(), digest_size=8).digest(), "little")


def unit_keys(doc_id: str, numbers: np.ndarray) -> np.ndarray:
    """One stable uint64 a unit of a document."""
    with np.errstate(over="ignore"):
        return np.uint64(document_key(doc_id)) + numbers.astype(np.uint64) * STRIDE


def units_of(documents: Iterable[Document], splitter: Splitter, batch: int = 8192) -> Iterator[Units]:
    """Split documents into units, at least `batch` at a time (the last may be smaller), in order."""
    waiting: list[tuple[Document, list[Span]]] = []
    count = 0
    for document in documents:
        spans = splitter(document.text)
        waiting.append((document, spans))
        count += len(spans)
        if count >= batch:
            yield _columns(waiting)
            waiting, count = [], 0
    if count:
        yield _columns(waiting)


def corpus_units(corpus: Path, splitter: Splitter, batch: int = 8192) -> Iterator[Units]:
    """Units of every document of a corpus folder."""
    return units_of(iterate_documents(corpus), splitter, batch)


def _columns(rows: list[tuple[Document, list[Span]]]) -> Units:
    documents = [document for document, _ in rows]
    counts = np.array([len(spans) for _, spans in rows])
    of = np.repeat(np.arange(counts.size), counts)
    numbers = np.arange(of.size) - np.repeat(np.cumsum(counts) - counts, counts)
    flat = np.array([span for _, spans in rows for span in spans], dtype=np.int64).reshape(-1, 2)
    firsts = np.array([document_key(document.doc_id) for document in documents], dtype=np.uint64)
    with np.errstate(over="ignore"):
        keys = np.repeat(firsts, counts) + numbers.astype(np.uint64) * STRIDE
    texts = [document.text[start:end] for document, spans in rows for start, end in spans]
    return Units(documents, of, numbers.astype(np.int32), flat[:, 0], flat[:, 1], texts, keys)


@dataclass(frozen=True)
class Sample:
    """Units drawn uniformly, in the order of their draw.

    Attributes:
        texts: The units.
        ids: ``(doc_id, unit)`` of each, for the record.
    """

    texts: list[str]
    ids: list[tuple[str, int]]


def draw(stream: Iterable[Units], wanted: Mapping[str, tuple[int, int]]) -> dict[str, Sample]:
    """Draw disjoint uniform samples in one pass, each by its own seed.

    Every unit has a place in every sample, a hash of (seed, key); a sample takes the lowest places not
    taken by the samples before it. The outcome depends on the corpus' content, not on its order.

    Args:
        stream: Batches of units.
        wanted: Name to (seed, size); earlier names choose first.

    Returns:
        Name to sample, smaller than asked for where the stream runs out.
    """
    heaps: dict[str, list[Any]] = {name: [] for name in wanted}
    enough, total = {}, 0
    for name, (_, size) in wanted.items():
        total += size
        enough[name] = total if size else 0  # so many that the earlier samples cannot exhaust them
    for batch in stream:
        for name, (seed, _) in wanted.items():
            _keep_lowest(heaps[name], enough[name], hash_uniform(seed, batch.keys), batch)
    taken: set[tuple[str, int]] = set()
    drawn = {}
    for name, (_, size) in wanted.items():
        candidates = sorted((-place, unit, text) for place, unit, text in heaps[name])
        free = [(unit, text) for _, unit, text in candidates if unit not in taken][:size]
        taken.update(unit for unit, _ in free)
        drawn[name] = Sample([text for _, text in free], [unit for unit, _ in free])
    return drawn


def _keep_lowest(heap: list[Any], size: int, places: np.ndarray, batch: Units) -> None:
    """Push a batch into a heap that keeps the `size` lowest places (stored negated: heapq keeps the highest)."""
    if size == 0:
        return
    bound = -heap[0][0] if len(heap) == size else 1.0
    for row in np.flatnonzero(places < bound).tolist():
        item = (-float(places[row]), (batch.doc_ids[row], int(batch.numbers[row])), batch.texts[row])
        if len(heap) < size:
            heappush(heap, item)
        else:
            heappushpop(heap, item)
