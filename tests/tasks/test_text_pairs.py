"""Pairs of texts, from a card's fields to overlap, decontamination and the text that a detector is fitted on."""

import pytest
import toy_pairs
import toy_task

from dana.core.errors import ConfigError, DataError
from dana.core.schemas import Document
from dana.tasks.card import TaskCard, load_card
from dana.tasks.examples import Example, card_texts, overlap, read_split
from dana.tasks.hygiene import Cleaner
from dana.tasks.settings import Hygiene
from dana.tasks.tables import corpus_row, overlap_rows, split_rows

LONG = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen"


@pytest.fixture
def card(tmp_path, monkeypatch):
    monkeypatch.delenv("DANA_DATA", raising=False)
    return load_card(str(toy_pairs.write_task(tmp_path)))


def write(card, split, *records):
    toy_task.write_split(card.origins[0].parent / "toy", split, list(records))


def pair(premise, hypothesis, label="bird", uid="x"):
    return {"uid": uid, "premise": premise, "hypothesis": hypothesis, "label": label}


def test_both_texts_are_read_and_normalised(card):
    write(card, "dev", pair(" a wren\r\n", "it\x00 is\t"))
    assert read_split(card, "dev") == [Example("x", "a wren", 2, "it is")]
    assert read_split(card, "dev")[0].texts == ("a wren", "it is")
    assert Example("x", "a wren", 2).texts == ("a wren",)


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ({"hypothesis": None}, r"dev\.jsonl:1: no 'hypothesis'; found uid, premise, label"),
        ({"premise": None}, r"dev\.jsonl:1: no 'premise'; found uid, hypothesis, label"),
        ({"hypothesis": 7}, r"dev\.jsonl:1: 'hypothesis' is int, not text"),
        ({"hypothesis": " \n"}, r"dev\.jsonl:1: the second text is empty"),
        ({"premise": " \n"}, r"dev\.jsonl:1: the text is empty"),
    ],
)
def test_a_bad_pair_is_named_by_file_line_and_field(card, bad, says):
    write(card, "dev", {**pair("a", "b"), **bad})
    with pytest.raises(DataError, match=says):
        read_split(card, "dev")


def test_a_field_without_a_name_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"toy\.yaml: text_pair=' ': must be a field's name"):
        TaskCard.read(toy_task.write_task(tmp_path, text_pair=" "))


def test_a_pair_is_seen_before_only_if_both_texts_are():
    train = [Example("t", "a", 0, "b")]
    test = [Example("1", "a", 0, "c"), Example("2", "b", 0, "a"), Example("3", "a", 1, "b"), Example("4", "c", 0, "b")]
    assert overlap({"train": train, "dev": [], "test": test}) == {"test_in_train": 1, "test_in_dev": 0}


def test_pairs_are_the_same_if_both_texts_are():
    words = LONG.split()
    first, second = " ".join(words[:7]), " ".join(words[7:])
    train = [Example("t", first, 0, second)]
    test = [
        Example("same", first, 1, second),
        Example("other", first, 0, f"{second} more"),
        Example("far", first, 0, "x"),
    ]
    found = {
        (row["split"], row["within"], row["kind"]): row["ids"]
        for row in overlap_rows({"train": train, "dev": [Example("d", "other", 0, "words")], "test": test})
        if row["ids"]
    }
    assert found == {
        ("test", "train", "exact"): "same = t",
        ("test", "train", "contradicting"): "same = t",
    }


def test_either_text_of_a_test_pair_is_looked_for_in_a_corpus():
    test = [Example("1", LONG, 0, "b"), Example("2", "a", 0, LONG.upper()), Example("3", "a", 0, "b")]
    found = corpus_row(test, [Document("d", "s", f"so {LONG} so")])
    assert (found["examples"], found["ids"]) == (2, "1 = d, 2 = d")


@pytest.mark.parametrize("field", ["premise", "hypothesis"])
def test_documents_with_either_text_are_decontaminated(card, tmp_path, field):
    from dana.core.artifacts import Draft
    from dana.corpus.documents import Tally

    write(card, "test", {**pair("a", "b"), field: LONG})
    cleaner = Cleaner(Hygiene(decontaminate=[str(card.origins[0])]))
    documents = [Document("clean", "s", "nothing of it"), Document("held", "s", f"so {LONG} so")]
    tally = Tally()
    for document in documents:
        tally.add(document)
    (tmp_path / "draft" / "__dana__").mkdir(parents=True)
    kept = list(cleaner.filter_general(documents, tally, Draft(tmp_path / "draft")))
    assert [document.doc_id for document in kept] == ["clean"]


def test_either_text_is_text_of_the_task(card):
    write(card, "train", pair("a wren", "a bird"), pair("a wren", "zinc"))
    write(card, "dev", pair("an owl", "a bird"))
    fit, held_out = card_texts(card, None)
    assert [document.text for document in fit] == ["a wren", "a bird", "zinc"]
    assert [document.text for document in held_out] == ["an owl"]


def test_words_and_empty_texts_of_both_count(card):
    splits = {"train": [Example("1", "a b", 0, "c"), Example("2", "a", 0, "")]}
    (row,) = split_rows(card, splits)
    assert (row["words_95"], row["median_words"], row["empty"]) == (3, 1, 1)
