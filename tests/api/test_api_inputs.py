"""Lists, generators, pandas, datasets and paths become the same documents; others are refused."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from datasets import Dataset, DatasetDict

from dana.api.inputs import as_sources
from dana.core.errors import ArtifactError, ConfigError, DanaError, DataError
from dana.corpus.documents import Tally, read_documents
from dana.corpus.inputs import Inputs

TEXTS = ["Cells divide.", 'A "quoted" text\nof two lines', "naïve \u4e2d\u6587 text"]


def documents(texts, folder, inputs=None):
    inputs = inputs or Inputs()
    sources = as_sources("pool", texts, folder, folder / "pool", inputs)
    return list(read_documents(sources, "fail", Tally(), inputs=inputs))


@pytest.mark.parametrize(
    "shape",
    [
        tuple,
        iter,
        np.array,
        pd.Series,
        lambda texts: pd.Series(texts, index=[7, 8, 9]),
        lambda texts: [{"text": text, "other": 1} for text in texts],
        lambda texts: pd.DataFrame({"text": texts, "label": [0, 1, 2]}),
        lambda texts: pd.DataFrame({"abstract": texts}),
        lambda texts: Dataset.from_dict({"text": texts, "label": [0, 1, 2]}),
        lambda texts: Dataset.from_dict({"text": texts}).to_iterable_dataset(),
    ],
)
def test_every_shape_gives_the_documents_of_a_list(shape, tmp_path):
    assert documents(shape(TEXTS), tmp_path / "other") == documents(TEXTS, tmp_path / "list")


@pytest.mark.parametrize(
    "text", ["word " * 60, "a\0b", "What is [this*?", "word " * 900, "half \ud800 a pair"]
)
def test_a_text_that_is_no_valid_file_name_is_text_as_from_a_file(text, tmp_path):
    (tmp_path / "pool.jsonl").write_text(json.dumps({"text": text}))
    assert documents([text], tmp_path / "run") == documents(tmp_path / "pool.jsonl", tmp_path)


def test_ids_and_sources_of_rows_and_fields_of_the_settings(tmp_path):
    table = pd.DataFrame(
        {"id": [3, None], "source": ["a", "b"], "text": ["one", "two"]}, dtype=object
    )
    first, second = documents(table, tmp_path)
    assert (first.doc_id, first.source, second.source) == ("3", "a", "b")
    assert len(second.doc_id) == 32, "a missing id is no name"
    table["id"] = pd.to_datetime(["2020-01-02", None])
    assert documents(table, tmp_path)[1].doc_id == second.doc_id
    rows, fields = (
        [{"meta": {"body": "one"}, "key": "k1", "id": "no"}],
        {"text_field": ["title", "meta.body"]},
    )
    (document,) = documents(rows, tmp_path / "rows", Inputs(**fields, id_field="key"))
    assert (document.doc_id, document.text) == ("k1", "one")


def test_paths_are_left_as_they_are(tmp_path):
    assert as_sources("pool", "pool/*.jsonl", tmp_path, tmp_path, Inputs()) == ["pool/*.jsonl"]
    paths = [Path("a.txt"), Path("b")]
    assert as_sources("pool", paths, tmp_path, tmp_path, Inputs()) == ["a.txt", "b"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("texts", "error", "names"),
    [
        ([], DataError, ["pool"]),
        (["one", None], DataError, ["pool[1]", "NoneType"]),
        (["one", b"two"], DataError, ["pool[1]", "bytes"]),
        (pd.Series(["one", float("nan")]), DataError, ["pool[1]", "'nan'"]),
        (
            pd.DataFrame({"a": ["x"], "b": ["y"]}),
            ConfigError,
            ["pool[0]", "'text'", "a, b", "text_field"],
        ),
        (
            DatasetDict({"train": Dataset.from_dict({"text": ["x"]})}),
            ConfigError,
            ["DatasetDict", "train"],
        ),
        (pd.DataFrame([["x", "y"]], columns=["text", "text"]), ConfigError, ["2 columns 'text'"]),
        (7, ConfigError, ["pool=7"]),
        ("One line\nand another", ConfigError, ["pool='One line"]),
        (["README.md", "x"], ConfigError, ["pool[0]='README.md'"]),
        (["hf:org/name"], ConfigError, ["pool[0]='hf:org/name'"]),
    ],
)
def test_wrong_texts_are_named_in_one_line_and_leave_nothing(
    texts, error, names, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "README.md").write_text("x")
    with pytest.raises(error) as refusal:
        documents(texts, tmp_path / "run")
    assert [name for name in names if name not in str(refusal.value)] == [], str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert [path.name for path in tmp_path.rglob("*")] == ["README.md"]


def test_a_stream_is_read_once_and_other_text_is_refused_once_an_artifact_was_made(tmp_path):
    file, manifest = (
        tmp_path / "inputs" / "pool.jsonl",
        tmp_path / "pool" / "__dana__" / "manifest.json",
    )
    documents(["first"], tmp_path)
    documents(
        (f"text {number}" for number in range(3)), tmp_path
    )  # no artifact was made from the first
    lines = [{"text": f"text {number}"} for number in range(3)]
    assert [json.loads(line) for line in file.read_text().splitlines()] == lines
    manifest.parent.mkdir(parents=True)
    manifest.write_text("{}")
    documents(lines, tmp_path)
    with pytest.raises(ArtifactError, match="pool"):
        documents(["third"], tmp_path)
    assert [json.loads(line) for line in file.read_text().splitlines()] == lines


def test_errors_of_the_iterable_are_not_wrapped(tmp_path):
    def broken():
        yield "one"
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine") as refusal:
        documents(broken(), tmp_path)
    assert not isinstance(refusal.value, DanaError)
    assert not list(tmp_path.rglob("*.jsonl"))


@pytest.mark.parametrize(
    "text",
    [
        "https://t.co/abc look at this great photo",
        "hf: is a fluoride",
        "a\0/what is it?",
        "\ud800/what?",
    ],
)
def test_a_text_that_begins_like_a_url_or_is_no_name_of_a_file_is_a_text(text, tmp_path):
    found = documents([text, "another text"], tmp_path)
    assert len(found) == 2
