"""N-gram overlap: texts to the runs of words that they share with evaluation texts, by a rolling hash.

Both sides are reduced to their words (NFKC, lower case, runs of word characters), so marks, punctuation, case and
line ends make no difference. Every run of n words gets a 64-bit rolling hash, in one numpy pass over a block of texts.
Runs of equal hashes are compared byte by byte, so a collision of hashes never counts as overlap. Texts without spaces
between words (Chinese, Thai) have few and long words, so less of their overlap is found.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Literal, NamedTuple

import numpy as np

from dana.corpus.text import words
from dana.corpus.units import sentences

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
        # A line of fewer words than an n-gram is one run as a whole, a longer one is all its n-grams.
        parts = [block.runs(ngram), *(block.whole(length) for length in range(sentence, ngram))]
        runs = _Runs(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
        starts, ends, rows = runs
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
        found: dict[tuple[int, int], tuple[int, Overlap]] = {}
        for length in range(min(self.sentence, self.ngram), self.ngram + 1):
            runs = block.runs(length)
            for place, entry in self._candidates(block.hashed(runs)):
                start, row = int(runs.starts[place]), int(runs.rows[place])
                run = block.blob[start : runs.ends[place]]
                for code in self._holders(entry, run):
                    if (row, code) not in found or start < found[row, code][0]:
                        found[row, code] = start, self._overlap(row, code, length, run)
        return [found[key][1] for key in sorted(found)]

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

    def _overlap(self, row: int, code: int, length: int, run: bytes) -> Overlap:
        kind: Literal["ngram", "sentence"] = "ngram" if length == self.ngram else "sentence"
        return Overlap(row, self.tasks[code], kind, length, blake2b(run, digest_size=16).hexdigest())


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

    def whole(self, length: int) -> _Runs:
        """Every line of exactly `length` words."""
        runs = self.runs(length)
        sizes = np.bincount(self.words.rows)
        return _Runs(*(part[sizes[runs.rows] == length] for part in runs))

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
