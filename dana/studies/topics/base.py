"""Contract of topic models, bags of words to topics; and fitted ones with their words, saved and loaded."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from dana.core import tensors
from dana.core.artifacts import write_json
from dana.core.errors import ArtifactError, DataError
from dana.studies.topics.settings import TOPIC_MODELS
from dana.studies.topics.vocabulary import Bags, count_known_words

FILE, WORDS = "topics", "vocabulary"


class FittedTopics(Protocol):
    """Topics of a vocabulary: a frozen dataclass of tensors and plain values. K topics, V words."""

    @property
    def beta(self) -> np.ndarray:
        """Probability of each word in each topic, shape (K, V); rows sum to 1."""
        ...

    def theta(self, counts: Any) -> np.ndarray:
        """Share of each topic in documents, float32 of shape (documents, K); rows sum to 1.

        A row depends on no other row. Without any word of the vocabulary all shares are equal.

        Args:
            counts: Sparse (scipy CSR), shape (documents, V).
        """
        ...


class TopicModel(Protocol):
    """A topic model: a frozen dataclass of settings, registered under the entry-point group ``dana.topic_models``.

    Attributes:
        fitted_type: What :meth:`fit` returns.
    """

    fitted_type: type

    @property
    def known_words(self) -> Collection[str] | None:
        """Words that it can take, where these are not all."""
        ...

    def identity(self) -> dict[str, Any]:
        """Plain values for a fingerprint: all that decides a fit besides documents, number of topics and seed."""
        ...

    def fit(self, bags: Bags, k: int, seed: int) -> Any:
        """Fit topics; the same seed gives the same bits.

        Args:
            bags: Documents, each with a word of the vocabulary.
            k: Number of topics.
            seed: Root seed.
        """
        ...


@dataclass(frozen=True)
class Topics:
    """Fitted topics, with the vocabulary that they are of.

    Attributes:
        spec: Of the topic model.
        words: The vocabulary.
        fitted: Of the model.
    """

    spec: str
    words: tuple[str, ...]
    fitted: FittedTopics

    @property
    def beta(self) -> np.ndarray:
        """See :class:`FittedTopics`."""
        return self.fitted.beta

    def theta(self, texts: Sequence[str]) -> np.ndarray:
        """Share of each topic in texts, see :class:`FittedTopics`."""
        return self.fitted.theta(count_known_words(texts, self.words).counts)

    def save(self, folder: Path) -> None:
        """Write ``topics.safetensors``, ``topics.json`` and ``vocabulary.json``."""
        tensors.save_tensors(self.fitted, folder, FILE, model=self.spec)
        write_json(folder / f"{WORDS}.json", {"words": self.words})

    @classmethod
    def load(cls, folder: Path) -> "Topics":
        """What :meth:`save` wrote.

        Raises:
            ArtifactError: If it is missing or damaged.
            PluginError: If its model is not installed.
        """
        about = tensors.read_about(folder, FILE)
        if "model" not in about:
            raise ArtifactError(f"{folder / FILE}.json: names no topic model")
        fitted_type = TOPIC_MODELS.create(about["model"]).fitted_type
        fitted = tensors.load_tensors(fitted_type, folder, FILE)
        return cls(about["model"], tuple(tensors.read_about(folder, WORDS)["words"]), fitted)


def fit_topics(spec: str, bags: Bags, k: int, seed: int) -> Topics:
    """Fit topics to the documents that have a word of the vocabulary.

    Args:
        spec: Of the model, for example ``lda`` or ``etm:epochs=50``.
        bags: Documents.
        k: Number of topics.
        seed: Root seed.

    Raises:
        DataError: If fewer such documents are there than topics, or the fit diverges.
    """
    kept = bags.rows(np.flatnonzero(bags.sizes))
    check_enough(kept.counts.shape[0], k)
    fitted = TOPIC_MODELS.create(spec).fit(kept, k, seed)
    if not (np.isfinite(fitted.beta).all() and np.isfinite(fitted.theta(kept.counts[:1])).all()):
        raise DataError(
            f"model={spec!r}: the fit of {k} topics diverged, its numbers are not finite; smaller steps help"
        )
    return Topics(spec, bags.words, fitted)


def check_enough(documents: int, k: int) -> None:
    """Refuse more topics than documents that have a word of the vocabulary.

    Raises:
        DataError: Saying how many there are.
    """
    if documents < k:
        said = f"{documents:,} documents have a word of the vocabulary; ask for at most so many topics"
        raise DataError(f"k={k}: {said}")
