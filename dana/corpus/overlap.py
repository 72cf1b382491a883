"""Text overlap by runs of words: n-grams shared with evaluation texts, near duplicates of documents and of a stream.

Texts are reduced to their words (NFKC, lower case, runs of word characters), so marks, punctuation, case and line ends
make no difference. Every run of n words gets a 64-bit rolling hash, in one numpy pass over a block of texts. Where
evaluation text is looked for, runs of equal hashes are compared byte by byte, so a collision of hashes never counts.
Texts without spaces between words (Chinese, Thai) have few and long words, so less of their overlap is found.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from importlib.util import find_spec
from itertools import islice
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.sparse import coo_array, csr_array

from dana.core.config import require
from dana.core.errors import ConfigError
from dana.corpus.text import words
from dana.corpus.units import sentences

SHINGLE = 4  # words of a run by which two documents are compared
COMMON = 500  # shingles of more documents are boilerplate: they join nothing, which also bounds the work
ROWS_AT_ONCE = 256
MINHASH_SHINGLE = 5  # words
PERMUTATIONS = 128  # the standard error of an estimate is at most 0.044
FALSE_ALARMS, MISSES = 0.1, 0.9  # weights in the choice of bands; a false alarm costs one comparison
SHINGLES_AT_ONCE = 4096  # a text of 10 MB would otherwise need a matrix of a gigabyte
_BASE = 0x9E3779B97F4A7C15  # 5 mod 8, so that its powers modulo 2^64 repeat as late as they can
_SPACE, _NEWLINE = 32, 10
_FILTER_BITS = 24  # of a hash: a table of 16 MB, which rejects 94 % of other hashes where the index has a million


class Overlap(NamedTuple):
    """A run of words that a text shares with a task's evaluation texts.

    Attributes:
        row: Place of the text among those asked about.
        task: Whose evaluation text it is.
        kind: ``ngram``, or ``sentence`` for a whole sentence (or whole text) shorter than an n-gram.
        tokens: Its words.
        digest: Hex digest of the words with single spaces between: it names the run and does not tell it.
    """

    row: int
    task: str
    kind: Literal["ngram", "sentence"]
    tokens: int
    digest: str


@dataclass(frozen=True)
class OverlapIndex:
    """Every n-gram of the evaluation texts, and every sentence shorter than an n-gram.

    Memory: the words of the evaluation texts, 24 bytes a run and 16 MB, however many texts are looked up.

    Attributes:
        tasks: Names.
        ngram: Words of an n-gram.
        sentence: Words of the shortest sentence taken.
        blob: The words, a text or a sentence a line.
        hashes: Shape (runs,), uint64, ascending.
        starts: Shape (runs,), int64, where the run begins in `blob`.
        sizes: Shape (runs,), int32, its bytes.
        codes: Shape (runs,), int32, whose it is: a position in `tasks`.
        prefixes: Shape (2 ** 24,), bool, whether any hash begins with these 24 bits.
    """

    tasks: tuple[str, ...]
    ngram: int
    sentence: int
    blob: bytes
    hashes: np.ndarray
    starts: np.ndarray
    sizes: np.ndarray
    codes: np.ndarray
    prefixes: np.ndarray

    @classmethod
    def build(
        cls, texts: Mapping[str, Iterable[str]], ngram: int = 13, sentence: int = 8, language: str = "en"
    ) -> "OverlapIndex":
        """Index evaluation texts.

        Args:
            texts: Evaluation texts by task.
            ngram: Words of an n-gram.
            sentence: Words from which on a sentence counts; one of `ngram` words or more is found by its n-grams.
            language: ISO 639-1 code, for where sentences end.
        """
        lines: list[str] = []
        codes: list[int] = []
        for code, task in enumerate(texts):
            distinct = dict.fromkeys(line for text in texts[task] for line in _lines(text, ngram, sentence, language))
            lines += distinct
            codes += [code] * len(distinct)
        block = _Block.of(lines)
        starts, ends, rows = runs = block.shingles(ngram, sentence)
        hashes = block.hashed(runs)
        owners = np.array(codes, dtype=np.int32)[rows]
        order = np.lexsort((starts, owners, hashes))
        kept = order[_first_of_equals(block.blob, hashes[order], owners[order], starts[order], ends[order])]
        prefixes = np.zeros(1 << _FILTER_BITS, dtype=bool)
        prefixes[hashes >> np.uint64(64 - _FILTER_BITS)] = True
        sizes = (ends - starts).astype(np.int32)
        return cls(
            tuple(texts), ngram, sentence, block.blob, hashes[kept], starts[kept], sizes[kept], owners[kept], prefixes
        )

    def find(self, texts: Sequence[str]) -> list[Overlap]:
        """The first run that each text shares with each task, in order of text and task. O(characters).

        Args:
            texts: A block of them; the working memory is some 60 times their size.
        """
        block = _Block.of([words(text) for text in texts])
        first: dict[tuple[int, int], tuple[int, Overlap]] = {}
        for length in range(min(self.sentence, self.ngram), self.ngram + 1):
            kind: Literal["ngram", "sentence"] = "ngram" if length == self.ngram else "sentence"
            runs = block.runs(length)
            for place, entry in self._candidates(block.hashed(runs)):
                start, row = int(runs.starts[place]), int(runs.rows[place])
                run = block.blob[start : runs.ends[place]]
                for code in self._holders(entry, run):
                    if (row, code) not in first or start < first[row, code][0]:
                        digest = blake2b(run, digest_size=16).hexdigest()
                        first[row, code] = start, Overlap(row, self.tasks[code], kind, length, digest)
        return [first[key][1] for key in sorted(first)]

    def _candidates(self, hashes: np.ndarray) -> Iterator[tuple[int, int]]:
        """Places of the hashes that the index holds, and each one's first entry."""
        places = np.flatnonzero(self.prefixes[hashes >> np.uint64(64 - _FILTER_BITS)])
        entries = np.searchsorted(self.hashes, hashes[places])
        known = np.flatnonzero(self.hashes.take(entries, mode="clip") == hashes[places])
        return zip(places[known].tolist(), entries[known].tolist(), strict=True)

    def _holders(self, entry: int, run: bytes) -> Iterator[int]:
        """Tasks that hold exactly these words, among the entries with the hash of `entry`, the first of them."""
        wanted = self.hashes[entry]
        while entry < self.hashes.size and self.hashes[entry] == wanted:
            start = int(self.starts[entry])
            if self.blob[start : start + int(self.sizes[entry])] == run:
                yield int(self.codes[entry])
            entry += 1


