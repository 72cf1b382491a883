"""Embedded topic model (ETM): bags of words to topics that are points among word vectors, by a variational autoencoder.

A document's topics are a softmax of a Gaussian, θ = softmax(δ), δ ~ N(0, I); topic k has the words
β_k = softmax(ρ α_k), ρ the word vectors and α_k the topic's own. An encoder q(δ | x) = N(μ(x), diag σ²(x)) reads the
document's shares of words x. What is maximised is, for a document with counts c,

    ELBO = Σ_v c_v log(Σ_k θ_k β_kv) − KL(q(δ | x) ‖ N(0, I)),   KL = ½ Σ_k (μ_k² + σ_k² − log σ_k² − 1),

with one draw of δ. Only words that a document has contribute, so no matrix of documents by words is ever made.

References:
    Dieng, Ruiz and Blei 2020, Topic modeling in embedding spaces: section 4 (the model), section 5 (its fit).
"""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from math import ceil
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from dana.core.config import require
from dana.core.errors import nearest_path
from dana.core.files import file_digest
from dana.core.logging import tracked
from dana.core.rng import derive_seed
from dana.encoders.words import WordVectors, read_word_vectors
from dana.studies.topics.model import Bags

BLOCK = 512  # documents encoded together, the last block filled up: a document's bits do not depend on the others


@contextmanager
def _one_thread() -> Iterator[None]:
    """Compute in one thread of torch, then in as many as before: sums in another order change the last bits."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


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

    def encode(self, counts: Any) -> tuple[Tensor, Tensor]:
        """μ and log σ² of documents, float32 of shape (documents, K) each.

        Args:
            counts: Sparse (scipy CSR), shape (documents, V).
        """
        times, totals = counts.data.astype(np.float32), np.asarray(counts.sum(1), dtype=np.float32).ravel()
        shares = torch.from_numpy(times / np.repeat(totals, np.diff(counts.indptr)))
        words, begins = (torch.from_numpy(part.astype(np.int64)) for part in (counts.indices, counts.indptr[:-1]))
        summed = functional.embedding_bag(words, self.first, begins, mode="sum", per_sample_weights=shares)
        hidden = torch.relu(summed + self.first_bias)
        hidden = torch.relu(functional.linear(hidden, self.second, self.second_bias))
        mean = functional.linear(hidden, self.mean, self.mean_bias)
        return mean, functional.linear(hidden, self.log_variance, self.log_variance_bias)

    def log_beta(self) -> Tensor:
        """Log β, float32 of shape (K, V)."""
        return functional.log_softmax(self.topics @ self.words.T, dim=1)

    @property
    def beta(self) -> np.ndarray:
        """See :class:`dana.studies.topics.model.FittedTopics`."""
        with _one_thread(), torch.no_grad():
            return self.log_beta().exp().numpy()

    def theta(self, counts: Any) -> np.ndarray:
        """See :class:`dana.studies.topics.model.FittedTopics`: softmax of μ; without words 1/K, the prior's mean."""
        theta = np.zeros((counts.shape[0], len(self.topics)), dtype=np.float32)
        with _one_thread(), torch.no_grad():
            for begin in range(0, len(theta), BLOCK):
                block = counts[begin : begin + BLOCK]
                rows = block.shape[0]
                block.resize(BLOCK, block.shape[1])
                is_empty = torch.from_numpy(np.diff(block.indptr) == 0)
                mean = self.encode(block)[0].masked_fill(is_empty[:, None], 0.0)
                theta[begin : begin + BLOCK] = mean.softmax(1)[:rows].numpy()
        return theta


def elbo(parameters: FittedEmbeddedTopics, counts: Any, noise: Tensor) -> tuple[Tensor, Tensor]:
    """The two terms of the evidence lower bound, one a document, in nats.

    Args:
        parameters: Of encoder and decoder.
        counts: Documents: sparse (scipy CSR), shape (documents, V).
        noise: Standard normal numbers of shape (documents, K): δ = μ + σ · noise.

    Returns:
        The log-likelihood of the words and the Kullback-Leibler divergence, shape (documents,) each; ELBO is the first
        less the second.
    """
    mean, log_variance = parameters.encode(counts)
    log_theta = functional.log_softmax(mean + noise * (log_variance / 2).exp(), dim=1)
    document = torch.from_numpy(np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr)))
    words, times = torch.from_numpy(counts.indices.astype(np.int64)), torch.from_numpy(counts.data.astype(np.float32))
    of_words = functional.embedding(words, parameters.log_beta().T.contiguous())
    each = times * torch.logsumexp(of_words + functional.embedding(document, log_theta), dim=1)
    likelihood = torch.zeros(counts.shape[0]).index_add(0, document, each)
    divergence = (mean.square() + log_variance.exp() - log_variance - 1).sum(1) / 2
    return likelihood, divergence


