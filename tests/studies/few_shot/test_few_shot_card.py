"""The few-shot study from a task card: two planted topics, so that ids tell what is on and off topic."""

import json

import numpy as np
import pytest
import yaml

from dana.cli.main import main
from tests.stages.two_topics import CELLS, COURTS
from tests.toy_task import write_split

VOCABULARIES = {"cells": CELLS, "courts": COURTS}
LABELS = ("praise", "blame", "doubt")
EACH = 26  # documents of a topic and label
SETTINGS = """
--topics-k 2 --n 8 --test 8 --shots 3 --items 12 --window 120
--set topics.model=lda topics.min_documents=2 topics.max_share=1
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A card of three labels over two topics; an id says of which."""
    folder = tmp_path_factory.mktemp("few")
    random = np.random.default_rng(0)
    rows = []
    for number in range(EACH):
        for topic, words in VOCABULARIES.items():
            for label in LABELS:
                text = " ".join(random.choice(words, 26)).capitalize() + f". {label.upper()}, 42!"
                rows.append({"id": f"{topic}-{label}-{number}", "text": text, "label": label})
    for split, part in (("train", rows[:90]), ("dev", rows[90:120]), ("test", rows[120:])):
        write_split(folder / "moods", split, part)
    card = {"name": "moods", "title": "Which mood?", "version": 1, "data": {"local": "moods"}}
    card |= {"labels": list(LABELS), "metric": "accuracy", "splits": {}}
    (folder / "moods.yaml").write_text(yaml.safe_dump(card))
    (folder / "replies.jsonl").write_text('{"turn": 5, "reply": "Answer: Class A"}\n{"reply": "1. Words"}\n')
    return folder


def study(place, out, *more):
    chat = f"scripted:{place / 'replies.jsonl'}"
    return main(["few-shot", str(place / "moods.yaml"), "--chat", chat, "--out", str(out), *SETTINGS.split(), *more])


@pytest.fixture(scope="module")
def asked(place):
    assert study(place, place / "run") == 0
    return place / "run"


def items(run):
    return [json.loads(line) for line in (run / "few-shot" / "items.jsonl").open()]


def of(passage):
    """Topic and label of a text, read off its id."""
    return tuple(passage["id"].split("-")[:2])


def test_the_text_and_its_on_topic_examples_are_of_one_topic_and_the_others_are_not(asked):
    drawn = items(asked)
    assert len(drawn) == 12
    for item in drawn:
        topic, label = of(item["text"])
        assert label == item["label"]
        labels = (item["label_a"], item["label_b"])
        for arm, is_on in (("on", True), ("off", False)):
            assert [[of(one)[1] for one in shown] for shown in item["examples"][arm]] == [[name] * 3 for name in labels]
            assert all((of(one)[0] == topic) == is_on for shown in item["examples"][arm] for one in shown)


def test_every_pair_of_labels_is_asked_about_on_every_topic(asked):
    triples = [(of(item["text"])[0], *sorted((item["label_a"], item["label_b"]))) for item in items(asked)]
    assert len(set(triples[:6])) == len(set(triples[6:])) == 6
    assert len({item["text"]["id"] for item in items(asked)}) == 12


def test_texts_are_windows_as_they_are(asked):
    texts = [one["text"] for item in items(asked) for shown in item["examples"]["on"] for one in shown]
    assert {len(text) for text in texts} == {120}
    assert any("42!" in text for text in texts)
    assert any(text[0].isupper() for text in texts)


def test_the_seed_decides_the_items(place, asked, tmp_path):
    assert study(place, tmp_path / "again") == 0
    assert items(tmp_path / "again") == items(asked)
    assert study(place, tmp_path / "other", "--seed", "1") == 0
    assert items(tmp_path / "other") != items(asked)


def test_topics_of_another_run_give_the_same(place, asked, tmp_path):
    fitted = asked / "grid" / "topics"
    line = ["few-shot", str(place / "moods.yaml"), "--chat", f"scripted:{place / 'replies.jsonl'}", "--window", "120"]
    line += ["--n", "8", "--test", "8", "--shots", "3", "--items", "12", "--topics-of", str(fitted)]
    assert main([*line, "--out", str(tmp_path / "of")]) == 0
    assert items(tmp_path / "of") == items(asked)
    for name in ("results.csv", "transcripts.jsonl", "items.jsonl"):
        assert (tmp_path / "of/few-shot" / name).read_bytes() == (asked / "few-shot" / name).read_bytes()


def test_one_topic_may_be_asked_about(place, tmp_path):
    assert study(place, tmp_path / "out", "--topics", "1", "--labels", "praise", "doubt") == 0
    drawn = items(tmp_path / "out")
    assert {item["topic"] for item in drawn} == {"1"}
    assert len({of(item["text"])[0] for item in drawn}) == 1
    assert {frozenset((item["label_a"], item["label_b"])) for item in drawn} == {frozenset(("praise", "doubt"))}


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--n", "40"], "n=40: label 'blame' has 52 documents and 88 are needed"),
        (["--topics", "7"], "topics=[7]: must be numbers of topics, which are 0 to 1"),
        (["--topics", "0", "--items", "99"], "texts to test of label"),
    ],
)
def test_what_the_task_does_not_have(place, tmp_path, capsys, more, said):
    assert study(place, tmp_path / "out", *more) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "out" / "few-shot").exists()


def test_other_items_are_refused_where_a_study_is(place, asked, capsys):
    before = (asked / "few-shot" / "items.jsonl").read_bytes()
    assert study(place, asked, "--items", "13") == 2
    assert "items: 12 there, 13 now)" in capsys.readouterr().err
    assert study(place, asked, "--shots", "4") == 2
    assert "shots: 3 there, 4 now)" in capsys.readouterr().err
    assert (asked / "few-shot" / "items.jsonl").read_bytes() == before
