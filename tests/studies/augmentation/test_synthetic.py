"""Keywords by brute force, the keyword pool, keyword transplant, and synthetic rows: counts, labels, seeds, retries."""

import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from dana.core.artifacts import make
from dana.core.errors import DataError
from dana.core.registry import Registry
from dana.core.schemas import Document
from dana.studies.augmentation import synthetic
from dana.studies.augmentation.generators import KeywordTransplant, transplant
from dana.studies.augmentation.synthetic import (
    ATTEMPTS,
    AugmentSettings,
    LabelledText,
    Prompt,
    choose_prompts,
    counts_by_label,
    extract_keywords,
    find_on_topic,
    on_topic_prompts,
    pairs_by_label,
    read_synthetic,
    refuse_test_text,
    score_words,
    synthesize,
    write_texts,
)
from tests.studies.augmentation.few_topics import CELLS, FILMS, ROWS, WORDS, few_topics


def brute_force(topics, text, reading, count):
    """The paper's sum, an occurrence and a topic at a time."""
    theta, beta = topics.theta([text])[0], topics.beta
    scores = {}
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
    topics, random = few_topics(), np.random.default_rng(0)
    words = [*WORDS, "neither", "unknown"]
    texts = [". ".join(random.choice(words, random.integers(1, 30))).title() for _ in range(40)]
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
        assert list(keywords) == [
            word for word in re.findall("[a-z]+", text.lower()) if word in best_words
        ]


def test_the_topics_of_the_document_decide_unless_the_reading_is_the_release():
    text = "film actor film scene cell actor scene"
    (paper,), (release,) = (
        extract_keywords(few_topics(), [text], AugmentSettings(3, reading))
        for reading in ("paper", "release")
    )
    assert paper == ("film", "actor", "film", "scene", "actor", "scene")
    assert release == ("film", "actor", "film", "cell", "actor"), (
        "cell is of a topic that the text is not about"
    )


def test_of_equally_good_words_the_first_of_the_text_is_kept(monkeypatch):
    topics = few_topics()
    monkeypatch.setattr(synthetic, "RELEASE_WORDS", 2)  # court and judge have the same numbers
    for text, first in (("the judge of the court", "judge"), ("a court, a judge", "court")):
        for reading in ("paper", "release"):
            assert extract_keywords(topics, [text], AugmentSettings(1, reading)) == [(first,)]


def test_documents_on_a_topic_are_those_of_which_it_is_the_largest(monkeypatch):
    monkeypatch.setattr(synthetic, "AT_ONCE", 7)
    random, topics = np.random.default_rng(2), few_topics()
    texts = [" ".join(random.choice(WORDS, random.integers(1, 9))) for _ in range(50)]
    texts[20] = texts[10] = "film"  # equal shares
    texts[30] = "unknown words"
    documents = [
        Document(f"d{number * 37 % 50:02d}", "pool", text) for number, text in enumerate(texts)
    ]
    theta = topics.theta(texts)
    for count in (1, 2, 3, 50):
        for topic in (CELLS, FILMS):
            reference = [
                (-shares[topic], document.doc_id, document)
                for document, shares in zip(documents, theta, strict=True)
                if shares.argmax() == topic and document.text != "unknown words"
            ]
            on_topic = find_on_topic(iter(documents), topics, topic, count)
            assert list(on_topic) == [document for *_, document in sorted(reference)[:count]]


def test_prompts_begin_again_at_the_end():
    documents = [
        Document(*row) for row in (("f1", "", "film film film"), ("f2", "", "film actor drama"))
    ]
    prompts = on_topic_prompts(few_topics(), FILMS, documents, AugmentSettings(1), 3)
    assert prompts == [
        Prompt(("film",) * 3, "f1", FILMS), Prompt(("film",), "f2", FILMS), Prompt(("film",) * 3, "f1", FILMS),
    ]  # fmt: skip
    with pytest.raises(DataError, match="topic 2: "):
        on_topic_prompts(few_topics(), CELLS, [], AugmentSettings(), 3)


