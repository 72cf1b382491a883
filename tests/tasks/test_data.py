import logging
from dataclasses import replace

import pytest
import toy_task

from dana.core.errors import DataError
from dana.tasks.examples import Example, overlap, read_split, read_splits

GOOD = {"id": "a", "text": "an apple", "label": "fruit"}


def test_examples_have_id_text_and_the_number_of_their_label(toy_card):
    toy_task.write_split(toy_card.origins[0].parent / "toy", "dev", [GOOD, {"text": " zinc\r\n", "label": "metal"}])
    assert read_split(toy_card, "dev") == [Example("a", "an apple", 0), Example("dev-2", "zinc", 1)]


def test_fields_are_those_the_card_names(tmp_path):
    card = toy_task.write_task(tmp_path, text="body", label="topic")
    toy_task.write_split(tmp_path / "toy", "test", [{"id": 7, "body": "a wren", "topic": "bird"}])
    from dana.tasks.card import load_card

    assert read_split(load_card(str(card)), "test") == [Example("7", "a wren", 2)]


def test_fields_may_lie_within_others_and_be_named_by_the_settings(tmp_path):
    from dana.finetuning.settings import FinetuneSettings
    from dana.tasks.card import load_card

    card = load_card(str(toy_task.write_task(tmp_path, text="meta.body", label="meta.topic", id="meta.uid")))
    record = {"id": 1, "meta": {"body": "a wren", "topic": "bird", "uid": 7}, "text": "zinc", "label": "metal"}
    toy_task.write_split(tmp_path / "toy", "test", [record, {"meta": {"body": "an owl", "topic": "bird", "uid": None}}])
    assert read_split(card, "test") == [Example("7", "a wren", 2), Example("test-2", "an owl", 2)]
    toy_task.write_split(tmp_path / "toy", "test", [record])
    assert FinetuneSettings().fields_of(card) == card
    given = FinetuneSettings(text_field="text", label_field="label", id_field="id").fields_of(card)
    assert read_split(given, "test") == [Example("1", "zinc", 1)]


def test_test_texts_of_other_splits_are_left_out_if_the_card_says_so(tmp_path):
    from dana.tasks.card import load_card

    card = load_card(str(toy_task.write_task(tmp_path)))
    rows = [{"id": name, "text": name, "label": "bird"} for name in ("owl", "wren", "crow")]
    for split, own in (
        ("train", rows[:1]),
        ("dev", rows[1:2]),
        ("test", [*rows[:2], {**rows[2], "text": " crow\r\n"}]),
    ):
        toy_task.write_split(tmp_path / "toy", split, own)
    assert [example.id for example in read_splits(card)["test"]] == ["owl", "wren", "crow"]
    unseen = replace(card, unseen_test=True)
    assert [example.id for example in read_splits(unseen)["test"]] == ["crow"]
    assert [example.id for example in read_split(unseen, "test")] == ["owl", "wren", "crow"]  # as distributed
    toy_task.write_split(tmp_path / "toy", "train", [rows[0], rows[2]])
    with pytest.raises(DataError, match="toy: unseen_test: all 3 test texts are in train or dev"):
        read_splits(unseen)


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ({"text": "a cat", "label": "cat"}, r"label 'cat' is not among the card's: fruit, metal, bird"),
        ({"text": " \n", "label": "bird"}, "the text is empty"),
        ({"label": "bird"}, "no 'text'; found label"),
        ({"text": None, "label": "bird"}, "no 'text'; found label"),
        ({"text": "an owl", "label": None}, "no 'label'; found text"),
        ({"text": 3, "label": "bird"}, "'text' is int, not text"),
        ([1], "not a JSON object but list"),
    ],
)
def test_a_bad_record_is_named_by_file_and_line(toy_card, bad, says):
    path = toy_task.write_split(toy_card.origins[0].parent / "toy", "dev", [GOOD, bad])
    with pytest.raises(DataError, match=f"{path}:2: {says}"):
        read_split(toy_card, "dev")


def test_a_split_without_examples_is_refused(toy_card):
    (toy_card.origins[0].parent / "toy" / "dev.jsonl").write_text("\n\n")
    with pytest.raises(DataError, match=r"dev\.jsonl: has no examples"):
        read_split(toy_card, "dev")


def test_a_number_the_card_does_not_expect_is_a_warning(toy_card, caplog):
    caplog.set_level(logging.WARNING, "dana")
    read_splits(toy_card)
    assert not caplog.messages
    toy_task.write_split(toy_card.origins[0].parent / "toy", "dev", [GOOD])
    read_split(toy_card, "dev")
    assert caplog.messages == [
        "toy: dev has 1 examples, but the card expects 30; scores cannot be compared with published ones"
    ]


def test_several_numbers_can_be_expected(tmp_path, caplog):
    from dana.tasks.card import load_card

    card = load_card(str(toy_task.write_task(tmp_path, splits={"dev": [29, 30]})))
    read_splits(card)
    assert not caplog.messages


def test_overlap_counts_test_examples_whose_text_was_seen():
    def examples(*texts):
        return [Example(str(place), text, 0) for place, text in enumerate(texts)]

    splits = {"train": examples("a", "b", "b"), "dev": examples("c"), "test": examples("b", "b", "c", "d")}
    assert overlap(splits) == {"test_in_train": 2, "test_in_dev": 1}
