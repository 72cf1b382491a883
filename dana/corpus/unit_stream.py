"""Split documents into batches of units with stable keys, and draw uniform samples from the stream in one pass."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import heappush, heappushpop
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dana.core.files import text_key
from dana.core.rng import UNIT_STRIDE, document_key, hash_uniform, unit_keys_of
from dana.core.schemas import Document, iterate_documents
from dana.corpus.units import Span, Splitter


@dataclass(frozen=True)
class Units:
    """Columns of units: a batch of a corpus, a sample of one, or plain texts.

    Attributes:
        documents: Documents of the units, in order; without their text in a drawn sample.
        owners: int64 of shape (units,), position in `documents` of the document that each unit is
            from.
        numbers: int32 of shape (units,), position of the unit in its document, from 0.
        starts: int64 of shape (units,), first character in the document's text.
        ends: int64 of shape (units,), position after the last character.
        texts: Text of each unit.
        keys: uint64 of shape (units,), hash of document and position.
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
        """Document id of each unit."""
        return [self.documents[row].doc_id for row in self.owners.tolist()]

    @cached_property
    def sources(self) -> Sequence[str]:
        """Source of each unit's document."""
        return [self.documents[row].source for row in self.owners.tolist()]

    @property
    def document_numbers(self) -> np.ndarray:
        """int64 of shape (units,), number of each unit's document, from 0; each plain text is a document."""
        names = self.doc_ids
        return np.unique(names, return_inverse=True)[1] if any(names) else np.arange(len(self))

    @property
    def ids(self) -> list[tuple[str, int]]:
        """``(doc_id, unit)`` of each unit."""
        return list(zip(self.doc_ids, self.numbers.tolist(), strict=True))

    @classmethod
    def of_texts(cls, texts: Sequence[str]) -> "Units":
        """Make plain texts the units of one document without id; the key of a unit is a hash of its text."""
        zeros, numbers = np.zeros(len(texts), dtype=np.int64), np.arange(len(texts), dtype=np.int32)
        keys = np.fromiter(map(text_key, texts), np.uint64)
        ends = np.array([len(text) for text in texts], dtype=np.int64)
        return cls([Document("", "", "")], zeros, numbers, zeros, ends, texts, keys)

    def key_columns(self) -> list[pa.Array]:
        """Return the first columns of a table of units (:data:`dana.core.schemas.UNIT`)."""
        owners = pa.array(self.owners)
        doc_ids = pa.array([document.doc_id for document in self.documents], pa.string())
        sources = pa.array([document.source for document in self.documents], pa.string())
        positions = [pa.array(column) for column in (self.numbers, self.starts, self.ends)]
        return [doc_ids.take(owners), sources.take(owners), *positions]

    def rows(self, index: np.ndarray) -> "Units":
        """Select the units at some positions, in that order."""
        return Units(
            self.documents,
            self.owners[index],
            self.numbers[index],
            self.starts[index],
            self.ends[index],
            [self.texts[row] for row in index.tolist()],
            self.keys[index],
        )

    def first(self, count: int) -> "Units":
        """Select the first `count` units, or all if there are fewer."""
        return self.rows(np.arange(min(count, len(self))))

    @classmethod
    def join(cls, parts: Sequence["Units"]) -> "Units":
        """Concatenate batches of units."""
        parts = parts or [cls.of_texts([])]
        offsets = np.cumsum([0, *(len(part.documents) for part in parts[:-1])])
        owners = np.concatenate(
            [part.owners + offset for part, offset in zip(parts, offsets, strict=True)]
        )
        names = "numbers", "starts", "ends", "keys"
        numbers, starts, ends, keys = (
            np.concatenate([getattr(part, name) for part in parts]) for name in names
        )
        documents = [document for part in parts for document in part.documents]
        return cls(
            documents,
            owners,
            numbers,
            starts,
            ends,
            [text for part in parts for text in part.texts],
            keys,
        )


def split_documents(
    documents: Iterable[Document], splitter: Splitter, batch: int = 8192
) -> Iterator[Units]:
    """Split documents into units, in order, in batches of at least `batch` units (the last may be smaller)."""
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
    """Stream the units of every document of a corpus folder, in batches as of :func:`split_documents`."""
    return split_documents(iterate_documents(corpus), splitter, batch)


def _columns(rows: list[tuple[Document, list[Span]]]) -> Units:
    documents = [document for document, _ in rows]
    counts = np.array([len(spans) for _, spans in rows])
    owners = np.repeat(np.arange(counts.size), counts)
    numbers = np.arange(owners.size) - np.repeat(np.cumsum(counts) - counts, counts)
    flat = np.array([span for _, spans in rows for span in spans], dtype=np.int64).reshape(-1, 2)
    firsts = np.array([document_key(document.doc_id) for document in documents], dtype=np.uint64)
    keys = unit_keys_of(np.repeat(firsts, counts), numbers)
    texts = [document.text[start:end] for document, spans in rows for start, end in spans]
    return Units(documents, owners, numbers.astype(np.int32), flat[:, 0], flat[:, 1], texts, keys)


