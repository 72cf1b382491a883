"""Synthetic rows: how many, from which keywords, under which label, with which seed; and generators that misbehave."""

from collections import Counter
from dataclasses import replace

import pytest

from dana.core.artifacts import make
from dana.core.errors import DataError
from dana.core.registry import Registry
from dana.studies.augmentation.generators import KeywordTransplant
from dana.studies.augmentation.synthetic import (
    ATTEMPTS,
    AugmentSettings,
    LabelledText,
    Prompt,
    choose_prompts,
    counts_by_label,
    extract_keywords,
    pairs_by_label,
    read_synthetic,
    synthesize,
    write_texts,
)
from tests.studies.augmentation.few_topics import ROWS, few_topics

PROMPTS = [Prompt(("yeast", "cell", "yeast"), "p1", 2), Prompt(("enzyme",), "p2", 2)]


def test_every_label_gets_texts_from_the_same_keywords_with_their_origin(tmp_path):
    rows = synthesize(few_topics(), ROWS, PROMPTS, AugmentSettings(seed=3), tmp_path)
    assert [row.id for row in rows] == [f"synthetic-{label}-{n}" for label in ("news", "review") for n in range(3)]
    assert [row.keywords_of for row in rows] == ["p1", "p2", "p1"] * 2, "at the end of the prompts the first again"
    for row in rows:
        assert row.label == row.written_for == row.id.split("-")[1]
        assert (row.topic, row.generator) == (2, "embedded")
        assert row.keywords == {prompt.keywords_of: prompt.keywords for prompt in PROMPTS}[row.keywords_of]
        assert {"yeast", "enzyme"} & set(row.text.lower().replace(".", " ").replace(",", " ").split())
        pairs = pairs_by_label(few_topics(), ROWS, AugmentSettings())[row.label]
        assert KeywordTransplant().fit(pairs, 0).generate([row.keywords], [row.seed]) == [row.text]
    assert len({row.seed for row in rows}) == 6


def test_same_seed_same_rows_and_a_label_does_not_depend_on_the_others(tmp_path):
    rows = synthesize(few_topics(), ROWS, PROMPTS, AugmentSettings(ratio=4), tmp_path)
    assert rows == synthesize(few_topics(), ROWS, PROMPTS, AugmentSettings(ratio=4), tmp_path / "again")
    other = synthesize(few_topics(), ROWS, PROMPTS, AugmentSettings(ratio=4, seed=1), tmp_path)
    assert [row.text for row in rows] != [row.text for row in other]
    news = [row for row in ROWS if row.label == "news"]
    assert synthesize(few_topics(), news, PROMPTS, AugmentSettings(ratio=4), tmp_path / "news") == rows[:12]


def test_the_ratio_is_of_each_labels_own_texts(tmp_path):
    rows = [*ROWS, LabelledText("n4", "A court.", "news")]
    assert counts_by_label(rows, 0.5) == {"news": 2, "review": 2}, "half up"
    assert counts_by_label(rows, 2.4) == {"news": 10, "review": 7}
    assert Counter(
        row.label for row in synthesize(few_topics(), rows, PROMPTS, AugmentSettings(ratio=0.25), tmp_path)
    ) == {"news": 1, "review": 1}
    with pytest.raises(DataError, match=r"ratio=0\.15"):
        counts_by_label(rows, 0.15)


def test_random_keywords_are_those_of_texts_of_any_label():
    rows = [*ROWS, LabelledText("x", "nothing known here", "news")]
    settings = [AugmentSettings(control="random", keywords=2, seed=seed) for seed in (0, 0, 1, 2, 3)]
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
    other = synthesize(few_topics(), ROWS, PROMPTS, replace(settings, shuffle_labels=True, seed=1), tmp_path)
    assert [row.label for row in rows] != [row.label for row in other]


class Empty:
    """Writes nothing in the first so many calls, but the first text of the first one."""

    def __init__(self, calls):
        self.calls, self.asked = calls, []

    def fit(self, pairs, seed):
        return self

    def generate(self, keywords, seeds):
        self.asked.append(list(seeds))
        first = len(self.asked) == 1
        return [
            "" if len(self.asked) <= self.calls and not (first and n == 0) else " some text\n"
            for n in range(len(seeds))
        ]


def texts_of(folder, count, settings=None):
    """What a generator of the label news writes."""

    def write(draft):
        write_texts(draft, "news", [((), "x")], PROMPTS, count, settings or AugmentSettings())

    return read_synthetic(make(folder, "synthetic-label", {}, write).path)


def test_an_empty_text_is_written_anew_with_another_seed(monkeypatch, tmp_path):
    generator = Empty(1)
    monkeypatch.setattr(Registry, "create", lambda self, spec: generator)
    rows = texts_of(tmp_path / "one", 3)
    assert [row.text for row in rows] == ["some text"] * 3
    first, second = generator.asked
    assert len(second) == 2
    assert not set(first) & set(second)
    assert [row.seed for row in rows] == [first[0], *second]
    monkeypatch.setattr(Registry, "create", lambda self, spec: Empty(ATTEMPTS))
    with pytest.raises(DataError, match="'news'"):
        texts_of(tmp_path / "two", 2)
    monkeypatch.setattr(Registry, "create", lambda self, spec: Empty(ATTEMPTS - 1))
    assert len(texts_of(tmp_path / "three", 2)) == 2
