"""Damaged files, cut into slices or not: the same documents, counts and messages, however many processes read."""

import json
import logging

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dana.corpus import slices as slices_module
from dana.corpus.documents import Tally, read_documents
from dana.corpus.slices import iterate_slices

ROWS = 400  # of a row group


def _zeroed_group(path):
    """Four row groups, of which the second is NUL."""
    pq.write_table(pa.table({"text": [f"text {n} {n**9}" for n in range(4 * ROWS)]}), path, row_group_size=ROWS)
    column = pq.read_metadata(path).row_group(1).column(0)
    begin = column.dictionary_page_offset or column.data_page_offset
    whole = bytearray(path.read_bytes())
    whole[begin : begin + column.total_compressed_size] = bytes(column.total_compressed_size)
    path.write_bytes(whole)


def _zeroed_head(path):
    lines = "".join(json.dumps({"text": f"text {n} {n**9}"}) + "\n" for n in range(2000)).encode()
    path.write_bytes(bytes(2000) + lines[2000:])


DAMAGED = [("x.parquet", _zeroed_group, ROWS), ("x.jsonl", _zeroed_head, 0)]


def _read(sources, processes, caplog, on_bad_record="skip"):
    tally = Tally()
    caplog.clear()
    documents = list(read_documents(sources, on_bad_record, tally, processes))
    return documents, tally, [record.getMessage() for record in caplog.records]


@pytest.mark.parametrize(("name", "damage", "before"), DAMAGED)
def test_what_is_lost_of_a_damaged_file_does_not_depend_on_the_processes(
    tmp_path, monkeypatch, caplog, name, damage, before
):
    damage(tmp_path / name)
    (tmp_path / "y.jsonl").write_text("".join(json.dumps({"text": f"other {n}"}) + "\n" for n in range(100)))
    sources = [str(tmp_path / name), str(tmp_path / "y.jsonl"), str(tmp_path / name)]
    monkeypatch.setattr(slices_module, "iterate_slices", lambda source: iterate_slices(source, 1000))
    caplog.set_level(logging.INFO)
    one, two = (_read(sources, processes, caplog) for processes in (1, 2))
    assert one == two
    documents, tally, messages = one
    assert (tally.document_count, tally.record_count) == (before + 100, 2 * before + 102)
    assert tally.rejection_counts == {"damaged file": 2}
    assert [document.text[:5] for document in documents] == ["text "] * before + ["other"] * 100
    assert len(messages) == 2
    assert all(f"{name}:{before + 1}: " in message for message in messages)
