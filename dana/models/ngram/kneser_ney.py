"""Count n-grams of texts and train back-off models with interpolated modified Kneser-Ney smoothing.

A k-gram is the integer ``row of its first k - 1 words among the (k-1)-grams · words + last word``.
It fits 63 bits at any order, and the sorted arrays of all orders are a trie.

Equation and section numbers are those of Chen and Goodman 1998, An empirical study of smoothing
techniques for language modeling, Harvard TR-10-98. Cut-offs and the discounts of small texts are
KenLM's (Heafield et al. 2013, Scalable modified Kneser-Ney language model estimation), so that
models are those of ``lmplz --discount_fallback --prune``.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dana.core.config import require
from dana.core.errors import DataError
from dana.models.ngram.model import Level, NgramModel
from dana.models.ngram.vocabulary import BEGIN, END, Vocabulary, WordIds


@dataclass(frozen=True)
class Counts:
    """Counts of all k-grams of texts, in ascending order of their keys.

    Attributes:
        keys: int64 of shape (k-grams,): row of the first k - 1 words times the number of words,
            plus the last word.
        raw: int64 of shape (k-grams,), occurrences.
        adjusted_counts: int64 of shape (k-grams,), the counts of Kneser-Ney smoothing: the number
            of distinct words before the k-gram (Chen and Goodman 1998, section 2.7); occurrences at
            the highest order and at the beginning of a text, where no word precedes. The begin mark
            alone, which is never predicted, has 0.
        suffixes: int64 of shape (k-grams,), row of the last k - 1 words among the (k-1)-grams;
            zeros for single words.
    """

    keys: np.ndarray
    raw: np.ndarray
    adjusted_counts: np.ndarray
    suffixes: np.ndarray


def count_ngrams(texts: WordIds, order: int, words: int) -> list[Counts]:
    """Count the 1-grams to `order`-grams of texts, each within one text.

    Time O(order · tokens · log tokens), by sorting.

    Args:
        texts: Word numbers.
        order: Highest order, from 1.
        words: Size of the vocabulary. Every word is a 1-gram, even if it does not occur.
    """
    last = texts.ids.astype(np.int64)
    keys = np.arange(words)
    suffixes = np.zeros(words, dtype=np.int64)
    raw = np.bincount(last, minlength=words)
    begins = keys == BEGIN  # k-grams that begin a text
    rows = last  # row of the k-gram that ends at each word; -1 if there is none
    levels = []
    for _ in range(1, order):
        before = np.concatenate([[-1], rows[:-1]])
        before[last == BEGIN] = -1
        ends = np.flatnonzero(before >= 0)
        occurrences = before[ends] * words + last[ends]
        longer, inverse, longer_raw = np.unique(
            occurrences, return_inverse=True, return_counts=True
        )
        longer_suffixes = np.zeros(longer.size, dtype=np.int64)
        longer_suffixes[inverse] = rows[ends]
        predecessors = np.bincount(longer_suffixes, minlength=keys.size)
        levels.append(Counts(keys, raw, np.where(begins, raw, predecessors), suffixes))
        begins = begins[longer // words]
        keys = longer
        raw = longer_raw
        suffixes = longer_suffixes
        rows = np.full(last.size, -1)
        rows[ends] = inverse
    levels.append(Counts(keys, raw, raw.copy(), suffixes))
    levels[0].adjusted_counts[BEGIN] = 0
    return levels


FALL_BACK = (0.0, 0.5, 1.0, 1.5)
NEVER = -99.0  # log10 p of the begin mark, as SRILM writes it


def modified_discounts(counts: np.ndarray) -> tuple[float, ...]:
    """Estimate the discounts of the counts 0, 1, 2, and 3 or more of an order (equation 26).

    With n_i the number of n-grams of count i and Y = n_1 / (n_1 + 2 n_2): D_i = i - (i + 1) Y
    n_(i+1) / n_i, for i = 1, 2, 3. All three are :data:`FALL_BACK` if any of n_1, n_2, n_3 is 0 or
    a D_i is outside (0, i], as with KenLM's ``--discount_fallback``. Texts of some hundred
    sentences have too few 1-grams or 5-grams of count three or four.

    Args:
        counts: Adjusted counts, integers of shape (n-grams,).
    """
    n = np.bincount(np.minimum(counts, 5), minlength=6).astype(np.float64)
    if not n[1:4].all():
        return FALL_BACK
    share = n[1] / (n[1] + 2 * n[2])
    amounts = [float(i - (i + 1) * share * n[i + 1] / n[i]) for i in (1, 2, 3)]
    if not all(0 < amount <= i for i, amount in enumerate(amounts, 1)):
        return FALL_BACK
    return (0.0, *amounts)


def train_ngrams(
    texts: Sequence[str] | WordIds,
    order: int = 3,
    vocabulary: Vocabulary | None = None,
    cutoff: int = 0,
) -> NgramModel:
    """Train an n-gram model with interpolated modified Kneser-Ney smoothing.

    Args:
        texts: Sentences or documents, or their word numbers by `vocabulary`.
        order: Number of words of the longest n-grams, from 1.
        vocabulary: Words of the model; others count as the unknown word. None for all words of the
            texts; the unknown word then has the probability of an unseen word at the lowest order.
        cutoff: N-grams of three and more words with at most so many occurrences are left out.

    Raises:
        ConfigError: If the order is not an integer from 1, or the cut-off is negative.
        DataError: If there are no texts, `texts` is one text, or the vocabulary excludes every
            word.
    """
    is_order = isinstance(order, int | np.integer) and order >= 1
    require(is_order, "order", order, "a whole number, at least 1")
    require(cutoff >= 0, "cutoff", cutoff, "at least 0")
    if not isinstance(texts, WordIds):
        vocabulary = vocabulary or Vocabulary.of_texts(texts)
        texts = vocabulary.encode(texts)
    if vocabulary is None:
        raise TypeError("numbers of words need their vocabulary")
    if not len(texts):
        raise DataError("an n-gram model needs at least one text")
    if not (texts.ids > END).any():
        raise DataError(
            f"none of the vocabulary's {len(vocabulary) - 3} words occurs in {len(texts)} "
            "training texts"
        )
    return estimate_model(count_ngrams(texts, order, len(vocabulary)), vocabulary, cutoff)


def estimate_model(counts: Sequence[Counts], vocabulary: Vocabulary, cutoff: int) -> NgramModel:
    """Estimate a back-off model from counts of n-grams.

    Each order is interpolated with the one below, the lowest with the uniform distribution over all
    words but the begin mark: p(w | h) = (c(hw) - D(c(hw))) / c(h·) + γ(h) p(w | h'). γ(h), the
    back-off of h, is the mass of the discounts and, beyond the report, of the n-grams that are cut
    off.

    Args:
        counts: Counts of each order.
        vocabulary: Words of the counts.
        cutoff: See :func:`train_ngrams`.
    """
    words = len(vocabulary)
    first = counts[0]
    total = first.adjusted_counts.sum()
    discounts = _discounts(first)
    probs = (first.adjusted_counts - discounts + discounts.sum() / (words - 1)) / total
    probs[BEGIN] = 0
    keys = first.keys
    rows = first.keys  # row in the model of each n-gram of the counts, -1 if it is cut off
    levels = []
    for order, level in enumerate(counts[1:], 2):
        prefixes = level.keys // words
        is_kept = level.raw > (cutoff if order > 2 else 0)
        discounts = _discounts(level)
        totals = np.bincount(prefixes, level.adjusted_counts, minlength=rows.size)
        # What each n-gram leaves to the order below: its discount, or all if it is cut off.
        parts_lost = np.where(is_kept, discounts, level.adjusted_counts)
        lost = np.bincount(prefixes, parts_lost, minlength=rows.size)
        backoffs = np.divide(lost, totals, out=np.ones(rows.size), where=totals > 0)
        levels.append(_make_level(keys, probs, backoffs[rows >= 0]))
        prefixes = prefixes[is_kept]
        discounted_counts = level.adjusted_counts[is_kept] - discounts[is_kept]
        lower_probs = probs[rows[level.suffixes[is_kept]]]
        probs = discounted_counts / totals[prefixes] + backoffs[prefixes] * lower_probs
        keys = rows[prefixes] * words + level.keys[is_kept] % words
        rows = np.where(is_kept, np.cumsum(is_kept) - 1, -1)
    levels.append(_make_level(keys, probs, np.ones(keys.size)))
    return NgramModel(vocabulary, tuple(levels))


def _discounts(level: Counts) -> np.ndarray:
    """Compute D(c) of each adjusted count, float64 (section 4.1, equation 26)."""
    by_count = np.array(modified_discounts(level.adjusted_counts))
    discounts: np.ndarray = by_count[np.minimum(level.adjusted_counts, 3)]
    return discounts


def _make_level(keys: np.ndarray, probs: np.ndarray, backoffs: np.ndarray) -> Level:
    """Return a level of the model from the probabilities and back-offs of its k-grams."""
    logs = np.log10(probs, out=np.full(probs.size, NEVER), where=probs > 0)
    return Level(keys, logs.astype(np.float32), np.log10(backoffs).astype(np.float32))
