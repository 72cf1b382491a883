"""Hostile text in every format, from the file to units and tokens: it passes, or is named with its line and counted."""

import csv
import gzip
import io
import json
from functools import partial
from itertools import pairwise

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from dana.core.errors import DataError
from dana.core.schemas import iterate_documents
from dana.corpus.units import parse_units
from dana.stages.texts import corpus_stage


def _jsonl(texts):
    return "".join(json.dumps({"id": place, "text": text}) + "\n" for place, text in enumerate(texts)).encode()


def _utf8_jsonl(texts):
    lines = (json.dumps({"id": place, "text": text}, ensure_ascii=False) for place, text in enumerate(texts))
    return "".join(line + "\n" for line in lines).encode()


def _csv(delimiter, texts):
    stream = io.StringIO()
    writer = csv.writer(stream, delimiter=delimiter, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerows([("id", "text"), *enumerate(texts)])
    return stream.getvalue().encode()


def _lines(texts):
    return "".join(text + "\n" for text in texts).encode()


def _parquet(texts, **columns):
    stream = io.BytesIO()
    pq.write_table(pa.table({"text": pa.array(texts, pa.string()), **columns}), stream)
    return stream.getvalue()


WRITE = {
    "x.jsonl": _jsonl,
    "x.json": _utf8_jsonl,
    "x.jsonl.gz": lambda texts: gzip.compress(_jsonl(texts)),
    "x.jsonl.zst": lambda texts: zstandard.compress(_utf8_jsonl(texts)),
    "x.csv": partial(_csv, ","),
    "x.tsv": partial(_csv, "\t"),
    "x.csv.gz": lambda texts: gzip.compress(_csv(",", texts)),
    "x.txt": _lines,
    "x.txt.zst": lambda texts: zstandard.compress(_lines(texts)),
    "x.parquet": _parquet,
}
OF_LINES = [name for name in WRITE if ".txt" in name]

# What is written, and the text that a document has of it.
PASSES = {
    "NUL": ("a\x00b and c", "ab and c"),
    "control characters": ("bell\x07 and escape\x1b[0m.", "bell and escape[0m."),
    "right to left": ("שלום עולם. مرحبا بالعالم!", "שלום עולם. مرحبا بالعالم!"),
    "overridden direction": ("abc \u202edef\u202c ghi", "abc \u202edef\u202c ghi"),
    "emoji": ("Fine 👩‍👩‍👧. 🏳️‍🌈 too! 👍🏽", "Fine 👩‍👩‍👧. 🏳️‍🌈 too! 👍🏽"),
    "beyond the basic plane": ("𝔘𝔫𝔦 𠀀𠀁 𓀀.", "𝔘𝔫𝔦 𠀀𠀁 𓀀."),
    "combining marks": ("cafe\u0301 and z" + "\u0301" * 300, "café and ź" + "\u0301" * 299),
    "a byte-order mark": ("\ufeffmark\ufeffed", "marked"),
    "non-characters": ("\ufffehalf\uffff done", "half done"),
    "zero width": ("zero\u200bwidth\u200d and \u00ad soft", "zero\u200bwidth\u200d and \u00ad soft"),
    "no space": ("x" * 5000, "x" * 5000),
    "no stop": ("word " * 2000, ("word " * 2000).strip()),
    "only marks": ("?!?! ... —", "?!?! ... —"),
    "space around": (" \t\u3000here\u2003 ", "here"),
    "quotes": ('"Quoted", he said; \'so\' \\n "', '"Quoted", he said; \'so\' \\n "'),
}
LINE_ENDS = {  # which in a file of lines end the text there
    "line ends of all kinds": ("a\r\nb\rc\u2028d\x0be\x85f", "a\nb\nc\nd\ne\nf"),
    "many blank lines": ("a" + "\r\n" * 50 + "b", "a" + "\n" * 50 + "b"),
}
EMPTY = ["", "   ", "\t", "\x00", "\ufeff", " \x1b\u3000", "\r\n\r\n"]


def _follow(artifact, tokenizer):
    """Every document of the artifact goes into units that hold all of it but white space, and these into tokens."""
    documents = list(iterate_documents(artifact.path))
    for document in documents:
        document.text.encode()  # no lone surrogate is left
        for spec in ("sentence", "window:8"):
            spans = parse_units(spec).splitter(tokenizer)(document.text)
            assert all(before[1] <= after[0] for before, after in pairwise(spans))
            units = [document.text[start:end] for start, end in spans]
            assert all(unit.strip() == unit != "" for unit in units)
            assert "".join("".join(units).split()) == "".join(document.text.split())
            encoded = tokenizer(units, add_special_tokens=False, truncation=True)["input_ids"]
            assert len(encoded) == len(units) >= 1
            assert all(encoded)
    return documents


def _adds_up(artifact):
    counts = artifact.manifest["counts"]
    assert counts["in"] == counts["kept"] + sum(counts["dropped"].values()) + sum(counts["rejected"].values())
    assert counts["kept"] == sum(source["documents"] for source in counts["by_source"].values())
    return counts


def _source(folder, name, content):
    """A folder with the hostile file and a good one after it."""
    folder.mkdir()
    (folder / name).write_bytes(content)
    (folder / "z.txt").write_text("The last.\n", encoding="utf-8")
    return [str(folder)]


@pytest.mark.parametrize("name", WRITE)
def test_hostile_text_passes_cleaned(tmp_path, tiny_tokenizer, name):
    cases = PASSES if name in OF_LINES else {**PASSES, **LINE_ENDS}
    sources = _source(tmp_path / "in", name, WRITE[name]([text for text, _ in cases.values()]))
    made = corpus_stage(sources, tmp_path / "out", "fail")
    texts = [document.text for document in _follow(made, tiny_tokenizer)]
    assert dict(zip([*cases, "end"], texts, strict=True)) == {
        **{case: text for case, (_, text) in cases.items()},
        "end": "The last.",
    }
    assert _adds_up(made)["in"] == len(cases) + 1


@pytest.mark.parametrize("name", [name for name in WRITE if name not in OF_LINES])
def test_texts_of_nothing_are_dropped_and_counted(tmp_path, name):
    sources = _source(tmp_path / "in", name, WRITE[name]([*EMPTY, "Full."]))
    made = corpus_stage(sources, tmp_path / "out", "fail")
    assert [document.text for document in iterate_documents(made.path)] == ["Full.", "The last."]
    counts = _adds_up(made)
    assert (counts["in"], counts["dropped"]) == (len(EMPTY) + 2, {"empty": len(EMPTY)})


@pytest.mark.parametrize("name", OF_LINES)
def test_blank_lines_are_no_records_and_lines_of_control_characters_are_empty(tmp_path, name):
    sources = _source(tmp_path / "in", name, WRITE[name](["", "   ", "\x00", "Full.", "\ufeff\x07"]))
    counts = _adds_up(corpus_stage(sources, tmp_path / "out", "fail"))
    assert (counts["in"], counts["kept"], counts["dropped"]) == (4, 2, {"empty": 2})


@pytest.mark.parametrize("name", [name for name in WRITE if name.endswith((".jsonl", ".json", ".csv", ".tsv", ".txt"))])
def test_files_of_another_system_give_the_same_documents(tmp_path, name):
    plain = WRITE[name](["Zwölf Boxkämpfer.", "Noch einer."])
    for kind, content in (
        ("carriage returns", plain.replace(b"\n", b"\r\n")),
        ("byte-order mark", b"\xef\xbb\xbf" + plain),
        ("no end of line", plain.rstrip(b"\n")),
    ):
        made = corpus_stage(_source(tmp_path / kind, name, content), tmp_path / f"{kind} out", "fail")
        texts = [document.text for document in iterate_documents(made.path)]
        assert texts == ["Zwölf Boxkämpfer.", "Noch einer.", "The last."], kind
        assert _adds_up(made)["in"] == 3


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("x.json", _utf8_jsonl(["Before.", "Zwölf."]).replace("ö".encode(), b"\xf6")),
        ("x.jsonl.gz", gzip.compress(_utf8_jsonl(["Before.", "Zwölf."]).replace("ö".encode(), b"\xf6"))),
        ("x.csv", _csv(",", ["Before.", "Zwölf."]).replace("ö".encode(), b"\xf6")),
        ("x.tsv", _csv("\t", ["Before.", "Zwölf."]).replace("ö".encode(), b"\xf6")),
        ("x.txt", "Before.\nZwölf.\n".encode("latin-1")),
        ("x.txt.zst", zstandard.compress("Before.\nZwölf.\n".encode("latin-1"))),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_bytes_that_are_not_utf8_become_replacement_characters(tmp_path, tiny_tokenizer, name, content):
    made = corpus_stage(_source(tmp_path / "in", name, content), tmp_path / "out", "fail")
    assert [document.text for document in _follow(made, tiny_tokenizer)] == ["Before.", "Zw\ufffdlf.", "The last."]


@pytest.mark.parametrize(
    ("escaped", "expected"),
    [
        (r"half \ud800 a pair", "half  a pair"),
        (r"the other \udc00", "the other"),
        (r"a whole one \ud83d\ude00", "a whole one 😀"),
        (r"the wrong way \ude00\ud83d round", "the wrong way  round"),
    ],
)
@pytest.mark.parametrize("field", ["text", "id", "source"])
def test_lone_surrogates_are_taken_out_wherever_they_are(tmp_path, tiny_tokenizer, escaped, expected, field):
    record = {"text": '"Some text."', "id": '"name"', "source": '"mine"', field: f'"{escaped}"'}
    line = "{" + ", ".join(f'"{key}": {value}' for key, value in record.items()) + "}\n"
    made = corpus_stage(_source(tmp_path / "in", "x.jsonl", line.encode()), tmp_path / "out", "fail")
    document = _follow(made, tiny_tokenizer)[0]
    assert {"text": document.text, "id": document.doc_id, "source": document.source}[field] == expected


@pytest.mark.parametrize("name", ["x.jsonl", "x.csv", "x.txt.zst", "x.parquet"])
def test_a_line_of_ten_megabytes_is_one_document(tmp_path, name):
    long = "0123456789 " * 909_091
    made = corpus_stage(_source(tmp_path / "in", name, WRITE[name]([long])), tmp_path / "out", "fail")
    counts = _adds_up(made)
    assert counts["by_source"]["x"] == {"documents": 1, "characters": 10_000_000}


@pytest.mark.parametrize(
    "text", ["x" * 10_000_000, "word " * 2_000_000, "日本語です。" * 100_000], ids=["one word", "words", "sentences"]
)
def test_megabytes_go_into_units_of_bounded_length_and_tokens(tmp_path, tiny_tokenizer, text):
    made = corpus_stage(_source(tmp_path / "in", "x.txt", text.encode()), tmp_path / "out", "fail")
    document = next(iterate_documents(made.path))
    spans = parse_units("sentence").splitter()(document.text)
    assert max(end - start for start, end in spans) <= 2000
    held = sum(len("".join(document.text[start:end].split())) for start, end in spans)
    assert held == len(text) - text.count(" ")
    ends = [document.text[slice(*span)] for span in (*spans[:3], *spans[-3:])]
    assert all(tiny_tokenizer(ends, truncation=True)["input_ids"])


def _second(line):
    """Three lines, of which the second is bad."""
    return b'{"text": "Good."}\n' + line + b'\n{"text": "After."}\n'


REPEATED = b'{"id": 1, "text": "Good."}\n{"id": 1, "text": "Other."}\n{"text": "After."}\n'
BROKEN = _second(b'{"text": "brok')
MANY = _jsonl(f"Document {n} {n**7}." for n in range(20_000))
WITH_NULL = _parquet(["Good.", None, "After."])
_BYTES = pa.array([b"Good.", "Zwölf.".encode("latin-1"), b"After."], pa.binary())
LATIN = _parquet(pa.StringArray.from_buffers(3, *_BYTES.buffers()[1:]))
WITH_DATE = _parquet(["Good.", "Bad date.", "After."], when=pa.array([0, 1 << 62, 0], pa.timestamp("us")))

# File, content, line, what the error says of it, the reason it is counted under, what is kept (None: as much as
# the decompressor gave).
BOTH = ["Good.", "After."]
REJECTED = [
    ("x.jsonl", BROKEN, 2, "not JSON: ", "unreadable", BOTH),
    ("x.jsonl.gz", gzip.compress(BROKEN), 2, "not JSON: ", "unreadable", BOTH),
    ("x.jsonl.zst", zstandard.compress(BROKEN), 2, "not JSON: ", "unreadable", BOTH),
    ("x.jsonl", _second(b'"text"'), 2, "expected a JSON object, got str", "unreadable", BOTH),
    ("x.jsonl", _second(b"[" * 100_000), 2, "not JSON: ", "unreadable", BOTH),
    ("x.jsonl", _second(b'{"id": ' + b"1" * 5000 + b"}"), 2, "not JSON: ", "unreadable", BOTH),
    ("x.jsonl", REPEATED, 2, "id '1' is repeated", "repeated id", BOTH),
    ("x.jsonl", _second(b'{"text": null}'), 2, "the field 'text' must be text, got NoneType", "no text", BOTH),
    ("x.jsonl", _second(b'{"\\ud800": 1}'), 2, "the field 'text' is missing", "no text", BOTH),
    ("x.csv", b'id,text\n1,"Good.\n"\n2\n3,After.\n', 4, "expected 2 columns", "unreadable", BOTH),
    ("x.tsv", b"id\ttext\n1\tGood.\n2\ta\tb\n3\tAfter.\n", 3, "expected 2 columns", "unreadable", BOTH),
    ("x.csv", b'text\nGood.\nAfter.\n"open\nand so on\n', 4, "not CSV: ", "damaged file", BOTH),
    ("x.parquet", WITH_NULL, 2, "the field 'text' must be text, got NoneType", "no text", BOTH),
    ("x.parquet", LATIN, 2, "a value cannot be read: 'utf-8' codec can't decode", "unreadable", BOTH),
    ("x.parquet", WITH_DATE, 2, "a value cannot be read: ", "unreadable", BOTH),
    ("x.parquet", b"PAR1 and no more", 1, "not a Parquet file, or damaged: ", "damaged file", []),
    ("x.parquet", WITH_NULL[:-20], 1, "not a Parquet file, or damaged: ", "damaged file", []),
    ("x.jsonl", b"", 1, "the file is empty", "damaged file", []),
    ("x.jsonl.gz", gzip.compress(MANY)[:-1000], None, "the compressed file is damaged", "damaged file", None),
    ("x.jsonl.zst", zstandard.compress(MANY)[:-1000], None, "the compressed file is damaged", "damaged file", None),
    ("x.txt.gz", gzip.compress(MANY)[:-1000], None, "the compressed file is damaged", "damaged file", None),
    ("x.txt.zst", b"no such frame", 1, "the compressed file is damaged", "damaged file", []),
]


@pytest.mark.parametrize(
    ("name", "content", "line", "problem", "reason", "kept"), REJECTED, ids=[f"{row[0]}: {row[3]}" for row in REJECTED]
)
def test_what_cannot_be_read_is_named_with_its_line_or_counted(
    tmp_path, tiny_tokenizer, name, content, line, problem, reason, kept
):
    sources = _source(tmp_path / "in", name, content)
    place = rf"/{name}:{line or '[0-9]+'}: {problem}"
    with pytest.raises(DataError, match=rf"(?s){place}.*--on-bad-record skip"):
        corpus_stage(sources, tmp_path / "out", "fail")
    assert not (tmp_path / "out").exists()
    made = corpus_stage(sources, tmp_path / "out", "skip")
    assert _adds_up(made)["rejected"] == {reason: 1}
    texts = [document.text for document in iterate_documents(made.path)]
    assert texts[-1] == "The last."
    if kept is not None:
        assert texts[:-1] == kept
        _follow(made, tiny_tokenizer)
