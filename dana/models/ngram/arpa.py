"""ARPA files of back-off n-gram models, read and written, gzipped where the name ends in .gz; KenLM as a faster scorer.

The format of SRILM, KenLM and others: a header with the number of n-grams of each order, then a section an order with a
line an n-gram: log10 probability, the words, and, but for the highest order, log10 back-off. KenLM is an optional
package, ``pip install 'dana[kenlm]'``, which is compiled: it wants a C++ compiler and cmake.
"""

import gzip
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dana.core.errors import Damage, DataError, PluginError
from dana.core.files import replacing
from dana.core.lines import read_lines
from dana.models.ngram.model import Level, NgramModel, find
from dana.models.ngram.vocabulary import MARKS, UNKNOWN, Vocabulary

LARGEST = float(np.finfo(np.float32).max)  # of the numbers, which a model holds as float32
UNKNOWN_MISSING = -100.0  # log10 p of the unknown word where a file has none, as KenLM reads it


def write_arpa(model: NgramModel, path: Path) -> None:
    """Write a model; reading it again gives the same numbers, bit by bit.

    Raises:
        DataError: If the machine cannot write the file.
    """
    try:
        with replacing(path) as temporary, temporary.open("wb") as raw:
            if path.suffix == ".gz":
                with gzip.GzipFile(fileobj=raw, mode="wb", filename="", mtime=0) as stream:
                    stream.writelines(line.encode() for line in _lines(model))
            else:
                raw.writelines(line.encode() for line in _lines(model))
    except OSError as error:
        raise DataError(f"{path}: cannot be written: {error}") from error


def _lines(model: NgramModel) -> Iterator[str]:
    yield "\\data\\\n"
    for order, level in enumerate(model.levels, 1):
        yield f"ngram {order}={level.keys.size}\n"
    for order, (level, phrases) in enumerate(zip(model.levels, model.phrases(), strict=True), 1):
        yield f"\n\\{order}-grams:\n"
        rows = zip(level.log_probs.tolist(), phrases, level.backoffs.tolist(), strict=True)
        if order < model.order:
            yield from (f"{log_prob:.9g}\t{phrase}\t{backoff:.9g}\n" for log_prob, phrase, backoff in rows)
        else:
            yield from (f"{log_prob:.9g}\t{phrase}\n" for log_prob, phrase, _ in rows)
    yield "\n\\end\\\n"


def read_arpa(path: Path) -> NgramModel:
    """Read a model that any tool wrote; a vocabulary without ``<unk>`` gets it at log10 p = -100, as with KenLM.

    Raises:
        DataError: Naming file and line, if it is cut off or damaged, an n-gram stands there twice or without its
            first words, a number is none, or ``<s>`` or ``</s>`` is missing.
    """
    reader = _Reader(path, _filled_lines(path))
    sizes = _header(reader)
    ones = _section(reader, 1, sizes[0])
    vocabulary, first = _words(reader, ones)
    levels = [first]
    numbers = {word: number for number, word in enumerate(vocabulary.words)}
    for order, size in enumerate(sizes[1:], 2):
        levels.append(_level(reader, _section(reader, order, size), levels, numbers))
    line, text = reader.take(f"its {len(sizes)}-grams")
    if text != "\\end\\":
        raise reader.wrong(line, f"more {len(sizes)}-grams than the {sizes[-1]} of the header, or no \\end\\")
    return NgramModel(vocabulary, tuple(levels))


@dataclass(frozen=True)
class _Reader:
    """Lines of a file that are not empty, with their numbers, and its errors."""

    path: Path
    lines: Iterator[tuple[int, str]]

    def take(self, where: str) -> tuple[int, str]:
        """The next line; `where` says in what the file ends if there is none."""
        for line in self.lines:
            return line
        raise DataError(f"{self.path}: ends in {where}: the file is cut off")

    def wrong(self, line: int, what: str) -> DataError:
        return DataError(f"{self.path}:{line}: {what}")


def _filled_lines(path: Path) -> Iterator[tuple[int, str]]:
    try:
        for number, line in read_lines(path):
            if text := line.strip(" \t\r\n"):
                yield number, text
    except Damage as damage:
        raise DataError(f"{path}:{damage.line}: {damage}") from damage


def _header(reader: _Reader) -> list[int]:
    """Numbers of n-grams by order. The line that ends it is the first section's."""
    if all(text != "\\data\\" for _, text in reader.lines):
        raise DataError(f"{reader.path}: no line of it is \\data\\, with which an ARPA file begins")
    sizes: list[int] = []
    while True:
        line, text = reader.take("its header")
        if text == "\\1-grams:" and sizes:
            return sizes
        order, _, size = text.removeprefix("ngram ").partition("=")
        if order.strip() != str(len(sizes) + 1) or not size.strip().isdecimal():
            raise reader.wrong(line, f"{text!r}: expected 'ngram {len(sizes) + 1}=' and a number")
        sizes.append(int(size))


@dataclass(frozen=True)
class _Section:
    """The n-grams of an order, as they stand in the file."""

    lines: list[int]
    words: list[str]
    log_probs: np.ndarray
    backoffs: np.ndarray


