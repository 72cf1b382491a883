"""Fit the embedded topic model (ETM), whose topics are vectors in the space of word vectors.

A variational autoencoder fits it. The topic shares of a document are θ = softmax(δ) with δ ~ N(0,
I). Topic k has word probabilities β_k = softmax(ρ α_k) with word vectors ρ and topic vector α_k.
The encoder q(δ | x) = N(μ(x), diag σ²(x)) takes the relative word frequencies x. The fit maximises,
for a document with word counts c and one draw of δ,

    ELBO = Σ_v c_v log(Σ_k θ_k β_kv) − KL(q(δ | x) ‖ N(0, I)),   KL = ½ Σ_k (μ_k² + σ_k² − log σ_k²
    − 1).

The sum runs over the words of the document, so no dense matrix of documents by words is made.

Fitted so, small pools leave topics unused and others alike. So the fit differs from the paper: each
μ_k is standardised over the documents of a step, as no topic can then be equally likely in all of
them; θ = softmax(s δ), with a spread s below 1; topics start apart.

References:
    Dieng, Ruiz and Blei 2020, Topic modeling in embedding spaces: section 4 (the model), section 5
    (its fit). Srivastava and Sutton 2017, Autoencoding variational inference for topic models:
    section 3.4 (batch normalisation against the collapse of topics).
"""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from math import ceil
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from dana.core.config import require
from dana.core.errors import nearest_path
from dana.core.files import file_digest
from dana.core.logging import monitor
from dana.core.rng import derive_seed
from dana.core.settings import Count, Float, Positive, settings_model
from dana.encoders.words import WordVectors, read_word_vectors
from dana.studies.topics.model import Bags

EPSILON = 1e-6  # added to a variance
# Documents per forward pass, the last one padded, so that a document's bits do not depend on the
# others.
BLOCK = 512


@contextmanager
def _one_thread() -> Iterator[None]:
    """Run torch in one thread.

    The order of summation, and so the last bits, depend on the number of threads.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@dataclass(frozen=True)
class FittedEmbeddedTopics:
    """Parameters of encoder and decoder.

    V is the number of words, K that of topics, H the hidden width and E the embedding size.

    Attributes:
        first: Weights of the first layer, shape (V, H).
        first_bias: Shape (H,).
        second: Weights of the second layer, shape (H, H).
        second_bias: Shape (H,).
        mean: Weights of μ, shape (K, H).
        mean_bias: Shape (K,).
        log_variance: Weights of log σ², with σ before the spread; shape (K, H).
        log_variance_bias: Shape (K,).
        words: Word vectors ρ, shape (V, E).
        topics: Topic vectors α, shape (K, E).
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
        """Encode documents as μ and log σ², float32 of shape (documents, K) each.

        Args:
            counts: Word counts, sparse (scipy CSR) of shape (documents, V).
        """
        totals = np.asarray(counts.sum(1), dtype=np.float32).ravel()
        words_of_document = np.diff(counts.indptr)  # distinct words
        shares = counts.data.astype(np.float32) / np.repeat(totals, words_of_document)
        projection = functional.embedding_bag(
            torch.from_numpy(counts.indices.astype(np.int64)),
            self.first,
            offsets=torch.from_numpy(counts.indptr[:-1].astype(np.int64)),
            mode="sum",
            per_sample_weights=torch.from_numpy(shares),
        )
        activation = torch.relu(projection + self.first_bias)
        activation = torch.relu(functional.linear(activation, self.second, self.second_bias))
        mean = functional.linear(activation, self.mean, self.mean_bias)
        log_variance = functional.linear(activation, self.log_variance, self.log_variance_bias)
        return mean, log_variance

    def log_beta(self) -> Tensor:
        """Return log β, float32 of shape (K, V)."""
        return functional.log_softmax(self.topics @ self.words.T, dim=1)

    @property
    def beta(self) -> np.ndarray:
        """Probability of each word in each topic, shape (K, V)."""
        with _one_thread(), torch.no_grad():
            return self.log_beta().exp().numpy()

    def theta(self, counts: Any) -> np.ndarray:
        """Return softmax of μ, float32 of shape (documents, K).

        For a document without words it is 1/K, the prior mean.
        """
        theta = np.zeros((counts.shape[0], len(self.topics)), dtype=np.float32)
        with _one_thread(), torch.no_grad():
            for begin in range(0, len(theta), BLOCK):
                block = counts[begin : begin + BLOCK]
                rows = block.shape[0]
                block.resize(BLOCK, block.shape[1])
                is_empty = torch.from_numpy(np.diff(block.indptr) == 0)
                mean, _ = self.encode(block)
                mean = mean.masked_fill(is_empty[:, None], 0.0)
                theta[begin : begin + BLOCK] = mean.softmax(1)[:rows].numpy()
        return theta


