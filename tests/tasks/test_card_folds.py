"""A card with folds, or that tests the rest: no text that is tested is trained on."""

import json
from collections import Counter

import pytest

from dana.core.errors import ConfigError, DataError
from dana.tasks.card import TaskCard
from dana.tasks.examples import card_texts, fold_count, read_splits
from tests.toy_task import rows, write_folds, write_split, write_task


def splits(card, fold=None):
    return read_splits(TaskCard.read(card), fold=fold)


def ids(examples):
    return {example.id for example in examples}


def test_each_text_is_tested_once_and_a_stratified_tenth_of_the_others_is_dev(tmp_path):
    card = write_folds(tmp_path, count=330)
    tested = Counter()
    for fold in range(3):
        parts = splits(card, fold)
        sizes = [len(parts[name]) for name in ("test", "dev", "train")]
        assert sizes == [108 + 3 * (fold < 2), 22, 197 + 3 * (fold == 2)]
        assert set(Counter(example.label for example in parts["dev"]).values()) <= {7, 8}
        assert len(ids(parts["train"]) | ids(parts["dev"]) | ids(parts["test"])) == 330
        tested += Counter(ids(parts["test"]))
    assert set(tested.values()) == {1}
    assert len(tested) == 330
    assert fold_count(TaskCard.read(card)) == 3
    assert splits(card) == splits(card, 0)
    # Texts that only train make a fixed split.
    examples = [{**row, "fold": 0 if number < 20 else -1} for number, row in enumerate(rows(60, 1))]
    write_split(tmp_path, "texts", examples)
    assert ids(splits(card)["test"]) == {f"1-{number}" for number in range(20)}
    assert fold_count(TaskCard.read(card)) == 1


