"""Measures of kept text that need no plants: sources, divergence and perplexity of task text, length, duplicates."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.sparse import csr_matrix

from dana.core.rng import generator
from dana.models.ngram.kneser_ney import train_ngrams
from dana.models.ngram.model import perplexity
from dana.models.ngram.vocabulary import Vocabulary, WordIds
from dana.scoring.ranking.folds import groups_of

BUCKETS = 10_000  # of hashed n-grams, as in DSIR
PRIOR = 2000  # counts of the pool's distribution that are added to a set's
ORDER, LEAST = 3, 2  # of the n-gram models; words that the pool holds less often are unknown to them
COMPARED = 5000  # kept documents that are looked at for duplicates, because comparing them takes memory
RANDOM_SETS = 5  # random sets of the same size, whose mean the divergence is compared with


def hashed_counts(texts: Sequence[str]) -> csr_matrix:
    """Counts of hashed words and pairs of words, of shape (texts, 10,000)."""
    from sklearn.feature_extraction.text import HashingVectorizer

    vectoriser = HashingVectorizer(
        n_features=BUCKETS, ngram_range=(1, 2), alternate_sign=False, norm=None, token_pattern=r"\w+|[^\w\s]"
    )
    return vectoriser.transform(texts)


def divergence(target: np.ndarray, counts: np.ndarray, pool: np.ndarray) -> float:
    """KL(target || counts) in nats, the latter smoothed towards the pool by a Dirichlet prior of 2,000 counts.

    A small set is smoothed to what the pool says, not to equal shares, so its size alone brings it no nearer.

    Args:
        target: Counts of shape (buckets,).
        counts: The same.
        pool: The same, of the whole pool; its own share has one count a bucket more.

    References:
        Zhai and Lafferty 2004, A study of smoothing methods for language models, section 3.3.
    """
    wanted = target / target.sum()
    found = (counts + PRIOR * (pool + 1) / (pool.sum() + pool.size)) / (counts.sum() + PRIOR)
    there = wanted > 0
    return float((wanted[there] * np.log(wanted[there] / found[there])).sum())


@dataclass(frozen=True)
class PoolText:
    """What is measured on the text of a pool once, for every selector.

    Attributes:
        counts: Hashed n-grams of each document, of shape (documents, buckets).
        target: Hashed n-grams of held-out task text, of shape (buckets,).
        words: Words of each document, int64.
        sources: Of each document.
        texts: The documents.
        vocabulary: The words that the pool holds twice, the same for every selector.
        numbers: The documents as word numbers.
        wanted: Held-out task text as word numbers.
    """

    counts: csr_matrix
    target: np.ndarray
    words: np.ndarray
    sources: np.ndarray
    texts: Sequence[str]
    vocabulary: Vocabulary
    numbers: WordIds
    wanted: WordIds

    @classmethod
    def of(cls, texts: Sequence[str], sources: Sequence[str], held_out: Sequence[str]) -> "PoolText":
        """Measure a pool.

        Args:
            texts: Its documents.
            sources: Their sources.
            held_out: Task text that nothing was fitted on.
        """
        words = np.array([len(text.split()) for text in texts], dtype=np.int64)
        vocabulary = Vocabulary.of_texts(texts, min_count=LEAST)
        known = (vocabulary, vocabulary.encode(texts), vocabulary.encode(held_out))
        target = np.asarray(hashed_counts(held_out).sum(0)).ravel()
        return cls(hashed_counts(texts), target, words, np.array(sources), texts, *known)

    def reduction(self, kept: np.ndarray, seed: int) -> float:
        """KL(task || random) - KL(task || kept) in nats; random is the mean over five sets of as many documents.

        Positive: the kept text is nearer to the task than random text. Sets of one size are compared because a small
        set is far from anything.

        Args:
            kept: Rows of the documents that are kept.
            seed: Decides the random sets.

        References:
            Xie et al. 2023, Data selection for language models via importance resampling, section 5 (KL reduction).
        """
        draws = generator(seed, "comparison", "kl")
        sets = [draws.permutation(self.words.size)[: kept.size] for _ in range(RANDOM_SETS)]
        return float(np.mean([self._divergence(rows) for rows in sets])) - self._divergence(kept)

    @cached_property
    def _pool(self) -> np.ndarray:
        return np.asarray(self.counts.sum(0)).ravel()

    def _divergence(self, rows: np.ndarray) -> float:
        return divergence(self.target, np.asarray(self.counts[rows].sum(0)).ravel(), self._pool)

    def perplexity(self, kept: np.ndarray) -> float:
        """Perplexity a word of held-out task text under a 3-gram model of the kept text; lower is nearer.

        Every selector's model knows the same words and takes the others for one unknown word.

        Args:
            kept: Rows of the documents that are kept.

        References:
            Moore and Lewis 2010, Intelligent selection of language model training data, section 3.
        """
        model = train_ngrams(self.numbers.rows(kept), ORDER, self.vocabulary)
        return perplexity(model, self.wanted).perplexity

    def duplicates(self, kept: np.ndarray) -> float:
        """Share of the kept documents that are near duplicates of another kept one, of the first 5,000."""
        some = kept[:COMPARED]
        groups = groups_of([self.texts[row] for row in some], [str(row) for row in some])
        return 1 - np.unique(groups).size / some.size

    def measures(self, kept: np.ndarray, seed: int) -> list[tuple[str, str, float]]:
        """(metric, detail, value) of the kept documents; the detail is the source, where it is of one.

        Args:
            kept: Rows of the documents that are kept.
            seed: See :meth:`reduction`.
        """
        found = [
            ("kept_documents", "", float(kept.size)),
            ("kept_tokens", "", float(self.words[kept].sum())),
            ("kl_reduction", "", self.reduction(kept, seed)),
            ("length_ratio", "", float(self.words[kept].mean() / self.words.mean())),
            ("duplicate_share", "", self.duplicates(kept)),
            ("perplexity", "", self.perplexity(kept)),
        ]
        shares = {source: float((self.sources[kept] == source).mean()) for source in np.unique(self.sources)}
        return found + [("source_share", source, share) for source, share in shares.items()]
