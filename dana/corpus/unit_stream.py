"""Split documents into batches of units, and draw uniform samples of their stream in one pass.

Units have stable keys.
"""

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

# Rank; document id and position; source, start, end, key and text of a unit that may be drawn.
_Candidate = tuple[float, tuple[str, int], tuple[str, int, int, int, str]]


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
        """int64 of shape (units,), number of each unit's document, from 0.

        Each plain text is a document.
        """
        names = self.doc_ids
        if not any(names):
            return np.arange(len(self))
        _, numbers = np.unique(names, return_inverse=True)
        return numbers

    @property
    def ids(self) -> list[tuple[str, int]]:
        """``(doc_id, unit)`` of each unit."""
        return list(zip(self.doc_ids, self.numbers.tolist(), strict=True))

    @classmethod
    def of_texts(cls, texts: Sequence[str]) -> "Units":
        """Make plain texts the units of one document without id.

        The key of a unit is a hash of its text.
        """
        zeros = np.zeros(len(texts), dtype=np.int64)
        numbers = np.arange(len(texts), dtype=np.int32)
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
        documents: list[Document] = []
        texts: list[str] = []
        owners = []
        for part in parts:
            owners.append(part.owners + len(documents))
            documents += part.documents
            texts += part.texts
        return cls(
            documents=documents,
            owners=np.concatenate(owners),
            numbers=np.concatenate([part.numbers for part in parts]),
            starts=np.concatenate([part.starts for part in parts]),
            ends=np.concatenate([part.ends for part in parts]),
            texts=texts,
            keys=np.concatenate([part.keys for part in parts]),
        )


def split_documents(
    documents: Iterable[Document], splitter: Splitter, batch: int = 8192
) -> Iterator[Units]:
    """Split documents into units, in order, in batches.

    A batch has at least `batch` units; the last may be smaller.
    """
    waiting: list[tuple[Document, list[Span]]] = []
    count = 0
    for document in documents:
        spans = splitter(document.text)
        waiting.append((document, spans))
        count += len(spans)
        if count >= batch:
            yield _columns(waiting)
            waiting = []
            count = 0
    if count:
        yield _columns(waiting)


def iterate_units(corpus: Path, splitter: Splitter, batch: int = 8192) -> Iterator[Units]:
    """Stream the units of every document of a corpus folder, as :func:`split_documents` does."""
    return split_documents(iterate_documents(corpus), splitter, batch)


def _columns(rows: list[tuple[Document, list[Span]]]) -> Units:
    """Return the units of documents with their spans."""
    documents = [document for document, _ in rows]
    counts = np.array([len(spans) for _, spans in rows])
    owners = np.repeat(np.arange(counts.size), counts)
    numbers = np.arange(owners.size) - np.repeat(np.cumsum(counts) - counts, counts)
    all_spans: list[Span] = []
    texts: list[str] = []
    for document, spans in rows:
        all_spans += spans
        texts += [document.text[start:end] for start, end in spans]
    bounds = np.array(all_spans, dtype=np.int64).reshape(-1, 2)
    firsts = np.array([document_key(document.doc_id) for document in documents], dtype=np.uint64)
    return Units(
        documents=documents,
        owners=owners,
        numbers=numbers.astype(np.int32),
        starts=bounds[:, 0],
        ends=bounds[:, 1],
        texts=texts,
        keys=unit_keys_of(np.repeat(firsts, counts), numbers),
    )


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
    runs = runs or {}
    limits = _candidate_limits(requests, runs)
    heaps: dict[str, list[Any]] = {name: [] for name in requests}
    for batch in stream:
        for name, (seed, _) in requests.items():
            keys = _run_keys(batch, runs[name]) if name in runs else batch.keys
            _keep_lowest(heaps[name], limits[name], hash_uniform(seed, keys), batch)
    sizes = {name: size for name, (_, size) in requests.items() if name not in runs}
    available = max((len(heaps[name]) for name in sizes), default=0)
    if available < sum(sizes.values()):
        sizes = _fair_shares(sizes, available)
    earlier_units: set[tuple[str, int]] = set()
    samples = {}
    for name, (_, size) in requests.items():
        candidates = sorted((-rank, unit, content) for rank, unit, content in heaps[name])
        if name in runs:
            chosen = _whole_runs(candidates, size)
        else:
            free = [candidate for candidate in candidates if candidate[1] not in earlier_units]
            chosen = free[: sizes[name]]
            earlier_units.update(unit for _, unit, _ in chosen)
        samples[name] = _units_from(chosen)
    return samples


