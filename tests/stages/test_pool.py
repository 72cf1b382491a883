"""The pool artifact: every document once, counted by source, the same bytes by any number of processes."""

import gzip
import json
from contextlib import contextmanager
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dana.cli.main import main
from dana.core.errors import ArtifactError, DataError
from dana.core.schemas import DOCUMENTS, Document, iterate_documents, part_files
from dana.corpus import documents as documents_module
from dana.corpus import slices
from dana.corpus.documents import Tally, read_documents
from dana.corpus.inputs import Inputs
from dana.corpus.slices import iterate_slices, parse_sources
from dana.corpus.sources import find_files
from dana.stages import texts as stage
from dana.stages.texts import pool_stage


@pytest.fixture
def sources(tmp_path):
    """Write one plain and one packed file; the second repeats a text of the first."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "ay.txt").write_text("one\nzwölf\n", encoding="utf-8")
    rows = [{"id": "x", "text": "three"}, {"text": "one"}, {"text": " "}]
    (tmp_path / "in" / "bee.jsonl.gz").write_bytes(
        gzip.compress("\n".join(map(json.dumps, rows)).encode())
    )
    return tmp_path / "in"


def test_documents_and_counts_by_hand(sources, tmp_path):
    pool = pool_stage([str(sources)], tmp_path / "out")
    documents = list(iterate_documents(pool.path))
    assert [(d.source, d.text) for d in documents] == [
        ("ay", "one"),
        ("ay", "zwölf"),
        ("bee", "three"),
    ]
    assert documents[2].doc_id == "x"
    by_source = {"ay": {"documents": 2, "characters": 8}, "bee": {"documents": 1, "characters": 5}}
    counts = {
        "in": 5,
        "kept": 3,
        "dropped": {"duplicate": 1, "empty": 1},
        "rejected": {},
        "by_source": by_source,
    }
    assert pool.manifest["counts"] == counts
    assert pq.read_schema(part_files(pool.path)[0]).names == DOCUMENTS.names
    assert pool.manifest["depends_on"]["order"] == ["ay.txt", "bee.jsonl.gz"]
    assert str(tmp_path) not in json.dumps(pool.manifest["depends_on"])


def test_the_same_files_elsewhere_give_the_same_bytes(sources, tmp_path, monkeypatch):
    one = pool_stage([str(sources)], tmp_path / "one")
    folder = sources.rename(tmp_path / "moved")
    two = pool_stage([str(folder / "*")], tmp_path / "two")
    assert one.fingerprint == two.fingerprint
    assert part_files(one.path)[0].read_bytes() == part_files(two.path)[0].read_bytes()
    three = pool_stage(
        [str(one.path)], tmp_path / "three"
    )  # a pool is a source of documents itself
    assert list(iterate_documents(three.path)) == list(iterate_documents(one.path))
    monkeypatch.setattr(stage, "read_documents", None)
    assert pool_stage([str(folder)], tmp_path / "one").manifest == one.manifest, (
        "a rerun reads no document"
    )


def test_another_order_is_another_pool(sources, tmp_path):
    """Which source keeps a text that both have depends on it."""
    files = [str(sources / "bee.jsonl.gz"), str(sources / "ay.txt")]
    pool_stage(files, tmp_path / "out")
    assert [d.source for d in iterate_documents(tmp_path / "out")] == ["bee", "bee", "ay"]
    with pytest.raises(ArtifactError, match="order: "):
        pool_stage(files[::-1], tmp_path / "out")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"text": "a"}\n' * 6 + '{"text": \n', r"chem\.jsonl:7: not JSON: "),
        (
            '{"id": 1, "body": "b"}\n',
            r"chem\.jsonl:1: the field 'text' is missing; available: id, body",
        ),
        ('{"text": " "}\n', r"chem\.jsonl: no document left: 1 records in = 0 kept \+ 1 dropped"),
    ],
)
def test_bad_input_leaves_nothing_behind(tmp_path, content, message):
    (tmp_path / "chem.jsonl").write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=message):
        pool_stage([str(tmp_path / "chem.jsonl")], tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["chem.jsonl"]


def test_bad_records_are_skipped_and_counted_when_asked(tmp_path):
    (tmp_path / "chem.jsonl").write_text('{"text": "a"}\n{\n{"text": 1}\n', encoding="utf-8")
    pool = pool_stage([str(tmp_path / "chem.jsonl")], tmp_path / "out", on_bad_record="skip")
    assert pool.manifest["counts"]["rejected"] == {"unreadable": 1, "no text": 1}
    assert pool.manifest["counts"]["kept"] == 1


@pytest.mark.parametrize("count", [0, 1, 3, 4, 5])
def test_tables_hold_every_document_whatever_their_size(monkeypatch, count):
    monkeypatch.setattr(documents_module, "ROWS_AT_ONCE", 2)
    documents = [Document(str(n), "s", f"text {n}") for n in range(count)]
    rows = [
        row for table in documents_module.document_tables(documents) for row in table.to_pylist()
    ]
    assert [row["text"] for row in rows] == [document.text for document in documents]


def test_real_text_adds_up(dana_data, tmp_path):
    pool = pool_stage([str(dana_data / "general" / "tech_peps.jsonl.gz")], tmp_path / "out")
    documents = list(iterate_documents(pool.path))
    counts = pool.manifest["counts"]
    assert (counts["in"], counts["kept"], len(documents)) == (1134, 1134, 1134)
    assert list(counts["by_source"]) == ["tech_peps"]
    assert counts["by_source"]["tech_peps"]["characters"] == sum(len(d.text) for d in documents)


@pytest.mark.parametrize(
    ("cores", "names", "processes"),
    [
        (8, ["large.jsonl"], 8),
        (64, ["large.jsonl"], 8),  # one process takes what they read
        (2, ["large.jsonl"], 1),
        (8, ["small.jsonl"], 1),
        (8, ["large.jsonl.gz"], 1),
        (8, ["large.jsonl.gz", "small.txt.gz"], 1),
        (8, ["small.txt.gz"] * 3, 8),
    ],
)
def test_several_processes_read_only_where_that_pays(
    tmp_path, monkeypatch, cores, names, processes
):
    monkeypatch.setattr(slices, "cores", lambda: cores)
    monkeypatch.setattr(slices, "PARALLEL_BYTES", 1000)
    monkeypatch.setattr(slices, "PACKED_BYTES", 500)
    for name in names:
        head = b"\x1f\x8b\x08" if name.endswith(".gz") else b"xxx"
        (tmp_path / name).write_bytes(head + b"x" * (2000 if name.startswith("large") else 400))
    assert slices.reading_processes([tmp_path / name for name in names]) == processes


def test_a_bad_record_of_the_task_is_not_advised_to_be_skipped(tmp_path, texts, capsys):
    task = tmp_path / "task.jsonl"
    task.write_text('{"body": "no text here"}\n')
    pool = str(texts / "pool.jsonl")
    flags = [
        "--task",
        str(task),
        "--pool",
        pool,
        "--encoder",
        "hashing",
        "--selector",
        "detector:knn",
    ]
    assert main(["score", *flags, "--on-bad-record", "skip", "--out", str(tmp_path / "run")]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert "task.jsonl:1:" in error
    assert "--on-bad-record" not in error


class _Pool:
    """Know the files of the calls that were handed over and not asked for yet; one is made when it is asked for."""

    def __init__(self):
        self.waiting, self.most = [], 0

    def submit(self, function, part, inputs):
        self.waiting.append(part.path)
        self.most = max(self.most, len(set(self.waiting)))
        return SimpleNamespace(
            result=lambda: self.waiting.remove(part.path) or function(part, inputs)
        )


@pytest.mark.parametrize("source", ["", "*.jsonl", "each"])
def test_small_files_are_read_side_by_side_however_they_are_named(tmp_path, monkeypatch, source):
    pool, folder = _Pool(), tmp_path / "in"
    folder.mkdir()
    for number in range(10):
        (folder / f"{number}.jsonl").write_text(json.dumps({"text": f"text {number}"}))

    @contextmanager
    def workers(count):
        yield pool

    monkeypatch.setattr(slices, "worker_pool", workers)
    monkeypatch.setattr(stage, "reading_processes", lambda files: 3)
    sources = sorted(map(str, folder.iterdir())) if source == "each" else [str(folder / source)]
    corpora = pool_stage(sources, tmp_path / "out")
    assert pool.most == 3 + 2
    assert not pool.waiting
    assert pq.read_table(part_files(corpora.path)[0])["text"].to_pylist() == [
        f"text {number}" for number in range(10)
    ]


@pytest.fixture
def mixed_sources(tmp_path):
    """Write every kind of file, an empty and a damaged one among them; one is listed twice in a row, and once more."""
    folder = tmp_path / "in"
    folder.mkdir()
    rows = [json.dumps({"id": n, "text": f"row {n} {n**9}"}) for n in range(200)]
    (folder / "a.jsonl").write_text("\n".join([*rows[:50], "{broken", *rows[50:]]))
    (folder / "b.jsonl.gz").write_bytes(
        gzip.compress("\n".join([*rows[150:], '{"text": "packed"}']).encode())
    )
    pq.write_table(
        pa.table({"text": [f"step {n}" for n in range(200)]}),
        folder / "c.parquet",
        row_group_size=20,
    )
    (folder / "d.csv").write_text(
        "id,text\n" + "".join(f'{n},"line {n}\nand more"\n' for n in range(30))
    )
    (folder / "e.txt").write_text("one\n\ntwo\n\nrow 7 40353607\n")
    (folder / "f.jsonl").touch()
    (folder / "g.jsonl.gz").write_bytes((folder / "b.jsonl.gz").read_bytes()[:-20])
    twice = str(folder / "a.jsonl")
    return [twice, twice, str(folder), twice]


def test_every_record_and_every_byte_are_those_of_one_process(mixed_sources, tmp_path, monkeypatch):
    monkeypatch.setattr(slices, "iterate_slices", lambda source: iterate_slices(source, 500))
    outcomes = []
    for count in (1, 3):
        monkeypatch.setattr(stage, "reading_processes", lambda files, count=count: count)
        records = list(parse_sources(find_files(mixed_sources, tmp_path), count, Inputs()))
        for one in records:
            one.record.fields.clear()  # they do not come back from another process
        pool = pool_stage(mixed_sources, tmp_path / f"out {count}", "skip")
        content = [path.read_bytes() for path in part_files(pool.path)]
        outcomes.append((records, content, pool.manifest["counts"], pool.fingerprint))
    assert outcomes[0] == outcomes[1]
    records, _, counts, _ = outcomes[0]
    assert [one.record.line for one in records if one.problem.startswith("not JSON")] == [51] * 4
    assert counts["rejected"] == {"unreadable": 4, "damaged file": 2}


def test_what_is_wrong_first_is_said_by_however_many_processes(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "good"}\n{broken')
    sources = [str(tmp_path / "a.jsonl"), str(tmp_path / "missing.jsonl")]
    for count in (1, 2):
        with pytest.raises(DataError, match=r"a\.jsonl:2: not JSON"):
            list(read_documents(sources, "fail", Tally(), count))
        with pytest.raises(DataError, match=r"missing\.jsonl: no such file"):
            list(read_documents(sources, "skip", Tally(), count))


@pytest.mark.parametrize(
    ("name", "make"), [("read_documents", pool_stage), ("plain_texts", stage.target_stage)]
)
def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path, monkeypatch, name, make):
    path, reader = tmp_path / "pool.txt", getattr(stage, name)
    path.write_text("".join(f"Line {n} of the pool.\n" for n in range(40)))
    monkeypatch.setattr(stage, name, lambda *of: (tuple(reader(*of)), path.touch())[0])
    with pytest.raises(DataError, match=r"pool\.txt: changed while it was read; run it again"):
        make([str(path)] if make is pool_stage else str(path), tmp_path / "out")
    assert not (tmp_path / "out").exists()
