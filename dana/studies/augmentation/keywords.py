"""Keywords: documents and a topic model to the words of each that carry its topics, in order and with repeats."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dana.core.config import require
from dana.studies.topics.model import WORD, Topics

PAPER, RELEASE = "paper", "release"
RELEASE_WORDS = 1000  # of each topic, that the released code reads

Keywords = tuple[str, ...]


@dataclass(frozen=True)
class KeywordSettings:
    """Which words of a document are its keywords.

    Attributes:
        keywords: Keep so many different words of a document, each with all its occurrences.
        reading: ``paper``: a topic's words count by the topic's share of the document; ``release``: they do not, and
            only the 1,000 most probable words of a topic count for it, as in the paper's released code.
    """

    keywords: int = 10
    reading: str = PAPER

    def __post_init__(self) -> None:
        require(self.keywords >= 1, "keywords", self.keywords, "at least 1")
        require(self.reading in (PAPER, RELEASE), "reading", self.reading, f"{PAPER} or {RELEASE}")


def extract_keywords(topics: Topics, texts: Sequence[str], settings: KeywordSettings) -> list[Keywords]:
    """The keywords of texts: the best words of each by :func:`score_words`; all others are dropped.

    Of equally good words the one that is first in the text is kept. A word with score 0 is never one. A text's keywords
    do not depend on the other texts.

    Args:
        topics: The topic model.
        texts: Documents.
        settings: How many words, by which score.

    Returns:
        For each text its keywords in lower case, in the order of the text, with repeats; empty where the model knows
        none of its words.

    References:
        Roussinov and Sharoff 2023, BERT goes off-topic, section 3.2.1.
    """
    found = []
    for text, scores in zip(texts, score_words(topics, texts, settings.reading), strict=True):
        best = sorted((word for word in scores if scores[word] > 0), key=lambda word: -scores[word])  # stable
        kept = set(best[: settings.keywords])
        found.append(tuple(word for word in words_of(text) if word in kept))
    return found


def score_words(topics: Topics, texts: Sequence[str], reading: str = PAPER) -> list[dict[str, float]]:
    """How strongly each word of a document stands for the document's topics.

    score(w, D) = Σ over the occurrences of w in D, Σ over topics t, L(D, t) · L(w, t), where L(D, t) is θ, the share of
    t in D, and L(w, t) is β, the probability of w in t. By the reading ``release`` L(D, t) is 1, and L(w, t) is 0
    unless w is one of the 1,000 most probable words of t (of equally probable ones the first of the vocabulary).

    Args:
        topics: The topic model.
        texts: Documents.
        reading: ``paper`` or ``release``.

    Returns:
        For each text the scores of its words that the model knows, in the order of their first occurrence.

    References:
        Roussinov and Sharoff 2023, section 3.2.1, the equation; its released code, ``process-both.py``, for the other
        reading.
    """
    number = {word: place for place, word in enumerate(topics.words)}
    beta = topics.beta.astype(np.float64)
    if reading == RELEASE:
        beta = _only_largest(beta, RELEASE_WORDS)
        weights = np.ones((len(texts), len(beta)))
    else:
        weights = topics.theta(texts).astype(np.float64)
    scores = []
    for text, weight in zip(texts, weights, strict=True):
        times = Counter(word for word in words_of(text) if word in number)
        columns = beta[:, [number[word] for word in times]]
        of_word = (weight[:, None] * columns).sum(0)  # no matrix product: equal words get equal bits
        scores.append({word: times[word] * score for word, score in zip(times, of_word.tolist(), strict=True)})
    return scores


def words_of(text: str) -> list[str]:
    """The words of a text as topic models count them, in order and with repeats."""
    return re.findall(WORD, text.lower())


def _only_largest(beta: np.ndarray, most: int) -> np.ndarray:
    """Probabilities of words, shape (K, V), with 0 for all but the largest so many of each row."""
    chosen = np.argsort(-beta, axis=1, kind="stable")[:, :most]
    kept = np.zeros_like(beta)
    np.put_along_axis(kept, chosen, np.take_along_axis(beta, chosen, 1), 1)
    return kept