def _candidate_limits(
    requests: Mapping[str, tuple[int, int]], runs: Mapping[str, int]
) -> dict[str, int]:
    """Return how many candidates to keep for each sample of :func:`draw`.

    They are enough also after the earlier samples have taken theirs. Of runs there is one unit
    more, which shows whether the last run is cut.
    """
    limits = {}
    total = 0
    for name, (_, size) in requests.items():
        if name in runs:
            limits[name] = size + 1
            continue
        total += size
        limits[name] = total if size else 0
    return limits


def _whole_runs(candidates: list[_Candidate], size: int) -> list[_Candidate]:
    """Return the candidates without those of the last run if there are more than `size`.

    The units of a run have one rank, and the last run may be cut.
    """
    if len(candidates) <= size:
        return candidates
    bound, _, _ = candidates[size]
    return [candidate for candidate in candidates if candidate[0] < bound]


def _fair_shares(sizes: Mapping[str, int], available: int) -> dict[str, int]:
    """Compute max-min fair shares.

    The smallest sizes are met first, the others get equal parts of the rest.
    """
    shares: dict[str, int] = {}
    for number, (name, size) in enumerate(sorted(sizes.items(), key=lambda item: item[1])):
        shares[name] = min(size, -(-available // (len(sizes) - number)))
        available -= shares[name]
    return shares


def _units_from(candidates: Sequence[_Candidate]) -> Units:
    """Return the units of candidates, each with a document of its own, without text."""
    documents = []
    numbers = []
    starts = []
    ends = []
    texts = []
    keys = []
    for _, (doc_id, number), (source, start, end, key, text) in candidates:
        documents.append(Document(doc_id, source, ""))
        numbers.append(number)
        starts.append(start)
        ends.append(end)
        texts.append(text)
        keys.append(key)
    return Units(
        documents=documents,
        owners=np.arange(len(candidates)),
        numbers=np.array(numbers, dtype=np.int32),
        starts=np.array(starts, dtype=np.int64),
        ends=np.array(ends, dtype=np.int64),
        texts=texts,
        keys=np.array(keys, dtype=np.uint64),
    )


def _run_keys(units: Units, length: int) -> np.ndarray:
    """Compute the key of each unit's run: that of its first unit; of plain texts, its own."""
    nameless = np.array([not document.doc_id for document in units.documents])
    with np.errstate(over="ignore"):
        back = (units.numbers % length).astype(np.uint64) * UNIT_STRIDE
        return np.where(nameless[units.owners], units.keys, units.keys - back)


def _keep_lowest(heap: list[Any], size: int, ranks: np.ndarray, batch: Units) -> None:
    """Push a batch into a heap of the `size` units with the lowest ranks.

    Ranks in the heap are negative, because heapq keeps the highest.
    """
    if size == 0:
        return
    bound = -heap[0][0] if len(heap) == size else 1.0
    for row in np.flatnonzero(ranks < bound).tolist():
        unit = (batch.doc_ids[row], int(batch.numbers[row]))
        content = (
            batch.sources[row],
            int(batch.starts[row]),
            int(batch.ends[row]),
            int(batch.keys[row]),
            batch.texts[row],
        )
        item = (-float(ranks[row]), unit, content)
        if len(heap) < size:
            heappush(heap, item)
        else:
            heappushpop(heap, item)