def draw(
    stream: Iterable[Units],
    requests: Mapping[str, tuple[int, int]],
    runs: Mapping[str, int] | None = None,
) -> dict[str, Units]:
    """Draw uniform samples of units in one pass over a stream.

    Each sample ranks all units by a hash of (seed, key) and takes the lowest ranks that no earlier
    sample has taken, so samples are disjoint and depend on the content of the pool, not on its
    order. If there are fewer units than requested in total, sample sizes are max-min fair shares. A
    sample of runs takes whole runs of consecutive units of a document, which other samples may hold
    too.

    Args:
        stream: Batches of units.
        requests: Name of each sample to (seed, size), in order of priority.
        runs: Name of each sample of runs to the units of a run; its size in `requests` is the most
            units.

    Returns:
        Name of each sample to its units, by rank; fewer than requested if the stream is too short.
    """
    heaps: dict[str, list[Any]] = {name: [] for name in requests}
    runs = runs or {}
    limits, total = {}, 0
    for name, (_, size) in requests.items():
        total += 0 if name in runs else size
        limits[name] = (
            size + 1 if name in runs else total if size else 0
        )  # leaves enough after the earlier samples
    for batch in stream:
        for name, (seed, _) in requests.items():
            keys = _run_keys(batch, runs[name]) if name in runs else batch.keys
            _keep_lowest(heaps[name], limits[name], hash_uniform(seed, keys), batch)
    sizes = {name: size for name, (_, size) in requests.items() if name not in runs}
    if (available := max((len(heaps[name]) for name in sizes), default=0)) < total:
        sizes = _fair_shares(sizes, available)
    earlier_units: set[tuple[str, int]] = set()
    samples = {}
    for name, (_, size) in requests.items():
        candidates = sorted((-rank, unit, row) for rank, unit, row in heaps[name])
        if name in runs:
            bound = (
                candidates[size][0] if len(candidates) > size else 1.0
            )  # the rank of a run that may be cut
            samples[name] = _units_from(
                [(unit, row) for rank, unit, row in candidates if rank < bound]
            )
            continue
        rows = [(unit, row) for _, unit, row in candidates if unit not in earlier_units][
            : sizes[name]
        ]
        earlier_units.update(unit for unit, _ in rows)
        samples[name] = _units_from(rows)
    return samples


def _fair_shares(sizes: Mapping[str, int], available: int) -> dict[str, int]:
    """Compute max-min fair shares: the smallest sizes are met first, the others get equal parts of the rest."""
    shares: dict[str, int] = {}
    for number, (name, size) in enumerate(sorted(sizes.items(), key=lambda item: item[1])):
        shares[name] = min(size, -(-available // (len(sizes) - number)))
        available -= shares[name]
    return shares


def _units_from(rows: Sequence[tuple[tuple[str, int], Any]]) -> Units:
    documents = [Document(doc_id, source, "") for (doc_id, _), (source, *_) in rows]
    numbers = np.array([number for (_, number), _ in rows], dtype=np.int32)
    starts, ends = (np.array([row[part] for _, row in rows], dtype=np.int64) for part in (1, 2))
    keys = np.array([row[3] for _, row in rows], dtype=np.uint64)
    return Units(
        documents, np.arange(len(rows)), numbers, starts, ends, [row[4] for _, row in rows], keys
    )


def _run_keys(units: Units, length: int) -> np.ndarray:
    """Compute the key of each unit's run, that of its first unit; for plain texts, the unit's own key."""
    nameless = np.array([not document.doc_id for document in units.documents])
    with np.errstate(over="ignore"):
        back = (units.numbers % length).astype(np.uint64) * UNIT_STRIDE
        return np.where(nameless[units.owners], units.keys, units.keys - back)


def _keep_lowest(heap: list[Any], size: int, ranks: np.ndarray, batch: Units) -> None:
    """Push a batch into a heap of the `size` units with the lowest ranks, negated because heapq keeps the highest."""
    if size == 0:
        return
    bound = -heap[0][0] if len(heap) == size else 1.0
    for row in np.flatnonzero(ranks < bound).tolist():
        span = int(batch.starts[row]), int(batch.ends[row])
        content = (batch.sources[row], *span, int(batch.keys[row]), batch.texts[row])
        item = (-float(ranks[row]), (batch.doc_ids[row], int(batch.numbers[row])), content)
        if len(heap) < size:
            heappush(heap, item)
        else:
            heappushpop(heap, item)
