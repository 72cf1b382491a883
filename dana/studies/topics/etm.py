"""Embedded topic model (ETM): bags of words to topics that are points among word vectors, by a variational autoencoder.

A document's topics are a softmax of a Gaussian, θ = softmax(δ), δ ~ N(0, I); topic k has the words
β_k = softmax(ρ α_k), ρ the word vectors and α_k the topic's own. An encoder q(δ | x) = N(μ(x), diag σ²(x)) reads the
document's shares of words x. What is maximised is, for a document with counts c,

    ELBO = Σ_v c_v log(Σ_k θ_k β_kv) − KL(q(δ | x) ‖ N(0, I)),   KL = ½ Σ_k (μ_k² + σ_k² − log σ_k² − 1),

with one draw of δ. Only words that a document has contribute, so no matrix of documents by words is ever made.

References:
    Dieng, Ruiz and Blei 2020, Topic modeling in embedding spaces: section 4 (the model), section 5 (its fit).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from dana.studies.topics.threads import one_thread

BLOCK = 512  # documents encoded together, the last block filled up: a document's bits do not depend on the others


@dataclass(frozen=True)
class SparseBatch:
    """Bags of words, as a sparse layer takes them.

    Attributes:
        ids: int64 of shape (entries,), the word of each entry, document after document.
        counts: float32 of shape (entries,), how often it is in the document.
        shares: float32 of shape (entries,), that over the document's words.
        sizes: int64 of shape (documents,), entries of each document.
    """

    ids: Tensor
    counts: Tensor
    shares: Tensor
    sizes: Tensor

    @classmethod
    def of(cls, counts: Any, rows: int = 0) -> "SparseBatch":
        """Of a scipy CSR matrix of shape (documents, words), filled up with empty documents to so many rows."""
        sizes = np.diff(counts.indptr).astype(np.int64)
        values = counts.data.astype(np.float32)
        totals = np.asarray(counts.sum(1)).ravel().astype(np.float32)
        parts = counts.indices.astype(np.int64), values, values / np.repeat(totals, sizes)
        filled = np.concatenate([sizes, np.zeros(max(0, rows - sizes.size), dtype=np.int64)])
        return cls(*map(torch.from_numpy, (*parts, filled)))


@dataclass(frozen=True)
class FittedEmbeddedTopics:
    """Encoder and decoder; V words, K topics, H the width of the encoder's layers, E the length of a vector.

    Attributes:
        first: Shape (V, H).
        first_bias: Shape (H,).
        second: Shape (H, H).
        second_bias: Shape (H,).
        mean: Shape (K, H), of μ.
        mean_bias: Shape (K,).
        log_variance: Shape (K, H), of log σ².
        log_variance_bias: Shape (K,).
        words: Shape (V, E), ρ.
        topics: Shape (K, E), α.
    """

    first: Tensor
    first_bias: Tensor
    second: Tensor
    second_bias: Tensor
    mean: Tensor
    mean_bias: Tensor
    log_variance: Tensor
    log_variance_bias: Tensor
    words: Tensor
    topics: Tensor

    def encode(self, batch: SparseBatch) -> tuple[Tensor, Tensor]:
        """μ and log σ² of documents, float32 of shape (documents, K) each."""
        begins = batch.sizes.cumsum(0) - batch.sizes
        summed = functional.embedding_bag(batch.ids, self.first, begins, mode="sum", per_sample_weights=batch.shares)
        hidden = torch.relu(summed + self.first_bias)
        hidden = torch.relu(functional.linear(hidden, self.second, self.second_bias))
        mean = functional.linear(hidden, self.mean, self.mean_bias)
        return mean, functional.linear(hidden, self.log_variance, self.log_variance_bias)

    def log_beta(self) -> Tensor:
        """Log β, float32 of shape (K, V)."""
        return functional.log_softmax(self.topics @ self.words.T, dim=1)

    @property
    def beta(self) -> np.ndarray:
        """See :class:`dana.studies.topics.base.FittedTopics`."""
        with one_thread(), torch.no_grad():
            return self.log_beta().exp().numpy()

    def theta(self, counts: Any) -> np.ndarray:
        """See :class:`dana.studies.topics.base.FittedTopics`: softmax of μ; without words 1/K, the prior's mean."""
        found = [np.zeros((0, len(self.topics)), dtype=np.float32)]
        with one_thread(), torch.no_grad():
            for begin in range(0, counts.shape[0], BLOCK):
                block = counts[begin : begin + BLOCK]
                batch = SparseBatch.of(block, BLOCK)
                mean = torch.where(batch.sizes[:, None] > 0, self.encode(batch)[0], 0.0)
                found.append(mean.softmax(1).numpy()[: block.shape[0]])
        return np.concatenate(found)


def elbo(parameters: FittedEmbeddedTopics, batch: SparseBatch, noise: Tensor) -> tuple[Tensor, Tensor]:
    """The two terms of the evidence lower bound, one a document, in nats.

    Args:
        parameters: Of encoder and decoder.
        batch: Documents.
        noise: Standard normal numbers of shape (documents, K): δ = μ + σ · noise.

    Returns:
        The log-likelihood of the words and the Kullback-Leibler divergence, shape (documents,) each; ELBO is the first
        less the second.
    """
    mean, log_variance = parameters.encode(batch)
    log_theta = functional.log_softmax(mean + noise * (log_variance / 2).exp(), dim=1)
    document = torch.arange(len(batch.sizes)).repeat_interleave(batch.sizes)
    of_words = functional.embedding(batch.ids, parameters.log_beta().T.contiguous())
    each = batch.counts * torch.logsumexp(of_words + functional.embedding(document, log_theta), dim=1)
    likelihood = torch.zeros(len(batch.sizes)).index_add(0, document, each)
    divergence = (mean.square() + log_variance.exp() - log_variance - 1).sum(1) / 2
    return likelihood, divergence
