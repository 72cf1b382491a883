"""Words of topics: texts to counts of the words that are neither rare, nor everywhere, nor stop words."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dana.core.config import require
from dana.core.errors import ConfigError, DataError, nearest_path

# Three letters or more: no 've, 'll or l' of what an apostrophe parts; and nothing of don't, isn't, can't.
WORD = r"(?u)\b(?![^\W\d_]+n['’]t\b)[^\W\d_]{3,}\b"
ENGLISH, NONE = "english", "none"


@dataclass(frozen=True)
class Bags:
    """Documents as bags of words.

    Attributes:
        words: The vocabulary, the most frequent word first.
        counts: Sparse int64 of shape (documents, words), scipy's CSR; a row may be empty.
    """

    words: tuple[str, ...]
    counts: Any

    @property
    def sizes(self) -> np.ndarray:
        """int64 of shape (documents,), how many words of the vocabulary each document has, with repeats."""
        return np.asarray(self.counts.sum(1)).ravel()

    def rows(self, chosen: np.ndarray) -> "Bags":
        """The documents at `chosen`, in that order."""
        return Bags(self.words, self.counts[chosen])


@dataclass(frozen=True)
class WordLimits:
    """Which words topics are made of.

    Attributes:
        vocabulary: At most so many words, the most frequent of those that the limits leave.
        min_documents: Leave out words that are in fewer documents.
        max_share: Leave out words that are in more than this share of the documents.
        stop_words: Words to leave out: ``english`` (scikit-learn's 318), ``none``, or a file with a word a line.
    """

    vocabulary: int = 10_000
    min_documents: int = 5
    max_share: float = 0.5
    stop_words: str = "english"

    def __post_init__(self) -> None:
        require(self.vocabulary >= 2, "vocabulary", self.vocabulary, "at least 2")
        require(self.min_documents >= 1, "min_documents", self.min_documents, "at least 1")
        require(0 < self.max_share <= 1, "max_share", self.max_share, "in (0, 1]")

    def left_out(self) -> frozenset[str]:
        """The stop words, in lower case.

        Raises:
            ConfigError: If their file cannot be read.
        """
        if self.stop_words == NONE:
            return frozenset()
        if self.stop_words == ENGLISH:
            from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

            return frozenset(ENGLISH_STOP_WORDS)
        path = Path(self.stop_words)
        try:
            return frozenset(path.read_text(encoding="utf-8").lower().split())
        except (OSError, UnicodeDecodeError) as error:
            said = error.strerror if isinstance(error, OSError) else error
            allowed = f"english, none, or a file with a word a line ({said}){nearest_path(path)}"
            raise ConfigError(f"stop_words={self.stop_words!r}: must be {allowed}") from error


def count_words_of_topics(texts: Sequence[str], limits: WordLimits, known: Collection[str] | None = None) -> Bags:
    """Choose the vocabulary of some texts and count it in them.

    Words are compared in lower case. Of equally frequent words the first in the alphabet is kept.

    Args:
        texts: Documents.
        limits: Which words count.
        known: Where given, only these words can be chosen.

    Raises:
        DataError: If fewer than two words are left; says how many there were and what left them out.
    """
    from sklearn.feature_extraction.text import CountVectorizer

    vectorizer = CountVectorizer(token_pattern=WORD, dtype=np.int64)
    try:
        counts = vectorizer.fit_transform(texts)
    except ValueError as error:
        raise DataError(f"vocabulary: none of the {len(texts):,} documents has a word of three letters") from error
    words = vectorizer.get_feature_names_out()
    documents = np.bincount(counts.indices, minlength=words.size)
    kept = (documents >= limits.min_documents) & (documents <= limits.max_share * len(texts))
    stop = limits.left_out()
    kept &= np.array([word not in stop and (known is None or word in known) for word in words])
    if kept.sum() < 2:
        beside = "" if known is None else ", has a vector,"
        raise DataError(
            f"vocabulary: {int(kept.sum())} of the {words.size:,} words of {len(texts):,} documents is in at least "
            f"{limits.min_documents} of them (min_documents) and at most {limits.max_share:g} of all (max_share)"
            f"{beside} and is no stop word (stop_words={limits.stop_words}); topics need two"
        )
    totals = np.asarray(counts.sum(0)).ravel()
    order = np.lexsort((words, -totals))
    chosen = order[kept[order]][: limits.vocabulary]
    return Bags(tuple(words[chosen].tolist()), counts[:, chosen].tocsr())


def count_known_words(texts: Sequence[str], words: Sequence[str]) -> Bags:
    """Count the words of a vocabulary in any texts."""
    from sklearn.feature_extraction.text import CountVectorizer

    vectorizer = CountVectorizer(token_pattern=WORD, dtype=np.int64, vocabulary=list(words))
    return Bags(tuple(words), vectorizer.transform(texts).tocsr())
