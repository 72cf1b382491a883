"""A task's data checked: tables, warnings, files."""

import json

import pytest
import toy_task

from dana.stages.check_task import check_task


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Write a card whose data has no flaw."""
    monkeypatch.delenv("DANA_DATA", raising=False)
    toy_task.write_task(tmp_path)
    for split, count in (("train", 120), ("dev", 30), ("test", 60)):
        write(tmp_path, split, clean(split, count))
    return tmp_path


def clean(split, count):
    """Texts with no word in common."""
    labels = list(toy_task.SIGNS)
    return [
        {"id": f"{split}-{at}", "text": f"{split} text number{at}", "label": labels[at % 3]}
        for at in range(count)
    ]


def write(folder, split, rows):
    toy_task.write_split(folder / "toy", split, rows)


def check(folder, **more):
    return check_task(str(folder / "toy.yaml"), **more)


def test_clean_data_gives_no_warning_and_labels_a_line_each(folder):
    result = check(folder)
    assert result.warnings == []
    assert str(result).endswith("\n\nno warnings")
    assert set(result.tables) == {"splits", "labels", "overlap"}
    heading, first, *_ = str(result).split("labels\nlabel")[1].splitlines()
    assert heading.split() == ["train", "share_train", "dev", "share_dev", "test", "share_test"]
    assert first.split() == ["fruit", "40", "0.333", "10", "0.333", "20", "0.333"]


def without(label, rows):
    return [row for row in rows if row["label"] != label]


BIRD_IN_DEV, BIRD_IN_TRAIN = (
    {"text": f"{split} text number0", "label": "bird"} for split in ("dev", "train")
)


@pytest.mark.parametrize(
    ("split", "rows", "message"),
    [
        (
            "dev",
            clean("dev", 27),
            "dev: 27 examples where the card expects 30: get the whole split, or",
        ),
        (
            "test",
            [*clean("test", 59), {"text": " \n", "label": "bird"}],
            "test: 1 of 60 texts are empty: remove",
        ),
        ("train", without("metal", clean("train", 180)), "no example of metal: no model"),
        ("test", without("metal", clean("test", 90)), "no example of metal: they count 0"),
        (
            "train",
            [*clean("train", 119), clean("train", 1)[0]],
            "train: 1 of 120 examples (0.8%) repeat an earlier",
        ),
        (
            "dev",
            [*clean("dev", 29), BIRD_IN_DEV],
            "dev: 2 of 30 examples (6.7%) have another label for the same text in",
        ),
        (
            "test",
            [*clean("test", 59), clean("train", 1)[0]],
            "test: 1 of 60 examples (1.7%) are also in train: remove",
        ),
        (
            "test",
            [*clean("test", 59), BIRD_IN_TRAIN],
            "have another label for the same text in train",
        ),
    ],
)
def test_a_flaw_is_warned_of_with_what_to_do(folder, split, rows, message):
    write(folder, split, rows)
    assert any(message in warning for warning in check(folder).warnings)


def test_a_file_that_dana_splits_is_not_to_be_fetched_as_a_split(tmp_path):
    toy_task.write_split(tmp_path, "all", clean("all", 200))
    card = toy_task.write_task(tmp_path, data={"file": "all"}, splits={"test": 9})
    (warning,) = [line for line in check_task(str(card)).warnings if line.startswith("test: ")]
    assert "expects 9: put the number into" in warning


def test_empty_texts_are_counted_and_not_taken_for_one_text(folder):
    for split, count in (("train", 120), ("test", 60)):
        empty = [{"text": " ", "label": label} for label in ("bird", "metal")]
        write(folder, split, [*clean(split, count - 2), *empty])
    assert [warning.partition(" of ")[0] for warning in check(folder).warnings] == [
        "train: 2",
        "test: 2",
    ]


def test_text_that_the_pool_shares_is_a_row_and_a_warning(folder, tmp_path):
    pool = tmp_path / "pool.jsonl"
    words = " ".join(f"w{at}" for at in range(15))
    write(folder, "test", [*clean("test", 59), {"text": words, "label": "bird"}])
    pool.write_text(json.dumps({"id": "g", "text": words}) + "\nnot JSON\n")
    result = check(folder, pool=[str(pool)])
    (row,) = result.tables["pool"]
    assert [row[name] for name in ("examples", "documents", "of_documents")] == [1, 1, 1]
    (warning,) = result.warnings
    assert warning.startswith(
        "test: 1 of 60 examples (1.7%) share text with the pool (documents: 1)"
    )
    assert warning.endswith("rank and score with --decontaminate toy")


def test_of_a_card_with_folds_the_first_is_checked_and_all_texts_against_a_pool(tmp_path):
    card = toy_task.write_folds(tmp_path)
    rows = clean("this text is long enough to be known again in a pool of other", 80)
    rows = [{**row, "fold": at // 20 - 1} for at, row in enumerate(rows)]
    toy_task.write_split(tmp_path, "texts", rows)
    (tmp_path / "corpus.txt").write_text("".join(f"{row['text']}\n" for row in rows))
    check = check_task(str(card), pool=[str(tmp_path / "corpus.txt")])
    assert [row["examples"] for row in check.tables["splits"]] == [54, 6, 20]
    assert check.tables["pool"][0]["of"] == 60, "texts of fold -1 are never tested"
    assert [warning.partition(" share ")[0] for warning in check.warnings] == [
        "test: 60 of 60 examples (100.0%)"
    ]
