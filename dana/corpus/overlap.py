"""Find n-grams shared with evaluation texts, and near duplicates of documents, by runs of words.

Texts are reduced to their words (NFKC, lower case, runs of word characters), so punctuation, case
and line ends make no difference. Every run of n words gets a 64-bit rolling hash, in one numpy pass
over a block of texts. In the search for evaluation text, runs with equal hashes are compared byte
by byte, so a collision of hashes never counts. In scripts without spaces (:mod:`dana.core.scripts`)
words are characters, and here, where lengths are counted, two characters count as one word, as many
as a word of Chinese has.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from importlib.util import find_spec
from itertools import chain, islice
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.sparse import coo_array, csr_array

from dana.core.config import require
from dana.core.errors import ConfigError
from dana.core.extras import install_command
from dana.core.scripts import begins_unspaced, has_unspaced
from dana.corpus.text import words
from dana.corpus.units import sentences

SHINGLE = 4  # words
COMMON = 500  # shingles of more documents are ignored as boilerplate, which also bounds the work
ROWS_AT_ONCE = 256
MINHASH_SHINGLE = 5  # words
PERMUTATIONS = 128  # the standard error of an estimate is at most 0.044
# Weights in the choice of bands; a false positive costs one comparison.
FALSE_POSITIVES = 0.1
FALSE_NEGATIVES = 0.9
SHINGLES_AT_ONCE = 4096  # a text of 10 MB would otherwise need a matrix of a gigabyte
_BASE = 0x9E3779B97F4A7C15  # 5 mod 8, so that its powers modulo 2^64 repeat as late as they can
_SPACE = 32
_NEWLINE = 10
# Of a hash: a table of 16 MB, which rejects 94 % of missing hashes if the index has a million.
_FILTER_BITS = 24


class Overlap(NamedTuple):
    """A run of words that a text shares with a task's evaluation texts.

    Attributes:
        row: Position of the text in the argument of :meth:`OverlapIndex.find`.
        task: Name of the task.
        kind: ``ngram``, or ``sentence`` for a whole sentence (or whole text) shorter than an
            n-gram.
        tokens: Number of words.
        digest: Hex digest of the words joined by spaces: identifies the run without revealing it.
    """

    row: int
    task: str
    kind: Literal["ngram", "sentence"]
    tokens: int
    digest: str


@dataclass(frozen=True)
class OverlapIndex:
    """Index of every n-gram of the evaluation texts, and of every sentence shorter than an n-gram.

    Memory: the words of the evaluation texts, 24 bytes per run and 16 MB, however many texts are
    searched.

    Attributes:
        tasks: Names of the tasks.
        ngram: Words of an n-gram.
        sentence: Fewest words of a sentence in the index.
        blob: The words, one text or sentence per line.
        hashes: Shape (runs,), uint64, ascending.
        starts: Shape (runs,), int64, first byte of each run in `blob`.
        sizes: Shape (runs,), int32, bytes of each run.
        codes: Shape (runs,), int32, position in `tasks` of the task of each run.
        prefixes: Shape (2 ** 24,), bool, True if a hash begins with these 24 bits.
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
        cls,
        texts: Mapping[str, Iterable[str]],
        ngram: int = 13,
        sentence: int = 8,
        language: str = "en",
    ) -> "OverlapIndex":
        """Index evaluation texts.

        Args:
            texts: Evaluation texts by task.
            ngram: Words of an n-gram.
            sentence: Fewest words of a sentence; longer sentences than `ngram` are detected by
                their n-grams.
            language: ISO 639-1 code, for the segmentation into sentences.
        """
        lines: list[str] = []
        codes: list[int] = []
        for code, task in enumerate(texts):
            distinct: dict[str, None] = {}  # a set in the order of the texts
            for text in texts[task]:
                distinct.update(dict.fromkeys(_lines(text, ngram, sentence, language)))
            lines += distinct
            codes += [code] * len(distinct)
        block = _Block.from_lines(lines)
        runs = block.shingles(ngram, sentence)
        hashes = block.hash_runs(runs)
        owners = np.array(codes, dtype=np.int32)[runs.rows]
        order = np.lexsort((runs.starts, owners, hashes))
        is_first = _first_of_equals(
            block.blob, hashes[order], owners[order], runs.starts[order], runs.ends[order]
        )
        kept = order[is_first]
        prefixes = np.zeros(1 << _FILTER_BITS, dtype=bool)
        prefixes[hashes >> np.uint64(64 - _FILTER_BITS)] = True
        return cls(
            tasks=tuple(texts),
            ngram=ngram,
            sentence=sentence,
            blob=block.blob,
            hashes=hashes[kept],
            starts=runs.starts[kept],
            sizes=(runs.ends - runs.starts).astype(np.int32)[kept],
            codes=owners[kept],
            prefixes=prefixes,
        )

    def find(self, texts: Sequence[str]) -> list[Overlap]:
        """Find the first run that each text shares with each task. O(characters).

        Args:
            texts: A block of texts; the working memory is some 60 times their size.

        Returns:
            The runs, in order of text and task.
        """
        block = _Block.from_lines([words(text) for text in texts])
        # By text and task: where the run begins, and the run.
        first: dict[tuple[int, int], tuple[int, Overlap]] = {}
        for size in block.sizes(self.sentence, self.ngram):
            is_ngram = size == 2 * self.ngram - 1
            kind: Literal["ngram", "sentence"] = "ngram" if is_ngram else "sentence"
            runs = block.runs(size)
            for number, entry in self._candidates(block.hash_runs(runs)):
                start = int(runs.starts[number])
                row = int(runs.rows[number])
                run = block.blob[start : runs.ends[number]]
                for code in self._tasks_with(entry, run):
                    if (row, code) not in first or start < first[row, code][0]:
                        digest = blake2b(run, digest_size=16).hexdigest()
                        tokens = run.count(b" ") + 1
                        found = Overlap(row, self.tasks[code], kind, tokens, digest)
                        first[row, code] = (start, found)
        return [first[key][1] for key in sorted(first)]

    def _candidates(self, hashes: np.ndarray) -> Iterator[tuple[int, int]]:
        """List the positions of the hashes that the index holds, with the first entry of each."""
        numbers = np.flatnonzero(self.prefixes[hashes >> np.uint64(64 - _FILTER_BITS)])
        entries = np.searchsorted(self.hashes, hashes[numbers])
        matches = np.flatnonzero(self.hashes.take(entries, mode="clip") == hashes[numbers])
        return zip(numbers[matches].tolist(), entries[matches].tolist(), strict=True)

    def _tasks_with(self, entry: int, run: bytes) -> Iterator[int]:
        """Stream the tasks that have exactly these words.

        Args:
            entry: The first entry with the hash of the words.
            run: The words.
        """
        key = self.hashes[entry]
        while entry < self.hashes.size and self.hashes[entry] == key:
            start = int(self.starts[entry])
            if self.blob[start : start + int(self.sizes[entry])] == run:
                yield int(self.codes[entry])
            entry += 1


