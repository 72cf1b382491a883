"""Hostile text in every format, from the file to units and tokens: it passes, or is named with its line and counted."""

import csv
import io
import json
from functools import partial
from itertools import pairwise

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dana.core import lines
from dana.core.errors import DataError
from dana.core.schemas import iterate_documents
from dana.corpus import slices
from dana.corpus.units import LONGEST_SENTENCE, parse_units
from dana.stages.texts import pool_stage
from tests.corpus.files import PACK, json_lines, parquet


def _jsonl(texts):
    return json_lines({"text": text} for text in texts)


def _utf8_jsonl(texts):
    return "".join(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in texts).encode()


def _csv(delimiter, texts):
    stream = io.StringIO()
    writer = csv.writer(stream, delimiter=delimiter, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerows([("text", "id"), *((text, number) for number, text in enumerate(texts))])
    return stream.getvalue().encode()


def _lines(texts):
    return "".join(text + "\n" for text in texts).encode()


def _parquet(texts, **columns):
    return parquet({"text": pa.array(texts, pa.string()), **columns})


WRITE = {
    "x.jsonl": _jsonl,
    "x.json": _utf8_jsonl,
    "x.jsonl.gz": _utf8_jsonl,
    "x.jsonl.zst": _utf8_jsonl,
}
WRITE |= {
    "x.csv": partial(_csv, ","),
    "x.tsv": partial(_csv, "\t"),
    "x.csv.gz": partial(_csv, ","),
    "x.txt": _lines,
}
WRITE |= {"x.txt.zst": _lines, "x.parquet": _parquet}
OF_LINES = [name for name in WRITE if ".txt" in name]

# What is written, and the text that a document has of it.
PASSES = {
    "NUL": ("a\x00b and c", "ab and c"),
    "control characters": ("bell\x07 and escape\x1b[0m.", "bell and escape[0m."),
    "right to left": ("שלום עולם. مرحبا بالعالم!", "שלום עולם. مرحبا بالعالم!"),
    "overridden direction": ("abc \u202edef\u202c ghi", "abc def ghi"),
    "emoji": ("Fine 👩‍👩‍👧. 🏳️‍🌈 too! 👍🏽", "Fine 👩‍👩‍👧. 🏳️‍🌈 too! 👍🏽"),
    "beyond the basic plane": ("𝔘𝔫𝔦 𠀀𠀁 𓀀.", "𝔘𝔫𝔦 𠀀𠀁 𓀀."),
    "combining marks": ("cafe\u0301 and z" + "\u0301" * 300, "café and ź" + "\u0301" * 299),
    "a byte-order mark": ("\ufeffmark\ufeffed", "marked"),
    "non-characters": ("\ufffehalf\uffff done", "half done"),
    "zero width": (
        "zero\u200bwidth\u200d and \u00ad soft",
        "zerowidth\u200d and  soft",
    ),
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
            tokens = tokenizer(units, add_special_tokens=False, truncation=True)["input_ids"]
            assert len(tokens) == len(units) >= 1
            assert all(tokens)
    return documents


def _counts(artifact):
    """The counts of a pool, which add up."""
    counts = artifact.manifest["counts"]
    assert counts["in"] == counts["kept"] + sum(counts["dropped"].values()) + sum(
        counts["rejected"].values()
    )
    assert counts["kept"] == sum(source["documents"] for source in counts["by_source"].values())
    return counts


def _source(folder, name, content):
    """A folder with the hostile file, packed as its name says, and a good one after it."""
    folder.mkdir()
    (folder / name).write_bytes(PACK.get((folder / name).suffix, bytes)(content))
    (folder / "z.txt").write_text("The last.\n", encoding="utf-8")
    return [str(folder)]


@pytest.mark.parametrize("name", WRITE)
def test_hostile_text_passes_cleaned(tmp_path, tiny_tokenizer, name):
    cases = PASSES if name in OF_LINES else {**PASSES, **LINE_ENDS}
    sources = _source(tmp_path / "in", name, WRITE[name]([text for text, _ in cases.values()]))
    pool = pool_stage(sources, tmp_path / "out", "fail")
    texts = [document.text for document in _follow(pool, tiny_tokenizer)]
    clean = {case: text for case, (_, text) in cases.items()}
    assert dict(zip([*cases, "end"], texts, strict=True)) == {**clean, "end": "The last."}
    assert _counts(pool)["in"] == len(cases) + 1


@pytest.mark.parametrize("name", WRITE)
def test_texts_of_nothing_are_dropped_and_counted(tmp_path, name):
    """In files of lines blank ones are no records."""
    texts, empty = (
        (["", "   ", "\x00", "\ufeff\x07"], 2) if name in OF_LINES else (EMPTY, len(EMPTY))
    )
    sources = _source(tmp_path / "in", name, WRITE[name]([*texts, "Full."]))
    pool = pool_stage(sources, tmp_path / "out", "fail")
    assert [document.text for document in iterate_documents(pool.path)] == ["Full.", "The last."]
    counts = _counts(pool)
    assert (counts["in"], counts["dropped"]) == (empty + 2, {"empty": empty})


@pytest.mark.parametrize("name", ["x.jsonl", "x.json", "x.csv", "x.tsv", "x.txt"])
def test_files_of_another_system_give_the_same_documents(tmp_path, name):
    plain = WRITE[name](["Zwölf Boxkämpfer.", "Noch einer."])
    for kind, content in (
        ("carriage returns", plain.replace(b"\n", b"\r\n")),
        ("byte-order mark", b"\xef\xbb\xbf" + plain),
        ("no end of line", plain.rstrip(b"\n")),
    ):
        pool = pool_stage(_source(tmp_path / kind, name, content), tmp_path / f"{kind} out", "fail")
        texts = [document.text for document in iterate_documents(pool.path)]
        assert texts == ["Zwölf Boxkämpfer.", "Noch einer.", "The last."], kind
        assert _counts(pool)["in"] == 3


@pytest.mark.parametrize("name", ["x.json", "x.jsonl.gz", "x.csv", "x.tsv", "x.txt", "x.txt.zst"])
def test_a_line_that_is_no_utf8_is_latin_and_one_with_broken_bytes_has_marks(
    tmp_path, tiny_tokenizer, name
):
    """The second line has letters in UTF-8 besides the byte that is none."""
    content = WRITE[name](["Before.", "Zwölf.", "Fünf ½ ß."])
    content = content.replace("ö".encode(), b"\xf6").replace("½".encode(), b"\xbd")
    pool = pool_stage(_source(tmp_path / "in", name, content), tmp_path / "out", "fail")
    texts = [document.text for document in _follow(pool, tiny_tokenizer)]
    assert texts == ["Before.", "Zwölf.", "Fünf \ufffd ß.", "The last."]


def test_lone_surrogates_are_taken_out_wherever_they_are(tmp_path, tiny_tokenizer):
    clean_by_escape = {r"half \ud800 a pair": "half  a pair", r"the other \udc00": "the other"}
    clean_by_escape |= {r"a whole one \ud83d\ude00": "a whole one 😀"}
    clean_by_escape |= {r"the wrong way \ude00\ud83d round": "the wrong way  round"}
    lines = [
        f'{{"id": "{text}", "source": "{text}", "text": "{text}"}}' for text in clean_by_escape
    ]
    sources = _source(tmp_path / "in", "x.jsonl", json_lines(lines))
    documents = _follow(pool_stage(sources, tmp_path / "out", "fail"), tiny_tokenizer)[:-1]
    for field in ("doc_id", "source", "text"):
        assert [getattr(document, field) for document in documents] == list(
            clean_by_escape.values()
        )


@pytest.mark.parametrize("name", ["x.jsonl", "x.csv", "x.txt.zst", "x.parquet"])
def test_megabytes_are_one_document_of_units_of_bounded_length_and_tokens(
    tmp_path, tiny_tokenizer, name
):
    texts = ["x" * 1_000_000, "word " * 200_000, "日本語です。" * 20_000]
    pool = pool_stage(_source(tmp_path / "in", name, WRITE[name](texts)), tmp_path / "out", "fail")
    characters = sum(len(text.strip()) for text in texts)
    assert _counts(pool)["by_source"]["x"] == {"documents": 3, "characters": characters}
    for text, document in zip(texts, iterate_documents(pool.path), strict=False):
        spans = parse_units("sentence").splitter()(document.text)
        assert max(end - start for start, end in spans) <= LONGEST_SENTENCE
        units = [document.text[start:end] for start, end in spans]
        assert sum(len("".join(unit.split())) for unit in units) == len(text) - text.count(" ")
        assert all(tiny_tokenizer(units[:3] + units[-3:], truncation=True)["input_ids"])


def _second(line):
    """Three lines, of which the second is bad."""
    return b'{"text": "Good."}\n' + line + b'\n{"text": "After."}\n'


REPEATED = b'{"id": 1, "text": "Good."}\n{"id": 1, "text": "Other."}\n{"text": "After."}\n'
BROKEN = _second(b'{"text": "brok')
WITH_NULL = _parquet(["Good.", None, "After."])
_BYTES = pa.array([b"Good.", "Zwölf.".encode("latin-1"), b"After."], pa.binary())
LATIN = _parquet(pa.StringArray.from_buffers(3, *_BYTES.buffers()[1:]))
WITH_DATE = _parquet(
    ["Good.", "Bad date.", "After."], when=pa.array([0, 1 << 62, 0], pa.timestamp("us"))
)

TWICE = io.BytesIO()
pq.write_table(pa.table([pa.array(["a"]), pa.array(["b"])], names=["text", "text"]), TWICE)
TWICE = TWICE.getvalue()

# File, content, line, what the error says of it, the reason it is counted under, the texts before
# (None: as many as the decompressor gave) and after it.
BOTH = ["Good.", "After."]
REJECTED = [
    ("x.jsonl", BROKEN, 2, "not JSON: ", "unreadable", BOTH),
    ("x.jsonl.gz", BROKEN, 2, "not JSON: ", "unreadable", BOTH),
    ("x.jsonl.zst", BROKEN, 2, "not JSON: ", "unreadable", BOTH),
    ("x.jsonl", _second(b'"text"'), 2, "expected a JSON object, got str", "unreadable", BOTH),
    ("x.jsonl", _second(b"[" * 100_000), 2, "not JSON: ", "unreadable", BOTH),
    ("x.jsonl", _second(b'{"id": ' + b"1" * 5000 + b"}"), 2, "not JSON: ", "unreadable", BOTH),
    ("x.jsonl", REPEATED, 2, "id '1' is repeated", "repeated id", BOTH),
    *(
        (
            "x.jsonl",
            _second(b'{"id": %s, "text": "a"}' % value),
            2,
            "the id must be text or a number",
            "no id",
            BOTH,
        )
        for value in (b"NaN", b"-Infinity", b'{"a": 1}', b"[1]")
    ),
    (
        "x.jsonl",
        _second(b'{"text": null}'),
        2,
        "the field 'text' must be text, got NoneType",
        "no text",
        BOTH,
    ),
    ("x.jsonl", _second(b'{"\\ud800": 1}'), 2, "the field 'text' is missing", "no text", BOTH),
    ("x.csv", b'id,text\n1,"Good.\n"\n2\n3,After.\n', 4, "expected 2 columns", "unreadable", BOTH),
    (
        "x.tsv",
        b"id\ttext\n1\tGood.\n2\ta\tb\n3\tAfter.\n",
        3,
        "expected 2 columns",
        "unreadable",
        BOTH,
    ),
    (
        "x.csv",
        b'id,text\n1,"Good.\n"\n2,"open\n3,After.\n',
        4,
        "not CSV: .* in line 5, inside",
        "unreadable",
        BOTH,
    ),
    (
        "x.csv",
        b"A title\n\ntext,text\na,b\nc,d\n",
        3,
        "the header names the column 'text' twice",
        "damaged file",
        [],
    ),
    ("x.parquet", WITH_NULL, 2, "the field 'text' must be text, got NoneType", "no text", BOTH),
    (
        "x.parquet",
        LATIN,
        2,
        "a value cannot be read: 'utf-8' codec can't decode",
        "unreadable",
        BOTH,
    ),
    ("x.parquet", WITH_DATE, 2, "a value cannot be read: ", "unreadable", BOTH),
    ("x.parquet", TWICE, 1, "two columns are named 'text'", "damaged file", []),
    ("x.parquet", b"PAR1 and no more", 1, "not a Parquet file, or damaged: ", "damaged file", []),
    ("x.parquet", WITH_NULL[:-20], 1, "not a Parquet file, or damaged: ", "damaged file", []),
    ("x.jsonl", b"", 1, "the file is empty", "damaged file", []),
]


@pytest.mark.parametrize(
    ("name", "content", "line", "problem", "reason", "good"),
    REJECTED,
    ids=[f"{row[0]}: {row[3]}" for row in REJECTED],
)
def test_what_cannot_be_read_is_named_with_its_line_or_counted(
    tmp_path, name, content, line, problem, reason, good
):
    sources = _source(tmp_path / "in", name, content)
    with pytest.raises(DataError, match=rf"(?s)/{name}:{line}: {problem}.*--on-bad-record skip"):
        pool_stage(sources, tmp_path / "out", "fail")
    assert not (tmp_path / "out").exists()
    pool = pool_stage(sources, tmp_path / "out", "skip")
    assert _counts(pool)["rejected"] == {reason: 1}
    assert [document.text for document in iterate_documents(pool.path)] == [*good, "The last."]


@pytest.mark.parametrize("name", ["x.jsonl.gz", "x.jsonl.zst", "x.txt.gz"])
def test_of_a_packed_file_that_ends_early_all_that_was_unpacked_is_read(tmp_path, name):
    texts = [f"Document {number} {number**7}." for number in range(20_000)]
    sources = _source(tmp_path / "in", name, (_lines if ".txt" in name else _jsonl)(texts))
    path = tmp_path / "in" / name
    path.write_bytes(path.read_bytes()[:-1000])
    pool = pool_stage(sources, tmp_path / "out", "skip")
    assert _counts(pool)["rejected"] == {"damaged file": 1}
    *good, last = [document.text for document in iterate_documents(pool.path)]
    assert last == "The last."
    assert good == texts[: len(good)]
    assert len(good) > 10_000
    (path.parent / "z.txt").unlink()
    with pytest.raises(
        DataError, match=rf"{name}:{len(good) + 1}: the compressed file is damaged or ends early"
    ):
        pool_stage(sources, tmp_path / "again", "fail")


@pytest.mark.parametrize("name", ["x.txt.gz", "x.jsonl.gz", "x.txt", "x.jsonl"])
def test_a_line_that_would_fill_the_memory_is_refused_with_its_number(tmp_path, name, monkeypatch):
    monkeypatch.setattr(lines, "MAX_LINE", 1 << 20)
    monkeypatch.setattr(slices, "MAX_LINE", 1 << 20)
    content = (_lines if ".txt" in name else _jsonl)(["short", "x" * (1 << 20), "after"])
    sources = _source(tmp_path / "in", name, content)
    for on_bad_record in ("fail", "skip") if ".gz" not in name else ("fail",):
        with pytest.raises(DataError, match=rf"{name}:2: a line longer than 1 MB"):
            pool_stage(sources, tmp_path / on_bad_record, on_bad_record)
    if ".gz" in name:
        assert _counts(pool_stage(sources, tmp_path / "out", "skip"))["rejected"] == {
            "damaged file": 1
        }
