"""Keywords against sums by hand, and against a search over all occurrences and topics."""

import re

import numpy as np
import pytest

from dana.studies.augmentation import synthetic
from dana.studies.augmentation.synthetic import AugmentSettings, extract_keywords, score_words
from tests.studies.augmentation.few_topics import WORDS, few_topics


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


def test_a_text_does_not_depend_on_the_others():
    topics, texts = few_topics(), random_texts(20)
    together = extract_keywords(topics, texts, AugmentSettings(3))
    assert together == [extract_keywords(topics, [text], AugmentSettings(3))[0] for text in texts]
    assert extract_keywords(topics, [], AugmentSettings()) == []
