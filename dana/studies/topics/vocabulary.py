"""Words of topics: texts to counts of the words that are neither rare, nor everywhere, nor stop words."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dana.core.errors import DataError
from dana.studies.topics.settings import WordLimits

# Three letters or more: no 've, 'll or l' of what an apostrophe parts; and nothing of don't, isn't, can't.
WORD = r"(?u)\b(?![^\W\d_]+n['’]t\b)[^\W\d_]{3,}\b"


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