def _lines(text: str, ngram: int, sentence: int, language: str) -> Iterator[str]:
    """Stream the words of a text, then those of its short sentences.

    They are the sentences that are long enough to count and too short for an n-gram.
    """
    text_words = words(text)
    if _count_words(text_words) >= min(ngram, sentence):
        yield text_words
    for start, end in sentences(text, language):
        line = words(text[start:end])
        if sentence <= _count_words(line) < ngram:
            yield line


def _count_words(line: str) -> int:
    """Count the words of a line of words.

    Two characters of a script without spaces are one word, rounded up.
    """
    count = line.count(" ") + 1
    if line.isascii() or not has_unspaced(line):
        return count
    characters = sum(map(begins_unspaced, line.split()))
    return count - characters // 2


def _half_words(lines: Sequence[str]) -> np.ndarray | None:
    """Return the length of each word in half words.

    Returns:
        1 for a character of a script without spaces, else 2; None if all are 2.
    """
    if not any(not line.isascii() and has_unspaced(line) for line in lines):
        return None
    halves: list[int] = []
    for line in lines:
        halves += [2 - begins_unspaced(word) for word in line.split()]
    return np.array(halves)


def _first_of_equals(
    blob: bytes, hashes: np.ndarray, owners: np.ndarray, starts: np.ndarray, ends: np.ndarray
) -> np.ndarray:
    """Mark the runs, sorted by hash and owner, whose words differ from those of the run before.

    Otherwise a text that an evaluation split repeats would be compared that many times.

    Returns:
        bool of shape (runs,).
    """
    first = np.ones(hashes.size, dtype=bool)
    alike = (hashes[1:] == hashes[:-1]) & (owners[1:] == owners[:-1])
    for row in np.flatnonzero(alike) + 1:
        first[row] = blob[starts[row] : ends[row]] != blob[starts[row - 1] : ends[row - 1]]
    return first


class _Runs(NamedTuple):
    """Runs of words: first byte, byte after the last, and line of each; int64 of shape (runs,)."""

    starts: np.ndarray
    ends: np.ndarray
    rows: np.ndarray


