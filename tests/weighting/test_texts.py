"""Spans of a table of units: whole documents, in order, from their row of the corpus, by one process or several."""

import gzip
import json
import os
import signal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from dana.core.errors import DanaError, DataError
from dana.core.schemas import DOCUMENTS, SCORES, WEIGHTS, Document, write_parts
from dana.corpus.documents import document_tables
from dana.weighting import texts as spans_module
from dana.weighting.settings import WeighSettings
from dana.weighting.texts import ONE, SelectedText, Texts, count_tokens, counting_tokenizer, map_spans

SIZES = [3, 1, 0, 7, 2, 1, 1, 4, 0, 12, 1, 2]  # units of each document: some have none, one is longer than a span


@pytest.fixture
def table(tmp_path):
    """Units of a corpus with scores and weights, in several files; the first unit of a document may be missing."""
    documents, rows = [], []
    for number, size in enumerate(SIZES):
        words = [f"w{number}x{unit}" for unit in range(size + 1)]
        documents.append(Document(f"d{number}", "s", " ".join(words)))
        start = 0
        for unit, word in enumerate(words[:size]):
            rows.append((f"d{number}", "s", unit + (number == 3), start, start + len(word)))
            start += len(word) + 1
    frame = pd.DataFrame(rows, columns=SCORES.names[:5])
    random = np.random.default_rng(0)
    scores = frame.assign(score=random.normal(size=len(frame)))
    weights = frame.assign(segment=0, weight=(random.random(len(frame)) < 0.6) * 1.0)
    write_parts(document_tables(documents), tmp_path / "corpus", DOCUMENTS, 4)
    write_parts([pa.Table.from_pandas(scores, SCORES, preserve_index=False)], tmp_path / "scores", SCORES, 5)
    write_parts([pa.Table.from_pandas(weights, WEIGHTS, preserve_index=False)], tmp_path / "weights", WEIGHTS, 9)
    (tmp_path / "weights" / "__dana__").mkdir()
    return tmp_path


def frame_of(table):
    return pd.read_parquet(table / "scores")[["doc_id", "unit"]].itertuples(index=False)


def spans_of(table):
    return list(map_spans(_named, table / "scores", table / "corpus", "spans"))


def _named(number, span):
    return number, span


@pytest.mark.parametrize("units", [1, 5, 100])
def test_spans_are_whole_documents(table, monkeypatch, units):
    monkeypatch.setattr(spans_module, "UNITS", units)
    names = pd.read_parquet(table / "scores")["doc_id"]
    found = spans_of(table)
    assert [number for number, _ in found] == list(range(len(found)))
    spans = [span for _, span in found]
    assert [span.first for span in spans] == [0, *(span.last for span in spans[:-1])]
    assert spans[-1].last == len(names) == sum(SIZES)
    for span in spans:
        own = names[span.first : span.last]
        assert own.size
        assert not set(own) & set(names[span.last :])
        assert len(own) < units + max(SIZES)
        assert Texts(table / "corpus", span.document).text_of(own.iloc[0]).startswith(f"w{own.iloc[0][1:]}x0")
    # a span begins in the corpus where its first document is, so that nothing before it is read again
    assert [span.document for span in spans[1:]] == [int(names[span.first][1:]) for span in spans[1:]]
    assert len(spans) == {1: 10, 5: 4, 100: 1}[units]


