"""The few-shot study from a task card: two planted topics, so that ids tell what is on and off topic."""

import json

import numpy as np
import pytest

from dana.cli.main import main
from tests.stages.two_topics import CELLS, COURTS
from tests.studies.toy_pool import write_moods

VOCABULARIES = {"cells": CELLS, "courts": COURTS}
LABELS = ("praise", "blame", "doubt")
SETTINGS = """
--topics-k 2 --n 8 --test 8 --shots 3 --items 12 --window 120
--set topics.model=lda topics.min_documents=2 topics.max_share=1
"""


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    """A card of three labels over two topics; an id says of which."""
    random = np.random.default_rng(0)

    def document(topic, label):
        return (
            " ".join(random.choice(VOCABULARIES[topic], 26)).capitalize()
            + f". {label.upper()}, 42!"
        )

    folder = write_moods(tmp_path_factory.mktemp("few"), VOCABULARIES, LABELS, document)
    (folder / "replies.jsonl").write_text(
        '{"turn": 5, "reply": "Answer: Class A"}\n{"reply": "1. Words"}\n'
    )
    return folder


def study(workspace, out, *more):
    chat = f"scripted:{workspace / 'replies.jsonl'}"
    return main(
        [
            "studies",
            "few-shot",
            str(workspace / "moods.yaml"),
            "--chat",
            chat,
            "--out",
            str(out),
            *SETTINGS.split(),
            *more,
        ]
    )


@pytest.fixture(scope="module")
def run(workspace):
    assert study(workspace, workspace / "run") == 0
    return workspace / "run"


def items(run):
    return [json.loads(line) for line in (run / "few-shot" / "items.jsonl").open()]


def of(passage):
    """Topic and label of a text, read off its id."""
    return tuple(passage["id"].split("-")[:2])


def test_the_text_and_its_on_topic_examples_are_of_one_topic_and_the_others_are_not(run):
    rows = items(run)
    assert len(rows) == 12
    for item in rows:
        topic, label = of(item["text"])
        assert label == item["label"]
        labels = (item["label_a"], item["label_b"])
        for arm, is_on in (("on", True), ("off", False)):
            sources = [list(map(of, examples)) for examples in item["examples"][arm]]
            assert [[name for _, name in examples] for examples in sources] == [
                [name] * 3 for name in labels
            ]
            assert all((other == topic) == is_on for examples in sources for other, _ in examples)
