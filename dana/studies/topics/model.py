"""Topic models: texts to bags of words, bags to topics; the contract of models, fitted topics on disk, and LDA.

Latent Dirichlet allocation is scikit-learn's.
"""

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from scipy.special import psi
from sklearn.decomposition import LatentDirichletAllocation
from sklearn.feature_extraction.text import CountVectorizer
from threadpoolctl import threadpool_limits
from torch import Tensor

from dana.core import tensors
from dana.core.artifacts import read_json, write_json
from dana.core.config import require
from dana.core.errors import ArtifactError, DataError
from dana.core.rng import derive_seed
from dana.studies.topics.settings import TOPIC_MODELS, TopicSettings

# Three letters or more: no 've, 'll or l' of what an apostrophe parts; and nothing of don't, isn't, can't.
WORD = r"(?u)\b(?![^\W\d_]+n['’]t\b)[^\W\d_]{3,}\b"
FILE, VOCABULARY = "topics", "vocabulary"


@dataclass(frozen=True)
class Bags:
    """Documents as bags of words.

    Attributes:
        words: The vocabulary, the most frequent word first.
        counts: Sparse int64 of shape (documents, words), scipy's CSR; a row may be empty.
    """

    words: tuple[str, ...]
    counts: Any

    @property
    def sizes(self) -> np.ndarray:
        """int64 of shape (documents,), how many words of the vocabulary each document has, with repeats."""
        return np.asarray(self.counts.sum(1)).ravel()

    def rows(self, chosen: np.ndarray) -> "Bags":
        """The documents at `chosen`, in that order."""
        return Bags(self.words, self.counts[chosen])


def count_words_of_topics(texts: Sequence[str], limits: TopicSettings, known: Collection[str] | None = None) -> Bags:
    """Choose the vocabulary of some texts and count it in them.

    Words are compared in lower case. Of equally frequent words the first in the alphabet is kept.

    Args:
        texts: Documents.
        limits: Which words count.
        known: Where given, only these words can be chosen.

    Raises:
        DataError: If fewer than two words are left; says how many there were and what left them out.
    """
    vectorizer = CountVectorizer(token_pattern=WORD, dtype=np.int64)
    try:
        counts = vectorizer.fit_transform(texts)
    except ValueError as error:
        raise DataError(f"vocabulary: none of the {len(texts):,} documents has a word of three letters") from error
    words, stop = vectorizer.get_feature_names_out(), limits.left_out()
    documents = np.bincount(counts.indices, minlength=words.size)
    is_word = np.array([word not in stop and (known is None or word in known) for word in words])
    is_word &= (documents >= limits.min_documents) & (documents <= limits.max_share * len(texts))
    if is_word.sum() < 2:
        beside = "" if known is None else ", has a vector,"
        raise DataError(
            f"vocabulary: {int(is_word.sum())} of the {words.size:,} words of {len(texts):,} documents is in at least "
            f"{limits.min_documents} of them (min_documents) and at most {limits.max_share:g} of all (max_share)"
            f"{beside} and is no stop word (stop_words={limits.stop_words}); topics need two"
        )
    order = np.lexsort((words, -np.asarray(counts.sum(0)).ravel()))
    chosen = order[is_word[order]][: limits.vocabulary]
    return Bags(tuple(words[chosen].tolist()), counts[:, chosen].tocsr())


def count_known_words(texts: Sequence[str], words: Sequence[str]) -> Bags:
    """Count the words of a vocabulary in any texts."""
    vectorizer = CountVectorizer(token_pattern=WORD, dtype=np.int64, vocabulary=list(words))
    return Bags(tuple(words), vectorizer.transform(texts).tocsr())


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
        known_words: Words that it can take, where these are not all.
    """

    fitted_type: type
    known_words: Collection[str] | None

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
        write_json(folder / f"{VOCABULARY}.json", {"words": self.words})

    @classmethod
    def load(cls, folder: Path) -> "Topics":
        """What :meth:`save` wrote.

        Raises:
            ArtifactError: If it is missing or damaged.
            PluginError: If its model is not installed.
        """
        about = read_json(folder / f"{FILE}.json")
        if "model" not in about:
            raise ArtifactError(f"{folder / FILE}.json: names no topic model")
        fitted = tensors.load_tensors(TOPIC_MODELS.create(about["model"]).fitted_type, folder, FILE)
        return cls(about["model"], tuple(read_json(folder / f"{VOCABULARY}.json")["words"]), fitted)


def fit_topics(spec: str, bags: Bags, k: int, seed: int) -> Topics:
    """Fit topics to the documents that have a word of the vocabulary.

    Args:
        spec: Of the model, for example ``lda`` or ``etm:epochs=50``.
        bags: Documents.
        k: Number of topics.
        seed: Root seed.

    Raises:
        ConfigError: If fewer such documents are there than topics.
        DataError: If the fit diverges.
    """
    known = bags.rows(np.flatnonzero(bags.sizes))
    require_documents(k, known)
    fitted = TOPIC_MODELS.create(spec).fit(known, k, seed)
    if not (np.isfinite(fitted.beta).all() and np.isfinite(fitted.theta(known.counts[:1])).all()):
        raise DataError(
            f"model={spec!r}: the fit of {k} topics diverged, its numbers are not finite; smaller steps help"
        )
    return Topics(spec, bags.words, fitted)


def require_documents(k: int, bags: Bags) -> None:
    """Refuse more topics than documents."""
    documents = bags.counts.shape[0]
    require(documents >= k, "k", k, f"at most {documents:,}: so many documents have a word of the vocabulary")


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
        """See :class:`FittedTopics`: the mean of the Dirichlet distributions."""
        return (self.components / self.components.sum(1, keepdim=True)).numpy()

    def theta(self, counts: Any) -> np.ndarray:
        """See :class:`FittedTopics`: scikit-learn's ``transform``, by a model as it was after its fit."""
        components = self.components.numpy()
        if not counts.shape[0]:
            return np.zeros((0, len(components)), dtype=np.float32)
        model = LatentDirichletAllocation(len(components))
        model.components_, model.doc_topic_prior_, model.n_features_in_ = components, self.prior, components.shape[1]
        model.exp_dirichlet_component_ = np.exp(psi(components) - psi(components.sum(1))[:, None])
        return model.transform(counts).astype(np.float32)


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
    known_words: ClassVar[None] = None

    def __post_init__(self) -> None:
        require(self.epochs >= 1, "epochs", self.epochs, "at least 1")
        require(self.batch >= 1, "batch", self.batch, "at least 1")

    def identity(self) -> dict[str, Any]:
        """See :class:`TopicModel`."""
        return {"model": "lda", **asdict(self)}

    def fit(self, bags: Bags, k: int, seed: int) -> FittedDirichletTopics:
        """See :class:`TopicModel`."""
        random = derive_seed(seed, "lda") % 2**32
        steps = {"learning_method": "online", "batch_size": self.batch, "max_iter": self.epochs}
        model = LatentDirichletAllocation(k, random_state=random, **steps)
        with threadpool_limits(1):  # sums in another order would change the last bits
            model.fit(bags.counts)
        return FittedDirichletTopics(torch.from_numpy(model.components_), float(model.doc_topic_prior_))
