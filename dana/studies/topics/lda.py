"""Latent Dirichlet allocation by scikit-learn: bags of words to topics, by online variational Bayes."""

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from dana.core.config import require
from dana.core.rng import derive_seed
from dana.studies.topics.vocabulary import Bags


@dataclass(frozen=True)
class FittedDirichletTopics:
    """Topics of latent Dirichlet allocation.

    Attributes:
        components: float64 of shape (K, V), parameters of the Dirichlet distribution of each topic's words.
        prior: Parameter of that of a document's topics.
    """

    components: Tensor
    prior: float

    @property
    def beta(self) -> np.ndarray:
        """See :class:`dana.studies.topics.base.FittedTopics`: the mean of the Dirichlet distributions."""
        return (self.components / self.components.sum(1, keepdim=True)).numpy()

    def theta(self, counts: Any) -> np.ndarray:
        """See :class:`dana.studies.topics.base.FittedTopics`: scikit-learn's ``transform``."""
        if not counts.shape[0]:
            return np.zeros((0, len(self.components)), dtype=np.float32)
        return self._model().transform(counts).astype(np.float32)

    def _model(self) -> Any:
        """A model of scikit-learn as it was after its fit."""
        from scipy.special import psi
        from sklearn.decomposition import LatentDirichletAllocation

        components = self.components.numpy()
        model = LatentDirichletAllocation(len(components))
        model.components_ = components
        model.exp_dirichlet_component_ = np.exp(psi(components) - psi(components.sum(1))[:, None])
        model.doc_topic_prior_, model.n_features_in_ = self.prior, components.shape[1]
        return model


@dataclass(frozen=True)
class DirichletTopics:
    """Latent Dirichlet allocation.

    Attributes:
        epochs: Passes over the documents.
        batch: Documents in a step.

    References:
        Hoffman, Blei and Bach 2010, Online learning for latent Dirichlet allocation, which scikit-learn follows; its
        defaults for all else: both priors are 1/K.
    """

    epochs: int = 10
    batch: int = 1000
    version: ClassVar[int] = 1
    fitted_type: ClassVar[type] = FittedDirichletTopics

    def __post_init__(self) -> None:
        require(self.epochs >= 1, "epochs", self.epochs, "at least 1")
        require(self.batch >= 1, "batch", self.batch, "at least 1")

    @property
    def known_words(self) -> None:
        """See :class:`dana.studies.topics.base.TopicModel`: any."""
        return None

    def identity(self) -> dict[str, Any]:
        """See :class:`dana.studies.topics.base.TopicModel`."""
        return {"model": "lda", **asdict(self)}

    def fit(self, bags: Bags, k: int, seed: int) -> FittedDirichletTopics:
        """See :class:`dana.studies.topics.base.TopicModel`."""
        from sklearn.decomposition import LatentDirichletAllocation
        from threadpoolctl import threadpool_limits

        model = LatentDirichletAllocation(
            k,
            learning_method="online",
            batch_size=self.batch,
            max_iter=self.epochs,
            random_state=derive_seed(seed, "lda") % 2**32,
        )
        with threadpool_limits(1):  # sums in another order would change the last bits
            model.fit(bags.counts)
        return FittedDirichletTopics(torch.from_numpy(model.components_), float(model.doc_topic_prior_))