def _lines(text: str, ngram: int, sentence: int, language: str) -> Iterator[str]:
    """The text's words; and those of each sentence that is long enough to count and too short for an n-gram."""
    whole = words(text)
    if whole.count(" ") + 1 >= min(ngram, sentence):
        yield whole
    for start, end in sentences(text, language):
        line = words(text[start:end])
        if sentence <= line.count(" ") + 1 < ngram:
            yield line


def _first_of_equals(
    blob: bytes, hashes: np.ndarray, owners: np.ndarray, starts: np.ndarray, ends: np.ndarray
) -> np.ndarray:
    """Shape (runs,), bool, of runs in order of hash and owner: False where a run's words are those of the one before.

    A text that an evaluation split repeats would otherwise be compared as often.
    """
    first = np.ones(hashes.size, dtype=bool)
    alike = (hashes[1:] == hashes[:-1]) & (owners[1:] == owners[:-1])
    for place in np.flatnonzero(alike) + 1:
        first[place] = blob[starts[place] : ends[place]] != blob[starts[place - 1] : ends[place - 1]]
    return first


class _Runs(NamedTuple):
    """Runs of words: where each begins and ends in a blob, and in which line; int64, shape (runs,)."""

    starts: np.ndarray
    ends: np.ndarray
    rows: np.ndarray


