"""Fitting of the embedded topic model: bags of words to encoder and decoder, by Adam over sparse mini-batches."""

from collections.abc import Collection
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from math import ceil
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from dana.core.config import require
from dana.core.errors import ConfigError, nearest_path
from dana.core.files import file_digest
from dana.core.logging import progress
from dana.core.rng import derive_seed
from dana.encoders.word_vectors import WordVectors, read_word_vectors
from dana.studies.topics.etm import FittedEmbeddedTopics, SparseBatch, elbo
from dana.studies.topics.threads import one_thread
from dana.studies.topics.vocabulary import Bags


@dataclass(frozen=True)
class EmbeddedTopics:
    """Embedded topic model. Word vectors are learned with the topics, or given and kept as they are.

    Attributes:
        epochs: Passes over the documents.
        vectors: File of word vectors (:func:`dana.encoders.word_vectors.read_word_vectors`); the vocabulary then has
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
        """See :class:`dana.studies.topics.base.TopicModel`."""
        return None if self._given is None else self._given.places

    def identity(self) -> dict[str, Any]:
        """See :class:`dana.studies.topics.base.TopicModel`. A file of vectors is known by its digest.

        Raises:
            ConfigError: If it cannot be read.
        """
        values = asdict(self)
        if self.vectors is not None:
            try:
                values |= {"vectors": file_digest(Path(self.vectors)), "dims": None}
            except OSError as error:
                allowed = f"a file of word vectors ({error.strerror}){nearest_path(self.vectors)}"
                raise ConfigError(f"vectors={self.vectors!r}: must be {allowed}") from error
        return {"model": "etm", **values}

    def fit(self, bags: Bags, k: int, seed: int) -> FittedEmbeddedTopics:
        """See :class:`dana.studies.topics.base.TopicModel`."""
        with one_thread():
            random = torch.Generator().manual_seed(derive_seed(seed, "etm"))
            parameters = self._begin(bags.words, k, random)
            learned = [part for part in _tensors(parameters) if part.requires_grad]
            decay = self.weight_decay
            optimiser = torch.optim.Adam(learned, lr=self.learning_rate, weight_decay=decay, fused=True)
            documents = bags.counts.shape[0]
            epoch = ceil(documents / self.batch)
            steps = self.epochs * epoch
            with progress(what=f"fitting {k} topics", unit="steps", total=steps) as bar:
                for step in range(steps):  # not counted by the bar: a quiet one does not count
                    if step % epoch == 0:
                        order = torch.randperm(documents, generator=random).numpy()
                    rows = order[step % epoch * self.batch :][: self.batch]
                    found = _step(parameters, optimiser, bags.counts[rows], self._weight(step, steps), random)
                    bar.set_postfix(elbo=found, refresh=False)
                    bar.update(1)
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


def _step(
    parameters: FittedEmbeddedTopics, optimiser: Any, counts: Any, weight: float, random: torch.Generator
) -> float:
    """One step of Adam, the Kullback-Leibler term weighted; returns the documents' mean ELBO, without the weight."""
    batch = SparseBatch.of(counts)
    noise = torch.randn(len(batch.sizes), len(parameters.topics), generator=random)
    likelihood, divergence = elbo(parameters, batch, noise)
    optimiser.zero_grad(set_to_none=True)
    (weight * divergence - likelihood).mean().backward()
    optimiser.step()
    return float((likelihood - divergence).detach().mean())
