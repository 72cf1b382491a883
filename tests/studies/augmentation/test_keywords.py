"""Keywords by brute force, the keyword pool, and keyword transplant."""

import re

import numpy as np
import pytest

from dana.core.errors import DataError
from dana.core.schemas import Document
from dana.studies.augmentation import synthetic
from dana.studies.augmentation.generators import KeywordTransplant, transplant
from dana.studies.augmentation.synthetic import (
    AugmentSettings,
    LabelledText,
    Prompt,
    extract_keywords,
    find_on_topic,
    on_topic_prompts,
    refuse_test_text,
    score_words,
)
from tests.studies.augmentation.few_topics import CELLS, FILMS, WORDS, few_topics


def random_texts(count: int) -> list[str]:
    random = np.random.default_rng(0)
    words = [*WORDS, "neither", "unknown"]
    return [". ".join(random.choice(words, random.integers(1, 30))).title() for _ in range(count)]


def brute_force(topics, text: str, reading: str, count: int) -> dict[str, float]:
    """The paper's sum, an occurrence and a topic at a time."""
    theta, beta = topics.theta([text])[0], topics.beta
    scores: dict[str, float] = {}
    for word in re.findall("[a-z]+", text.lower()):
        if word not in topics.words:
            continue
        row = topics.words.index(word)
        for topic in range(len(beta)):
            if reading == "paper":
                scores[word] = scores.get(word, 0) + theta[topic] * beta[topic, row]
            elif row in sorted(range(len(WORDS)), key=lambda other: -beta[topic, other])[:count]:
                scores[word] = scores.get(word, 0) + beta[topic, row]
            else:
                scores.setdefault(word, 0.0)
    return scores


@pytest.mark.parametrize(("reading", "count"), [("paper", 1000), ("release", 1000), ("release", 3)])
def test_scores_are_the_sums_over_occurrences_and_topics(reading, count, monkeypatch):
    monkeypatch.setattr(synthetic, "RELEASE_WORDS", count)
    topics, texts = few_topics(), random_texts(40)
    for text, scores in zip(texts, score_words(topics, texts, reading), strict=True):
        reference = brute_force(topics, text, reading, count)
        assert list(scores) == list(reference)
        assert list(scores.values()) == pytest.approx(list(reference.values()), rel=1e-6)


def test_the_best_types_stay_in_order_with_repeats_and_all_else_goes():
    text = "Court! The film about a Judge, that judge of the COURT, had a cell and an enzyme; so the court said."
    topics = few_topics()
    scores = score_words(topics, [text])[0]
    best = sorted(scores, key=lambda word: -scores[word])
    assert best[:2] == ["court", "judge"]
    (two,) = extract_keywords(topics, [text], AugmentSettings(2))
    assert two == ("court", "judge", "judge", "court", "court")
    for count in range(1, 7):
        (keywords,) = extract_keywords(topics, [text], AugmentSettings(count))
        best_words = set(best[:count])
        assert list(keywords) == [word for word in re.findall("[a-z]+", text.lower()) if word in best_words]


def test_the_topics_of_the_document_decide_unless_the_reading_is_the_release():
    text = "film actor film scene cell actor scene"
    (paper,), (release,) = (
        extract_keywords(few_topics(), [text], AugmentSettings(3, reading)) for reading in ("paper", "release")
    )
    assert paper == ("film", "actor", "film", "scene", "actor", "scene")
    assert release == ("film", "actor", "film", "cell", "actor"), "cell is of a topic that the text is not about"


def test_of_equally_good_words_the_first_of_the_text_is_kept(monkeypatch):
    topics = few_topics()
    monkeypatch.setattr(synthetic, "RELEASE_WORDS", 2)  # court and judge have the same numbers
    for text, first in (("the judge of the court", "judge"), ("a court, a judge", "court")):
        for reading in ("paper", "release"):
            assert extract_keywords(topics, [text], AugmentSettings(1, reading)) == [(first,)]


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
    assert set(on_topic[FILMS]) <= set(documents)


def test_prompts_begin_again_at_the_end():
    documents = [Document(*row) for row in (("f1", "", "film film film"), ("f2", "", "film actor drama"))]
    prompts = on_topic_prompts(few_topics(), FILMS, documents, AugmentSettings(1), 3)
    assert prompts == [
        Prompt(("film",) * 3, "f1", FILMS), Prompt(("film",), "f2", FILMS), Prompt(("film",) * 3, "f1", FILMS),
    ]  # fmt: skip
    with pytest.raises(DataError, match="topic 2: "):
        on_topic_prompts(few_topics(), CELLS, [], AugmentSettings(), 3)


def test_test_text_is_refused_by_its_id_and_by_its_words():
    test = [LabelledText("t1", "The court, said: NO film.", "news"), LabelledText("t2", "Another", "news")]
    good = [Document("a", "", "the court said no film at all"), Document("b", "", "No film, the court said")]
    assert list(refuse_test_text(good, test)) == good
    assert list(refuse_test_text(good, [])) == good
    for bad, same in ((Document("t2", "", "other text"), "t2"), (Document("c", "", "the COURT said\nno film!"), "t1")):
        with pytest.raises(DataError, match=f"document '{bad.doc_id}' is the test text '{same}'"):
            list(refuse_test_text([*good, bad], test))


TEXT = "The court sat. A COURT, no judge; Judges' court?"


@pytest.mark.parametrize(
    ("old", "new", "result"),
    [
        (("court", "court", "judge"), ("film", "actor", "film"), "The film sat. A FILM, no actor; Judges' film?"),
        (("court", "judge"), ("film", "film"), "The film sat. A FILM, no film; Judges' film?"),
        (("court",), ("film", "actor"), "The film sat. A FILM, no judge; Judges' film?"),
        (("the", "judges"), ("that", "actors"), "That court sat. A COURT, no judge; Actors' court?"),
        (("court", "judge"), ("judge", "court"), "The judge sat. A JUDGE, no court; Judges' judge?"),
        (("court",), (), TEXT),
        ((), ("film",), TEXT),
    ],
)
def test_each_keyword_is_replaced_wherever_it_stands(old, new, result):
    assert transplant(TEXT, old, new) == result


PAIRS = [(("court",), "one court"), (("judge",), "two judges, a judge"), ((), "no keyword"), (("jury",), "three jury")]


def test_a_text_is_drawn_by_its_own_seed():
    generator = KeywordTransplant().fit(PAIRS, seed=0)
    seeds = list(range(60))
    together = generator.generate([("film",)] * 60, seeds)
    assert together == [generator.generate([("film",)], [seed])[0] for seed in seeds]
    assert set(together) == {"one film", "two judges, a film", "three film"}, "no text without a place for keywords"
    assert set(generator.generate([()] * 60, seeds)) == {text for _, text in PAIRS}
