"""Fit a static model to a teacher: a vector for each token; that of a text is the mean of its tokens' vectors.

A sentence i has the weight l_i, n_i tokens t_ij, and z_i, the teacher's vector of unit length. With the
mean μ = Σ l_i z_i / Σ l_i the vectors w minimise

    Σ_i l_i |Σ_j w(t_ij) / n_i - z_i|² + α Σ_t |w(t) - μ|²

This is a ridge regression of z - μ on the shares that the tokens have in a sentence. A token that no
sentence has gets μ, and so do all tokens where α is large. Weight 0 equals absence.

References:
    Gupta and Jaggi 2021, Obtaining better static word embeddings using contextual embedding models,
    for vectors that are fitted to a teacher's on text; Reimers and Gurevych 2020, Making monolingual
    sentence embeddings multilingual using knowledge distillation, equation 1, for the squared error.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dana.core.logging import monitor
from dana.core.rng import generator
from dana.train.documents import Documents

PENALTY = 0.05  # α: the best of four on rct_sample (docs/results/distillation.md)
MOST_SENTENCES = 100_000  # that the teacher reads
DOCUMENTS_AT_ONCE = 64
TOLERANCE = 1e-5  # of the conjugate gradients, relative


@dataclass(frozen=True)
class TaughtSentences:
    """Sentences, and what a teacher makes of them.

    Attributes:
        tokens: Token ids of each sentence, int of shape (its tokens,), without special tokens.
        weights: float64 of shape (sentences,), l.
        teacher: float64 of shape (sentences, width), z, each of unit length or 0.
    """

    tokens: Sequence[np.ndarray]
    weights: np.ndarray
    teacher: np.ndarray

    def shares(self, size: int) -> Any:
        """Compute the share that each token has in each sentence.

        Args:
            size: Number of ids of the vocabulary.

        Returns:
            A sparse matrix of scipy, float64 of shape (sentences, size), whose rows sum to 1.
        """
        from scipy.sparse import csr_array

        counts = np.array([len(sentence) for sentence in self.tokens])
        shares = np.repeat(1 / np.maximum(counts, 1), counts)
        begins = np.append(0, np.cumsum(counts))
        ids = np.concatenate([*self.tokens, np.zeros(0, dtype=np.int64)]).astype(np.int64)
        matrix = csr_array((shares, ids, begins), shape=(len(self.tokens), size))
        matrix.sum_duplicates()
        return matrix

    def cosine(self, vectors: np.ndarray) -> float:
        """Compute the mean cosine, over weighted sentences, of a static model's vectors and the teacher's.

        Args:
            vectors: Shape (ids, width), the static model.
        """
        student = self.shares(len(vectors)) @ vectors
        norms = np.linalg.norm(student, axis=1)
        cosines = (student * self.teacher).sum(1) / np.maximum(norms, np.finfo(float).tiny)
        return float(np.average(cosines, weights=self.weights))


def teach(
    documents: Documents, tokenizer: Any, encode: Callable[[Sequence[str]], Any], seed: int
) -> TaughtSentences:
    """Let a teacher read the sentences of documents, in random order up to :data:`MOST_SENTENCES`.

    Args:
        documents: From :func:`dana.train.documents.build_documents`, with all their sentences.
        tokenizer: That of the documents' tokens.
        encode: Computes the teacher's vectors of texts, of shape (texts, width).
        seed: Decides the order of the documents.
    """
    order = generator(seed, "static student").permutation(len(documents))
    starts = range(0, order.size, DOCUMENTS_AT_ONCE)
    special = documents.special_tokens
    tokens: list[np.ndarray] = []
    weights: list[np.ndarray] = []
    vectors: list[np.ndarray] = []
    for start in monitor(starts, what="teacher", unit="steps", total=len(starts)):
        batch = documents.take(order[start : start + DOCUMENTS_AT_ONCE])
        framed = np.split(batch.tokens, batch.offsets[1:-1])
        first = special.before.size
        sentences = [part[first : part.size - special.after.size] for part in framed]
        sentences = sentences[: MOST_SENTENCES - len(tokens)]  # 64 books have many more
        texts = tokenizer.batch_decode(sentences)
        tokens += sentences
        weights.append(batch.weights[: len(sentences)])
        vectors.append(encode(texts).double().cpu().numpy())
        if len(tokens) >= MOST_SENTENCES:
            break
    teacher = np.concatenate(vectors)
    norms = np.linalg.norm(teacher, axis=1, keepdims=True)
    units = teacher / np.maximum(norms, np.finfo(float).tiny)
    return TaughtSentences(tokens, np.concatenate(weights).astype(np.float64), units)


def fit_token_vectors(
    sentences: TaughtSentences, size: int, penalty: float = PENALTY
) -> np.ndarray:
    """Fit a vector for each token.

    Args:
        sentences: What the teacher makes of sentences, one at least of a weight above 0.
        size: Number of ids of the vocabulary.
        penalty: α, above 0.

    Returns:
        float32 of shape (size, width), w.
    """
    from sklearn.linear_model import Ridge
    from threadpoolctl import threadpool_limits

    has_weight = sentences.weights > 0
    weights = sentences.weights[has_weight]
    teacher = sentences.teacher[has_weight]
    shares = sentences.shares(size)[has_weight]
    mean = np.average(teacher, axis=0, weights=weights)
    found = np.unique(shares.indices)
    ridge = Ridge(alpha=penalty, fit_intercept=False, solver="sparse_cg", tol=TOLERANCE)
    with threadpool_limits(1):  # another order of summation would change the last bits
        ridge.fit(shares[:, found], teacher - mean, sample_weight=weights)
    vectors = np.tile(mean, (size, 1))
    vectors[found] += np.reshape(ridge.coef_, (len(mean), found.size)).T
    return vectors.astype(np.float32)
