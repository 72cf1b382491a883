"""Arms of the topic gap: their texts, keywords and controls, and what no arm may return."""

import logging
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dana.core.errors import ConfigError, DataError
from dana.studies.augmentation import synthetic
from dana.studies.augmentation.synthetic import AugmentSettings, LabelledText, extract_keywords
from dana.studies.topic_gap import arms
from dana.studies.topic_gap.arms import TOPIC_GAP_ARMS, TopicCase, check_arm_texts
from dana.studies.topic_gap.documents import SETS, strip_to_letters
from tests.studies.augmentation.few_topics import CELLS, ROWS, few_topics

ARMS = ("augmented", "augmented_baseline", "random_keywords", "shuffled")
ON = [
    "Yeast, yeast, enzyme 1!",
    "An Enzyme of a cell 2",
    "The cell, the yeast 3",
    "nothing known 4",
    "Cell 5: enzyme",
]


@pytest.fixture
def case(tmp_path):
    """Six off-topic documents of two labels; documents about cells: two tested, one on topic, five of no set."""
    few_topics().save(tmp_path / "topics")
    topic_rows = [(f"test{n}", f"Test of an enzyme {n} in yeast") for n in range(2)] + [
        ("on", "On a cell")
    ]
    topic_rows += [(f"free{n}", text) for n, text in enumerate(ON)]
    ids = [*(row.id for row in ROWS), *(name for name, _ in topic_rows)]
    texts = [*(row.text for row in ROWS), *(text for _, text in topic_rows)]
    labels = [*(row.label for row in ROWS), *(("news", "review") * 4)]
    columns = {
        "id": ids,
        "label": labels,
        "text": texts,
        "whole": texts,
        "stripped": map(strip_to_letters, texts),
    }
    shares = [*[0.0] * 9, 0.5, 0.9, 0.7, 0.95, 0.7]
    sets = [*["off"] * 6, "test", "test", "on", *["unused"] * 5]
    documents = pd.DataFrame(columns).assign(share=np.array(shares, np.float32), set=sets)
    return TopicCase(CELLS, 3, documents, tmp_path / "topics")


def made_by(spec, case, folder, seed=0):
    """The synthetic texts of an arm, after a check of the others."""
    rows = TOPIC_GAP_ARMS.create(spec).texts(case, seed, folder)
    check_arm_texts(spec, case, rows)
    assert rows[:6] == case.texts("off")
    return rows[6:]


@pytest.mark.parametrize("name", ARMS)
def test_every_label_gets_its_ratio_of_stripped_texts_with_their_origin(name, case, tmp_path):
    for ratio, count in ((1, 3), (2, 6)):
        rows = made_by(f"{name}:ratio={ratio},generator=embedded", case, tmp_path / "work")
        assert Counter(one.label for one in rows) == {"news": count, "review": count}
        assert all(one.text == strip_to_letters(one.text) for one in rows)
        assert {one.generator for one in rows} == {"embedded"}
    again = made_by(f"{name}:ratio=2", case, tmp_path / "elsewhere")
    assert again == rows
    assert made_by(f"{name}:ratio=2", case, tmp_path / "work", seed=1) != rows


def test_keywords_are_of_the_unused_documents_most_about_the_topic(case, tmp_path):
    rows = made_by("augmented:keywords=1,ratio=2", case, tmp_path)
    # free3 is the first by its share but has no keyword; free2 and free4 have equal shares.
    assert [one.keywords_of for one in rows] == [
        "free1",
        "free2",
        "free4",
        "free0",
        "free1",
        "free2",
    ] * 2
    keywords = dict(
        zip(
            ["free1", "free2"],
            extract_keywords(few_topics(), ON[1:3], AugmentSettings(1)),
            strict=True,
        )
    )
    for one in rows:
        assert one.topic == CELLS
        if one.keywords_of in keywords:
            assert one.keywords == keywords[one.keywords_of]
            assert keywords[one.keywords_of][0] in one.text.split()
    few = made_by("augmented:keywords=1", case, tmp_path)
    assert [one.keywords_of for one in few] == ["free1", "free2", "free1"] * 2, (
        "of the first three only"
    )
    from_test = made_by("augmented:keywords=1,pool=test", case, tmp_path)
    assert {one.keywords_of for one in from_test} == {"test0", "test1"}


