"""Records become documents: cleaned, named, each text once, every record accounted for; what is said of files."""

import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dana.core.errors import ConfigError, DataError
from dana.corpus.documents import Tally, read_documents, source_digests
from dana.corpus.head import sample_documents
from dana.corpus.inputs import Inputs
from dana.corpus.readers import read_records
from dana.corpus.text import document_id
from tests.corpus.files import write_rows


def _read(path, records, on_bad_record="skip"):
    tally = Tally()
    return list(read_documents([write_rows(path, records)], on_bad_record, tally)), tally


def test_id_source_and_text_by_hand(tmp_path):
    records = [
        {"id": 7, "source": "wiki", "text": " e\u0301t\u00e9\r\nx "},
        {"doc_id": "d", "text": "two"},
    ]
    records += [
        {"id": "", "source": "", "text": "three"},
        {"id": None, "source": None, "text": "four"},
    ]
    records += [{"id": 0, "text": "five"}, {"id": " \u0000", "source": "\ufeff", "text": "six"}]
    documents, tally = _read(tmp_path / "pool.v1.jsonl", records)
    assert [d.text for d in documents] == ["été\nx", "two", "three", "four", "five", "six"]
    three, four, six = (document_id("pool.v1", text) for text in ("three", "four", "six"))
    assert [d.doc_id for d in documents] == ["7", "d", three, four, "0", six]
    assert [d.source for d in documents] == ["wiki", *["pool.v1"] * 5]
    pool = {"documents": 5, "characters": 3 + 5 + 4 + 4 + 3}
    assert tally.as_dict()["by_source"] == {
        "pool.v1": pool,
        "wiki": {"documents": 1, "characters": 5},
    }


def test_what_is_left_out_is_counted_by_reason_and_the_first_bad_record_of_each_is_named(
    tmp_path, heard
):
    records = [
        {"id": "a", "text": "one"},
        {"id": "b", "text": "one "},
        {"id": "a", "text": "another"},
    ]
    records += [{"text": " \u0000 "}, {"text": 3}, {"title": "no text"}, "not json"]
    documents, tally = _read(tmp_path / "x.jsonl", records)
    assert [d.text for d in documents] == ["one"]
    warnings = [record.getMessage() for record in heard.records]
    assert [line.partition(": ")[0] for line in warnings] == [
        f"{tmp_path}/x.jsonl:{number}" for number in (3, 5, 7)
    ]
    assert dict(tally.drop_counts) == {"duplicate": 1, "empty": 1}
    assert dict(tally.rejection_counts) == {"repeated id": 1, "no text": 2, "unreadable": 1}
    assert str(tally) == (
        "7 records in = 1 kept + 2 dropped + 4 rejected (1 duplicate, 1 empty, 2 no text, 1 repeated id, 1 unreadable)"
    )
    _, tally = _read(tmp_path / "x.jsonl", [{"text": "a"}, {"text": "a"}, {"text": ""}], "fail")
    assert (tally.document_count, tally.drop_counts.total()) == (1, 2)  # and no error


def test_sources_share_texts_and_number_their_records_for_themselves(tmp_path):
    rows = {"one": [{"text": "same"}, {"id": 0, "text": "a"}]}
    rows |= {
        "two": [
            {"text": "same"},
            {"id": 0, "text": "b"},
            {"id": 1, "text": "c"},
            {"id": 0, "text": "d"},
        ]
    }
    tally = Tally()
    paths = [write_rows(tmp_path / f"{name}.jsonl", records) for name, records in rows.items()]
    documents = list(read_documents(paths, "skip", tally))
    ids = [document_id("one", "same"), "0", "two/0", "1"]
    assert [d.doc_id for d in documents] == ids
    assert [(d.source, d.text) for d in documents] == [
        ("one", "same"),
        ("one", "a"),
        ("two", "b"),
        ("two", "c"),
    ]
    assert (dict(tally.drop_counts), dict(tally.rejection_counts)) == (
        {"duplicate": 1},
        {"repeated id": 1},
    )


