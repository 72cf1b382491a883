"""Records become documents: cleaned, named, each text once, every record accounted for."""

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dana.core.errors import ConfigError
from dana.corpus.documents import Tally, read_documents, source_digests
from dana.corpus.text import document_id


def _write(path, records):
    lines = [record if isinstance(record, str) else json.dumps(record) for record in records]
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return str(path)


def _read(path, records, on_bad_record="skip"):
    tally = Tally()
    documents = list(read_documents([_write(path, records)], on_bad_record, tally))
    return documents, tally


def test_id_source_and_text_by_hand(tmp_path):
    records = [
        {"id": 7, "source": "wiki", "text": " e\u0301t\u00e9\r\nx "},
        {"doc_id": "d", "text": "two"},
        {"id": "", "source": "", "text": "three"},
        {"id": None, "source": None, "text": "four"},
        {"id": 0, "text": "five"},
    ]
    documents, tally = _read(tmp_path / "pool.jsonl", records)
    assert [(d.doc_id, d.source, d.text) for d in documents] == [
        ("7", "wiki", "été\nx"),
        ("d", "pool", "two"),
        (document_id("pool", "three"), "pool", "three"),
        (document_id("pool", "four"), "pool", "four"),
        ("0", "pool", "five"),
    ]
    assert tally.as_dict()["by_source"] == {
        "pool": {"documents": 4, "characters": 3 + 5 + 4 + 4},
        "wiki": {"documents": 1, "characters": 5},
    }


def test_what_is_left_out_is_counted_by_reason(tmp_path):
    records = [
        {"id": "a", "text": "one"},
        {"id": "b", "text": "one "},
        {"id": "a", "text": "another"},
        {"text": " \u0000 "},
        {"text": 3},
        {"title": "no text"},
        "not json",
    ]
    documents, tally = _read(tmp_path / "x.jsonl", records)
    assert [d.text for d in documents] == ["one"]
    assert dict(tally.drop_counts) == {"duplicate": 1, "empty": 1}
    assert dict(tally.rejection_counts) == {"repeated id": 1, "no text": 2, "unreadable": 1}
    assert str(tally) == (
        "7 records in = 1 kept + 2 dropped + 4 rejected (1 duplicate, 1 empty, 2 no text, 1 repeated id, 1 unreadable)"
    )


def test_duplicates_and_empty_records_are_no_reason_to_fail(tmp_path):
    _, tally = _read(tmp_path / "x.jsonl", [{"text": "a"}, {"text": "a"}, {"text": ""}], "fail")
    assert (tally.document_count, tally.drop_counts.total()) == (1, 2)


def test_texts_are_kept_once_over_all_sources_and_the_first_names_them(tmp_path):
    first = _write(tmp_path / "one.jsonl", [{"text": "same"}])
    second = _write(tmp_path / "two.jsonl", [{"text": "same"}, {"text": "new"}])
    documents = list(read_documents([first, second], "fail", Tally()))
    assert [(d.source, d.text) for d in documents] == [("one", "same"), ("two", "new")]


def test_names_without_an_id_survive_reordering(tmp_path):
    records = [{"text": f"document {n}"} for n in range(5)]
    forward, _ = _read(tmp_path / "x.jsonl", records)
    backward, _ = _read(tmp_path / "x.jsonl", records[::-1])
    assert forward == backward[::-1]


def test_sources_that_number_their_records_alike_keep_them_all(tmp_path):
    one = _write(tmp_path / "one.jsonl", [{"id": 0, "text": "a"}])
    two = _write(tmp_path / "two.jsonl", [{"id": 0, "text": "b"}, {"id": 1, "text": "c"}, {"id": 0, "text": "d"}])
    tally = Tally()
    documents = list(read_documents([one, two], "skip", tally))
    assert [(d.doc_id, d.text) for d in documents] == [("0", "a"), ("two/0", "b"), ("1", "c")]
    assert dict(tally.rejection_counts) == {"repeated id": 1}


