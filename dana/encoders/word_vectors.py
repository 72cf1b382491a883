"""Word vectors: files in the text format of word2vec, GloVe and fastText to words and their vectors, and back."""

from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from dana.core.errors import Damage, DataError
from dana.core.files import replacing
from dana.core.lines import read_lines


@dataclass(frozen=True)
class WordVectors:
    """A vector a word.

    Attributes:
        words: In the file's order; the most frequent first in all common ones.
        vectors: float32 of shape (words, dims).
    """

    words: tuple[str, ...]
    vectors: Tensor

    @cached_property
    def places(self) -> dict[str, int]:
        """Row of each word in lower case; of words that differ only in case the first one's."""
        found: dict[str, int] = {}
        for place, word in enumerate(self.words):
            found.setdefault(word.lower(), place)
        return found

    def save(self, path: Path) -> None:
        """Write the text format of word2vec, whose first line has the numbers of words and dims.

        Nine digits a number: what is read back has the same bits.
        """
        with replacing(path) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as stream:
            stream.write(f"{len(self.words)} {self.vectors.shape[1]}\n")
            for word, row in zip(self.words, self.vectors.tolist(), strict=True):
                stream.write(f"{word} {' '.join(f'{value:.9g}' for value in row)}\n")


def read_word_vectors(path: Path) -> WordVectors:
    """Read a file with a word and its numbers a line, separated by blanks; ``.gz`` and ``.zst`` are unpacked.

    A first line of two whole numbers says how many words and dims there are (word2vec, fastText's ``.vec``); GloVe has
    none. The first word has no blank in it; some of GloVe's later ones have.

    Args:
        path: The file.

    Raises:
        DataError: Naming file and line, if it cannot be read, a line has too few numbers or one that is not finite, or
            there are other words than the first line says.
    """
    try:
        return _read(path)
    except Damage as damage:
        raise DataError(f"{path}:{damage.line}: {damage}") from damage


def _read(path: Path) -> WordVectors:
    lines = read_lines(path)
    declared, rows = _header(path, lines)
    words: list[str] = []
    values = array("f")
    dims = declared[1] if declared else 0
    for number, line in rows:
        if not line.strip():
            continue
        fields = line.rstrip(" \r\n").rsplit(" ", dims or -1)
        dims = dims or len(fields) - 1
        if len(fields) != dims + 1 or not dims or (not words and " " in fields[0]):
            found = len(line.split()) - 1
            raise DataError(
                f"{path}:{number}: {max(found, 0)} numbers after a word, not {dims or 'at least one'}; a text file of "
                "word vectors has a word and its numbers a line, separated by blanks (binary files are not read)"
            )
        words.append(fields[0])
        values.frombytes(_numbers(path, number, fields[1:]).tobytes())
    if not words or (declared and len(words) != declared[0]):
        said = f"the first line says {declared[0]:,}" if declared else "it is empty"
        raise DataError(f"{path}: {len(words):,} words with vectors, but {said}")
    return WordVectors(tuple(words), torch.from_numpy(np.frombuffer(values, dtype=np.float32).reshape(-1, dims)))


def _header(path: Path, lines: Iterator[tuple[int, str]]) -> tuple[tuple[int, int] | None, Iterator[tuple[int, str]]]:
    """Words and dims that the first line declares, None if it is a word's; and the lines with words."""
    first = next(lines, (0, ""))
    counts = first[1].split()
    if len(counts) == 2 and all(count.isdecimal() for count in counts):
        return (int(counts[0]), int(counts[1])), lines
    return None, chain([first] if first[0] else [], lines)


def _numbers(path: Path, number: int, fields: list[str]) -> np.ndarray:
    """A line's numbers, float32."""
    try:
        with np.errstate(over="ignore"):
            found = np.array([float(field) for field in fields]).astype(np.float32)
    except ValueError as error:
        raise DataError(f"{path}:{number}: {error}") from error
    if not np.isfinite(found).all():
        raise DataError(f"{path}:{number}: a number is not finite")
    return found