@dataclass(frozen=True)
class _Block:
    """Lines of words, and all that is needed to hash any run of them in constant time.

    Attributes:
        blob: The lines.
        words: Every word.
        prefix: Shape (bytes + 1,), uint64, sum of byte times power over all bytes before.
    """

    blob: bytes
    words: _Runs
    prefix: np.ndarray

    @classmethod
    def of(cls, lines: Sequence[str]) -> "_Block":
        """A block of lines that hold words with single spaces between."""
        blob = "".join(f"{line}\n" for line in lines).encode()
        codes = np.frombuffer(blob, dtype=np.uint8)
        ends = np.flatnonzero(codes <= _SPACE)
        starts = np.concatenate([[0], ends + 1])[: ends.size]
        line_ends = codes[ends] == _NEWLINE
        rows = np.cumsum(line_ends) - line_ends
        filled = ends > starts  # a text without words is an empty line
        prefix = np.zeros(codes.size + 1, dtype=np.uint64)
        np.cumsum(codes * _powers(codes.size)[0][: codes.size], out=prefix[1:])
        return cls(blob, _Runs(starts[filled], ends[filled], rows[filled]), prefix)

    def runs(self, length: int) -> _Runs:
        """Every run of `length` words within a line."""
        starts, ends, rows = self.words
        last = length - 1
        inside = rows[last:] == rows[: max(0, rows.size - last)]
        return _Runs(starts[: inside.size][inside], ends[last:][inside], rows[last:][inside])

    def shingles(self, length: int, shortest: int) -> _Runs:
        """Every run of `length` words within a line; of a line of fewer words, but `shortest` at least, all of it."""
        sizes = np.bincount(self.words.rows)
        parts = [self.runs(length)]
        for fewer in range(shortest, length):
            runs = self.runs(fewer)
            parts.append(_Runs(*(part[sizes[runs.rows] == fewer] for part in runs)))
        return _Runs(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))

    def hashed(self, runs: _Runs) -> np.ndarray:
        """The rolling hash of each run: a function of its bytes alone, wherever it lies."""
        _, inverses = _powers(self.prefix.size - 1)
        return (self.prefix[runs.ends] - self.prefix[runs.starts]) * inverses[runs.starts]


def _powers(size: int) -> tuple[np.ndarray, np.ndarray]:
    """At least `size` powers of the base and of its inverse, modulo 2^64."""
    return _power_tables(1 << max(0, size - 1).bit_length())


@lru_cache(maxsize=1)
def _power_tables(size: int) -> tuple[np.ndarray, np.ndarray]:
    tables = []
    for base in (_BASE, pow(_BASE, -1, 1 << 64)):
        factors = np.full(size, base, dtype=np.uint64)
        factors[0] = 1
        tables.append(np.cumprod(factors))
    return tables[0], tables[1]


def shingle_matrix(
    documents: Iterable[Sequence[str]], length: int = SHINGLE, common: int = COMMON
) -> tuple[csr_array, np.ndarray]:
    """Which document holds which run of four words; one of fewer words is a single run. O(words).

    Args:
        documents: Each a list of texts; no run goes from one text into the next.
        length: Words of a run.
        common: Runs of more documents are left out.

    Returns:
        Ones, shape (documents, distinct shingles), without the common ones; and the distinct shingles of each document
        with those, int64 of shape (documents,).
    """
    hashes, rows = [np.empty(0, np.uint64)], [np.empty(0, np.int64)]
    count, left = 0, iter(documents)
    while batch := list(islice(left, ROWS_AT_ONCE)):
        block = _Block.of([words(text) for texts in batch for text in texts])
        runs = block.shingles(length, 1)
        hashes.append(block.hashed(runs))
        rows.append(count + np.repeat(np.arange(len(batch)), list(map(len, batch)))[runs.rows])
        count += len(batch)
    distinct, columns = np.unique(np.concatenate(hashes), return_inverse=True)
    where = (np.concatenate(rows), columns)
    held = csr_array((np.ones(columns.size), where), shape=(count, max(1, distinct.size)))
    held.data[:] = 1  # a run that is there twice is there
    often = np.bincount(held.indices, minlength=held.shape[1])
    return csr_array(held[:, np.flatnonzero((often > 0) & (often <= common))]), np.diff(held.indptr).astype(np.int64)