def test_what_to_do_with_bad_records_is_checked_before_reading():
    with pytest.raises(ConfigError, match="on_bad_record='ignore': must be fail or skip"):
        list(read_documents(["none.jsonl"], "ignore", Tally()))


TEXTS = st.one_of(
    st.sampled_from(["a", "b", " a ", "", "\x00"]), st.text(max_size=5), st.integers()
)
IDS = st.one_of(st.none(), st.sampled_from(["x", "y", ""]), st.integers(0, 3))
BROKEN = st.sampled_from(["{", "[]", '"text"', "{}", "null", "NaN", '{"text": "\\ud800"}'])


@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.one_of(st.fixed_dictionaries({"text": TEXTS}, optional={"id": IDS}), BROKEN), max_size=25
    )
)
def test_in_is_kept_plus_dropped_plus_rejected(tmp_path, records):
    documents, tally = _read(tmp_path / "x.jsonl", [*records, {"text": "never generated: long"}])
    assert tally.record_count == len(records) + 1
    assert (
        tally.record_count
        == tally.document_count + tally.drop_counts.total() + tally.rejection_counts.total()
    )
    assert tally.document_count == len(documents) == sum(tally.documents_by_source.values())
    assert len({d.text for d in documents}) == len({d.doc_id for d in documents}) == len(documents)
    assert all(d.text and d.doc_id and d.source for d in documents)
    assert sum(tally.characters_by_source.values()) == sum(len(d.text) for d in documents)


@pytest.fixture
def log_lines(caplog):
    """Reads files and gives the log lines."""
    caplog.set_level("INFO", "dana")

    def read(*paths):
        list(read_documents([str(path) for path in paths], "skip", Tally()))
        return [record.getMessage() for record in caplog.records]

    return read


def test_how_plain_text_was_cut_and_what_was_lost_are_said(tmp_path, log_lines):
    (tmp_path / "a.txt").write_bytes("Zwölf\nBoxkämpfer\nlaufen\n".encode("latin-1"))
    (tmp_path / "b.txt").write_text("one b\nand\n\ntwo b\n")
    (tmp_path / "c.jsonl").write_text('{"text": "c"}\n')
    (tmp_path / "d.jsonl").write_bytes(
        '{"text": "ü \xff"}\n'.encode().replace(b"\xc3\xbf", b"\xff")
    )
    foreign, first, second, warning = log_lines(*sorted(tmp_path.iterdir()))
    said = "2 lines are not UTF-8 and read as cp1252: 'Zwölf'; inputs.encoding names another"
    assert foreign == f"input     {tmp_path}/a.txt: {said}"
    assert first == f"input     {tmp_path}/a.txt: 3 documents, one per line"
    assert (
        second
        == f"input     {tmp_path}/b.txt: 2 documents, one per paragraph (between blank lines)"
    )
    assert warning.startswith(f"{tmp_path}/d.jsonl: 1 records hold U+FFFD")


def test_the_layout_of_few_of_many_files_is_said(tmp_path, log_lines, caplog):
    for number in range(30):
        (tmp_path / f"{number:02}.txt").write_text("one\ntwo\n")
    listed = [f"input     {tmp_path}/{n:02}.txt: 2 documents, one per line" for n in range(10)]
    listed.append(f"input     {tmp_path}/10.txt and other files of plain text: not listed")
    assert log_lines(tmp_path) == listed
    caplog.clear()
    sample_documents([str(tmp_path)], tmp_path / "out", Inputs(), "fail", 20_000)
    assert [record.getMessage() for record in caplog.records] == listed


