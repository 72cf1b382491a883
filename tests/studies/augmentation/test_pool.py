"""Keyword pool: the documents on a topic against a search through all, prompts in turn, test text refused."""

import numpy as np
import pytest

from dana.core.errors import DataError
from dana.core.schemas import Document
from dana.studies.augmentation import synthetic
from dana.studies.augmentation.synthetic import (
    AugmentSettings,
    LabelledText,
    Prompt,
    extract_keywords,
    find_on_topic,
    on_topic_prompts,
    refuse_test_text,
)
from tests.studies.augmentation.few_topics import CELLS, COURTS, FILMS, WORDS, few_topics


@pytest.fixture
def documents():
    random = np.random.default_rng(2)
    texts = [" ".join(random.choice(WORDS, random.integers(1, 9))) for _ in range(50)]
    texts[20] = texts[10] = "film"  # equal shares
    texts[30] = "unknown words"
    return [Document(f"d{number * 37 % 50:02d}", "pool", text) for number, text in enumerate(texts)]


def test_documents_on_a_topic_are_those_of_which_it_is_the_largest(documents, monkeypatch):
    monkeypatch.setattr(synthetic, "AT_ONCE", 7)
    topics = few_topics()
    theta = topics.theta([document.text for document in documents])
    for count in (1, 2, 3, 50):
        on_topic = {topic: find_on_topic(iter(documents), topics, topic, count) for topic in (CELLS, FILMS)}
        for topic, documents_found in on_topic.items():
            reference = [
                (-float(shares[topic]), document.doc_id)
                for document, shares in zip(documents, theta, strict=True)
                if shares.argmax() == topic and document.text != "unknown words"
            ]
            assert [one.doc_id for one in documents_found] == [name for _, name in sorted(reference)[:count]]
    by_id = {document.doc_id: document.text for document in documents}
    assert all(by_id[one.doc_id] == one.text for one in on_topic[FILMS])


def test_prompts_begin_again_at_the_end():
    topics = few_topics()
    documents = [
        Document("c1", "", "court court judge"),
        Document("f1", "", "film film film film"),
        Document("f2", "", "film actor drama"),
        Document("f3", "", "film scene drama judge"),
    ]
    on_topic = {topic: find_on_topic(documents, topics, topic, 9) for topic in (FILMS, COURTS, CELLS)}
    names = {topic: [one.doc_id for one in documents_found] for topic, documents_found in on_topic.items()}
    assert names == {FILMS: ["f1", "f2", "f3"], COURTS: ["c1"], CELLS: []}
    prompts = on_topic_prompts(topics, FILMS, on_topic[FILMS], AugmentSettings(1), 5)
    assert [prompt.keywords_of for prompt in prompts] == ["f1", "f2", "f3", "f1", "f2"]
    assert on_topic_prompts(topics, COURTS, on_topic[COURTS], AugmentSettings(1), 1) == [
        Prompt(("court", "court"), "c1", COURTS)
    ]
    assert extract_keywords(topics, ["film actor drama"], AugmentSettings(1)) == [prompts[1].keywords]
    with pytest.raises(DataError, match="topic 2: "):
        on_topic_prompts(topics, CELLS, [], AugmentSettings(), 3)


def test_test_text_is_refused_by_its_id_and_by_its_words():
    test = [LabelledText("t1", "The court, said: NO film.", "news"), LabelledText("t2", "Another", "news")]
    good = [Document("a", "", "the court said no film at all"), Document("b", "", "No film, the court said")]
    assert list(refuse_test_text(good, test)) == good
    assert list(refuse_test_text(good, [])) == good
    for bad, same in ((Document("t2", "", "other text"), "t2"), (Document("c", "", "the COURT said\nno film!"), "t1")):
        with pytest.raises(DataError, match=f"document '{bad.doc_id}' is the test text '{same}'"):
            list(refuse_test_text([*good, bad], test))
