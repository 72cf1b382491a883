"""Sizes, lengths and labels, against values by hand."""

from dana.tasks.examples import Example
from dana.tasks.tables import label_rows, split_rows


def examples(split, labels, text="one two three"):
    return [Example(f"{split}-{at}", text, label) for at, label in enumerate(labels)]


def test_a_row_says_sizes_lengths_and_what_is_absent(toy_card):
    train = examples("train", [0, 1, 2, 0], "one two three")
    lengths = [1, 2, 3, *[4] * 16, 90]
    dev = [Example(str(at), " ".join(["w"] * length), 1) for at, length in enumerate(lengths)]
    dev[0] = Example("0", "", 1)
    first, second = split_rows(toy_card, {"train": train, "dev": dev})
    assert first == {
        "split": "train",
        "examples": 4,
        "expected": "120",
        "empty": 0,
        "median_words": 3,
        "words_95": 3,
        "absent_labels": "",
    }
    assert (second["examples"], second["empty"], second["median_words"], second["words_95"]) == (20, 1, 4, 4)
    assert second["absent_labels"] == "fruit, bird"


def test_label_rows_are_tidy(toy_card):
    rows = label_rows(toy_card, {"train": examples("train", [0, 0, 2, 2]), "test": examples("test", [1])})
    assert [tuple(row.values()) for row in rows] == [
        ("train", "fruit", 2, 0.5),
        ("train", "metal", 0, 0.0),
        ("train", "bird", 2, 0.5),
        ("test", "fruit", 0, 0.0),
        ("test", "metal", 1, 1.0),
        ("test", "bird", 0, 0.0),
    ]