def test_letters_that_were_encoded_twice_do_not_break_the_others_of_a_file_in_cp1252(tmp_path):
    # A ticket with a text that some program had encoded twice already: Ã¼ for ü.
    lines = ["text;Kategorie", "Grüße;Störung", "KÃ¼ste;Störung", "Ärger;Störung"]
    path = tmp_path / "t.csv"
    path.write_text("\n".join([*lines, ""]), encoding="cp1252")
    records = list(read_records([str(path)], Inputs()))
    assert {record.fields["Kategorie"] for record in records} == {"Störung"}
    assert [record.fields["text"] for record in records] == ["Grüße", "KÃ¼ste", "Ärger"]
    # Most lines are in UTF-8, so the byte is a broken one.
    path.write_bytes("\n".join([*lines, "ü ÿ;ö"]).encode().replace(b"\xc3\xbf", b"\xff"))
    *_, last = read_records([str(path)], Inputs())
    assert last.fields["text"] == "ü \ufffd"


def _write(tmp_path, *names):
    """Files that hold their own names."""
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name.partition("/")[2])


def test_digests_follow_content_not_place(tmp_path):
    _write(tmp_path, "here/a/x.txt", "here/b/x.txt", "there/a/x.txt", "there/b/x.txt")
    first, second = (source_digests([str(tmp_path / name)]) for name in ("here", "there"))
    assert first == second
    assert len(set(first.values())) == 2
    one, two = (source_digests([str(tmp_path / "here" / name)]) for name in "ab")
    assert list(one) == list(two)
    assert one != two
    assert source_digests(["hf:org/name"]) == {"hf:org/name": "by name"}


def test_a_file_called_like_a_numbered_one_keeps_its_own_digest(tmp_path):
    _write(tmp_path, "a/x.txt", "b/x (2).txt", "c/x.txt")
    digests = source_digests([str(tmp_path / name) for name in "abc"])
    assert list(digests) == ["x.txt", "x (2).txt", "x.txt (2)"]


def test_digests_of_many_files_with_one_name_take_time_in_proportion(monkeypatch):
    monkeypatch.setattr("dana.corpus.documents.file_digest", lambda path: path.parent.name)

    def seconds(count):
        paths = [Path(str(number), "x.txt") for number in range(count)]
        monkeypatch.setattr("dana.corpus.documents.expand", lambda source: paths)
        start = time.process_time()
        assert list(source_digests(["."]))[:: count - 1] == ["x.txt", f"x.txt ({count})"]
        return time.process_time() - start

    assert seconds(8000) < 100 * max(0.001, seconds(400)), "20 times as many; squared would be 400"


@pytest.mark.parametrize("name", ["x.jsonl", "x.csv"])
def test_bad_records_are_named_up_to_five_and_counted(tmp_path, name):
    good, bad = ('{"text": "a"}', "{") if name == "x.jsonl" else ("1,a", "2")
    lines = ["" if name == "x.jsonl" else "id,text", good, *[bad] * 7, good]
    (tmp_path / name).write_text("\n".join(lines))
    with pytest.raises(DataError) as error:
        list(read_documents([str(tmp_path / name)], "fail", Tally()))
    message = str(error.value)
    assert [line for line in range(2, 10) if f"{name}:{line}" in message] == [3, 4, 5, 6, 7]
    assert message.count("expected ") == name.count("csv"), "the same is said once"
    assert "; and 2 more; 7 bad records (--on-bad-record skip" in message
    tally = Tally()
    documents = list(read_documents([str(tmp_path / name)], "skip", tally))
    assert (len(documents), tally.rejection_counts) == (1, {"unreadable": 7})


def test_bad_records_of_a_large_source_are_counted_up_to_a_limit(tmp_path, monkeypatch):
    monkeypatch.setattr("dana.corpus.bad_records.MOST_AFTER", 3)
    (tmp_path / "x.jsonl").write_text("{\n" * 2 + '{"text": "a"}\n' + "{\n" * 9)
    with pytest.raises(DataError, match="2 bad records among the first 3 behind it"):
        list(read_documents([str(tmp_path / "x.jsonl")], "fail", Tally()))