def elbo(
    parameters: FittedEmbeddedTopics, counts: Any, noise: Tensor, spread: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Compute the two terms of the evidence lower bound of each document, in nats.

    Args:
        parameters: Parameters of encoder and decoder.
        counts: Word counts, sparse (scipy CSR) of shape (documents, V).
        noise: Standard normal noise of shape (documents, K): δ = μ + σ · noise.
        spread: The factor s of δ, with μ standardised over the documents; 0 for the published
            bound.

    Returns:
        Log-likelihood of the words and Kullback-Leibler divergence, shape (documents,) each. The
        ELBO is their difference.
    """
    mean, log_variance = parameters.encode(counts)
    if spread:
        mean = functional.layer_norm(mean.T, mean.shape[:1], eps=EPSILON).T
    delta = mean + noise * (log_variance / 2).exp()
    log_theta = functional.log_softmax((spread or 1.0) * delta, dim=1)
    # One row per document and word of it: the document, the word, and how often it occurs.
    documents = counts.shape[0]
    document = torch.from_numpy(np.repeat(np.arange(documents), np.diff(counts.indptr)))
    word = torch.from_numpy(counts.indices.astype(np.int64))
    times = torch.from_numpy(counts.data.astype(np.float32))
    log_beta_of_word = functional.embedding(word, parameters.log_beta().T.contiguous())
    log_theta_of_document = functional.embedding(document, log_theta)
    log_probability = torch.logsumexp(log_beta_of_word + log_theta_of_document, dim=1)
    likelihood = torch.zeros(documents).index_add(0, document, times * log_probability)
    divergence = (mean.square() + log_variance.exp() - log_variance - 1).sum(1) / 2
    return likelihood, divergence


def _fold(parameters: FittedEmbeddedTopics, counts: Any, spread: float) -> FittedEmbeddedTopics:
    """Move spread and standardisation of μ into the weights of the encoder's last layer.

    μ is standardised over all documents.
    """
    mean, _ = parameters.encode(counts)
    scale = spread / (mean.var(0, correction=0) + EPSILON).sqrt()
    shift = mean.mean(0)
    return replace(
        parameters,
        mean=scale[:, None] * parameters.mean,
        mean_bias=scale * (parameters.mean_bias - shift),
    )


@settings_model
class EmbeddedTopics:
    """Embedded topic model with learned or fixed word vectors.

    Attributes:
        steps: Steps of the optimiser, for pools of any size: long fits of small pools share common
            words among topics.
        vectors: File of fixed word vectors (:func:`dana.encoders.words.read_word_vectors`), which
            limits the vocabulary to its words. None to learn the vectors.
        dims: Size of learned vectors.
        hidden: Width of the encoder's two layers.
        learning_rate: Learning rate of Adam.
        weight_decay: Weight decay (L2 penalty) of Adam.
        batch: Documents per step.
        spread: The factor s of δ: smaller gives flatter shares, and topics that have fewer words in
            common.

    References:
        Dieng, Ruiz and Blei 2020. Their code has 30 epochs, batch 1000, hidden 800, learning rate
        5e-3; ours are chosen on three pools (docs/results/topics.md).
    """

    steps: Count = 400
    vectors: str | None = None
    dims: Count = 100
    hidden: Count = 100
    learning_rate: Positive = 2e-2
    weight_decay: Annotated[Float, Field(ge=0)] = 1.2e-6
    batch: Count = 256
    spread: Positive = 0.6
    version: ClassVar[int] = 2
    fitted_type: ClassVar[type] = FittedEmbeddedTopics

    @cached_property
    def _fixed_vectors(self) -> WordVectors | None:
        return read_word_vectors(Path(self.vectors)) if self.vectors is not None else None

    @property
    def known_words(self) -> Collection[str] | None:
        """Words of the fixed vectors; None if vectors are learned."""
        return None if self._fixed_vectors is None else self._fixed_vectors.row_by_word

    def identity(self) -> dict[str, Any]:
        """Return plain values for a fingerprint; a file of vectors enters by its digest.

        Raises:
            ConfigError: If the file does not exist.
        """
        values = asdict(self)
        if self.vectors is not None:
            path = Path(self.vectors)
            remedy = f"a file of word vectors{nearest_path(path)}"
            require(path.is_file(), "vectors", self.vectors, remedy)
            values |= {"vectors": file_digest(path), "dims": None}
        return {"model": "etm", **values}

    def fit(self, bags: Bags, k: int, seed: int) -> FittedEmbeddedTopics:
        with _one_thread():
            random = torch.Generator().manual_seed(derive_seed(seed, "etm"))
            parameters = self._initialise(bags.words, k, random)
            trainable = [part for part in _tensors(parameters) if part.requires_grad]
            optimiser = torch.optim.Adam(
                trainable, lr=self.learning_rate, weight_decay=self.weight_decay, fused=True
            )
            documents = bags.counts.shape[0]
            steps_of_epoch = ceil(documents / self.batch)
            for step in monitor(
                range(self.steps), what=f"fitting {k} topics", unit="steps", total=self.steps
            ):
                step_of_epoch = step % steps_of_epoch
                if step_of_epoch == 0:
                    order = torch.randperm(documents, generator=random).numpy()
                start = step_of_epoch * self.batch
                rows = order[start : start + self.batch]
                noise = torch.randn(len(rows), k, generator=random)
                likelihood, divergence = elbo(parameters, bags.counts[rows], noise, self.spread)
                optimiser.zero_grad(set_to_none=True)
                (divergence - likelihood).mean().backward()
                optimiser.step()
            parameters = FittedEmbeddedTopics(*(part.detach() for part in _tensors(parameters)))
            return _fold(parameters, bags.counts, self.spread)

    def _initialise(
        self, words: tuple[str, ...], k: int, random: torch.Generator
    ) -> FittedEmbeddedTopics:
        """Draw initial parameters, uniform in ±1/√inputs.

        Topic vectors are normal, of a size such that log β has a deviation near 1.
        """

        def layer(inputs: int, *shape: int) -> Tensor:
            uniform = 2 * torch.rand(*shape, generator=random) - 1
            weights: Tensor = (uniform / inputs**0.5).requires_grad_()
            return weights

        size = len(words)
        width = self.hidden
        if self._fixed_vectors is None:
            vectors = layer(self.dims, size, self.dims)
        else:
            rows = [self._fixed_vectors.row_by_word[word] for word in words]
            vectors = self._fixed_vectors.vectors[rows].clone()
        norm = vectors.detach().square().sum(1).mean().sqrt()
        topics = torch.randn(k, vectors.shape[1], generator=random) / norm
        return FittedEmbeddedTopics(
            first=layer(size, size, width),
            first_bias=layer(size, width),
            second=layer(width, width, width),
            second_bias=layer(width, width),
            mean=layer(width, k, width),
            mean_bias=layer(width, k),
            log_variance=layer(width, k, width),
            log_variance_bias=layer(width, k),
            words=vectors,
            topics=topics.requires_grad_(),
        )


def _tensors(parameters: FittedEmbeddedTopics) -> list[Tensor]:
    """Return the parameters in the order of the fields."""
    return [getattr(parameters, field.name) for field in fields(parameters)]
