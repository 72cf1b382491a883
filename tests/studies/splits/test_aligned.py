"""Parallel text: formats, cleaned lines, folders of splits, their audit, bad input."""

import gzip
import json
import re

import pandas as pd
import pytest
import zstandard

from dana.core.errors import ConfigError, DataError
from dana.studies.splits.aligned import find_splits, open_aligned
from dana.studies.splits.stage import audit_domains

ROWS = [("Das Haus", "The house"), ("Größe 😀", "size"), ("", "only one side")]


def write(folder, name, lines, pack=bytes):
    path = folder / name
    path.write_bytes(pack("".join(f"{line}\n" for line in lines).encode()))
    return path


def read(files, sides=None):
    return list(open_aligned(files, sides).rows())


def pair(folder, source, target):
    return [write(folder, "x.de", source), write(folder, "x.en", target)]


@pytest.mark.parametrize(
    ("ending", "pack"), [("", bytes), (".gz", gzip.compress), (".zst", zstandard.compress)]
)
def test_two_files_line_by_line(tmp_path, ending, pack):
    files = [
        write(tmp_path, f"x{side}.txt{ending}", [row[side] for row in ROWS], pack)
        for side in (0, 1)
    ]
    assert read(files) == [(number, row) for number, row in enumerate(ROWS, 1)]
    assert open_aligned(files).sides == ("source", "target")
    assert open_aligned(files, ["de", "en"]).sides == ("de", "en")


def test_one_file_with_both_sides(tmp_path):
    table = pd.DataFrame(ROWS, columns=["de", "en"]).assign(id="same")
    table.to_csv(tmp_path / "x.tsv", index=False, sep="\t")
    table.to_parquet(tmp_path / "x.parquet")
    for name in ("x.tsv", "x.parquet"):
        assert [texts for _, texts in read([tmp_path / name], ["de", "en"])] == ROWS


def test_nested_fields_and_the_line_of_a_record(tmp_path):
    records = [
        json.dumps({"translation": {"de": source, "en": target}}) for source, target in ROWS[:2]
    ]
    path = write(tmp_path, "x.jsonl", [records[0], "", records[1]])
    assert read([path], ["translation.en", "translation.de"]) == [
        (1, ROWS[0][::-1]),
        (3, ROWS[1][::-1]),
    ]


def test_lines_end_at_newlines_only_and_are_cleaned(tmp_path):
    """A line separator within would break the alignment of whoever reads the text next."""
    source = [
        "\ufeff  a\u2028b\u0085c \r",
        "e\u0301\x00",
        " \x00\u200b\u00a0".replace("\u200b", ""),
        "x\ry",
    ]
    rows = read(pair(tmp_path, source, ["1", "2", "3", "4"]))
    assert rows == [(1, ("a b c", "1")), (2, ("é", "2")), (3, ("", "3")), (4, ("x y", "4"))]


@pytest.mark.parametrize("counts", [(3, 5), (5, 3)])
def test_files_of_different_lengths_are_refused_with_both(tmp_path, counts):
    files = pair(tmp_path, ["a"] * counts[0], ["b"] * counts[1])
    with pytest.raises(DataError) as error:
        read(files)
    assert f"{files[0]}: {counts[0]} lines, {files[1]}: {counts[1]} lines" in str(error.value)


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_bytes_that_do_not_decode_are_named_by_file_and_line(tmp_path, pack):
    good = write(tmp_path, "x.de", ["a", "b", "c"])
    bad = tmp_path / ("x.en" if pack is bytes else "x.en.gz")
    bad.write_bytes(pack(b"a\nb\xe9c\nd\n"))
    with pytest.raises(DataError, match=rf"{bad}:2: "):
        read([good, bad])


@pytest.mark.parametrize(
    "line",
    [
        "{",
        '{"de": "a", "id": 1}',
        '{"de": "a", "en": 7}',
        '{"de": null, "en": "b"}',
        '{"de": "\xff"}',
    ],
)
def test_bad_records_are_named(tmp_path, line):
    path = write(tmp_path, "x.jsonl", ['{"de": "a", "en": "b"}', line])
    with pytest.raises(DataError, match=re.escape(f"{path}:2: ")):
        read([path], ["de", "en"])


