"""Spans of a table of units: whole documents, in order, from their row of the corpus, by one process or several."""

import gzip
import json
import os
import signal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from tokenizers import Tokenizer

from dana.core.errors import ConfigError, DanaError, DataError
from dana.core.schemas import DOCUMENTS, SCORES, WEIGHTS, Document, write_parts
from dana.corpus.documents import document_tables
from dana.models.folder import load_own_tokenizer
from dana.weighting import texts as spans_module
from dana.weighting.settings import WeighSettings
from dana.weighting.texts import ONE, SelectedText, count_tokens, counting_tokenizer, map_spans

SIZES = [
    3,
    1,
    0,
    7,
    2,
    1,
    1,
    4,
    0,
    12,
    1,
    2,
]  # units of each document: some have none, one is longer than a span


def write_table(frame, folder, schema, rows_per_part=50):
    write_parts(
        [pa.Table.from_pandas(frame, schema, preserve_index=False)], folder, schema, rows_per_part
    )


@pytest.fixture
def table(tmp_path):
    """Units of a corpus with scores and weights, in several files; the first unit of a document may be missing."""
    documents, rows = [], []
    for number, size in enumerate(SIZES):
        words = [f"w{number}x{unit}" for unit in range(size + 1)]
        documents.append(Document(f"d{number}", "s", " ".join(words)))
        ends = np.cumsum([len(word) + 1 for word in words]) - 1
        spans = enumerate(zip(ends[:size], words, strict=False))
        rows += [
            (f"d{number}", "s", unit + (number == 3), end - len(word), end)
            for unit, (end, word) in spans
        ]
    frame, random = pd.DataFrame(rows, columns=SCORES.names[:5]), np.random.default_rng(0)
    write_parts(document_tables(documents), tmp_path / "corpus", DOCUMENTS, 4)
    write_table(frame.assign(score=random.normal(size=len(frame))), tmp_path / "scores", SCORES, 5)
    weight = (random.random(len(frame)) < 0.6) * 1.0
    write_table(frame.assign(segment=0, weight=weight), tmp_path / "weights", WEIGHTS, 9)
    (tmp_path / "weights" / "__dana__").mkdir()
    return tmp_path


@pytest.mark.parametrize("several", [False, True])
def test_selected_text_and_tokens_do_not_depend_on_spans(
    table, tmp_path, monkeypatch, tiny_tokenizer, several
):
    scores = {ONE: table / "scores"}
    tiny_tokenizer.save_pretrained(tmp_path / "tokenizer")
    counting, _ = counting_tokenizer(
        WeighSettings(budget="9 tokens", tokenizer=str(tmp_path / "tokenizer"))
    )
    frame = pd.read_parquet(table / "weights")
    if several:
        targets = np.where(np.arange(len(frame)) % 3, "b", "a")
        frame["target"] = np.where(frame["weight"] > 0, targets, None)
        write_table(frame, table / "weights", WEIGHTS.append(pa.field("target", pa.string())), 9)
        write_table(pd.read_parquet(table / "scores").assign(score=5.0), table / "other", SCORES)
        scores = {"a": table / "scores", "b": table / "other"}
    results = []
    for units, processes in ((100, 1), (5, 1), (1, 2 if several else 1)):
        monkeypatch.setattr(spans_module, "UNITS", units)
        monkeypatch.setattr(spans_module, "cores", lambda count=processes: count)
        path = tmp_path / f"selected-{units}.gz"
        lines = SelectedText(table / "weights", scores, table / "corpus").write(path)
        counts = count_tokens(table / "scores", table / "corpus", counting).tolist()
        results.append((gzip.decompress(path.read_bytes()), lines, counts))
    assert all(result == results[0] for result in results)
    text, lines, counts = results[0]
    keys = pd.read_parquet(table / "scores")[["doc_id", "unit"]].itertuples(index=False)
    words = [f"w{doc_id[1:]}x{unit - (doc_id == 'd3')}" for doc_id, unit in keys]
    assert counts == [
        len(tiny_tokenizer(word, add_special_tokens=False)["input_ids"]) for word in words
    ]
    records = pd.read_json(path, lines=True)  # of many members, as pandas opens it
    assert len(records) == lines == text.count(b"\n") > 5
    assert [json.loads(line)["text"] for line in text.decode().splitlines()] == records[
        "text"
    ].tolist()
    documents = [f"w{doc_id[1:]}" for doc_id in frame.loc[frame["weight"] > 0, "doc_id"]]
    assert [word.partition("x")[0] for word in " ".join(records["text"]).split()] == documents
    if several:
        assert (records.loc[records["target"] == "b", "score"] == 5.0).all()
        assert (records["target"] == "a").sum() > 2
    assert not list((table / "weights" / "__dana__").iterdir())