def test_a_text_that_is_tested_is_left_out_of_dev_and_train_in_any_case_and_pair(tmp_path):
    card = write_folds(tmp_path)
    change = {"fold": 1}
    copies = [
        {**row, "id": f"copy-{row['id']}", "text": f"{row['text'].upper()}!"} | change
        for row in rows(60, 1)[:3]
    ]
    examples = [{**row, "fold": number // 3 % 3} for number, row in enumerate(rows(60, 1))]
    write_split(tmp_path, "texts", examples + copies)
    assert "copy-1-0" in ids(splits(card, 1)["test"])
    assert not {"copy-1-0", "copy-1-1", "copy-1-2"} & ids(
        [*splits(card, 0)["train"], *splits(card, 0)["dev"]]
    )
    pairs = [
        {**row, "other": rows(60, 1)[0]["text"]} for row in examples
    ]  # of fold 0; in every pair
    write_split(tmp_path, "texts", pairs)
    card = write_folds(tmp_path / "pairs", text_pair="other")
    write_split(tmp_path / "pairs", "texts", pairs)
    fit, held_out = card_texts(TaskCard.read(card), None, 1)
    tested = {text for example in splits(card, 1)["test"] for text in example.texts}
    assert not tested & {document.text for document in fit + held_out}
    assert len(fit) > 30


def test_no_text_to_fit_on_is_a_held_out_one_in_another_case(tmp_path):
    card = write_folds(tmp_path, text_pair="other")
    pairs = [
        {**row, "fold": n // 3 % 3, "other": f"other {n}"} for n, row in enumerate(rows(60, 1))
    ]
    write_split(tmp_path, "texts", pairs)
    dev, test = (ids(splits(card, 1)[name]) for name in ("dev", "test"))
    shared = [
        {**row, "other": "SHARED WORDS!" if row["id"] in dev else "shared words"} for row in pairs
    ]
    shared = [one if one["id"] in test else two for one, two in zip(pairs, shared, strict=True)]
    write_split(tmp_path, "texts", shared)
    texts = [
        {document.text for document in part} for part in card_texts(TaskCard.read(card), None, 1)
    ]
    assert ["shared words" in texts[0], "SHARED WORDS!" in texts[1]] == [False, True]


FOLDS = [number // 3 % 3 for number in range(60)]


@pytest.mark.parametrize(
    ("folds", "says"),
    [
        ([None, *FOLDS[1:]], "texts.jsonl:1: no 'fold'; found id, text, label"),
        (
            [0.5, *FOLDS[1:]],
            "texts.jsonl:1: fold=0.5: must be an integer from 0, or -1 for a text that only trains",
        ),
        (["first", *FOLDS[1:]], "texts.jsonl:1: fold='first': must be an integer"),
        ([-2, *FOLDS[1:]], "texts.jsonl:1: fold=-2: must be an integer"),
        ([0, 2] * 30, "texts.jsonl: no text has fold=1; number the folds from 0 without gaps"),
        ([-1] * 60, "texts.jsonl: no text has fold=0; number the folds"),
        (
            [0] * 60,
            "texts.jsonl: all texts have fold=0; give those that train -1, or make two folds or more",
        ),
        ([0] * 59 + [1], "fold 0: no text is left to train on beside 59 to test on; add texts"),
    ],
)
def test_folds_that_cannot_be_are_named(folds, says, tmp_path):
    card = write_folds(tmp_path)
    write_split(
        tmp_path,
        "texts",
        [{**row, "fold": fold} for row, fold in zip(rows(60, 1), folds, strict=True)],
    )
    with pytest.raises(DataError, match=says):
        splits(card)


def test_ids_are_distinct_and_folds_stand_beside_one_file(tmp_path):
    card = write_folds(tmp_path)
    write_split(tmp_path, "texts", [{**row, "fold": 0, "id": "same"} for row in rows(3, 1)])
    with pytest.raises(DataError, match=r"texts.jsonl:2: the id 'same' comes twice"):
        splits(card)
    for data in ({"file": "toy-{split}"}, {"local": "toy"}):
        card = write_task(tmp_path, folds="fold", data=data)
        with pytest.raises(
            ConfigError, match=r"folds='fold': must be a field's name, beside data: {file: NAME}"
        ):
            TaskCard.read(card)


def test_the_rest_of_the_training_texts_is_tested_and_in_no_text_to_fit_on(tmp_path, monkeypatch):
    few = splits(write_task(tmp_path, train=20))
    path = write_task(tmp_path, train=20, test="rest")
    published = {
        name: [*map(json.loads, (tmp_path / "toy" / f"{name}.jsonl").open())]
        for name in ("train", "dev")
    }
    new = [
        {**published["train"][0], "id": name, "text": f"new {name}"} for name in ("3-5#2", "3-5")
    ]
    copies = [{**published["dev"][0], "id": "copy"}, *new]
    write_split(tmp_path / "toy", "train", published["train"] + copies)
    card = TaskCard.read(path)
    doubled = [
        example.id for example in read_splits(card)["test"] if example.id.split("#")[0] == "3-5"
    ]
    assert sorted(doubled) == ["3-5", "3-5#2", "3-5#3"], "train and test have ids of their own"
    write_split(tmp_path / "toy", "train", published["train"] + copies[:1])
    parts = read_splits(card)
    assert [len(few[name]) for name in parts] == [20, 30, 60]
    assert [len(parts[name]) for name in parts] == [20, 30, 60 + 100], (
        "the copy of a development text is no new text"
    )
    assert ids(parts["train"]) == ids(few["train"])
    assert not ids(parts["train"]) & ids(parts["test"])
    fit, held_out = card_texts(card, None)
    assert {document.text for document in fit} == {example.text for example in parts["train"]}
    assert len(held_out) == 30
    assert TaskCard.read(path).text_identity == {"version": 1, "train": 20, "test": "rest"}
    monkeypatch.setattr("dana.tasks.examples.MOST_TEST_TEXTS", 50)
    assert ids(read_splits(card)["test"]) < ids(parts["test"])
    assert len(read_splits(card)["test"]) == 50


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"test": "rest"}, "train=None: must be the number to train on, as test=rest"),
        ({"train": 5, "test": "all"}, "test='all': must be one of rest, or null"),
        ({"train": 0}, "train=0: must be at least 1, or null"),
    ],
)
def test_a_wrong_division_is_refused(keys, says, tmp_path):
    with pytest.raises(ConfigError, match=says):
        TaskCard.read(write_task(tmp_path, **keys))
