"""Keywords of synthetic texts: documents and a topic model to the words of each that carry its topics, and to prompts.

A prompt holds the keywords of one document: of a document on a topic, from a pool of text without labels and without
test text; of a labelled text at random; or none.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from dana.core.config import require
from dana.core.errors import DataError
from dana.core.rng import generator
from dana.core.schemas import Document
from dana.corpus.text import wording
from dana.studies.topics.model import WORD, Topics, count_known_words

PAPER, RELEASE = "paper", "release"
TOPIC, NONE, RANDOM = "topic", "none", "random"
RELEASE_WORDS = 1000  # of each topic, that the released code reads
AT_ONCE = 1024  # documents

Keywords = tuple[str, ...]


@dataclass(frozen=True)
class AugmentSettings:
    """Which synthetic texts are written, from which words of a document.

    Attributes:
        keywords: Keep so many different words of a document, each with all its occurrences.
        reading: ``paper``: a topic's words count by the topic's share of the document; ``release``: they do not, and
            only the 1,000 most probable words of a topic count for it, as in the paper's released code.
        ratio: Synthetic texts of a label for each real one of it.
        generator: A generator's spec, for example ``embedded`` or ``t5:model=t5-small,epochs=16``.
        control: Where keywords are from: ``topic``: documents on the topic; ``random``: labelled texts, drawn at random
            of any label; ``none``: there are none.
        shuffle_labels: Give the synthetic texts each other's labels, at random.
        seed: Of generators, texts and draws.
    """

    keywords: int = 10
    reading: str = PAPER
    ratio: float = 1.0
    generator: str = "embedded"
    control: str = TOPIC
    shuffle_labels: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        require(self.keywords >= 1, "keywords", self.keywords, "at least 1")
        require(self.reading in (PAPER, RELEASE), "reading", self.reading, f"{PAPER} or {RELEASE}")
        require(self.ratio > 0, "ratio", self.ratio, "above 0")
        require(self.control in (TOPIC, RANDOM, NONE), "control", self.control, f"{TOPIC}, {RANDOM} or {NONE}")


@dataclass(frozen=True)
class LabelledText:
    """A text with a label; a subclass says in further fields where it is from.

    Attributes:
        id: Its name.
        text: Never empty.
        label: Its label's name.
    """

    id: str
    text: str
    label: str


@dataclass(frozen=True)
class Prompt:
    """What a synthetic text is to be about.

    Attributes:
        keywords: In order, with repeats; empty leaves it to the generator.
        keywords_of: Id of the document that they are from; empty where there is none.
        topic: Number of the topic that this document was chosen for, from 0; None where it was not.
    """

    keywords: Keywords = ()
    keywords_of: str = ""
    topic: int | None = None


def extract_keywords(topics: Topics, texts: Sequence[str], settings: AugmentSettings) -> list[Keywords]:
    """The keywords of texts: the best words of each by :func:`score_words`; all others are dropped.

    Of equally good words the one that is first in the text is kept. A word with score 0 is never one. A text's keywords
    do not depend on the other texts.

    Args:
        topics: The topic model.
        texts: Documents.
        settings: How many words, by which score.

    Returns:
        For each text its keywords in lower case, in the order of the text, with repeats; empty where the model knows
        none of its words.

    References:
        Roussinov and Sharoff 2023, BERT goes off-topic, section 3.2.1.
    """
    keywords = []
    for text, scores in zip(texts, score_words(topics, texts, settings.reading), strict=True):
        ranked = sorted((word for word in scores if scores[word] > 0), key=lambda word: -scores[word])  # stable
        best = set(ranked[: settings.keywords])
        keywords.append(tuple(word for word in _words(text) if word in best))
    return keywords


def score_words(topics: Topics, texts: Sequence[str], reading: str = PAPER) -> list[dict[str, float]]:
    """How strongly each word of a document stands for the document's topics.

    score(w, D) = Σ over the occurrences of w in D, Σ over topics t, L(D, t) · L(w, t), where L(D, t) is θ, the share of
    t in D, and L(w, t) is β, the probability of w in t. By the reading ``release`` L(D, t) is 1, and L(w, t) is 0
    unless w is one of the 1,000 most probable words of t (of equally probable ones the first of the vocabulary).

    Args:
        topics: The topic model.
        texts: Documents.
        reading: ``paper`` or ``release``.

    Returns:
        For each text the scores of its words that the model knows, in the order of their first occurrence.

    References:
        Roussinov and Sharoff 2023, section 3.2.1, the equation; its released code, ``process-both.py``, for the other
        reading.
    """
    number = {word: place for place, word in enumerate(topics.words)}
    beta = topics.beta.astype(np.float64)
    if reading == RELEASE:
        rest = np.argsort(-beta, axis=1, kind="stable")[:, RELEASE_WORDS:]
        np.put_along_axis(beta, rest, 0.0, 1)
        weights = np.ones((len(texts), len(beta)))
    else:
        weights = topics.theta(texts).astype(np.float64)
    scores = []
    for text, weight in zip(texts, weights, strict=True):
        times = Counter(word for word in _words(text) if word in number)
        columns = beta[:, [number[word] for word in times]]
        of_word = (weight[:, None] * columns).sum(0)  # no matrix product: equal words get equal bits
        scores.append({word: times[word] * score for word, score in zip(times, of_word.tolist(), strict=True)})
    return scores


def _words(text: str) -> list[str]:
    """The words of a text as topic models count them, in order and with repeats."""
    return re.findall(WORD, text.lower())


def choose_prompts(topics: Topics, rows: Sequence[LabelledText], settings: AugmentSettings) -> list[Prompt]:
    """Prompts that are not of a topic: for ``random`` the keywords of all texts in random order, for ``none`` empty.

    Raises:
        DataError: If no text has a keyword.
    """
    if settings.control == NONE:
        return [Prompt()]
    order = generator(settings.seed, "augmentation", "random keywords").permutation(len(rows))
    prompts = _prompts(topics, [(rows[at].id, rows[at].text) for at in order.tolist()], settings)
    if not prompts:
        raise DataError(f"control={RANDOM}: none of the {len(rows):,} labelled texts has a word that the topics know")
    return prompts


def find_on_topic(
    documents: Iterable[Document], topics: Topics, wanted: Sequence[int], most: int
) -> dict[int, list[Document]]:
    """The documents that are on each topic: it is the largest of theirs; those with the largest shares of it.

    A document without any word that the topics know is on none. The documents are streamed, and at most twice as many
    as are kept, and those read at once, are in memory.

    Args:
        documents: Any text.
        topics: The topic model.
        wanted: Numbers of topics, from 0.
        most: At most so many documents of a topic.

    Returns:
        By topic, documents by falling share, of equal ones by id.
    """
    ranked: dict[int, list[tuple[float, str, Document]]] = {topic: [] for topic in wanted}
    stream = iter(documents)
    while part := list(islice(stream, AT_ONCE)):
        bags = count_known_words([document.text for document in part], topics.words)
        theta = topics.fitted.theta(bags.counts)
        for document, size, shares in zip(part, bags.sizes.tolist(), theta, strict=True):
            topic = int(shares.argmax())
            if size and topic in ranked:
                ranked[topic].append((-float(shares[topic]), document.doc_id, document))
        ranked = {topic: sorted(own, key=lambda one: one[:2])[:most] for topic, own in ranked.items()}
    return {topic: [document for *_, document in own] for topic, own in ranked.items()}


def on_topic_prompts(
    topics: Topics, on_topic: Mapping[int, Sequence[Document]], settings: AugmentSettings, count: int
) -> list[Prompt]:
    """Prompts of the documents on topics, the topics in turn; of each from the first document on, again at its end.

    Args:
        topics: The topic model.
        on_topic: Documents by topic, see :func:`find_on_topic`; a topic without any is passed over.
        settings: Of keywords.
        count: How many prompts.

    Raises:
        DataError: If there is no document.
    """
    each = [
        _prompts(topics, [(document.doc_id, document.text) for document in documents], settings, topic)
        for topic, documents in on_topic.items()
    ]
    by_topic = [prompts for prompts in each if prompts]
    if not by_topic:
        wanted = ", ".join(map(str, on_topic))
        raise DataError(f"topic {wanted}: the keyword pool has no document of which it is the largest; give more text")
    turns = ((by_topic[at % len(by_topic)], at // len(by_topic)) for at in range(count))
    return [prompts[turn % len(prompts)] for prompts, turn in turns]


def _prompts(
    topics: Topics, texts: Sequence[tuple[str, str]], settings: AugmentSettings, topic: int | None = None
) -> list[Prompt]:
    """A prompt a text, given with its id, that has a keyword."""
    keywords = extract_keywords(topics, [text for _, text in texts], settings)
    return [Prompt(words, name, topic) for (name, _), words in zip(texts, keywords, strict=True) if words]


def refuse_test_text(documents: Iterable[Document], test: Sequence[LabelledText]) -> Iterator[Document]:
    """The documents, as long as none of them is a test text, by its id or by its words.

    Args:
        documents: Of a keyword pool.
        test: Texts that it must not hold. Texts with the same words, whatever their case, punctuation and spaces, are
            the same.

    Raises:
        DataError: Naming the document and the test text.
    """
    ids = {row.id for row in test}
    by_words = {wording(row.text): row.id for row in test}
    for document in documents:
        same = document.doc_id if document.doc_id in ids else by_words.get(wording(document.text))
        if same is not None:
            by_id = ", by its id (give them other ids if they are two texts)" if document.doc_id in ids else ""
            raise DataError(
                f"keyword pool: document {document.doc_id!r} is the test text {same!r}{by_id}; leave it out, or allow "
                "test text as a source of keywords (transductive)"
            )
        yield document
