"""Find n-grams shared with evaluation texts, and near duplicates of documents, by runs of words.

Texts are reduced to their words (NFKC, lower case, runs of word characters), so punctuation, case
and line ends make no difference. Every run of n words gets a 64-bit rolling hash, in one numpy pass
over a block of texts. In the search for evaluation text, runs with equal hashes are compared byte
by byte, so a collision of hashes never counts.

In scripts without spaces each character is a word (:mod:`dana.core.scripts`). Lengths of n-grams and
shingles count two such characters as one word, since a word of Chinese has about two; so they are
counted in half words. :class:`NearDuplicates` counts each character.
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
# A shingle of more documents is boilerplate and is ignored, which also bounds the work.
MOST_DOCUMENTS = 500
ROWS_AT_ONCE = 256
MINHASH_SHINGLE = 5  # words
PERMUTATIONS = 128  # the standard error of an estimate is at most 0.044
# Weights of the two errors when the bands are chosen: a false positive costs one comparison, a false
# negative misses a duplicate.
FALSE_POSITIVES = 0.1
FALSE_NEGATIVES = 0.9
SHINGLES_AT_ONCE = 4096  # a text of 10 MB would otherwise need a matrix of a gigabyte
_BASE = 0x9E3779B97F4A7C15  # 5 mod 8, so that its powers modulo 2^64 repeat as late as they can
_SPACE = 32
_NEWLINE = 10
# Leading bits of a hash that index a table of 16 MB. With a million hashes in the index the table
# rejects 94 % of those that are not in it.
_FILTER_BITS = 24


class Overlap(NamedTuple):
    """A run of words that a text shares with a task's evaluation texts.

    Attributes:
        row: Position of the text in the argument of :meth:`OverlapIndex.find`.
        task: Name of the task.
        kind: ``ngram``, or ``sentence`` for a whole sentence (or whole text) shorter than an
            n-gram.
        tokens: Number of words; in scripts without spaces, of characters.
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
        task_of_line: list[int] = []
        for code, task in enumerate(texts):
            distinct: dict[str, None] = {}  # a set in the order of the texts
            for text in texts[task]:
                distinct.update(dict.fromkeys(_lines(text, ngram, sentence, language)))
            lines += distinct
            task_of_line += [code] * len(distinct)
        block = _Block.from_lines(lines)
        runs = block.shingles(ngram, sentence)
        hashes = block.hash_runs(runs)
        task_of_run = np.array(task_of_line, dtype=np.int32)[runs.rows]
        order = np.lexsort((runs.starts, task_of_run, hashes))
        is_first = _first_of_equals(
            block.blob, hashes[order], task_of_run[order], runs.starts[order], runs.ends[order]
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
            codes=task_of_run[kept],
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
        for half_words in block.half_word_sizes(self.sentence, self.ngram):
            runs = block.runs(half_words)
            for number, entry in self._candidates(block.hash_runs(runs)):
                start = int(runs.starts[number])
                row = int(runs.rows[number])
                run = block.blob[start : runs.ends[number]]
                is_ngram = _count_words(run.decode()) >= self.ngram
                kind: Literal["ngram", "sentence"] = "ngram" if is_ngram else "sentence"
                for code in self._tasks_with(entry, run):
                    if (row, code) not in first or start < first[row, code][0]:
                        digest = blake2b(run, digest_size=16).hexdigest()
                        tokens = run.count(b" ") + 1
                        found = Overlap(row, self.tasks[code], kind, tokens, digest)
                        first[row, code] = (start, found)
        return [first[key][1] for key in sorted(first)]

    def _candidates(self, hashes: np.ndarray) -> Iterator[tuple[int, int]]:
        """Yield, for each hash that the index holds, its position in `hashes` and that of its first entry."""
        positions = np.flatnonzero(self.prefixes[hashes >> np.uint64(64 - _FILTER_BITS)])
        entries = np.searchsorted(self.hashes, hashes[positions])
        matches = np.flatnonzero(self.hashes.take(entries, mode="clip") == hashes[positions])
        return zip(positions[matches].tolist(), entries[matches].tolist(), strict=True)

    def _tasks_with(self, entry: int, run: bytes) -> Iterator[int]:
        """Yield the number of each task that has exactly these words.

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
    """Yield the words of a text, if they are long enough to count, and then those of some of its sentences.

    These are the sentences that are long enough to count and too short for an n-gram.
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
    if all(line.isascii() or not has_unspaced(line) for line in lines):
        return None
    halves: list[int] = []
    for line in lines:
        halves += [1 if begins_unspaced(word) else 2 for word in line.split()]
    return np.array(halves)


def _first_of_equals(
    blob: bytes, hashes: np.ndarray, tasks: np.ndarray, starts: np.ndarray, ends: np.ndarray
) -> np.ndarray:
    """Mark the first of each group of runs with equal task and words; runs are sorted by hash and task.

    Without this, text that an evaluation split repeats would be compared as often as it is repeated.

    Returns:
        bool of shape (runs,).
    """
    first = np.ones(hashes.size, dtype=bool)
    alike = (hashes[1:] == hashes[:-1]) & (tasks[1:] == tasks[:-1])
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
        every_word: Position of every word.
        halves: Length of each word in half words, from :func:`_half_words`; None if all are 2.
        prefix: Shape (bytes + 1,), uint64, sum of byte times power over all earlier bytes.
    """

    blob: bytes
    every_word: _Runs
    halves: np.ndarray | None
    prefix: np.ndarray

    @classmethod
    def from_lines(cls, lines: Sequence[str]) -> "_Block":
        """Create a block from lines of words joined by single spaces."""
        blob = "".join(f"{line}\n" for line in lines).encode()
        byte_values = np.frombuffer(blob, dtype=np.uint8)
        # Words have no byte up to the space, so these bytes are the separators.
        ends = np.flatnonzero(byte_values <= _SPACE)
        starts = np.concatenate([[0], ends + 1])[: ends.size]
        line_ends = byte_values[ends] == _NEWLINE
        rows = np.cumsum(line_ends) - line_ends
        nonempty = ends > starts  # a text without words is an empty line
        every_word = _Runs(starts[nonempty], ends[nonempty], rows[nonempty])
        powers, _ = _powers(byte_values.size)
        prefix = np.zeros(byte_values.size + 1, dtype=np.uint64)
        np.cumsum(byte_values * powers[: byte_values.size], out=prefix[1:])
        return cls(blob, every_word, _half_words(lines), prefix)

    def half_word_sizes(self, shortest: int, longest: int) -> list[int]:
        """Return the sizes, in half words, of runs of `shortest` to `longest` words.

        A run of n words has 2 n - 1 or 2 n half words, as characters are rounded up to whole words.
        Without characters every run of at least 2 n - 1 has 2 n, so the even sizes would find the
        same runs and are left out.
        """
        step = 2 if self.halves is None else 1
        return list(range(2 * min(shortest, longest) - 1, 2 * longest, step))

    def runs(self, size: int) -> _Runs:
        """Return, for each word, the shortest run from it that has at least `size` half words.

        There is none where the rest of the line is shorter.
        """
        starts, ends, rows = self.every_word
        if self.halves is None:
            word_count = (size + 1) // 2
            first_words = np.arange(max(0, rows.size - word_count + 1))
            last_words = first_words + word_count - 1
        else:
            halves_before = np.concatenate([[0], np.cumsum(self.halves)])
            words_after = np.searchsorted(halves_before, halves_before[:-1] + size)
            first_words = np.flatnonzero(words_after <= rows.size)
            last_words = words_after[first_words] - 1
        in_one_line = rows[first_words] == rows[last_words]
        first_words = first_words[in_one_line]
        last_words = last_words[in_one_line]
        return _Runs(starts[first_words], ends[last_words], rows[first_words])

    def shingles(self, length: int, shortest: int) -> _Runs:
        """Return every run of `length` words within a line, and every shorter line as a whole.

        Lines of fewer than `shortest` words are left out.
        """
        word_sizes = self.halves
        if word_sizes is None:
            word_sizes = np.full(self.every_word.rows.size, 2)
        line_sizes = np.bincount(self.every_word.rows, weights=word_sizes)
        *sizes_of_short_lines, full_size = self.half_word_sizes(shortest, length)
        parts = [self.runs(full_size)]
        for size in sizes_of_short_lines:
            runs = self.runs(size)
            line_size = size
            if self.halves is None:
                line_size = size + 1  # `size` is 2 n - 1, but a line of n words has 2 n half words
            is_whole = line_sizes[runs.rows] == line_size
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
    """Return the powers 0, 1, ... of the base and of its inverse modulo 2^64.

    Returns:
        Two uint64 arrays of at least `size`.
    """
    return _power_tables(1 << max(0, size - 1).bit_length())


@lru_cache(maxsize=1)
def _power_tables(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Compute the tables of :func:`_powers`.

    Sizes are powers of two, so that one table serves many blocks.
    """
    tables = []
    for base in (_BASE, pow(_BASE, -1, 1 << 64)):
        factors = np.full(size, base, dtype=np.uint64)
        factors[0] = 1
        tables.append(np.cumprod(factors))
    return tables[0], tables[1]


def shingle_matrix(
    documents: Iterable[Sequence[str]], length: int = SHINGLE, most_documents: int = MOST_DOCUMENTS
) -> tuple[csr_array, np.ndarray]:
    """Build the incidence matrix of documents and shingles, runs of words. O(words).

    A text of fewer words than a shingle is a single shingle.

    Args:
        documents: Each a list of texts; no shingle spans two texts.
        length: Words of a shingle.
        most_documents: Shingles of more documents are left out.

    Returns:
        Ones at (document, distinct shingle), without those that are left out; and the number of
        distinct shingles of each document, with them, int64 of shape (documents,).
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
    # Without any shingle there is one empty column, which `rare` leaves out again.
    matrix = csr_array((np.ones(columns.size), indices), shape=(count, max(1, distinct.size)))
    matrix.data[:] = 1  # repeats within a document were summed
    frequency = np.bincount(matrix.indices, minlength=matrix.shape[1])
    rare = np.flatnonzero((frequency > 0) & (frequency <= most_documents))
    return csr_array(matrix[:, rare]), np.diff(matrix.indptr).astype(np.int64)


def similar_to_earlier(
    matrix: csr_array, sizes: np.ndarray, threshold: float
) -> Iterator[tuple[int, int]]:
    """Find pairs of similar documents by the Jaccard index of their shingles.

    Shingles that are left out of the matrix do not count as shared, so an index is never too high.

    Args:
        matrix: Incidence matrix from :func:`shingle_matrix`.
        sizes: Distinct shingles of each document, from there too.
        threshold: Smallest Jaccard index of a similar pair.

    Returns:
        Pairs (document, earlier document), sorted.
    """
    for start in range(0, sizes.size, ROWS_AT_ONCE):
        end = min(start + ROWS_AT_ONCE, sizes.size)
        shared = coo_array(matrix[start:end] @ matrix[:end].T)
        row = shared.coords[0] + start
        earlier = shared.coords[1]
        jaccard = shared.data / (sizes[row] + sizes[earlier] - shared.data)
        similar = (earlier < row) & (jaccard >= threshold)
        yield from sorted(zip(row[similar].tolist(), earlier[similar].tolist(), strict=True))


def repeats_earlier(matrix: csr_array, sizes: np.ndarray, threshold: float) -> np.ndarray:
    """Mark the documents that resemble an earlier one, even if that one is marked.

    Returns:
        bool of shape (documents,).
    """
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
            threshold: Two texts are near duplicates if the estimated Jaccard index of their sets of
                runs of five words is at least this.

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
        """Add a text to the index, unless it has no words or a near duplicate is there. O(characters).

        Returns:
            Name of the near duplicate that was added first; None if there is none.
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