def similar_to_earlier(held: csr_array, sizes: np.ndarray, least: float) -> Iterator[tuple[int, int]]:
    """Each document and an earlier one that it is similar to, document by document, by the Jaccard index of shingles.

    Common shingles count as not shared, so an index is never too high.

    Args:
        held: From :func:`shingle_matrix`, as is `sizes`.
        sizes: Distinct shingles of each document.
        least: Smallest Jaccard index that counts.
    """
    for start in range(0, sizes.size, ROWS_AT_ONCE):
        end = min(start + ROWS_AT_ONCE, sizes.size)
        shared = coo_array(held[start:end] @ held[:end].T)
        row, earlier = shared.coords[0] + start, shared.coords[1]
        similar = (earlier < row) & (shared.data / (sizes[row] + sizes[earlier] - shared.data) >= least)
        yield from sorted(zip(row[similar].tolist(), earlier[similar].tolist(), strict=True))


def repeats_earlier(held: csr_array, sizes: np.ndarray, least: float) -> np.ndarray:
    """Which documents are similar to an earlier one, even if that one is to one before it: bool, shape (documents,)."""
    repeats = np.zeros(sizes.size, dtype=bool)
    repeats[[row for row, _ in similar_to_earlier(held, sizes, least)]] = True
    return repeats


def check_near_duplicates(threshold: float) -> None:
    """Check a threshold, and that datasketch is installed.

    Raises:
        ConfigError: If `threshold` is not in (0, 1], or the library is not installed.
    """
    require(0 < threshold <= 1, "near_duplicates", threshold, "a Jaccard index in (0, 1], for example 0.8")
    if find_spec("datasketch") is None:
        raise ConfigError(f"near_duplicates={threshold!r}: needs datasketch: pip install 'dana[dedup]'")


class NearDuplicates:
    """Index of the texts kept so far: about 9 KB a text, whatever its length.

    datasketch finds the texts that share a band of their signatures; of these, the estimated Jaccard index decides.
    The permutations are fixed, so equal input gives equal outcomes everywhere.

    References:
        Broder 1997, On the resemblance and containment of documents; Leskovec, Rajaraman and Ullman 2020,
        Mining of massive datasets, section 3.4.
    """

    def __init__(self, threshold: float) -> None:
        """Start with no text.

        Args:
            threshold: Estimated Jaccard index of the sets of five successive words from which on a text is a near
                duplicate.

        Raises:
            ConfigError: See :func:`check_near_duplicates`.
        """
        check_near_duplicates(threshold)
        from datasketch import MinHash, MinHashLSH

        self._threshold = threshold
        self._empty = MinHash(PERMUTATIONS, seed=1)
        self._bands = MinHashLSH(threshold, PERMUTATIONS, weights=(FALSE_ALARMS, MISSES))
        self._names: list[str] = []
        self._signatures: list[np.ndarray] = []

    def add(self, name: str, text: str) -> str | None:
        """The name of the first text kept that this one is nearly; None where there is none, and it is kept.

        A text without words is like no other. O(characters).
        """
        line = words(text)
        if not line:
            return None
        signature = self._signature(line)
        for row in sorted(self._bands.query(signature)):
            if np.mean(self._signatures[row] == signature.hashvalues) >= self._threshold:
                return self._names[row]
        self._bands.insert(len(self._names), signature, check_duplication=False)
        self._names.append(name)
        self._signatures.append(signature.hashvalues)
        return None

    def _signature(self, line: str) -> Any:
        """MinHash of every run of five words; of fewer words, of the one that holds them all."""
        signature = self._empty.copy()
        parts = line.encode().split(b" ")
        starts = range(max(1, len(parts) - MINHASH_SHINGLE + 1))
        shingles = (b" ".join(parts[start : start + MINHASH_SHINGLE]) for start in starts)
        while some := list(islice(shingles, SHINGLES_AT_ONCE)):
            signature.update_batch(some)
        return signature