def test_files_that_do_not_fit_are_refused(tmp_path):
    plain, records = write(tmp_path, "x.de", ["a"]), write(tmp_path, "x.jsonl.gz", ["{}"])
    for files in ([plain, records], [plain], [tmp_path / "x.dd"], [plain, tmp_path]):
        with pytest.raises(DataError, match=re.escape(str(files[-1]))):
            open_aligned(files)
    for sides in ["a"], ["a", "b", "c"], ["de", "de"], ["line", "de"], ["either", "de"], ["", "de"]:
        with pytest.raises(ConfigError, match="sides="):
            open_aligned([plain, plain], sides)


def fill(folder, *names):
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_text("a\n")
    return folder


def find_names(folder, sides=None):
    """Names of the files and of the sides by domain and split."""
    return {
        domain: {
            split: ([file.name for file in text.files], text.sides)
            for split, text in splits.items()
        }
        for domain, splits in find_splits(folder, sides).items()
    }


def test_plain_text_pairs_are_named_by_their_endings(tmp_path):
    folder = fill(
        tmp_path / "it",
        "train.de.gz",
        "train.en.txt",
        "valid.de",
        "valid.en",
        "test.de",
        "test.en",
        "README",
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
        "a": {
            "train": (["train.x", "train.y"], ("x", "y")),
            "test": (["test.x.gz", "test.y"], ("x", "y")),
        },
        "b": {
            "train": (["train.parquet"], ("source", "target")),
            "dev": (["dev.parquet"], ("source", "target")),
        },
    }
    assert find_names(tmp_path / "b", ["de", "en"])["b"]["dev"] == (["dev.parquet"], ("de", "en"))


BAD_FOLDERS = [
    "train.de",
    "dev.de test.de",
    "notes.txt trained.de",
    "train.de train.en train.fr dev.de dev.en",
]
BAD_FOLDERS += ["train.de train.de.gz dev.de dev.en", "train.jsonl train.parquet dev.jsonl"]


@pytest.mark.parametrize("names", BAD_FOLDERS)
def test_folders_that_are_refused(tmp_path, names):
    with pytest.raises(DataError, match=str(tmp_path / "x")):
        find_splits(fill(tmp_path / "x", *names.split()))


def audit(folder, **domains):
    """Audit pairs of lines by domain and split."""
    texts = {domain: {} for domain in domains}
    for domain, splits in domains.items():
        for split, rows in splits.items():
            files = [
                write(folder, f"{domain}-{split}.{side}", [row[side] for row in rows])
                for side in (0, 1)
            ]
            texts[domain][split] = open_aligned(files, ["a", "b"])
    return audit_domains(texts).set_index(["domain", "split", "side"])


TRAIN = [("a", "x"), ("b", "y"), ("b", "z"), ("", "w"), ("c", "")]
DEV = [("a", "-"), ("-", "y"), ("b", "z"), ("x", "a"), ("", "-"), ("a", "-2"), ("-3", "")]
TEST = [("-", "x"), (" a ", "q"), ("q", "q")]


def test_an_audit_counts_by_each_side_and_by_either(tmp_path):
    table = audit(tmp_path, d={"train": TRAIN, "dev": DEV, "test": TEST})
    assert table.index.tolist() == [
        ("d", split, side) for split in ("dev", "test") for side in ("a", "b", "either")
    ]
    assert table["shared"].tolist() == [3, 2, 4, 1, 1, 2]
    assert table.iloc[0].to_dict() == {"lines": 7, "shared": 3, "share": 3 / 7}


def test_an_audit_compares_each_domain_with_its_own_train(tmp_path):
    one = {"train": [("a", "1")], "dev": [("b", "2")], "test": [("c", "9")]}
    two = {"train": [("b", "3")], "test": [("b", "4"), ("b", "5"), ("a", "1"), ("e", "9")]}
    counts = audit(tmp_path, one=one, two=two)["shared"]
    assert (counts["one", "dev", "either"], counts["two", "test", "either"]) == (0, 2)
    assert ("two", "dev", "either") not in counts.index