def test_other_units_and_missing_documents_are_refused(table, tmp_path, monkeypatch):
    frame = pd.read_parquet(table / "scores")
    frame.loc[frame.index[-1], "start"] += 1
    write_table(frame, table / "moved", SCORES)
    with pytest.raises(DanaError, match=r"moved: .*weights"):
        SelectedText(table / "weights", {ONE: table / "moved"}, table / "corpus").write(
            tmp_path / "selected.gz"
        )
    documents = [
        Document(f"d{number}", "s", "a text") for number in range(len(SIZES)) if number != 9
    ]
    write_parts(document_tables(documents), table / "fewer", DOCUMENTS)
    for units in (5, 100):  # of several spans the places are looked for first
        monkeypatch.setattr(spans_module, "UNITS", units)
        with pytest.raises(DataError, match="fewer: document 'd9'"):
            SelectedText(table / "weights", {ONE: table / "scores"}, table / "fewer").write(
                tmp_path / "selected.gz"
            )


def killed_at_2(number, span):
    if number == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def test_a_killed_process_is_named(table, monkeypatch):
    monkeypatch.setattr(spans_module, "UNITS", 5)
    monkeypatch.setattr(spans_module, "cores", lambda: 2)
    with pytest.raises(DanaError, match="killed"):
        list(map_spans(killed_at_2, table / "scores", table / "corpus", "spans"))


TEXTS = [
    "The gene binds.",
    "[MASK] of [MASK]",
    "",
    "  two  spaces",
    "naïve Ünïcode 東京",
    "word " * 700,
]


@pytest.mark.parametrize("kind", ["tiny_tokenizer", "byte_level"])
def test_tokens_are_counted_as_by_transformers(tmp_path, request, kind):
    digests, counts = [], {}
    for split in (False, True):
        folder = tmp_path / str(split)
        request.getfixturevalue(kind).save_pretrained(folder)
        config = json.loads((folder / "tokenizer_config.json").read_text())
        (folder / "tokenizer_config.json").write_text(
            json.dumps({**config, "split_special_tokens": split})
        )
        core = Tokenizer.from_file(str(folder / "tokenizer.json"))
        core.enable_truncation(3)  # a tokenizer may be saved as it was used last
        core.enable_padding(length=9)
        core.save(str(folder / "tokenizer.json"))
        counting, digest = counting_tokenizer(
            WeighSettings(budget="9 tokens", tokenizer=str(folder))
        )
        digests.append(digest)
        counts[split] = [
            len(one) for one in counting.encode_batch_fast(TEXTS, add_special_tokens=False)
        ]
        tokenizer = load_own_tokenizer(str(folder))
        assert counts[split] == [
            len(tokenizer(text, add_special_tokens=False)["input_ids"]) for text in TEXTS
        ]
        assert counts[split][-1] >= 700
    assert digests[0] != digests[1]
    assert (counts[False] != counts[True]) == (kind == "tiny_tokenizer"), (
        "special tokens are one token, or text"
    )


def test_a_slow_tokenizer_is_refused(tmp_path):
    from transformers import ByT5Tokenizer

    ByT5Tokenizer().save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match="ByT5Tokenizer"):
        counting_tokenizer(WeighSettings(budget="9 tokens", tokenizer=str(tmp_path)))