@dataclass(frozen=True)
class _Block:
    """Lines of words, with the prefix sums that hash any run of them in constant time.

    Attributes:
        blob: The lines.
        words: Every word.
        halves: Length of each word in half words, from :func:`_half_words`; None if all are 2.
        prefix: Shape (bytes + 1,), uint64, sum of byte times power over all earlier bytes.
    """

    blob: bytes
    words: _Runs
    halves: np.ndarray | None
    prefix: np.ndarray

    @classmethod
    def from_lines(cls, lines: Sequence[str]) -> "_Block":
        """Create a block from lines of words joined by single spaces."""
        blob = "".join(f"{line}\n" for line in lines).encode()
        codes = np.frombuffer(blob, dtype=np.uint8)
        ends = np.flatnonzero(codes <= _SPACE)
        starts = np.concatenate([[0], ends + 1])[: ends.size]
        line_ends = codes[ends] == _NEWLINE
        rows = np.cumsum(line_ends) - line_ends
        nonempty = ends > starts  # a text without words is an empty line
        every_word = _Runs(starts[nonempty], ends[nonempty], rows[nonempty])
        powers, _ = _powers(codes.size)
        prefix = np.zeros(codes.size + 1, dtype=np.uint64)
        np.cumsum(codes * powers[: codes.size], out=prefix[1:])
        return cls(blob, every_word, _half_words(lines), prefix)

    def sizes(self, shortest: int, longest: int) -> list[int]:
        """Return the sizes, in half words, of runs of `shortest` to `longest` words.

        They are the sizes that differ in this block. A run of n words has 2 n - 1 half words or
        more; whole words have no other sizes than these.
        """
        step = 2 if self.halves is None else 1
        return list(range(2 * min(shortest, longest) - 1, 2 * longest, step))

    def runs(self, size: int) -> _Runs:
        """Return the run from each word on that first reaches `size` half words.

        Where the rest of the line has fewer, there is no run.
        """
        starts, ends, rows = self.words
        if self.halves is None:
            last = (size + 1) // 2 - 1
            inside = rows[last:] == rows[: max(0, rows.size - last)]
            return _Runs(starts[: inside.size][inside], ends[last:][inside], rows[last:][inside])
        before = np.concatenate([[0], np.cumsum(self.halves)])
        after = np.searchsorted(before, before[:-1] + size)  # the word after the run
        fits = np.flatnonzero(after <= rows.size)
        last_words = after[fits] - 1
        inside = rows[fits] == rows[last_words]
        first_words = fits[inside]
        return _Runs(starts[first_words], ends[last_words[inside]], rows[first_words])

    def shingles(self, length: int, shortest: int) -> _Runs:
        """Return every run of `length` words within a line, and whole shorter lines.

        Such a line has `shortest` to `length` - 1 words.
        """
        line_sizes = np.zeros(int(self.words.rows.max(initial=-1)) + 1, dtype=np.int64)
        halves = 2 if self.halves is None else self.halves
        np.add.at(line_sizes, self.words.rows, halves)
        *fewer_sizes, size = self.sizes(shortest, length)
        parts = [self.runs(size)]
        for fewer in fewer_sizes:
            runs = self.runs(fewer)
            size_of_line = fewer
            if self.halves is None:
                size_of_line = fewer + 1  # n words are 2 n half words
            is_whole = line_sizes[runs.rows] == size_of_line
            parts.append(_Runs(runs.starts[is_whole], runs.ends[is_whole], runs.rows[is_whole]))
        return _Runs(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))

    def hash_runs(self, runs: _Runs) -> np.ndarray:
        """Compute the rolling hash of each run.

        It depends on the bytes of the run alone, not on its position.
        """
        _, inverses = _powers(self.prefix.size - 1)
        hashes: np.ndarray = self.prefix[runs.ends] - self.prefix[runs.starts]
        hashes *= inverses[runs.starts]
        return hashes