def test_the_controls_take_away_one_thing_each(case, tmp_path):
    plain, with_shuffled_labels = (
        made_by(f"{name}:ratio=5", case, tmp_path) for name in ("augmented", "shuffled")
    )
    assert [replace(one, label="") for one in plain] == [
        replace(one, label="") for one in with_shuffled_labels
    ]
    assert [one.label for one in plain] == [one.written_for for one in plain]
    assert [one.label for one in plain] != [one.label for one in with_shuffled_labels]
    random = made_by("random_keywords:keywords=2", case, tmp_path)
    assert {one.keywords_of for one in random} <= {row.id for row in ROWS}
    assert all(one.topic is None and one.keywords for one in random)
    baseline = made_by("augmented_baseline", case, tmp_path)
    assert {one.text for one in baseline} <= {strip_to_letters(row.text) for row in ROWS}
    assert all(one.keywords == () for one in baseline)


def test_what_is_written_once_is_found_again(case, tmp_path, monkeypatch):
    first = made_by("augmented", case, tmp_path)
    monkeypatch.setattr(synthetic, "write_texts", lambda draft: None)  # refuses what it is given
    assert made_by("augmented", case, tmp_path) == first
    assert Counter(one.text for one in made_by("shuffled", case, tmp_path)) == Counter(
        one.text for one in first
    )
    with pytest.raises(TypeError):
        made_by("augmented", case, tmp_path, seed=1)


def test_what_is_written_without_letters_or_as_a_test_text_is_left_out(
    case, tmp_path, monkeypatch, caplog
):
    all_rows = made_by("augmented", case, tmp_path)
    original = arms.synthesize

    def synthesize(*arguments):
        rows = original(*arguments)
        rows[1], rows[4] = (
            replace(rows[1], text="42!"),
            replace(rows[4], text="TEST of an enzyme 7, in yeast."),
        )
        return rows

    monkeypatch.setattr(arms, "synthesize", synthesize)
    monkeypatch.setattr(logging.getLogger("dana"), "propagate", True)
    for name in ("augmented", "shuffled"):
        rows = made_by(name, case, tmp_path)
        assert [one.id for one in rows] == [
            one.id for at, one in enumerate(all_rows) if at not in (1, 4)
        ]
    assert "topic 2: dropped 2 of 6" in caplog.text


@pytest.fixture
def case_arms():
    """Two documents of each label in each set, in the order of the sets; one unused."""
    ids = (*(f"{name}-{label}" for name in SETS for label in ("x", "y")), "unused-x")
    texts = [f"letters of {name.replace('-', ' ')}" for name in ids]
    documents = pd.DataFrame(
        {"id": ids, "label": [name[-1] for name in ids], "whole": "Whole.", "stripped": texts}
    )
    documents = documents.assign(text=texts, share=0.0, set=[name[:-2] for name in ids])
    return TopicCase(0, 1, documents, Path("topics"))


@pytest.mark.parametrize(
    ("spec", "name", "n"), [("on", "on", 1), ("off", "off", 1), ("repeated:times=3", "off", 3)]
)
def test_the_arms_without_synthetic_text_give_their_sets(case_arms, spec, name, n):
    arm = TOPIC_GAP_ARMS.create(spec)
    texts = arm.texts(case_arms, 0, Path("nowhere"))
    rows = [
        LabelledText(f"{name}-{label}", f"letters of {name} {label}", label) for label in ("x", "y")
    ]
    assert texts == (*rows * n,)
    assert not arm.seeded
    check_arm_texts(name, case_arms, texts)


def test_settings_of_an_arm_reach_its_generator_and_its_identity():
    arm = TOPIC_GAP_ARMS.create("augmented:generator=t5:x;epochs=3")
    assert (arm.settings(4).generator, arm.settings(4).seed) == ("t5:x,epochs=3", 4)
    specs = [
        *ARMS,
        "augmented:keywords=9",
        "augmented:pool=test",
        "augmented:ratio=2",
        "repeated:times=3",
    ]
    assert len({str(TOPIC_GAP_ARMS.create(spec).identity()) for spec in specs}) == len(specs)
    with pytest.raises(ConfigError, match="times=1"):
        TOPIC_GAP_ARMS.create("repeated:times=1")


GOOD = LabelledText("made-1", "some words", "x")


@pytest.mark.parametrize(
    ("texts", "says"),
    [
        ((), "arm mine: .*train"),
        ((LabelledText("made-2", " ", "x"),), "train text 'made-2'"),
        ((LabelledText("made-2", "words", "z"),), "unknown label 'z'"),
        ((GOOD, LabelledText("test-x", "other words", "x")), "train text 'test-x'"),
        ((GOOD, LabelledText("made", "letters of test y", "x")), "train text 'made'"),
    ],
)
def test_what_an_arm_may_not_give(case_arms, texts, says):
    with pytest.raises(DataError, match=says):
        check_arm_texts("mine", case_arms, texts)
