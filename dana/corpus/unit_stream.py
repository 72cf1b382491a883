"""Documents to batches of units with stable keys, and uniform samples drawn from such a stream in one pass."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import heappush, heappushpop
from pathlib import Path
from typing import Any

import numpy as np

from dana.core.files import text_digest
from dana.core.rng import UNIT_STRIDE, document_key, hash_uniform
from dana.core.schemas import Document, iterate_documents
from dana.corpus.units import Span, Splitter


@dataclass(frozen=True)
class Units:
    """Units: a batch of a corpus, a sample of it, or plain texts.

    Attributes:
        documents: The documents that the units are of, in order; those of a drawn sample are without their text.
        owners: int64 of shape (units,), position in `documents` of the document that each unit is from.
        numbers: int32 of shape (units,), position of the unit in its document, from 0.
        starts: int64 of shape (units,), character span in the document's text.
        ends: See starts.
        texts: The span's text.
        keys: uint64 of shape (units,), a hash of document and position.
    """

    documents: Sequence[Document]
    owners: np.ndarray
    numbers: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    texts: Sequence[str]
    keys: np.ndarray

    def __len__(self) -> int:
        return len(self.texts)

    @cached_property
    def doc_ids(self) -> Sequence[str]:
        """Document of each unit."""
        return [self.documents[row].doc_id for row in self.owners.tolist()]

    @cached_property
    def sources(self) -> Sequence[str]:
        """Source of each unit's document."""
        return [self.documents[row].source for row in self.owners.tolist()]

    @property
    def document_numbers(self) -> np.ndarray:
        """int64 of shape (units,), the document of each, numbered from 0; plain texts are documents of their own."""
        names = self.doc_ids
        return np.unique(names, return_inverse=True)[1] if any(names) else np.arange(len(self))

    @property
    def ids(self) -> list[tuple[str, int]]:
        """``(doc_id, unit)`` of each."""
        return list(zip(self.doc_ids, self.numbers.tolist(), strict=True))

    @classmethod
    def of_texts(cls, texts: Sequence[str]) -> "Units":
        """Plain texts as the units of one nameless document; a unit's key is a hash of its text."""
        zeros = np.zeros(len(texts), dtype=np.int64)
        numbers = np.arange(len(texts), dtype=np.int32)
        keys = np.array([int.from_bytes(text_digest(text)[:8], "little") for text in texts], dtype=np.uint64)
        ends = np.array([len(text) for text in texts], dtype=np.int64)
        return cls([Document("", "", "")], zeros, numbers, zeros, ends, texts, keys)

    def rows(self, chosen: np.ndarray) -> "Units":
        """The units at `chosen`, in that order."""
        texts = [self.texts[row] for row in chosen.tolist()]
        owners, numbers = self.owners[chosen], self.numbers[chosen]
        return Units(self.documents, owners, numbers, self.starts[chosen], self.ends[chosen], texts, self.keys[chosen])

    def first(self, count: int) -> "Units":
        """The first `count` units, or all if there are fewer."""
        return self.rows(np.arange(min(count, len(self))))

    @classmethod
    def join(cls, parts: Sequence["Units"]) -> "Units":
        """The units of several batches, in order."""
        parts = parts or [cls.of_texts([])]
        offsets = np.cumsum([0, *(len(part.documents) for part in parts[:-1])])
        owners = np.concatenate([part.owners + offset for part, offset in zip(parts, offsets, strict=True)])
        names = "numbers", "starts", "ends", "keys"
        numbers, starts, ends, keys = (np.concatenate([getattr(part, name) for part in parts]) for name in names)
        documents = [document for part in parts for document in part.documents]
        return cls(documents, owners, numbers, starts, ends, [text for part in parts for text in part.texts], keys)


def split_documents(documents: Iterable[Document], splitter: Splitter, batch: int = 8192) -> Iterator[Units]:
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


def iterate_units(corpus: Path, splitter: Splitter, batch: int = 8192) -> Iterator[Units]:
    """Units of every document of a corpus folder."""
    return split_documents(iterate_documents(corpus), splitter, batch)


def _columns(rows: list[tuple[Document, list[Span]]]) -> Units:
    documents = [document for document, _ in rows]
    counts = np.array([len(spans) for _, spans in rows])
    owners = np.repeat(np.arange(counts.size), counts)
    numbers = np.arange(owners.size) - np.repeat(np.cumsum(counts) - counts, counts)
    flat = np.array([span for _, spans in rows for span in spans], dtype=np.int64).reshape(-1, 2)
    firsts = np.array([document_key(document.doc_id) for document in documents], dtype=np.uint64)
    with np.errstate(over="ignore"):
        keys = np.repeat(firsts, counts) + numbers.astype(np.uint64) * UNIT_STRIDE
    texts = [document.text[start:end] for document, spans in rows for start, end in spans]
    return Units(documents, owners, numbers.astype(np.int32), flat[:, 0], flat[:, 1], texts, keys)


