"""Arms: what on and off train on, and what no arm may give."""

from pathlib import Path

import pandas as pd
import pytest

from dana.core.errors import ConfigError, DataError
from dana.studies.augmentation.synthetic import LabelledText
from dana.studies.topic_gap.arms import TOPIC_GAP_ARMS, ArmTexts, TopicCase, check_arm_texts
from dana.studies.topic_gap.documents import SETS


@pytest.fixture
def case():
    """Two documents of each label in each set, in the order of the sets; one unused."""
    ids = (*(f"{name}-{label}" for name in SETS for label in ("x", "y")), "unused-x")
    texts = [f"letters of {name.replace('-', ' ')}" for name in ids]
    documents = pd.DataFrame({"id": ids, "label": [name[-1] for name in ids], "whole": "Whole.", "stripped": texts})
    documents = documents.assign(text=texts, share=0.0, set=[name[:-2] for name in ids])
    return TopicCase(0, 1, documents, Path("topics"))


@pytest.mark.parametrize("name", ["on", "off"])
def test_the_two_natural_arms_give_their_sets(case, name):
    arm = TOPIC_GAP_ARMS.create(name)
    texts = arm.texts(case, 0, Path("nowhere"))
    assert [one.id for one in texts.train] == [f"{name}-x", f"{name}-y"]
    assert texts.train[0] == LabelledText(f"{name}-x", f"letters of {name} x", "x")
    assert texts.validation is None
    assert not arm.seeded
    assert check_arm_texts(name, case, texts) is texts


def test_repeated_is_off_several_times(case):
    off = TOPIC_GAP_ARMS.create("off").texts(case, 0, Path("nowhere"))
    for name, times in (("repeated", 2), ("repeated:times=3", 3)):
        texts = TOPIC_GAP_ARMS.create(name).texts(case, 0, Path("nowhere"))
        assert texts.train == off.train * times
        assert texts.validation is None
    with pytest.raises(ConfigError, match="times=1"):
        TOPIC_GAP_ARMS.create("repeated:times=1")


GOOD = LabelledText("made-1", "some words", "x")


@pytest.mark.parametrize(
    ("texts", "says"),
    [
        (ArmTexts(()), "arm mine: .*train"),
        (ArmTexts((GOOD,), ()), "arm mine: .*validation"),
        (ArmTexts((LabelledText("made-2", " ", "x"),)), "train text 'made-2'"),
        (ArmTexts((LabelledText("made-2", "words", "z"),)), "unknown label 'z'"),
        (ArmTexts((GOOD, LabelledText("test-x", "other words", "x"))), "train text 'test-x'"),
        (ArmTexts((GOOD,), (LabelledText("made", "letters of test y", "x"),)), "validation text 'made'"),
    ],
)
def test_what_an_arm_may_not_give(case, texts, says):
    with pytest.raises(DataError, match=says):
        check_arm_texts("mine", case, texts)
