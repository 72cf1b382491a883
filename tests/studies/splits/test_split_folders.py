"""Folders with train, dev and test files: which files are which split and side."""

import pytest

from dana.core.errors import DataError
from dana.studies.splits.aligned import find_splits


def fill(folder, *names):
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_text("a\n")
    return folder


def find_names(folder, sides=None):
    """Names of the files and of the sides by domain and split."""
    return {
        domain: {split: ([file.name for file in text.files], text.sides) for split, text in splits.items()}
        for domain, splits in find_splits(folder, sides).items()
    }


def test_plain_text_pairs_are_named_by_their_endings(tmp_path):
    folder = fill(
        tmp_path / "it", "train.de.gz", "train.en.txt", "valid.de", "valid.en", "test.de", "test.en", "README"
    )
    assert find_names(folder) == {
        "it": {
            "train": (["train.de.gz", "train.en.txt"], ("de", "en")),
            "dev": (["valid.de", "valid.en"], ("de", "en")),
            "test": (["test.de", "test.en"], ("de", "en")),
        }
    }
    assert find_names(folder, ["en", "de"])["it"]["dev"] == (["valid.en", "valid.de"], ("en", "de"))


def test_records_and_folders_of_folders(tmp_path):
    fill(tmp_path / "b", "train.parquet", "dev.parquet")
    fill(tmp_path / "a", "train.x", "train.y", "test.x.gz", "test.y")
    fill(tmp_path / "neither", "else.txt")
    assert find_names(tmp_path) == {
        "a": {"train": (["train.x", "train.y"], ("x", "y")), "test": (["test.x.gz", "test.y"], ("x", "y"))},
        "b": {"train": (["train.parquet"], ("source", "target")), "dev": (["dev.parquet"], ("source", "target"))},
    }
    assert find_names(tmp_path / "b", ["de", "en"])["b"]["dev"] == (["dev.parquet"], ("de", "en"))


@pytest.mark.parametrize(
    "names",
    [
        ["train.de"],
        ["dev.de", "test.de"],
        ["notes.txt", "trained.de"],
        ["train.de", "train.en", "train.fr", "dev.de", "dev.en"],
        ["train.de", "train.de.gz", "dev.de", "dev.en"],
        ["train.jsonl", "train.parquet", "dev.jsonl"],
    ],
)
def test_folders_that_are_refused(tmp_path, names):
    with pytest.raises(DataError, match=str(tmp_path / "x")):
        find_splits(fill(tmp_path / "x", *names))