def draw(
    stream: Iterable[Units], wanted: Mapping[str, tuple[int, int]], runs: Mapping[str, int] | None = None
) -> dict[str, Units]:
    """Draw uniform samples in one pass, each by its own seed; samples of units are disjoint.

    Every unit has a place in every sample, a hash of (seed, key); a sample takes the lowest places not
    taken by the samples before it. Where there are fewer units than all want together, they are shared out: none gets
    more than an equal share while another lacks something. A sample of runs takes whole runs of consecutive units of
    a document, also those that are in other samples. The outcome depends on the corpus' content, not on its order.

    Args:
        stream: Batches of units.
        wanted: Name to (seed, size); earlier names choose first.
        runs: Name to the units of a run, for samples of runs; their size is in units, at most.

    Returns:
        Name to units in the order of their draw, fewer than asked for where the stream runs out.
    """
    heaps: dict[str, list[Any]] = {name: [] for name in wanted}
    runs = runs or {}
    enough, total = {}, 0
    for name, (_, size) in wanted.items():
        total += 0 if name in runs else size
        enough[name] = size + 1 if name in runs else total if size else 0  # so many that earlier ones cannot exhaust it
    for batch in stream:
        for name, (seed, _) in wanted.items():
            keys = _run_keys(batch, runs[name]) if name in runs else batch.keys
            _keep_lowest(heaps[name], enough[name], hash_uniform(seed, keys), batch)
    sizes = {name: size for name, (_, size) in wanted.items() if name not in runs}
    if (there := max((len(heaps[name]) for name in sizes), default=0)) < total:
        sizes = _shared_out(sizes, there)
    taken: set[tuple[str, int]] = set()
    drawn = {}
    for name, (_, size) in wanted.items():
        candidates = sorted((-place, unit, row) for place, unit, row in heaps[name])
        if name in runs:
            last = candidates[size][0] if len(candidates) > size else 1.0  # the place of a run that is not whole
            drawn[name] = _of_rows([(unit, row) for place, unit, row in candidates if place < last])
            continue
        free = [(unit, row) for _, unit, row in candidates if unit not in taken][: sizes[name]]
        taken.update(unit for unit, _ in free)
        drawn[name] = _of_rows(free)
    return drawn


def _shared_out(sizes: Mapping[str, int], there: int) -> dict[str, int]:
    """Max-min fair shares: the smallest sizes are granted first, the others get equal parts of what is left."""
    granted: dict[str, int] = {}
    for place, (name, size) in enumerate(sorted(sizes.items(), key=lambda item: item[1])):
        granted[name] = min(size, -(-there // (len(sizes) - place)))
        there -= granted[name]
    return granted


def _of_rows(rows: Sequence[tuple[tuple[str, int], Any]]) -> Units:
    """The units that :func:`_keep_lowest` kept."""
    documents = [Document(doc_id, source, "") for (doc_id, _), (source, *_) in rows]
    numbers = np.array([number for (_, number), _ in rows], dtype=np.int32)
    starts, ends = (np.array([row[part] for _, row in rows], dtype=np.int64) for part in (1, 2))
    keys = np.array([row[3] for _, row in rows], dtype=np.uint64)
    return Units(documents, np.arange(len(rows)), numbers, starts, ends, [row[4] for _, row in rows], keys)


def _run_keys(units: Units, length: int) -> np.ndarray:
    """A key for the run that each unit is in; of plain texts, the text's own."""
    nameless = np.array([not document.doc_id for document in units.documents])
    with np.errstate(over="ignore"):
        back = (units.numbers % length).astype(np.uint64) * UNIT_STRIDE
        return np.where(nameless[units.owners], units.keys, units.keys - back)


def _keep_lowest(heap: list[Any], size: int, places: np.ndarray, batch: Units) -> None:
    """Push a batch into a heap that keeps the `size` lowest places (stored negated: heapq keeps the highest)."""
    if size == 0:
        return
    bound = -heap[0][0] if len(heap) == size else 1.0
    for row in np.flatnonzero(places < bound).tolist():
        span = int(batch.starts[row]), int(batch.ends[row])
        kept = (batch.sources[row], *span, int(batch.keys[row]), batch.texts[row])
        item = (-float(places[row]), (batch.doc_ids[row], int(batch.numbers[row])), kept)
        if len(heap) < size:
            heappush(heap, item)
        else:
            heappushpop(heap, item)
