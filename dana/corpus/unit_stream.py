"""Split documents into batches of units, and draw uniform samples of their stream in one pass.

Units have stable keys.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

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
    candidates = {name: _Lowest(limits[name]) for name in requests}
    for batch in stream:
        for name, (seed, _) in requests.items():
            keys = _run_keys(batch, runs[name]) if name in runs else batch.keys
            candidates[name].add(batch, hash_uniform(seed, keys))
    sizes = {name: size for name, (_, size) in requests.items() if name not in runs}
    lowest = {name: sample.cut() for name, sample in candidates.items()}
    available = max((len(lowest[name][0]) for name in sizes), default=0)
    if available < sum(sizes.values()):
        sizes = _fair_shares(sizes, available)
    earlier_units: set[tuple[str, int]] = set()
    samples = {}
    for name, (_, size) in requests.items():
        units, ranks = lowest[name]
        if name in runs:
            chosen = np.arange(_end_of_runs(ranks, size))
        else:
            free = [row for row, unit in enumerate(units.ids) if unit not in earlier_units]
            chosen = np.array(free[: sizes[name]], dtype=np.int64)
        samples[name] = _without_documents(units, chosen)
        if name not in runs:
            earlier_units.update(samples[name].ids)
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


def _end_of_runs(ranks: np.ndarray, size: int) -> int:
    """Return how many of the units with sorted ranks are of whole runs, and at most `size`.

    The units of a run have one rank, and the last run may be cut.
    """
    if len(ranks) <= size:
        return len(ranks)
    return int(np.searchsorted(ranks, ranks[size]))


def _fair_shares(sizes: Mapping[str, int], available: int) -> dict[str, int]:
    """Compute max-min fair shares.

    The smallest sizes are met first, the others get equal parts of the rest.
    """
    shares: dict[str, int] = {}
    for number, (name, size) in enumerate(sorted(sizes.items(), key=lambda item: item[1])):
        shares[name] = min(size, -(-available // (len(sizes) - number)))
        available -= shares[name]
    return shares


def _without_documents(units: Units, rows: np.ndarray) -> Units:
    """Select units, each with a document of its own, without text."""
    documents = []
    for row in rows.tolist():
        documents.append(Document(units.doc_ids[row], units.sources[row], ""))
    return replace(units.rows(rows), documents=documents, owners=np.arange(rows.size))


def _run_keys(units: Units, length: int) -> np.ndarray:
    """Compute the key of each unit's run: that of its first unit; of plain texts, its own."""
    nameless = np.array([not document.doc_id for document in units.documents])
    with np.errstate(over="ignore"):
        back = (units.numbers % length).astype(np.uint64) * UNIT_STRIDE
        return np.where(nameless[units.owners], units.keys, units.keys - back)


class _Lowest:
    """The units of a stream with the lowest ranks."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._bound = 1.0 if size else 0.0  # above all ranks that may be among them
        self._units = [Units.of_texts([])]
        self._ranks = [np.empty(0)]
        self._count = 0

    def add(self, batch: Units, ranks: np.ndarray) -> None:
        """Add a batch, and leave out what is too high when twice as many as needed are held."""
        rows = np.flatnonzero(ranks < self._bound)
        if not rows.size:  # as of most batches: nothing of them is held
            return
        self._units.append(_without_documents(batch, rows))
        self._ranks.append(ranks[rows])
        self._count += rows.size
        if self._count > 2 * self._size:
            self.cut()

    def cut(self) -> tuple[Units, np.ndarray]:
        """Leave out all but the lowest; return these and their ranks, sorted by rank and id."""
        units = Units.join(self._units)
        ranks = np.concatenate(self._ranks)
        keys = list(zip(ranks.tolist(), units.ids, strict=True))
        order = np.array(sorted(range(len(keys)), key=keys.__getitem__), dtype=np.int64)
        lowest = order[: self._size]
        self._units = [_without_documents(units, lowest)]
        self._ranks = [ranks[lowest]]
        self._count = lowest.size
        if self._size and lowest.size == self._size:
            self._bound = float(ranks[lowest[-1]])
        return self._units[0], self._ranks[0]