def _powers(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Compute at least `size` powers of the base and of its inverse, modulo 2^64."""
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
    """Build the incidence matrix of documents and shingles, runs of words. O(words).

    A text of fewer words than a shingle is a single shingle.

    Args:
        documents: Each a list of texts; no shingle spans two texts.
        length: Words of a shingle.
        common: Shingles of more documents are left out.

    Returns:
        Ones at (document, distinct shingle), without the common shingles; and the number of
        distinct shingles of each document, common ones included, int64 of shape (documents,).
    """
    hashes = [np.empty(0, np.uint64)]
    rows = [np.empty(0, np.int64)]
    count = 0
    remaining = iter(documents)
    while batch := list(islice(remaining, ROWS_AT_ONCE)):
        block = _Block.from_lines([words(text) for text in chain.from_iterable(batch)])
        runs = block.shingles(length, 1)
        hashes.append(block.hash_runs(runs))
        document_of_line = np.repeat(np.arange(len(batch)), list(map(len, batch)))
        rows.append(count + document_of_line[runs.rows])
        count += len(batch)
    distinct, columns = np.unique(np.concatenate(hashes), return_inverse=True)
    indices = (np.concatenate(rows), columns)
    matrix = csr_array((np.ones(columns.size), indices), shape=(count, max(1, distinct.size)))
    matrix.data[:] = 1  # repeats within a document were summed
    frequency = np.bincount(matrix.indices, minlength=matrix.shape[1])
    rare = np.flatnonzero((frequency > 0) & (frequency <= common))
    return csr_array(matrix[:, rare]), np.diff(matrix.indptr).astype(np.int64)


def similar_to_earlier(
    matrix: csr_array, sizes: np.ndarray, threshold: float
) -> Iterator[tuple[int, int]]:
    """Find pairs of similar documents by the Jaccard index of their shingles.

    Common shingles count as not in common, so an index is never too high.

    Args:
        matrix: Incidence matrix from :func:`shingle_matrix`.
        sizes: Distinct shingles of each document, from there too.
        threshold: Smallest Jaccard index of a similar pair.

    Returns:
        Pairs (document, earlier document), sorted.
    """
    for start in range(0, sizes.size, ROWS_AT_ONCE):
        end = min(start + ROWS_AT_ONCE, sizes.size)
        common = coo_array(matrix[start:end] @ matrix[:end].T)
        row = common.coords[0] + start
        earlier = common.coords[1]
        jaccard = common.data / (sizes[row] + sizes[earlier] - common.data)
        similar = (earlier < row) & (jaccard >= threshold)
        yield from sorted(zip(row[similar].tolist(), earlier[similar].tolist(), strict=True))


def repeats_earlier(matrix: csr_array, sizes: np.ndarray, threshold: float) -> np.ndarray:
    """Mark documents similar to any earlier one, itself a repeat or not; bool, (documents,)."""
    repeats = np.zeros(sizes.size, dtype=bool)
    rows = [row for row, _ in similar_to_earlier(matrix, sizes, threshold)]
    repeats[rows] = True
    return repeats


def check_near_duplicates(threshold: float) -> None:
    """Check the threshold, and that datasketch is installed.

    Raises:
        ConfigError: If `threshold` is not in (0, 0.99], or the library is not installed.
    """
    require(
        0 < threshold <= 0.99,
        "near_duplicates",
        threshold,
        "a Jaccard index in (0, 0.99], for example 0.8",
    )
    if find_spec("datasketch") is None:
        raise ConfigError(
            f"near_duplicates={threshold!r}: needs datasketch: {install_command('dedup')}"
        )


class NearDuplicates:
    """Index of texts by MinHash signature, about 9 KB per text of any length.

    datasketch retrieves the texts that share a band of their signatures; the estimated Jaccard
    index then decides. The permutations are fixed, so equal input gives equal results on every
    machine.

    References:
        Broder 1997, On the resemblance and containment of documents; Leskovec, Rajaraman and Ullman
        2020, Mining of massive datasets, section 3.4.
    """

    def __init__(self, threshold: float) -> None:
        """Create an empty index.

        Args:
            threshold: Smallest estimated Jaccard index of the sets of five successive words of near
                duplicates.

        Raises:
            ConfigError: See :func:`check_near_duplicates`.
        """
        check_near_duplicates(threshold)
        from datasketch import MinHash, MinHashLSH

        self._threshold = threshold
        self._empty = MinHash(PERMUTATIONS, seed=1)
        self._bands = MinHashLSH(
            threshold, PERMUTATIONS, weights=(FALSE_POSITIVES, FALSE_NEGATIVES)
        )
        self._names: list[str] = []
        self._signatures: list[np.ndarray] = []

    def add(self, name: str, text: str) -> str | None:
        """Return the name of the first near duplicate of a text.

        If there is none, add the text and return None. A text without words has no near duplicate.
        O(characters).
        """
        line = words(text)
        if not line:
            return None
        signature = self._signature(line)
        for row in sorted(self._bands.query(signature)):
            if np.mean(self._signatures[row] == signature.hashvalues) >= self._threshold:
                first: str = self._names[row]
                return first
        self._bands.insert(len(self._names), signature, check_duplication=False)
        self._names.append(name)
        self._signatures.append(signature.hashvalues)
        return None

    def _signature(self, line: str) -> Any:
        """Compute the MinHash of all runs of five words; fewer words are one run."""
        signature = self._empty.copy()
        parts = line.encode().split(b" ")
        starts = range(max(1, len(parts) - MINHASH_SHINGLE + 1))
        shingles = (b" ".join(parts[start : start + MINHASH_SHINGLE]) for start in starts)
        while batch := list(islice(shingles, SHINGLES_AT_ONCE)):
            signature.update_batch(batch)
        return signature
