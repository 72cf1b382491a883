"""Criteria out of a model's reply: lists, bullets, paragraphs."""

import pytest

from dana.studies.few_shot.script import list_criteria


@pytest.mark.parametrize(
    ("reply", "criteria"),
    [
        (
            "Three criteria:\n\n1. **Tone**: A is dry,\n   B is not.\n2) Length\n\n3: Topic",
            ["Tone: A is dry, B is not.", "Length", "Topic"],
        ),
        ("**1. Tone:** dry\n**2. Length:** long", ["Tone: dry", "Length: long"]),
        ("### Criterion 1: Tone\nCriterion 2 - Length", ["Tone", "Length"]),
        ("Here:\n- Tone\n* Length\n• Topic", ["Tone", "Length", "Topic"]),
        ("1. Tone\n   - of A: dry\n2. Length", ["Tone - of A: dry", "Length"]),
        (
            "Here are three criteria:\n\nTone: A is dry.\n\nLength: A is\nlong.",
            ["Tone: A is dry.", "Length: A is long."],
        ),
        ("In 1990 texts were longer.", ["In 1990 texts were longer."]),
        ("", []),
    ],
)
def test_criteria_are_read(reply, criteria):
    assert list_criteria(reply) == criteria
