"""Selectors on hashed n-grams: DSIR's log importance weights, and a linear classifier on TF-IDF."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from dana.core.config import require
from dana.core.scripts import WordPattern
from dana.corpus.hashed_ngrams import BucketCounts, CharacterNgrams, HashedNgrams
from dana.corpus.unit_stream import Units
from dana.selectors.base import FittedSelector, Selector

NORMALISE = ("token", "none")


@dataclass(frozen=True)
class FittedDSIR(FittedSelector):
    """Log ratio of the probabilities of each bucket.

    Attributes:
        log_ratio: log p(bucket | task) - log p(bucket | pool), in nats, float64 of shape
            (buckets,).
        order: Longest n-gram.
        normalise: ``token`` or ``none``.
    """

    log_ratio: Tensor
    order: int
    normalise: str

    def score_units(self, units: Units) -> np.ndarray:
        """Compute minus the log importance weight in nats, or its mean per n-gram.

        A unit without n-grams has 0.
        """
        counts = HashedNgrams(self.order, self.log_ratio.numel()).counts(units.texts)
        scores: np.ndarray = -(counts @ self.log_ratio.numpy())
        if self.normalise == "token":
            scores = scores / np.maximum(counts.sum(axis=1), 1)
        return scores


@dataclass(frozen=True)
class DSIRSelector(Selector):
    """DSIR: minus the log importance weight on hashed words and word pairs; higher = more foreign.

    The log importance weight of a text is the sum over its n-grams of log p_task - log p_general,
    so long texts are at the ends of the published ranking. The mean per n-gram, the default here,
    finds more of a target's text (docs/results/selectors.md); ``normalise=none`` is the published
    sum. The package draws without replacement by these weights; dana selects the lowest scores,
    because the noise of the draw is small beside the weights of whole documents. The package's
    filter of texts below 100 tokens does not apply: a unit is a sentence.

    Attributes:
        normalise: ``token``: mean per n-gram; ``none``: sum, as published.
        order: Longest n-gram, in words.
        buckets: Number of hash buckets.
        smoothing: Constant added to each bucket's probability before the logarithm.
        background: Number of pool units that represent the pool.

    References:
        Xie, Santurkar, Ma and Liang 2023, Data selection for language models via importance
        resampling, section 3; the package ``data-selection`` 1.0.3, whose log weights
        ``normalise=none`` gives. It splits by NLTK, whose releases of 2026 differ from these words
        in combining marks and superscripts.
    """

    normalise: str = "token"
    order: int = 2
    buckets: int = 10_000
    smoothing: float = 1e-8
    background: int = 5000
    version: ClassVar[int] = 1
    fitted_type: ClassVar[type] = FittedDSIR

    def __post_init__(self) -> None:
        allowed = f"one of {', '.join(NORMALISE)}"
        require(self.normalise in NORMALISE, "normalise", self.normalise, allowed)
        require(self.smoothing > 0, "smoothing", self.smoothing, "above 0")
        require(self.background >= 1, "background", self.background, "at least 1")
        HashedNgrams(self.order, self.buckets)

    def samples(self, target_units: int) -> Mapping[str, int]:
        """Return the size of ``background``, a sample of the pool."""
        return {"background": self.background}

    def learn(self, target: Units, pool: Mapping[str, Units], seed: int) -> FittedDSIR:
        """Count the n-grams of both samples; deterministic.

        Raises:
            DataError: If a sample has no word.
        """
        target_log = self._log_probabilities(target.texts, "target")
        pool_log = self._log_probabilities(pool["background"].texts, "background")
        return FittedDSIR(torch.from_numpy(target_log - pool_log), self.order, self.normalise)

    def _log_probabilities(self, texts: Sequence[str], name: str) -> np.ndarray:
        """Compute the log probability of each bucket in texts, which messages call `name`."""
        ngrams = HashedNgrams(self.order, self.buckets)
        counts = ngrams.nonempty_counts(texts, name).sum(axis=0)
        log_probabilities: np.ndarray = np.log(counts / counts.sum() + self.smoothing)
        return log_probabilities


_BRACKETS = re.compile(r"-[lr][rcs]b-")
_CLITIC = re.compile(r"\s*(n)?['\u2019](?=(?:s|t|re|ve|ll|d|m)\b)")
_PLAIN = r"[^\W\d_]+|((?:\d|(?<!\w)@)(?:[.,]?[\d@])*)"
_ASCII_PLAIN = r"[a-z]+|((?:[0-9]|(?<![a-z0-9_])@)(?:[.,]?[0-9@])*)"  # of lower case
_RUNS = re.compile(_PLAIN)
_ASCII_RUNS = re.compile(_ASCII_PLAIN)
_WORDS = WordPattern(_PLAIN, _ASCII_PLAIN)
NUMBER = "0"


def plain_words(text: str) -> list[str]:
    """Split text into lower-case words of letters, with ``0`` for every number.

    Punctuation and markup are left out. Traces of a data set's preprocessing are removed, so that
    they do not tell target from pool text: a word and its clitic are one word (``does n't``,
    ``doesn't``: ``doesnt``), bracket names of treebanks (``-LRB-``) are dropped like brackets, and
    an ``@`` in place of a number counts as a number (as in PubMed RCT). In scripts without spaces
    each character is a word (:mod:`dana.core.scripts`).
    """
    return _words_of(_WORDS.finditer(_without_traces(text)))


def plain_runs(text: str) -> list[str]:
    """Split text as :func:`plain_words`, but at spaces alone in every script.

    Parts of words, as :class:`dana.corpus.hashed_ngrams.CharacterNgrams` counts them, then reach
    over several characters of a script without spaces.
    """
    pattern = _ASCII_RUNS if text.isascii() else _RUNS
    return _words_of(pattern.finditer(_without_traces(text)))


def _words_of(matches: Iterable[re.Match[str]]) -> list[str]:
    """Return the words that a pattern found; its group is a number."""
    return [NUMBER if match[1] else match[0] for match in matches]


def _without_traces(text: str) -> str:
    """Lower-case a text and remove the traces of preprocessing that :func:`plain_words` names."""
    return _CLITIC.sub(r"\1", _BRACKETS.sub(" ", text.lower()))


@dataclass(frozen=True)
class FittedLexical(FittedSelector):
    """Inverse document frequencies and logistic regression weights by bucket.

    Attributes:
        idf: float64 of shape (2, buckets), for n-grams of words and of characters.
        weights: Weights of target against pool text, same shape.
        intercept: Intercept of the classifier.
        order: Longest n-gram of words.
        characters: Longest n-gram of characters.
    """

    idf: Tensor
    weights: Tensor
    intercept: float
    order: int
    characters: int

    def score_units(self, units: Units) -> np.ndarray:
        """Compute minus the logit of target text, at equal class shares.

        A unit above 0 is more like pool text.
        """
        logits = np.full(len(units), self.intercept)
        kinds = kinds_of_ngrams(self.order, self.characters, self.idf.shape[1])
        for kind, idf, weights in zip(kinds, self.idf.numpy(), self.weights.numpy(), strict=True):
            features = tf_idf(kind.counts(units.texts), idf)
            logits += features @ weights
        return -logits


@dataclass(frozen=True)
class LexicalSelector(Selector):
    """Logistic regression on words, word pairs and word parts, target against pool text.

    Higher = more foreign. Features are hashed n-grams of :func:`plain_words`, and of two to
    `characters` characters inside words. Values are (1 + log count) * idf, normalised to length 1
    for either kind, so that scores do not grow with the length of a text. Both classes have equal
    weight.

    Attributes:
        order: Longest n-gram of words.
        characters: Longest n-gram of characters inside a word, from 2.
        buckets: Number of hash buckets for either kind of n-grams.
        c: Inverse strength of the L2 penalty.
        background: Number of pool units, the negative class.

    References:
        Manning, Raghavan and Schuetze 2008, Introduction to information retrieval, section 6.4
        (TF-IDF); fitted by scikit-learn's ``LogisticRegression``.
    """

    order: int = 2
    characters: int = 5
    buckets: int = 2**18
    c: float = 5.0
    background: int = 5000
    version: ClassVar[int] = 1
    fitted_type: ClassVar[type] = FittedLexical

    def __post_init__(self) -> None:
        require(self.c > 0, "c", self.c, "above 0")
        require(self.background >= 1, "background", self.background, "at least 1")
        require(self.characters >= 2, "characters", self.characters, "at least 2")
        kinds_of_ngrams(self.order, self.characters, self.buckets)

    def samples(self, target_units: int) -> Mapping[str, int]:
        """Return the size of ``background``, the negative class."""
        return {"background": self.background}

    def learn(self, target: Units, pool: Mapping[str, Units], seed: int) -> FittedLexical:
        """Compute TF-IDF and fit the classifier; deterministic.

        Raises:
            DataError: If the task or the sample has no word.
        """
        from sklearn.linear_model import LogisticRegression

        features = []
        idf_by_kind = []
        for kind in kinds_of_ngrams(self.order, self.characters, self.buckets):
            target_counts = kind.nonempty_counts(target.texts, "target")
            pool_counts = kind.nonempty_counts(pool["background"].texts, "background")
            counts = sparse.vstack([target_counts, pool_counts], format="csr")
            units = np.bincount(counts.indices, minlength=self.buckets)
            idf = np.log((1 + counts.shape[0]) / (1 + units)) + 1
            features.append(tf_idf(counts, idf))
            idf_by_kind.append(idf)
        rows = sparse.hstack(features, format="csr")
        model = LogisticRegression(
            C=self.c, class_weight="balanced", solver="liblinear", max_iter=1000, random_state=0
        )
        is_target = np.arange(rows.shape[0]) < len(target)
        model.fit(rows, is_target)
        return FittedLexical(
            idf=torch.from_numpy(np.stack(idf_by_kind)),
            weights=torch.from_numpy(model.coef_.reshape(2, -1).copy()),
            intercept=float(model.intercept_[0]),
            order=self.order,
            characters=self.characters,
        )


def kinds_of_ngrams(order: int, characters: int, buckets: int) -> tuple[BucketCounts, ...]:
    """Return the two kinds of features: n-grams of words, and of characters inside a word."""
    by_word = HashedNgrams(order, buckets, plain_words)
    within_words = CharacterNgrams(2, characters, buckets, plain_runs)
    return by_word, within_words


def tf_idf(counts: sparse.csr_array, idf: np.ndarray) -> sparse.csr_array:
    """Compute (1 + log count) * idf, with every row that has a word scaled to length 1.

    Args:
        counts: Shape (texts, buckets).
        idf: Shape (buckets,).
    """
    repeats = counts.data.astype(np.int64)
    # A table, because a vectorised logarithm may round the last numbers of an array differently
    # from the first.
    most = int(repeats.max(initial=0))
    logs = np.array([0.0, *map(math.log, range(1, most + 1))])
    values = (1 + logs[repeats]) * idf[counts.indices]
    rows = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
    lengths = np.sqrt(np.bincount(rows, weights=values**2, minlength=counts.shape[0]))
    values = values / lengths[rows]
    return sparse.csr_array((values, counts.indices, counts.indptr), shape=counts.shape)
