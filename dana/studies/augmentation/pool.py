"""Keyword pool: text without labels and a topic model to prompts of the documents on a topic; test text refused."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from dana.core.errors import DataError
from dana.core.schemas import Document
from dana.corpus.text import wording
from dana.studies.augmentation.keywords import KeywordSettings, extract_keywords
from dana.studies.augmentation.synthetic import LabelledText, Prompt
from dana.studies.topics.model import Topics, count_known_words

AT_ONCE = 1024


@dataclass(frozen=True)
class PoolDocument:
    """A document that is on a topic.

    Attributes:
        share: Of the topic in it.
        id: Its name.
        text: Its text.
    """

    share: float
    id: str
    text: str


def find_on_topic(
    documents: Iterable[Document], topics: Topics, wanted: Sequence[int], most: int
) -> dict[int, list[PoolDocument]]:
    """The documents that are on each topic: it is the largest of theirs; those with the largest shares of it.

    A document without any word that the topics know is on none. The documents are streamed, and at most twice as many
    as are kept are in memory.

    Args:
        documents: Any text.
        topics: The topic model.
        wanted: Numbers of topics, from 0.
        most: At most so many documents of a topic.

    Returns:
        By topic, documents by falling share, of equal ones by id.
    """
    found: dict[int, list[PoolDocument]] = {topic: [] for topic in wanted}
    stream = iter(documents)
    while part := list(islice(stream, AT_ONCE)):
        bags = count_known_words([document.text for document in part], topics.words)
        theta = topics.fitted.theta(bags.counts)
        for document, size, shares in zip(part, bags.sizes.tolist(), theta, strict=True):
            topic = int(shares.argmax())
            if size and topic in found:
                found[topic].append(PoolDocument(float(shares[topic]), document.doc_id, document.text))
        for topic in wanted:
            if len(found[topic]) > 2 * most:
                found[topic] = _best(found[topic], most)
    return {topic: _best(found[topic], most) for topic in wanted}


def _best(documents: list[PoolDocument], most: int) -> list[PoolDocument]:
    return sorted(documents, key=lambda document: (-document.share, document.id))[:most]


def on_topic_prompts(
    topics: Topics, found: Mapping[int, Sequence[PoolDocument]], settings: KeywordSettings, count: int
) -> list[Prompt]:
    """Prompts of the documents on topics, the topics in turn; of each from the first document on, again at its end.

    Args:
        topics: The topic model.
        found: Documents by topic, see :func:`find_on_topic`; a topic without any is passed over.
        settings: Of keywords.
        count: How many prompts.

    Raises:
        DataError: If there is no document.
    """
    by_topic = []
    for topic, documents in found.items():
        keywords = extract_keywords(topics, [document.text for document in documents], settings)
        own = [Prompt(words, document.id, topic) for document, words in zip(documents, keywords, strict=True) if words]
        if own:
            by_topic.append(own)
    if not by_topic:
        wanted = ", ".join(map(str, found))
        raise DataError(f"topic {wanted}: the keyword pool has no document of which it is the largest; give more text")
    turns = ((by_topic[at % len(by_topic)], at // len(by_topic)) for at in range(count))
    return [own[turn % len(own)] for own, turn in turns]


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
