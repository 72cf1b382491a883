"""Near duplicates: a text to the first earlier one like it, by MinHash and LSH; needs ``dana[dedup]`` (datasketch)."""

from collections.abc import Iterator
from importlib.util import find_spec
from itertools import islice
from typing import Any

import numpy as np

from dana.core.config import require
from dana.core.errors import ConfigError
from dana.corpus.text import words

SHINGLE = 5  # words
PERMUTATIONS = 128  # the standard error of an estimate is at most 0.044
FALSE_ALARMS, MISSES = 0.1, 0.9  # weights in the choice of bands; a false alarm costs one comparison
SHINGLES_AT_ONCE = 4096  # a text of 10 MB would otherwise need a matrix of a gigabyte


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
        signature = self._empty.copy()
        shingles = _shingles(line)
        while some := list(islice(shingles, SHINGLES_AT_ONCE)):
            signature.update_batch(some)
        return signature


def _shingles(line: str) -> Iterator[bytes]:
    """Every run of five words; of fewer words, the one that holds them all."""
    parts = line.encode().split(b" ")
    for start in range(max(1, len(parts) - SHINGLE + 1)):
        yield b" ".join(parts[start : start + SHINGLE])