def test_test_text_is_refused_by_its_id_and_by_its_words():
    test = [
        LabelledText("t1", "The court, said: NO film.", "news"),
        LabelledText("t2", "Another", "news"),
    ]
    good = [
        Document("a", "", "the court said no film at all"),
        Document("b", "", "No film, the court said"),
    ]
    assert list(refuse_test_text(good, test)) == good
    assert list(refuse_test_text(good, [])) == good
    for bad, same in (
        (Document("t2", "", "other text"), "t2"),
        (Document("c", "", "the COURT said\nno film!"), "t1"),
    ):
        with pytest.raises(DataError, match=f"document '{bad.doc_id}' is the test text '{same}'"):
            list(refuse_test_text([*good, bad], test))


TEXT = "The court sat. A COURT, no judge; Judges' court?"


@pytest.mark.parametrize(
    ("old", "new", "result"),
    [
        (
            ("court", "court", "judge"),
            ("film", "actor", "film"),
            "The film sat. A FILM, no actor; Judges' film?",
        ),
        (("court", "judge"), ("film", "film"), "The film sat. A FILM, no film; Judges' film?"),
        (("court",), ("film", "actor"), "The film sat. A FILM, no judge; Judges' film?"),
        (
            ("the", "judges"),
            ("that", "actors"),
            "That court sat. A COURT, no judge; Actors' court?",
        ),
        (
            ("court", "judge"),
            ("judge", "court"),
            "The judge sat. A JUDGE, no court; Judges' judge?",
        ),
        (("court",), (), TEXT),
        ((), ("film",), TEXT),
    ],
)
def test_each_keyword_is_replaced_wherever_it_stands(old, new, result):
    assert transplant(TEXT, old, new) == result


PAIRS = [
    (("court",), "one court"),
    (("judge",), "two judges, a judge"),
    ((), "no keyword"),
    (("jury",), "three jury"),
]


def test_a_text_is_drawn_by_its_own_seed():
    generator = KeywordTransplant().fit(PAIRS, seed=0)
    seeds = list(range(60))
    together = generator.generate([("film",)] * 60, seeds)
    assert together == [generator.generate([("film",)], [seed])[0] for seed in seeds]
    assert set(together) == {"one film", "two judges, a film", "three film"}, (
        "no text without a place for keywords"
    )
    assert set(generator.generate([()] * 60, seeds)) == {text for _, text in PAIRS}


PROMPTS = [Prompt(("yeast", "cell", "yeast"), "p1", 2), Prompt(("enzyme",), "p2", 2)]


def test_every_label_gets_texts_from_the_same_keywords_with_their_origin(tmp_path):
    rows = synthesize(few_topics(), ROWS, PROMPTS, AugmentSettings(seed=3), tmp_path)
    assert [row.id for row in rows] == [
        f"synthetic-{label}-{n}" for label in ("news", "review") for n in range(3)
    ]
    assert [row.keywords_of for row in rows] == ["p1", "p2", "p1"] * 2, (
        "at the end of the prompts the first again"
    )
    for row in rows:
        assert row.label == row.written_for == row.id.split("-")[1]
        assert (row.topic, row.generator) == (2, "embedded")
        assert (
            row.keywords
            == {prompt.keywords_of: prompt.keywords for prompt in PROMPTS}[row.keywords_of]
        )
        assert {"yeast", "enzyme"} & set(
            row.text.lower().replace(".", " ").replace(",", " ").split()
        )
        pairs = pairs_by_label(few_topics(), ROWS, AugmentSettings())[row.label]
        assert KeywordTransplant().fit(pairs, 0).generate([row.keywords], [row.seed]) == [row.text]
    assert len({row.seed for row in rows}) == 6


def test_same_seed_same_rows_and_a_label_does_not_depend_on_the_others(tmp_path):
    rows = synthesize(few_topics(), ROWS, PROMPTS, AugmentSettings(ratio=4), tmp_path)
    assert rows == synthesize(
        few_topics(), ROWS, PROMPTS, AugmentSettings(ratio=4), tmp_path / "again"
    )
    other = synthesize(few_topics(), ROWS, PROMPTS, AugmentSettings(ratio=4, seed=1), tmp_path)
    assert [row.text for row in rows] != [row.text for row in other]
    news = [row for row in ROWS if row.label == "news"]
    assert (
        synthesize(few_topics(), news, PROMPTS, AugmentSettings(ratio=4), tmp_path / "news")
        == rows[:12]
    )