def _section(reader: _Reader, order: int, size: int) -> _Section:
    """Read `size` n-grams, and before them, but for single words, the line that begins the section."""
    if order > 1:
        line, text = reader.take(f"its {order - 1}-grams")
        if text != f"\\{order}-grams:":
            raise reader.wrong(line, f"{text[:50]!r}: expected \\{order}-grams:, after as many as the header says")
    lines: list[int] = []
    words: list[str] = []
    log_probs, backoffs = [], []
    for row in range(size):
        line, text = reader.take(f"its {order}-grams, {row} of {size} are there")
        fields = text.replace("\t", " ").split(" ")
        if not order < len(fields) <= order + 2:
            wanted = f"expected a number and an n-gram, {row} of {size} {order}-grams are there"
            raise reader.wrong(line, f"{text[:50]!r}: {wanted}")
        try:
            log_prob, backoff = float(fields[0]), float(fields[order + 1]) if len(fields) == order + 2 else 0.0
        except ValueError as error:
            raise reader.wrong(line, f"{text[:50]!r}: {error}") from error
        if not (-LARGEST <= log_prob <= 0 and abs(backoff) <= LARGEST):
            wanted = "a log10 probability above 0, or a number that is not finite in float32"
            raise reader.wrong(line, f"{text[:50]!r}: {wanted}")
        lines.append(line)
        words.extend(MARKS[UNKNOWN] if word == "<UNK>" else word for word in fields[1 : order + 1])
        log_probs.append(log_prob)
        backoffs.append(backoff)
    return _Section(lines, words, np.array(log_probs, dtype=np.float32), np.array(backoffs, dtype=np.float32))


def _words(reader: _Reader, ones: _Section) -> tuple[Vocabulary, Level]:
    """The vocabulary, marks first, and the level of single words."""
    for mark in MARKS[1:]:
        if mark not in ones.words:
            raise DataError(f"{reader.path}: its 1-grams have no {mark}")
    try:
        vocabulary = Vocabulary.of_words(ones.words)
    except DataError as error:
        raise DataError(f"{reader.path}: {error}") from error
    rows: dict[str, int] = {}
    for row, word in enumerate(ones.words):
        if rows.setdefault(word, row) != row:
            raise reader.wrong(ones.lines[row], f"the 1-gram {word!r} is there twice")
    order = np.array([rows.get(word, -1) for word in vocabulary.words])
    log_probs, backoffs = ones.log_probs[order], ones.backoffs[order]
    if order[UNKNOWN] < 0:
        log_probs[UNKNOWN], backoffs[UNKNOWN] = UNKNOWN_MISSING, 0
    return vocabulary, Level(np.arange(len(vocabulary)), log_probs, backoffs)


def _level(reader: _Reader, section: _Section, shorter: list[Level], numbers: dict[str, int]) -> Level:
    """The n-grams of an order as keys into the order below."""
    order = len(shorter) + 1

    def wrong(row: int, what: str) -> DataError:
        phrase = " ".join(section.words[row * order : (row + 1) * order])
        return reader.wrong(section.lines[row], f"the {order}-gram {phrase!r} {what}")

    found = [numbers.get(word, -1) for word in section.words]
    words = np.array(found, dtype=np.int64).reshape(-1, order)
    keys = words[:, 0]
    for place in range(1, order):
        before = find(shorter[place - 1].keys, keys)
        missing = np.flatnonzero((before < 0) | (words[:, place] < 0))
        if missing.size:
            raise wrong(int(missing[0]), "has words, or first words, that are not among the shorter n-grams")
        keys = before * len(numbers) + words[:, place]
    turned = np.argsort(keys, kind="stable")
    twice = np.flatnonzero(np.diff(keys[turned]) == 0)
    if twice.size:
        raise wrong(int(turned[twice[0] + 1]), "is there twice")
    return Level(keys[turned], section.log_probs[turned], section.backoffs[turned])


def check_kenlm() -> None:
    """Make sure that the package can be imported.

    Raises:
        PluginError: If it cannot.
    """
    try:
        import kenlm  # noqa: F401
    except ImportError as error:
        raise PluginError(f"KenLM is not installed: pip install 'dana[kenlm]' ({error})") from error


@dataclass(frozen=True)
class KenLM:
    """A model in KenLM's memory.

    Attributes:
        loaded: A ``kenlm.Model``.
    """

    loaded: Any

    @classmethod
    def of(cls, model: NgramModel) -> "KenLM":
        """Hand a model over, through a temporary ARPA file.

        Raises:
            PluginError: If the package is missing, or the model is of single words only, which KenLM does not read.
        """
        check_kenlm()
        import kenlm

        if model.order < 2:
            raise PluginError("KenLM reads models from order 2; score those of order 1 without it")
        with tempfile.TemporaryDirectory(prefix="dana-kenlm-") as folder:
            path = Path(folder) / "model.arpa"
            write_arpa(model, path)
            config = kenlm.Config()
            config.show_progress = False
            config.arpa_complain = kenlm.ARPALoadComplain.NONE  # that a binary file would load faster
            return cls(kenlm.Model(str(path), config))

    def log10(self, texts: Sequence[str]) -> np.ndarray:
        """log10 probability of each text and its end, float64 of shape (texts,).

        Args:
            texts: Words with a space between, as :func:`dana.models.ngram.vocabulary.split_words` gives them.
        """
        return np.array([self.loaded.score(text) for text in texts], dtype=np.float64)
