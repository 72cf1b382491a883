"""Labelled examples: what is read from a record, and what is refused."""

import logging
from dataclasses import replace

import pytest
import toy_pairs
import toy_task

from dana.core.artifacts import Draft
from dana.core.errors import DataError
from dana.core.schemas import Document
from dana.corpus.documents import Tally
from dana.finetuning.settings import FinetuneSettings
from dana.tasks.card import load_card
from dana.tasks.examples import Example, card_texts, overlap, read_split, read_splits
from dana.tasks.hygiene import Cleaner
from dana.tasks.settings import Hygiene

GOOD = {"id": "a", "text": "an apple", "label": "fruit"}
LONG = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen"


@pytest.fixture
def pairs(tmp_path, monkeypatch):
    monkeypatch.delenv("DANA_DATA", raising=False)
    return load_card(str(toy_pairs.write_task(tmp_path)))


def write(card, split, *records):
    return toy_task.write_split(card.origins[0].parent / "toy", split, list(records))


def pair(premise, hypothesis, label="bird", uid="x"):
    return {"uid": uid, "premise": premise, "hypothesis": hypothesis, "label": label}


def test_examples_have_id_text_and_class_number(toy_card, pairs):
    write(toy_card, "dev", GOOD, {"text": " zinc\r\n", "label": "metal"})
    assert read_split(toy_card, "dev") == [Example("a", "an apple", 0), Example("dev-2", "zinc", 1)]
    write(pairs, "dev", pair(" a wren\r\n", "it\x00 is\t"))
    assert read_split(pairs, "dev") == [Example("x", "a wren", 2, "it is")]


def test_fields_may_be_nested_and_named_by_the_settings(tmp_path):
    card = load_card(str(toy_task.write_task(tmp_path, text="meta.body", label="meta.topic", id="meta.uid")))
    record = {"id": 1, "meta": {"body": "a wren", "topic": "bird", "uid": 7}, "text": "zinc", "label": "metal"}
    write(card, "test", record, {"meta": {"body": "an owl", "topic": "bird", "uid": None}})
    assert read_split(card, "test") == [Example("7", "a wren", 2), Example("test-2", "an owl", 2)]
    write(card, "test", record)
    assert FinetuneSettings().fields_of(card) == card
    other = FinetuneSettings(text_field="text", label_field="label", id_field="id").fields_of(card)
    assert read_split(other, "test") == [Example("1", "zinc", 1)]
    template = replace(card, text="text", template="{id} {label}")
    assert FinetuneSettings(text_field="text").fields_of(template).template is None


def test_unseen_test_leaves_out_texts_of_other_splits(tmp_path):
    card = load_card(str(toy_task.write_task(tmp_path)))
    rows = [{"id": name, "text": name, "label": "bird"} for name in ("owl", "wren", "crow")]
    splits = {"train": rows[:1], "dev": rows[1:2], "test": [*rows[:2], {**rows[2], "text": " crow\r\n"}]}
    for split, records in splits.items():
        write(card, split, *records)
    assert [example.id for example in read_splits(card)["test"]] == ["owl", "wren", "crow"]
    unseen = replace(card, unseen_test=True)
    assert [example.id for example in read_splits(unseen)["test"]] == ["crow"]
    assert [example.id for example in read_split(unseen, "test")] == ["owl", "wren", "crow"]  # as distributed
    write(card, "train", rows[0], rows[2])
    with pytest.raises(DataError, match="toy: unseen_test"):
        read_splits(unseen)


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ({"text": "a cat", "label": "cat"}, "label 'cat' "),
        ({"text": " \n", "label": "bird"}, "the text is empty"),
        ({"text": None, "label": "bird"}, "no 'text'; found label"),
        ({"text": "an owl", "label": None}, "no 'label'; found text"),
        ({"text": 3, "label": "bird"}, "'text' is int"),
        ([1], "expected a JSON object"),
    ],
)
def test_a_bad_record_is_refused_by_file_and_line(toy_card, bad, says):
    path = write(toy_card, "dev", GOOD, bad)
    with pytest.raises(DataError) as error:
        read_split(toy_card, "dev")
    assert str(error.value).startswith(f"{path}:2: {says}")


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ({"hypothesis": None}, "no 'hypothesis'; found uid, premise, label"),
        ({"hypothesis": 7}, "'hypothesis' is int"),
        ({"hypothesis": " \n"}, "the second text is empty"),
        ({"premise": " \n"}, "the text is empty"),
    ],
)
def test_a_bad_pair_is_refused_by_field(pairs, bad, says):
    path = write(pairs, "dev", {**pair("a", "b"), **bad})
    with pytest.raises(DataError) as error:
        read_split(pairs, "dev")
    assert str(error.value).startswith(f"{path}:1: {says}")


def test_an_unexpected_number_of_examples_is_a_warning_and_none_an_error(toy_card, caplog):
    caplog.set_level(logging.WARNING, "dana")
    read_splits(toy_card)
    read_split(replace(toy_card, splits={"dev": [29, 30]}), "dev")
    assert not caplog.messages
    path = write(toy_card, "dev", GOOD)
    read_split(toy_card, "dev")
    [message] = caplog.messages
    assert message.startswith("toy: dev has 1 examples, but the card expects 30")
    path.write_text("\n\n")
    with pytest.raises(DataError, match=r"dev\.jsonl: has no examples"):
        read_split(toy_card, "dev")


def test_overlap_counts_test_examples_with_the_text_or_both_texts_of_another_split():
    def examples(*texts):
        return [Example(str(at), text[0], 0, text[1] if len(text) > 1 else None) for at, text in enumerate(texts)]

    single = {"train": examples("a", "b", "b"), "dev": examples("c"), "test": examples("b", "b", "c", "d")}
    assert overlap(single) == {"test_in_train": 2, "test_in_dev": 1}
    both = {"train": examples("ab"), "dev": [], "test": examples("ac", "ba", "ab", "cb")}
    assert overlap(both) == {"test_in_train": 1, "test_in_dev": 0}


def test_each_text_of_a_pair_is_text_of_the_task(pairs):
    write(pairs, "train", pair("a wren", "a bird"), pair("a wren", "zinc"))
    write(pairs, "dev", pair("an owl", "a bird"))
    fit, held_out = card_texts(pairs, None)
    assert [document.text for document in fit] == ["a wren", "a bird", "zinc"]
    assert [document.text for document in held_out] == ["an owl"]


@pytest.mark.parametrize("field", ["premise", "hypothesis"])
def test_documents_with_either_text_of_a_pair_are_decontaminated(pairs, tmp_path, field):
    write(pairs, "test", {**pair("a", "b"), field: LONG})
    cleaner = Cleaner(Hygiene(decontaminate=[str(pairs.origins[0])]))
    documents = [Document("clean", "s", "nothing of it"), Document("held", "s", f"so {LONG} so")]
    tally = Tally()
    for document in documents:
        tally.add(document)
    (tmp_path / "draft" / "__dana__").mkdir(parents=True)
    remaining = cleaner.filter_general(documents, tally, Draft(tmp_path / "draft"))
    assert [document.doc_id for document in remaining] == ["clean"]