@dataclass(frozen=True)
class EmbeddedTopics:
    """Embedded topic model. Word vectors are learned with the topics, or given and kept as they are.

    Attributes:
        epochs: Passes over the documents.
        vectors: File of word vectors (:func:`dana.encoders.words.read_word_vectors`); the vocabulary then has
            only words with a vector. None learns them.
        dims: Length of the vectors that are learned.
        hidden: Width of the encoder's two layers.
        learning_rate: Of Adam.
        weight_decay: Of Adam: an L2 penalty of all that is learned.
        batch: Documents in a step.
        annealing: Share of the steps in which the weight of the Kullback-Leibler term grows from 0 to 1.

    References:
        Dieng, Ruiz and Blei 2020. Its released code has 30 epochs, hidden 800 and a rate of 5e-3; with these defaults
        a fit takes less time and its topics share fewer words (docs/results/topics.md).
    """

    epochs: int = 100
    vectors: str | None = None
    dims: int = 300
    hidden: int = 200
    learning_rate: float = 1e-2
    weight_decay: float = 1.2e-6
    batch: int = 1000
    annealing: float = 0.3
    version: ClassVar[int] = 1
    fitted_type: ClassVar[type] = FittedEmbeddedTopics

    def __post_init__(self) -> None:
        for name in ("epochs", "dims", "hidden", "batch"):
            require(getattr(self, name) >= 1, name, getattr(self, name), "at least 1")
        require(self.learning_rate > 0, "learning_rate", self.learning_rate, "above 0")
        require(self.weight_decay >= 0, "weight_decay", self.weight_decay, "at least 0")
        require(0 <= self.annealing <= 1, "annealing", self.annealing, "from 0 to 1")

    @cached_property
    def _given(self) -> WordVectors | None:
        return read_word_vectors(Path(self.vectors)) if self.vectors is not None else None

    @property
    def known_words(self) -> Collection[str] | None:
        """See :class:`dana.studies.topics.model.TopicModel`."""
        return None if self._given is None else self._given.places

    def identity(self) -> dict[str, Any]:
        """See :class:`dana.studies.topics.model.TopicModel`. A file of vectors is known by its digest.

        Raises:
            ConfigError: If it is not there.
        """
        values = asdict(self)
        if self.vectors is not None:
            path = Path(self.vectors)
            require(path.is_file(), "vectors", self.vectors, f"a file of word vectors{nearest_path(path)}")
            values |= {"vectors": file_digest(path), "dims": None}
        return {"model": "etm", **values}

    def fit(self, bags: Bags, k: int, seed: int) -> FittedEmbeddedTopics:
        """See :class:`dana.studies.topics.model.TopicModel`."""
        with _one_thread():
            random = torch.Generator().manual_seed(derive_seed(seed, "etm"))
            parameters = self._begin(bags.words, k, random)
            learned = [part for part in _tensors(parameters) if part.requires_grad]
            optimiser = torch.optim.Adam(learned, lr=self.learning_rate, weight_decay=self.weight_decay, fused=True)
            documents = bags.counts.shape[0]
            epoch = ceil(documents / self.batch)
            steps = self.epochs * epoch
            for step in tracked(range(steps), what=f"fitting {k} topics", unit="steps", total=steps):
                if step % epoch == 0:
                    order = torch.randperm(documents, generator=random).numpy()
                rows = order[step % epoch * self.batch :][: self.batch]
                noise = torch.randn(len(rows), k, generator=random)
                likelihood, divergence = elbo(parameters, bags.counts[rows], noise)
                optimiser.zero_grad(set_to_none=True)
                (self._weight(step, steps) * divergence - likelihood).mean().backward()
                optimiser.step()
        return FittedEmbeddedTopics(*(part.detach() for part in _tensors(parameters)))

    def _weight(self, step: int, steps: int) -> float:
        """Weight of the Kullback-Leibler term: linear, 1 from the end of the annealing on."""
        return min(1.0, (step + 1) / max(1.0, self.annealing * steps))

    def _begin(self, words: tuple[str, ...], k: int, random: torch.Generator) -> FittedEmbeddedTopics:
        """Where the fit begins: layers are uniform in ±1/√(inputs), vectors in ±1/√dims."""

        def layer(inputs: int, *shape: int) -> Tensor:
            return ((2 * torch.rand(*shape, generator=random) - 1) / inputs**0.5).requires_grad_()

        if self._given is None:
            vectors = layer(self.dims, len(words), self.dims)
        else:
            vectors = self._given.vectors[[self._given.places[word] for word in words]].clone()
        many, wide = len(words), self.hidden
        return FittedEmbeddedTopics(
            first=layer(many, many, wide),
            first_bias=layer(many, wide),
            second=layer(wide, wide, wide),
            second_bias=layer(wide, wide),
            mean=layer(wide, k, wide),
            mean_bias=layer(wide, k),
            log_variance=layer(wide, k, wide),
            log_variance_bias=layer(wide, k),
            words=vectors,
            topics=layer(vectors.shape[1], k, vectors.shape[1]),
        )


def _tensors(parameters: FittedEmbeddedTopics) -> list[Tensor]:
    return [getattr(parameters, field.name) for field in fields(parameters)]
