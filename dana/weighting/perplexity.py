"""Perplexity of held-out text under n-gram models of growing cuts of a ranked pool, and of random cuts as large.

The cut whose model predicts held-out text of the task best is the amount of text that is worth keeping (Moore and Lewis
2010, Intelligent selection of language model training data, section 4; Rousseau 2013, XenC, section 3.3).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dana.models.ngram.kneser_ney import train_ngrams
from dana.models.ngram.model import text_entropies
from dana.models.ngram.vocabulary import END, Vocabulary, WordIds

CUTS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0)
ORDER = 3
LEAST_COUNT = 2  # of a word in the pool, to be in the vocabulary that all cuts have in common


@dataclass(frozen=True)
class PerplexityCurve:
    """What held-out documents cost under the model of each cut, in nats; all of one vocabulary.

    Attributes:
        shares: Shape (cuts,), share of the pool's units in each cut, ascending.
        nats: Shape (cuts, documents), under the model of the best units; infinite where a cut has no known word.
        random: Shape (cuts, documents), under the model of as many random units.
        tokens: Shape (documents,), known words of each document and the ends of its units.
    """

    shares: np.ndarray
    nats: np.ndarray
    random: np.ndarray
    tokens: np.ndarray

    @property
    def per_token(self) -> np.ndarray:
        """Cross-entropy of all documents under each cut's model, nats a token."""
        return self.nats.sum(axis=1) / self.tokens.sum()

    @property
    def random_per_token(self) -> np.ndarray:
        """The same under the models of random units."""
        return self.random.sum(axis=1) / self.tokens.sum()

    @property
    def best(self) -> int:
        """The cut of least cross-entropy; of equal ones the smallest."""
        return int(np.argmin(self.per_token))

    @property
    def standard_errors(self) -> np.ndarray:
        """Of each cut's difference to the best one, nats a token: over documents, which are paired; 0 of one document.

        By linearisation of the ratio of nats to tokens (Cochran 1977, Sampling techniques, section 6.4).
        """
        documents = self.tokens.size
        if documents < 2:
            return np.zeros(self.shares.size)
        with np.errstate(invalid="ignore"):
            differences = self.nats - self.nats[self.best]
            residuals = differences - differences.sum(axis=1, keepdims=True) / self.tokens.sum() * self.tokens
        squares = np.nan_to_num(np.square(residuals)).sum(axis=1)
        return np.sqrt(documents / (documents - 1) * squares) / self.tokens.sum()

    @property
    def smallest(self) -> int:
        """The smallest cut that is within one standard error of the best."""
        return int(np.argmax(self.per_token - self.per_token[self.best] <= self.standard_errors))


def perplexity_curve(
    pool: Sequence[str],
    order: np.ndarray,
    random: np.ndarray,
    held_out: Sequence[str],
    documents: np.ndarray,
    cuts: Sequence[float] = CUTS,
) -> PerplexityCurve:
    """Train a model on each cut and measure held-out text under it.

    Args:
        pool: Text of each unit.
        order: Rows of the pool, the best first.
        random: The same rows in a random order.
        held_out: Text of each held-out unit, of which nothing was fitted.
        documents: int64 of shape (held-out units,), the document of each, numbered from 0.
        cuts: Shares of the units, ascending.
    """
    vocabulary = Vocabulary.of_texts(pool, LEAST_COUNT)
    ids, held_out_ids = vocabulary.encode(pool), vocabulary.encode(held_out)
    sizes = sorted({max(1, round(share * order.size)) for share in cuts})
    nats, drawn = [], []
    for size in sizes:
        nats.append(_cost(ids.rows(np.sort(order[:size])), held_out_ids, vocabulary, documents))
        last = size == order.size
        drawn.append(nats[-1] if last else _cost(ids.rows(np.sort(random[:size])), held_out_ids, vocabulary, documents))
    known = np.bincount(held_out_ids.text_of, held_out_ids.ids >= END, minlength=len(held_out_ids))
    tokens = np.bincount(documents, known)
    return PerplexityCurve(np.array(sizes) / order.size, np.stack(nats), np.stack(drawn), tokens)


def _cost(train: WordIds, held_out: WordIds, vocabulary: Vocabulary, documents: np.ndarray) -> np.ndarray:
    """Nats of each held-out document under the model of some texts."""
    if not (train.ids > END).any():  # no known word: there is nothing to train on
        return np.full(int(documents.max()) + 1, np.inf)
    found = text_entropies(train_ngrams(train, ORDER, vocabulary), held_out, unknown=False)
    return np.bincount(documents, found.nats)
