"""A task's data checked: tables, warnings, files."""

import json

import pytest
import toy_task

from dana.stages.check_task import check_task


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A card whose data has no flaw."""
    monkeypatch.delenv("DANA_DATA", raising=False)
    toy_task.write_task(tmp_path)
    for split, count in (("train", 120), ("dev", 30), ("test", 60)):
        write(tmp_path, split, clean(split, count))
    return tmp_path


def clean(split, count):
    """Texts with no word in common."""
    labels = list(toy_task.SIGNS)
    return [{"id": f"{split}-{at}", "text": f"{split} text number{at}", "label": labels[at % 3]} for at in range(count)]


def write(folder, split, rows):
    toy_task.write_split(folder / "toy", split, rows)


def check(folder, **more):
    return check_task(str(folder / "toy.yaml"), **more)


def test_clean_data_gives_no_warning(folder):
    found = check(folder)
    assert found.warnings == []
    assert str(found).endswith("\n\nno warnings")
    assert set(found.tables) == {"splits", "labels", "overlap"}


def test_labels_are_shown_a_line_each_and_split_by_split(folder):
    heading, first, *_ = str(check(folder)).split("labels\nlabel")[1].splitlines()
    assert heading.split() == ["train", "share_train", "dev", "share_dev", "test", "share_test"]
    assert first.split() == ["fruit", "40", "0.333", "10", "0.333", "20", "0.333"]


@pytest.mark.parametrize(
    ("split", "rows", "says"),
    [
        ("dev", clean("dev", 27), "dev: 27 examples where the card expects 30: get the whole split, or"),
        ("test", [*clean("test", 59), {"text": " \n", "label": "bird"}], "test: 1 of 60 texts are empty: remove"),
        ("train", [row for row in clean("train", 180) if row["label"] != "metal"], "no example of metal: no model"),
        ("test", [row for row in clean("test", 90) if row["label"] != "metal"], "no example of metal: they count 0"),
        ("train", [*clean("train", 119), clean("train", 1)[0]], "train: 1 of 120 examples (0.8%) repeat an earlier"),
        (
            "dev",
            [*clean("dev", 29), {"text": "dev text number0", "label": "bird"}],
            "dev: 2 of 30 examples (6.7%) have another label for the same text in it: ",
        ),
        (
            "test",
            [*clean("test", 59), clean("train", 1)[0]],
            "test: 1 of 60 examples (1.7%) are also in train: remove them from train",
        ),
        (
            "test",
            [*clean("test", 59), {"text": "train text number0", "label": "bird"}],
            "have another label for the same text in train",
        ),
    ],
)
def test_a_flaw_is_warned_of_with_what_to_do(folder, split, rows, says):
    write(folder, split, rows)
    assert any(says in warning for warning in check(folder).warnings)


def test_empty_texts_are_counted_and_not_taken_for_one_text(folder):
    for split, count in (("train", 120), ("test", 60)):
        write(
            folder, split, [*clean(split, count - 2), *[{"text": " ", "label": label} for label in ("bird", "metal")]]
        )
    assert [warning.partition(" of ")[0] for warning in check(folder).warnings] == ["train: 2", "test: 2"]


def test_text_that_the_corpus_shares_is_a_row_and_a_warning(folder, tmp_path):
    general = tmp_path / "general.jsonl"
    shared = " ".join(f"w{at}" for at in range(15))
    write(folder, "test", [*clean("test", 59), {"text": shared, "label": "bird"}])
    general.write_text(json.dumps({"id": "g", "text": shared}) + "\nnot JSON\n")
    found = check(folder, corpus=[str(general)])
    (row,) = found.tables["corpus"]
    assert [row[name] for name in ("examples", "documents", "of_documents")] == [1, 1, 1]
    assert found.warnings == [
        "test: 1 of 60 examples (1.7%) share text with the corpus (documents: 1): rank and score with"
        " --decontaminate toy"
    ]