@pytest.mark.parametrize("several", [False, True])
def test_selected_text_and_tokens_do_not_depend_on_spans(table, tmp_path, monkeypatch, tiny_tokenizer, several):
    scores = {ONE: table / "scores"}
    tiny_tokenizer.save_pretrained(tmp_path / "tokenizer")
    counting, _ = counting_tokenizer(WeighSettings(budget="9 tokens", tokenizer=str(tmp_path / "tokenizer")))
    if several:
        frame = pd.read_parquet(table / "weights")
        frame["target"] = np.where(frame["weight"] > 0, np.where(np.arange(len(frame)) % 3, "b", "a"), None)
        schema = WEIGHTS.append(pa.field("target", pa.string()))
        write_parts([pa.Table.from_pandas(frame, schema, preserve_index=False)], table / "weights", schema, 9)
        other = pd.read_parquet(table / "scores").assign(score=5.0)
        write_parts([pa.Table.from_pandas(other, SCORES, preserve_index=False)], table / "other", SCORES, 50)
        scores = {"a": table / "scores", "b": table / "other"}
    found = []
    for units, processes in ((100, 1), (5, 1), (1, 2)):
        monkeypatch.setattr(spans_module, "UNITS", units)
        monkeypatch.setattr(spans_module, "cores", lambda count=processes: count)
        path = tmp_path / f"kept-{len(found)}.gz"
        lines = SelectedText(table / "weights", scores, table / "corpus").write(path)
        counts = count_tokens(table / "scores", table / "corpus", counting).tolist()
        found.append((gzip.decompress(path.read_bytes()), lines, counts))
    assert all(one == found[0] for one in found)
    text, lines, counts = found[0]
    words = [f"w{doc_id[1:]}x{unit - (doc_id == 'd3')}" for doc_id, unit in frame_of(table)]
    assert counts == [len(tiny_tokenizer(word, add_special_tokens=False)["input_ids"]) for word in words]
    records = pd.read_json(path, lines=True)  # of many members, as pandas opens it
    assert len(records) == lines == text.count(b"\n") > 5
    assert [json.loads(line)["text"] for line in text.decode().splitlines()] == records["text"].tolist()
    frame = pd.read_parquet(table / "weights")
    kept = frame[frame["weight"] > 0]
    words = [f"w{doc_id[1:]}x" for doc_id in kept["doc_id"]]
    assert [word.partition("x")[0] + "x" for word in " ".join(records["text"]).split()] == words
    if several:
        assert (records.loc[records["target"] == "b", "score"] == 5.0).all()
        assert (records["target"] == "a").sum() > 2
    assert sorted(path.name for path in (table / "weights" / "__dana__").iterdir()) == []


def test_other_units_and_missing_documents_are_refused(table, tmp_path, monkeypatch):
    frame = pd.read_parquet(table / "scores")
    frame.loc[frame.index[-1], "start"] += 1
    write_parts([pa.Table.from_pandas(frame, SCORES, preserve_index=False)], table / "moved", SCORES)
    with pytest.raises(DanaError, match=r"moved: .*weights"):
        SelectedText(table / "weights", {ONE: table / "moved"}, table / "corpus").write(tmp_path / "kept.gz")
    documents = [Document(f"d{number}", "s", "a text") for number in range(len(SIZES)) if number != 9]
    write_parts(document_tables(documents), table / "fewer", DOCUMENTS)
    for units in (5, 100):  # of several spans the places are looked for first
        monkeypatch.setattr(spans_module, "UNITS", units)
        with pytest.raises(DataError, match="fewer: document 'd9'"):
            SelectedText(table / "weights", {ONE: table / "scores"}, table / "fewer").write(tmp_path / "kept.gz")


def _killed(number, span):
    if number == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def _wrong(number, span):
    raise DataError(f"span {number}: is wrong")


def test_a_killed_or_failing_process_is_named(table, monkeypatch):
    monkeypatch.setattr(spans_module, "UNITS", 5)
    monkeypatch.setattr(spans_module, "cores", lambda: 2)
    with pytest.raises(DanaError, match="killed"):
        list(map_spans(_killed, table / "scores", table / "corpus", "spans"))
    with pytest.raises(DataError, match="span 0: is wrong"):
        list(map_spans(_wrong, table / "scores", table / "corpus", "spans"))


def test_a_text_is_decoded_once(write_corpus):
    texts = Texts(write_corpus("pool", ["one", "two", "three"]))
    found = [texts.text_of("pool-0"), texts.text_of("pool-2"), texts.text_of("pool-2")]
    assert found == ["one", "three", "three"]
    assert found[1] is found[2]  # of a large file that is one document, every run of kept units asks for it
    with pytest.raises(DataError, match="document 'pool-1'"):
        texts.text_of("pool-1")