def test_the_ratio_is_of_each_labels_own_texts(tmp_path):
    rows = [*ROWS, LabelledText("n4", "A court.", "news")]
    assert counts_by_label(rows, 0.5) == {"news": 2, "review": 2}, "half up"
    assert counts_by_label(rows, 2.4) == {"news": 10, "review": 7}
    assert Counter(
        row.label
        for row in synthesize(few_topics(), rows, PROMPTS, AugmentSettings(ratio=0.25), tmp_path)
    ) == {"news": 1, "review": 1}
    with pytest.raises(DataError, match=r"ratio=0\.15"):
        counts_by_label(rows, 0.15)


def test_random_keywords_are_those_of_texts_of_any_label():
    rows = [*ROWS, LabelledText("x", "nothing known here", "news")]
    settings = [
        AugmentSettings(control="random", keywords=2, seed=seed) for seed in (0, 0, 1, 2, 3)
    ]
    first, again, *others = (choose_prompts(few_topics(), rows, one) for one in settings)
    keywords = extract_keywords(few_topics(), [row.text for row in ROWS], AugmentSettings(2))
    reference = [Prompt(words, row.id) for row, words in zip(ROWS, keywords, strict=True)]
    assert sorted(first, key=lambda prompt: prompt.keywords_of) == reference
    assert first == again
    assert any(first != other for other in others)
    with pytest.raises(DataError, match="control=random"):
        choose_prompts(few_topics(), rows[-1:], settings[0])


def test_without_control_a_generator_gets_no_keywords():
    settings = AugmentSettings(control="none")
    assert choose_prompts(few_topics(), ROWS, settings) == [Prompt()]
    pairs = pairs_by_label(few_topics(), ROWS, settings)
    assert [keywords for label in pairs for keywords, _ in pairs[label]] == [()] * 6


def test_shuffled_labels_are_dealt_out_anew_and_nothing_else_changes(tmp_path):
    settings = AugmentSettings(ratio=10)
    plain = synthesize(few_topics(), ROWS, PROMPTS, settings, tmp_path)
    rows = synthesize(few_topics(), ROWS, PROMPTS, replace(settings, shuffle_labels=True), tmp_path)
    assert [replace(row, label=row.written_for) for row in rows] == plain
    assert Counter(row.label for row in rows) == Counter(row.label for row in plain)
    wrong = sum(row.label != row.written_for for row in rows)
    assert 20 < wrong < 40, "about half of sixty"
    other = synthesize(
        few_topics(), ROWS, PROMPTS, replace(settings, shuffle_labels=True, seed=1), tmp_path
    )
    assert [row.label for row in rows] != [row.label for row in other]


class Empty:
    """A generator that only writes the first text in its first calls."""

    def __init__(self, calls):
        self.calls, self.seeds = calls, []

    def fit(self, pairs, seed):
        return self

    def generate(self, keywords, seeds):
        self.seeds.append(list(seeds))
        if len(self.seeds) > self.calls:
            return [" some text\n"] * len(seeds)
        return [
            " some text\n" if len(self.seeds) == 1 and number == 0 else ""
            for number in range(len(seeds))
        ]


@pytest.mark.parametrize("calls", [1, ATTEMPTS - 1, ATTEMPTS])
def test_an_empty_text_is_written_anew_with_another_seed(calls, monkeypatch, tmp_path):
    def write(draft):
        write_texts(draft, "news", [((), "x")], PROMPTS, 3, AugmentSettings())

    generator = Empty(calls)
    monkeypatch.setattr(Registry, "create", lambda self, spec: generator)
    if calls == ATTEMPTS:
        with pytest.raises(DataError, match="'news'"):
            make(tmp_path / "texts", "synthetic-label", {}, write)
        return
    rows = read_synthetic(make(tmp_path / "texts", "synthetic-label", {}, write).path)
    assert [row.text for row in rows] == ["some text"] * 3
    first, *others = generator.seeds
    assert [len(seeds) for seeds in others] == [2] * calls
    assert len({*first}.union(*others)) == 3 + 2 * calls
    assert [row.seed for row in rows] == [first[0], *others[-1]]
