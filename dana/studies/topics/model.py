"""Count texts as bags of words, fit topic models to them, and save and load topics.

Scikit-learn's latent Dirichlet allocation is a topic model here; :mod:`dana.studies.topics.etm` has
the other.
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
from dana.core.settings import Count, Positive, settings_model
from dana.studies.topics.settings import TOPIC_MODELS, TopicSettings

# Words of three letters or more, so that an apostrophe leaves no 've, 'll or l'; don't, isn't and
# can't are no words.
WORD = r"(?u)\b(?![^\W\d_]+n['’]t\b)[^\W\d_]{3,}\b"
FILE = "topics"
VOCABULARY = "vocabulary"
FULL = 20_000  # documents, up to which a step of LDA takes all


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
        """Number of words of the vocabulary in each document, int64 of shape (documents,)."""
        return np.asarray(self.counts.sum(1)).ravel()

    def rows(self, rows: np.ndarray) -> "Bags":
        """Select documents by their indices."""
        return Bags(self.words, self.counts[rows])


def choose_vocabulary(
    texts: Sequence[str], limits: TopicSettings, vocabulary: Collection[str] | None = None
) -> Bags:
    """Choose the most frequent words of texts as vocabulary and count them.

    Words are lower-cased; ties in frequency are resolved alphabetically.

    Args:
        texts: Documents.
        limits: Limits of size and document frequency, and stop words.
        vocabulary: If not None, only these words can be chosen.

    Raises:
        DataError: If fewer than two words remain.
    """
    vectorizer = CountVectorizer(token_pattern=WORD, dtype=np.int64)
    try:
        counts = vectorizer.fit_transform(texts)
    except ValueError as error:
        raise DataError(
            f"vocabulary: no document of {len(texts):,} has a word of three letters"
        ) from error
    words = vectorizer.get_feature_names_out()
    stop_words = limits.read_stop_words()
    documents = np.bincount(counts.indices, minlength=words.size)
    is_word = (documents >= limits.min_documents) & (documents <= limits.max_share * len(texts))
    is_word &= np.array([word not in stop_words for word in words])
    if vocabulary is not None:
        is_word &= np.array([word in vocabulary for word in words])
    if is_word.sum() < 2:
        vectors = "" if vocabulary is None else ", only words with a vector"
        raise DataError(
            f"vocabulary: expected two words or more, got {int(is_word.sum())} of the"
            f" {words.size:,} words of {len(texts):,} documents"
            f" (min_documents={limits.min_documents}, max_share={limits.max_share:g},"
            f" stop_words={limits.stop_words}{vectors}); relax the limits"
        )
    frequencies = np.asarray(counts.sum(0)).ravel()
    order = np.lexsort((words, -frequencies))
    columns = order[is_word[order]][: limits.vocabulary]
    return Bags(tuple(words[columns].tolist()), counts[:, columns].tocsr())


def count_known_words(texts: Sequence[str], words: Sequence[str]) -> Bags:
    """Count the words of a vocabulary in any texts."""
    vectorizer = CountVectorizer(token_pattern=WORD, dtype=np.int64, vocabulary=list(words))
    return Bags(tuple(words), vectorizer.transform(texts).tocsr())


class FittedTopics(Protocol):
    """Fitted topics of a vocabulary: a frozen dataclass of tensors and plain values.

    K is the number of topics and V that of words.
    """

    @property
    def beta(self) -> np.ndarray:
        """Probability of each word in each topic, shape (K, V); rows sum to 1."""
        ...

    def theta(self, counts: Any) -> np.ndarray:
        """Compute the topic shares of documents, float32 of shape (documents, K); rows sum to 1.

        Rows are independent of each other. A document without words of the vocabulary has equal
        shares.

        Args:
            counts: Word counts, sparse (scipy CSR) of shape (documents, V).
        """
        ...


class TopicModel(Protocol):
    """A topic model: a frozen dataclass of settings, and an entry point of ``dana.topic_models``.

    Attributes:
        fitted_type: Class that :meth:`fit` returns.
        known_words: Words that the model accepts; None for all.
    """

    fitted_type: type
    known_words: Collection[str] | None

    def identity(self) -> dict[str, Any]:
        """Return plain values for a fingerprint.

        They are all that decides a fit but documents, number of topics and seed.
        """
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
    """Fitted topics with their vocabulary.

    Attributes:
        spec: Spec of the topic model, for example ``etm:steps=800``.
        words: The vocabulary.
        model: The fitted topics.
    """

    spec: str
    words: tuple[str, ...]
    model: FittedTopics

    @property
    def beta(self) -> np.ndarray:
        """Probability of each word in each topic, shape (K, V)."""
        return self.model.beta

    def theta(self, texts: Sequence[str]) -> np.ndarray:
        """Compute the topic shares of texts, see :meth:`FittedTopics.theta`."""
        return self.model.theta(count_known_words(texts, self.words).counts)

    def save(self, folder: Path) -> None:
        """Write ``topics.safetensors``, ``topics.json`` and ``vocabulary.json``."""
        tensors.save_tensors(self.model, folder, FILE, model=self.spec)
        write_json(folder / f"{VOCABULARY}.json", {"words": self.words})

    @classmethod
    def load(cls, folder: Path) -> "Topics":
        """Read what :meth:`save` wrote.

        Raises:
            ArtifactError: If a file is missing or damaged.
            PluginError: If its model is not installed.
        """
        metadata = read_json(folder / f"{FILE}.json")
        if "model" not in metadata:
            raise ArtifactError(f"{folder / FILE}.json: no key 'model'; fit the topics again")
        spec = metadata["model"]
        model = tensors.load_tensors(TOPIC_MODELS.create(spec).fitted_type, folder, FILE)
        words = read_json(folder / f"{VOCABULARY}.json")["words"]
        return cls(spec, tuple(words), model)


def fit_topics(spec: str, bags: Bags, k: int, seed: int) -> Topics:
    """Fit topics to the documents that have a word of the vocabulary.

    Args:
        spec: Spec of the model, for example ``lda`` or ``etm:steps=800``.
        bags: Documents.
        k: Number of topics.
        seed: Root seed.

    Raises:
        ConfigError: If there are fewer such documents than topics.
        DataError: If the fit diverges.
    """
    documents = bags.rows(np.flatnonzero(bags.sizes))
    require_documents(k, documents)
    model = TOPIC_MODELS.create(spec).fit(documents, k, seed)
    some_theta = model.theta(documents.counts[:1])
    if not (np.isfinite(model.beta).all() and np.isfinite(some_theta).all()):
        raise DataError(
            f"model={spec!r}: the fit of {k} topics diverged (not finite); lower the learning rate"
        )
    return Topics(spec, bags.words, model)


def require_documents(k: int, bags: Bags) -> None:
    """Refuse more topics than documents."""
    documents = bags.counts.shape[0]
    remedy = f"at most {documents:,}, the number of documents with a word of the vocabulary"
    require(documents >= k, "k", k, remedy)


@dataclass(frozen=True)
class FittedDirichletTopics:
    """Topics of latent Dirichlet allocation.

    Attributes:
        components: Dirichlet parameters of each topic's words, float64 of shape (K, V).
        prior: Dirichlet parameter of a document's topics.
    """

    components: Tensor
    prior: float

    @property
    def beta(self) -> np.ndarray:
        """Mean of the Dirichlet distributions, shape (K, V)."""
        return (self.components / self.components.sum(1, keepdim=True)).numpy()

    def theta(self, counts: Any) -> np.ndarray:
        """Compute topic shares by ``transform`` of a restored scikit-learn model."""
        components = self.components.numpy()
        if not counts.shape[0]:
            return np.zeros((0, len(components)), dtype=np.float32)
        model = LatentDirichletAllocation(len(components))
        model.components_ = components
        model.doc_topic_prior_ = self.prior
        model.n_features_in_ = components.shape[1]
        model.exp_dirichlet_component_ = np.exp(psi(components) - psi(components.sum(1))[:, None])
        shares: np.ndarray = model.transform(counts).astype(np.float32)
        return shares


@settings_model
class DirichletTopics:
    """Latent Dirichlet allocation by scikit-learn's variational Bayes.

    The prior of topics' words is 1/K.

    Attributes:
        epochs: Passes over the documents.
        batch: Documents per step. By default all, which is most coherent on small pools, but 1,000
            (online variational Bayes) of more than 20,000 documents, where full steps are slow to
            converge.
        alpha: Dirichlet parameter of a document's topics; with 1/K, topics of small pools share
            common words (docs/results/topics.md).

    References:
        Blei, Ng and Jordan 2003, Latent Dirichlet allocation. Hoffman, Blei and Bach 2010, Online
        learning for latent Dirichlet allocation.
    """

    epochs: Count = 20
    batch: Count | None = None
    alpha: Positive = 1.0
    version: ClassVar[int] = 2
    fitted_type: ClassVar[type] = FittedDirichletTopics
    known_words: ClassVar[None] = None

    def identity(self) -> dict[str, Any]:
        return {"model": "lda", **asdict(self)}

    def fit(self, bags: Bags, k: int, seed: int) -> FittedDirichletTopics:
        documents = bags.counts.shape[0]
        batch = self.batch or (documents if documents <= FULL else 1000)
        model = LatentDirichletAllocation(
            k,
            doc_topic_prior=self.alpha,
            learning_method="online" if batch < documents else "batch",
            batch_size=batch,
            max_iter=self.epochs,
            random_state=derive_seed(seed, "lda") % 2**32,
        )
        # The order of summation, and so the last bits, depend on the number of threads.
        with threadpool_limits(1):
            model.fit(bags.counts)
        components = torch.from_numpy(model.components_)
        return FittedDirichletTopics(components, float(model.doc_topic_prior_))
