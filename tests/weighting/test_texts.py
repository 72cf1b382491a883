"""Texts of scored units: the selected text, and tokens that are counted."""

import gzip
import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from tokenizers import Tokenizer

from dana.core.errors import ConfigError, DataError
from dana.core.schemas import DOCUMENTS, SCORES, Document, read_table, write_parts
from dana.corpus.documents import document_tables
from dana.models.folder import load_own_tokenizer
from dana.weighting import selection
from dana.weighting.selection import (
    Pool,
    count_tokens,
    counting_tokenizer,
    places_to_show,
    selected_runs,
    write_selected_text,
)
from dana.weighting.settings import WeighSettings

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
]  # units of each document: some have none, one is longer than a batch


def write_table(frame, folder, schema, rows_per_part=50):
    write_parts(
        [pa.Table.from_pandas(frame, schema, preserve_index=False)], folder, schema, rows_per_part
    )


@pytest.fixture
def table(tmp_path):
    """Units of a pool with scores, in several files; the first unit of a document may be missing."""
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
    frame = pd.DataFrame(rows, columns=SCORES.names[:5])
    random = np.random.default_rng(0)
    write_parts(document_tables(documents), tmp_path / "pool", DOCUMENTS, 4)
    frame = frame.assign(score=random.normal(size=len(frame)), short=False)
    write_table(frame, tmp_path / "scores", SCORES, 5)
    return tmp_path


def select(folder, path, pool="pool"):
    """Write the text of six units of ten, by chance; returns their weights and the number of lines."""
    scores = read_table(folder / "scores")
    scored = Pool.from_tables([scores], scores.num_rows)
    weight = (np.random.default_rng(1).random(scored.units) < 0.6) * 1.0
    return weight, write_selected_text(path, folder / "scores", folder / pool, scored, weight)


def test_runs_are_adjacent_selected_units_of_one_document():
    weight = np.array([1, 1, 0, 0.5, 1, 1, 0, 1])
    first, last = selected_runs(weight, np.array([0, 5]))
    assert list(zip(first.tolist(), last.tolist(), strict=True)) == [(0, 1), (3, 4), (5, 5), (7, 7)]
    assert [rows.size for rows in selected_runs(np.zeros(3), np.array([0]))] == [0, 0]


def test_selected_text_is_that_of_the_units(table, tmp_path, monkeypatch):
    texts = []
    for units in (2, 1 << 13):
        monkeypatch.setattr(selection, "UNITS_AT_A_TIME", units)
        path = tmp_path / f"selected-{units}.gz"
        weight, (lines, shown) = select(table, path)
        texts.append(gzip.decompress(path.read_bytes()).decode())
    assert texts[0] == texts[1]
    records = pd.read_json(path, lines=True)
    assert len(records) == lines == texts[0].count("\n") > 5
    by_score = records.sort_values("score", kind="stable").reset_index(drop=True)
    middle = (lines - 2) // 2
    assert [passage["rank"] for passage in shown] == [
        1,
        2,
        middle + 1,
        middle + 2,
        lines - 1,
        lines,
    ]
    for passage in shown:
        row = by_score.loc[passage["rank"] - 1]
        assert (passage["source"], passage["score"]) == (row["source"], pytest.approx(row["score"]))
        assert passage["text"] == " ".join(row["text"].split())
    frame = pd.read_parquet(table / "scores")
    units = frame[weight > 0]
    words = [
        f"w{doc_id[1:]}x{unit - (doc_id == 'd3')}"
        for doc_id, unit in zip(units["doc_id"], units["unit"], strict=True)
    ]
    assert " ".join(records["text"]).split() == words
    for line in records.itertuples():
        own = units[units["doc_id"] == line.doc_id].set_index("unit")
        own = own.loc[line.first_unit : line.last_unit]
        assert len(own) == line.last_unit - line.first_unit + 1
        assert line.score == pytest.approx(own["score"].mean())
        assert (line.start, line.end) == (own["start"].iloc[0], own["end"].iloc[-1])


@pytest.mark.parametrize(
    ("count", "ranks"),
    [
        (0, []),
        (1, [("best", 1)]),
        (3, [("best", 1), ("best", 2), ("last", 3)]),
        (5, [("best", 1), ("best", 2), ("middle", 3), ("last", 4), ("last", 5)]),
        (
            101,
            [
                ("best", 1),
                ("best", 2),
                ("middle", 50),
                ("middle", 51),
                ("last", 100),
                ("last", 101),
            ],
        ),
    ],
)
def test_shown_passages_are_the_best_the_middle_and_the_last_of_all(count, ranks):
    scores = np.random.default_rng(0).permutation(count).astype(float)
    places = places_to_show(scores)
    assert sorted(places.values(), key=lambda place: place[1]) == ranks
    assert all(scores[row] == rank - 1 for row, (_, rank) in places.items())


def test_tokens_of_each_unit_are_counted(table, tmp_path, monkeypatch, tiny_tokenizer):
    tiny_tokenizer.save_pretrained(tmp_path / "tokenizer")
    settings = WeighSettings(budget="9 tokens", tokenizer=str(tmp_path / "tokenizer"))
    counting, _ = counting_tokenizer(settings)
    keys = pd.read_parquet(table / "scores")[["doc_id", "unit"]].itertuples(index=False)
    words = [f"w{doc_id[1:]}x{unit - (doc_id == 'd3')}" for doc_id, unit in keys]
    expected = [len(tiny_tokenizer(word, add_special_tokens=False)["input_ids"]) for word in words]
    for units in (3, 1 << 13):
        monkeypatch.setattr(selection, "UNITS_AT_A_TIME", units)
        counts = count_tokens(table / "scores", table / "pool", counting)
        assert counts.tolist() == expected


def test_missing_documents_are_refused(table, tmp_path):
    documents = [
        Document(f"d{number}", "s", "a text") for number in range(len(SIZES)) if number != 9
    ]
    write_parts(document_tables(documents), table / "fewer", DOCUMENTS)
    with pytest.raises(DataError, match="fewer: document 'd9'"):
        select(table, tmp_path / "selected.gz", "fewer")


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
