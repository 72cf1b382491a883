"""Labelled examples: what is read from a record, and what is refused."""

import logging
from dataclasses import replace

import pytest
import toy_kinds
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


def pair(premise, hypothesis):
    return {"uid": "x", "premise": premise, "hypothesis": hypothesis, "label": "bird"}


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


def test_unseen_test_leaves_out_texts_of_other_splits(toy_card):
    owl, wren, crow = ({"id": name, "text": f" {name}\r\n", "label": "bird"} for name in ("owl", "wren", "crow"))
    for split, records in {"train": [owl], "dev": [wren], "test": [owl, wren, crow]}.items():
        write(toy_card, split, *records)
    assert [example.id for example in read_splits(toy_card)["test"]] == ["owl", "wren", "crow"]
    unseen = replace(toy_card, unseen_test=True)
    assert [example.id for example in read_splits(unseen)["test"]] == ["crow"]
    assert [example.id for example in read_split(unseen, "test")] == ["owl", "wren", "crow"]  # as distributed
    write(toy_card, "train", owl, crow)
    with pytest.raises(DataError, match="toy: unseen_test"):
        read_splits(unseen)


@pytest.mark.parametrize(
    ("kind", "bad", "problem"),
    [
        ("single_label", {"text": "a cat", "label": "cat"}, "label 'cat' "),
        ("single_label", {"text": " \n", "label": "bird"}, "the text is empty"),
        ("single_label", {"text": None, "label": "bird"}, "no 'text'; found label"),
        ("single_label", {"text": "an owl", "label": None}, "no 'label'; found text"),
        ("single_label", {"text": 3, "label": "bird"}, "'text' is int"),
        ("single_label", [1], "expected a JSON object"),
        ("pairs", {**pair("a", "b"), "hypothesis": None}, "no 'hypothesis'; found uid, premise, label"),
        ("pairs", {**pair("a", "b"), "hypothesis": 7}, "'hypothesis' is int"),
        ("pairs", {**pair("a", "b"), "hypothesis": " \n"}, "the second text is empty"),
        ("pairs", {**pair("a", "b"), "premise": " \n"}, "the text is empty"),
        ("multi_label", {"text": "x", "label": "bird"}, "label 'bird' is str"),
        ("regression", {"text": "x", "label": "warm"}, "label 'warm'"),
        ("token_labels", {"tokens": ["a", "b"], "tags": ["O"]}, "2 words, but 1 labels"),
        ("token_labels", {"tokens": ["a", " "], "tags": ["O", "O"]}, "'tokens' has an empty word"),
        ("token_labels", {"tokens": {"a": 1}, "tags": ["O"]}, "'tokens' is dict"),
        ("token_labels", {"tokens": ["a", 3], "tags": ["O", "O"]}, "'tokens' is list"),
        ("token_labels", {"tokens": [], "tags": []}, "the text is empty"),
    ],
)
def test_a_bad_record_is_refused_by_file_and_line(tmp_path, kind, bad, problem):
    write_task = {"single_label": toy_task.write_task, "pairs": toy_pairs.write_task}.get(kind)
    path = write_task(tmp_path) if write_task else toy_kinds.write_task(tmp_path, kind)
    split = toy_task.write_split(tmp_path / "toy", "dev", [GOOD, bad] if kind == "single_label" else [bad])
    line = 2 if kind == "single_label" else 1
    with pytest.raises(DataError) as error:
        read_split(load_card(str(path)), "dev")
    assert str(error.value).startswith(f"{split}:{line}: {problem}")


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
    def splits(**texts):
        return {split: [Example("", text[0], 0, text[1:] or None) for text in rows] for split, rows in texts.items()}

    assert overlap(splits(train="abb", dev="c", test="bbcd")) == {"test_in_train": 2, "test_in_dev": 1}
    both = splits(train=["ab"], dev=[], test=["ac", "ba", "ab", "cb"])
    assert overlap(both) == {"test_in_train": 1, "test_in_dev": 0}


@pytest.mark.parametrize("field", ["premise", "hypothesis"])
def test_each_text_of_a_pair_is_text_of_the_task_and_decontaminated(pairs, tmp_path, field):
    write(pairs, "train", pair("a wren", "a bird"), pair("a wren", "zinc"))
    write(pairs, "dev", pair("an owl", "a bird"))
    fit, held_out = card_texts(pairs, None)
    assert [document.text for document in fit] == ["a wren", "a bird", "zinc"]
    assert [document.text for document in held_out] == ["an owl"]
    write(pairs, "test", {**pair("a", "b"), field: LONG})
    documents = [Document("clean", "s", "nothing of it"), Document("held", "s", f"so {LONG} so")]
    tally = Tally()
    for document in documents:
        tally.add(document)
    (tmp_path / "draft" / "__dana__").mkdir(parents=True)
    cleaner = Cleaner(Hygiene(decontaminate=[str(pairs.origins[0])]))
    remaining = cleaner.filter_general(documents, tally, Draft(tmp_path / "draft"))
    assert [document.doc_id for document in remaining] == ["clean"]