def test_what_to_do_with_bad_records_is_checked_before_reading(tmp_path):
    with pytest.raises(ConfigError, match="on_bad_record='ignore': must be fail or skip"):
        list(read_documents(["none.jsonl"], "ignore", Tally()))


def test_an_id_of_nothing_but_unwanted_characters_is_no_id(tmp_path):
    documents, _ = _read(tmp_path / "x.jsonl", [{"id": " \u0000", "text": "a"}, {"id": "\ufeff", "text": "b"}])
    assert [d.doc_id for d in documents] == [document_id("x", "a"), document_id("x", "b")]
    documents, _ = _read(tmp_path / "x.jsonl", [{"source": "\u0000", "text": "a"}])
    assert documents[0].source == "x"


RECORDS = st.lists(
    st.one_of(
        st.fixed_dictionaries(
            {"text": st.one_of(st.sampled_from(["a", "b", " a ", "", "\x00"]), st.text(max_size=5), st.integers())},
            optional={"id": st.one_of(st.none(), st.sampled_from(["x", "y", ""]), st.integers(0, 3))},
        ),
        st.sampled_from(["{", "[]", '"text"', "{}", "null", "NaN", '{"text": "\\ud800"}']),
    ),
    max_size=25,
)


@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(RECORDS)
def test_in_is_kept_plus_dropped_plus_rejected(tmp_path, records):
    path = tmp_path / "x.jsonl"
    documents, tally = _read(path, [*records, {"text": "never generated: long"}])
    assert (
        tally.record_count
        == len(records) + 1
        == tally.document_count + tally.drop_counts.total() + tally.rejection_counts.total()
    )
    assert tally.document_count == len(documents) == sum(tally.documents_by_source.values())
    assert len({d.text for d in documents}) == len({d.doc_id for d in documents}) == len(documents)
    assert all(d.text and d.doc_id and d.source for d in documents)
    assert sum(tally.characters_by_source.values()) == sum(len(d.text) for d in documents)


def test_digests_follow_content_not_place(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    one, two = _write(tmp_path / "a" / "x.jsonl", [{"text": "1"}]), _write(tmp_path / "b" / "x.jsonl", [{"text": "1"}])
    assert source_digests([one]) == source_digests([two])
    _write(tmp_path / "b" / "x.jsonl", [{"text": "2"}])
    assert source_digests([one]) != source_digests([two])
    assert len(source_digests([one, two])) == 2
    assert source_digests(["hf:org/name"]) == {"hf:org/name": "by name"}


def test_digests_of_files_with_one_name_follow_content_not_place(tmp_path):
    found = []
    for root in ("here", "there"):
        for part in ("a", "b"):
            (tmp_path / root / part).mkdir(parents=True)
            _write(tmp_path / root / part / "x.jsonl", [{"text": part}])
        found.append(source_digests([str(tmp_path / root)]))
    assert found[0] == found[1]
    assert len(found[0]) == 2


def test_digests_of_many_files_with_one_name_take_time_in_proportion(monkeypatch):
    import time

    monkeypatch.setattr("dana.corpus.documents.file_digest", lambda path: path.parent.name)

    def seconds(count):
        paths = [Path(str(number), "x.txt") for number in range(count)]
        monkeypatch.setattr("dana.corpus.documents.expand", lambda source: paths)
        started = time.process_time()
        assert list(source_digests(["."]))[:: count - 1] == ["x.txt", f"x.txt ({count})"]
        return time.process_time() - started

    assert seconds(8000) < 100 * max(0.001, seconds(400)), "20 times as many; squared would be 400"


def test_a_file_called_like_a_numbered_one_keeps_its_own_digest(tmp_path):
    for folder, name in (("a", "x.txt"), ("b", "x (2).txt"), ("c", "x.txt"), ("d", "x.txt (2)")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / name).write_text(folder)
    found = source_digests([str(tmp_path / "a"), str(tmp_path / "b"), str(tmp_path / "c")])
    assert list(found) == ["x.txt", "x (2).txt", "x.txt (2)"]
    assert len(set(found.values())) == 3
