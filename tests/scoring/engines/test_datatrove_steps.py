"""Steps of a datatrove pipeline: scores as of dana score, documents kept by them, and what is amiss told first."""

import io
import json
import shutil
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.dirfs import DirFileSystem

import dana
from dana.core import schemas
from dana.core.artifacts import read_json
from dana.core.errors import ArtifactError, ConfigError, DataError
from dana.core.rng import document_key
from dana.core.schemas import iterate_documents, read_table
from dana.scoring.engines.parts import as_folder, join_scores, target_part
from dana.scoring.saved_selector import LEARNED, SavedSelector, load_selector
from tests.scoring.on_disk import contents, flip

pytest.importorskip(
    "datatrove", reason="datatrove is not installed: pip install 'dana-lm[datatrove]'"
)

from datatrove.data import Document
from datatrove.pipeline.writers import JsonlWriter

import dana.scoring.engines.datatrove as engine
from dana.scoring.engines.datatrove import (
    DanaFilter,
    DanaScore,
    as_document,
    document_cut,
    document_weights,
)


def documents_of(records):
    return [
        Document(text=record["text"], id=record["id"], metadata={"source": record["source"]})
        for record in records
    ]


def ids(documents):
    return [document.id for document in documents]


def score(run, records, folder=None, rank=0, tasks=1):
    return list(DanaScore(run, folder).run(iter(documents_of(records)), rank, tasks))


def manifest_of(folder):
    return read_json(folder / "__dana__" / "manifest.json")


@pytest.fixture(scope="module")
def two_tasks(run, records, tmp_path_factory):
    """Parts of two tasks; tests copy them."""
    folder = tmp_path_factory.mktemp("parts")
    for rank in range(2):
        score(run, records[rank::2], folder, rank, 2)
    return folder


@pytest.fixture
def parts(two_tasks, tmp_path):
    return shutil.copytree(two_tasks, tmp_path / "parts")


@pytest.fixture
def join_fails(run, tmp_path):
    def check(match, folder, error=ArtifactError, run=run):
        with pytest.raises(error, match=match):
            join_scores(folder, run, tmp_path / "joined")
        assert not (tmp_path / "joined" / "scores").exists()

    return check


def test_one_task_joined_is_the_run_byte_for_byte(run, records, tmp_path):
    parts, run_of_parts = tmp_path / "parts", tmp_path / "joined"
    documents, by_document = (
        score(run, records, parts),
        read_table(run / "scores").to_pandas().groupby("doc_id"),
    )
    assert [document.text for document in documents] == [record["text"] for record in records]
    for document in documents:
        scores = by_document.get_group(document.id)["score"].tolist()
        assert document.metadata["dana_units"] == len(scores)
        assert document.metadata["dana_score"] == sum(scores) / len(scores)
    scores = join_scores(parts, run, run_of_parts)
    for part in ("scores/part-00000.parquet", "scores/__dana__/held_out_target.parquet"):
        assert (run_of_parts / part).read_bytes() == (run / part).read_bytes()
    before = manifest_of(run / "scores")
    for name in ("mean", "std", "seeds", "counts"):
        assert scores.manifest[name] == before[name]
    assert read_table(run_of_parts / "pool").equals(read_table(run / "pool"))
    assert manifest_of(run_of_parts / "pool")["counts"]["by_source"]["court"]["documents"]
    assert dana.weigh(run_of_parts, beta=0.2).equals(dana.weigh(run, beta=0.2))
    assert join_scores(parts, run, run_of_parts).fingerprint == scores.fingerprint


def test_parts_of_the_best_alone_make_a_run_of_them(run, records, tmp_path):
    scored = score(run, records)
    cut = sorted(document.metadata["dana_score"] for document in scored)[len(scored) // 4]
    best = {document.id for document in scored if document.metadata["dana_score"] < cut}
    parts = tmp_path / "parts"
    for rank in range(2):
        step = DanaScore(run, parts, below=cut)
        documents = documents_of(records[rank::2])
        assert ids(step.run(iter(documents), rank, 2)) == ids(documents)
    scores = join_scores(parts, run, tmp_path / "joined")
    pool = manifest_of(tmp_path / "joined" / "pool")["counts"]
    assert {row["doc_id"] for row in read_table(tmp_path / "joined" / "pool").to_pylist()} == best
    assert (pool["in"], pool["kept"]) == (len(records), len(best))
    assert pool["dropped"] == {"foreign": len(records) - len(best)}
    rows = read_table(tmp_path / "joined" / "scores").to_pylist()
    of_run = read_table(run / "scores").to_pylist()
    wanted = [row for row in of_run if row["doc_id"] in best]
    assert sorted(map(str, rows)) == sorted(map(str, wanted))
    # Held-out task text is compared with the whole pool, not with the best of it.
    assert scores.manifest["auroc"] == manifest_of(run / "scores")["auroc"]
    assert dana.weigh(tmp_path / "joined", beta=1.0)["weight"].min() > 0


def test_parts_of_two_thresholds_do_not_go_together(run, records, tmp_path, join_fails):
    for rank, below in enumerate((None, 0.0)):
        step = DanaScore(run, tmp_path / "parts", below=below)
        list(step.run(iter(documents_of(records[rank::2])), rank, 2))
    join_fails(r"00001.json: expected below None, got 0.0", tmp_path / "parts")
    with pytest.raises(ConfigError, match="below='low'"):
        DanaScore(run, below="low")


def test_tasks_have_the_shards_that_dana_score_cuts_their_parts_into(run, records, tmp_path):
    parts, run_of_parts, half = tmp_path / "parts", tmp_path / "joined", len(records) // 2
    for rank, of_target in enumerate((records[:half], [], records[half:])):
        score(run, of_target, parts, rank, 3)
    join_scores(parts, run, run_of_parts)
    names = [part.name for part in sorted((run_of_parts / "pool").glob("part*"))]
    assert names == [f"part-{rank:05d}.parquet" for rank in range(3)]
    selector, documents = load_selector(run), list(iterate_documents(run_of_parts / "pool"))
    assert [document.doc_id for document in documents] == [record["id"] for record in records]
    tables = pa.concat_tables(
        [*selector.tables(documents[:half]), *selector.tables(documents[half:])]
    )
    assert read_table(run_of_parts / "scores").combine_chunks().equals(tables.combine_chunks())


def test_blank_text_has_no_score_and_takes_no_place_in_a_shard(run, records, tmp_path, monkeypatch):
    monkeypatch.setattr(engine, "DOCUMENTS_PER_SHARD", 4)
    shards, tables = [], SavedSelector.tables

    def record_shard(selector, documents):
        shards.append([document.doc_id for document in documents])
        return tables(selector, documents)

    monkeypatch.setattr(SavedSelector, "tables", record_shard)
    six = documents_of(records[:6])
    blank = [Document(text=" \n\x00", id=f"blank-{number}") for number in range(2)]
    six[0].metadata |= {"dana_score": "of another selector"}
    stream, step = [six[0], blank[0], *six[1:], blank[1]], DanaScore(run, tmp_path / "parts")
    assert ids(step.run(iter(stream))) == ids(stream)
    assert isinstance(six[0].metadata["dana_score"], float)
    assert (step.stats["scored_before"].total, step.stats["total"].total) == (1, 6)
    assert shards == [ids(six[:4]), ids(six[4:])]
    assert [document.metadata for document in blank] == [{"dana_score": None, "dana_units": 0}] * 2
    join_scores(tmp_path / "parts", run, tmp_path / "joined")
    counts = manifest_of(tmp_path / "joined" / "pool")["counts"]
    assert (counts["in"], counts["kept"], counts["dropped"]) == (8, 6, {"empty": 2})


def test_a_selector_that_is_missing_or_damaged_ends_before_any_document(run, tmp_path):
    def unread():
        raise AssertionError("a document was read")
        yield

    shutil.copytree(run / "scores" / LEARNED, tmp_path / "selector")
    tensors = next((tmp_path / "selector").rglob("*.safetensors"))
    tensors.write_bytes(tensors.read_bytes()[:-1])
    for step, message in (
        (DanaScore(tmp_path / "none", tmp_path / "out"), "no saved selector here"),
        (DanaScore(tmp_path / "selector", tmp_path / "out"), tensors.name),
        (DanaFilter(weights=tmp_path), "no table"),
    ):
        with pytest.raises(ArtifactError, match=message):
            list(step.run(unread()))
    assert not contents(tmp_path / "out")


def test_what_a_stopped_task_leaves_is_no_part_and_the_next_attempt_removes_it(
    run, records, tmp_path, monkeypatch, join_fails
):
    monkeypatch.setattr(engine, "DOCUMENTS_PER_SHARD", 4)
    parts = tmp_path / "parts"
    attempt = DanaScore(run, parts).run(iter(documents_of(records)))
    next(attempt)
    assert len(contents(parts)) == 2
    assert all("/.part-00000.parquet." in name for name in contents(parts))
    attempt.close()
    assert not contents(parts)
    for name in (
        "scores/.part-00000.parquet.killed",
        "scores/.part-00001.parquet.alive",
        "tasks/.00000.json.killed",
    ):
        (parts / name).write_bytes(b"half")
    join_fails("no scored parts here", parts)
    score(run, records, parts)
    before = contents(parts)
    names = {
        "pool/part-00000.parquet",
        "scores/.part-00001.parquet.alive",
        "scores/part-00000.parquet",
    }
    assert before.keys() == names | {"tasks/00000.json"}
    score(run, records, parts)
    assert contents(parts) == before


def test_two_writers_of_one_task_leave_a_whole_part_or_an_error(run, records, tmp_path):
    """Slurm may start a task again whose first process still runs."""
    documents = list(iterate_documents(run / "pool"))
    first = target_part(as_folder(tmp_path), 0, 1, "x")
    writer = first.__enter__()
    for table in load_selector(run).tables(documents):
        writer.add(documents, table)
    score(run, records, tmp_path)
    with pytest.raises(FileNotFoundError):
        first.__exit__(None, None, None)
    assert join_scores(tmp_path, run, tmp_path / "joined").manifest["counts"]["units"]


def test_documents_are_kept_below_a_score(run, records, tmp_path):
    documents = [*score(run, records), *DanaScore(run).run(iter([Document(text=" ", id="blank")]))]
    bound = sorted(document.metadata["dana_score"] for document in documents[:-1])[30]
    step = DanaFilter(below=bound, exclusion_writer=JsonlWriter(str(tmp_path), compression=None))
    below = list(step.run(iter(documents)))
    assert len(below) == 30
    assert all(document.metadata["dana_score"] < bound for document in below)
    rest = [json.loads(line) for line in (tmp_path / "00000.jsonl").read_text().splitlines()]
    assert len(rest) == len(records) + 1 - 30
    assert {line["metadata"]["filter_reason"] for line in rest} == {"foreign", "blank"}
    assert step.stats["dropped_blank"].total == 1


def test_units_with_hardly_a_word_are_those_of_dana_score(texts, records, tmp_path):
    junk = [
        {"id": "junk", "source": "junk", "text": "* * *\n\n12\n\n-----"},
        *({**row, "text": f"7\n\n{row['text']}\n\n…"} for row in records[:30]),
        *records[30:],
    ]
    pool = tmp_path / "pool.jsonl"
    pool.write_text("\n".join(map(json.dumps, junk)), encoding="utf-8")
    run = tmp_path / "run"
    table = dana.score(
        str(texts / "cells.txt"),
        str(pool),
        out=run,
        selector="detector",
        detector="knn",
        encoder="hashing:dims=64,words=1",
    )
    assert table.short.sum() == 63
    documents = score(run, junk, tmp_path / "parts")
    join_scores(tmp_path / "parts", run, tmp_path / "joined")
    part = "scores/part-00000.parquet"
    assert (tmp_path / "joined" / part).read_bytes() == (run / part).read_bytes()
    before = manifest_of(run / "scores")
    after = manifest_of(tmp_path / "joined" / "scores")
    for name in ("mean", "std", "counts", "auroc"):
        assert after[name] == before[name]
    means = table[~table.short].groupby("doc_id").score.mean()
    assert documents[0].metadata["dana_score"] is None, "nothing else in it"
    for document in documents[1:]:
        assert document.metadata["dana_score"] == pytest.approx(means[document.id])
    assert "junk" not in ids(DanaFilter(below=1e9).run(iter(documents)))
    keys = ["doc_id", "unit"]
    for first in range(2):  # whichever task has the largest score
        parts = tmp_path / f"two {first}"
        for rank in range(2):
            score(run, junk[(first + rank) % 2 :: 2], parts, rank, 2)
        joined = join_scores(parts, run, tmp_path / f"of two {first}")
        rows = read_table(joined.path).to_pandas().sort_values(keys)
        assert rows.values.tolist() == table.sort_values(keys).values.tolist()


def test_documents_are_kept_by_the_weights_of_a_run(records, write_weights):
    first, second, _ = (record["id"] for record in records[:3])
    folder = write_weights(
        [(second, 0, 0, 5, 0, 1.0), (second, 1, 5, 9, 0, 0.0), (first, 0, 0, 5, 0, 0.0)]
    )
    documents = [*documents_of(records[:3]), Document(text="", id="blank")]
    step = DanaFilter(weights=folder)
    assert ids(step.run(iter(documents))) == [second]
    assert [document.metadata["dana_weight"] for document in documents] == [0.0, 0.5, None, None]
    assert step.stats["dropped_weight_0"].total == 1
    assert step.stats["dropped_not_weighed"].total == 2
    with pytest.raises(DataError, match=r"none of the 1 documents of task 4 has a weight"):
        list(DanaFilter(weights=folder).run(iter(documents_of(records[2:3])), 4, 5))
    assert list(DanaFilter(weights=folder).run(iter([]), 4, 5)) == []


def test_weights_of_documents_are_those_of_the_table_whatever_its_batches(
    write_weights, monkeypatch
):
    random = np.random.default_rng(0)
    weights = {
        f"d{at}": random.random(size).tolist() for at, size in enumerate(random.integers(1, 9, 50))
    }
    rows = [
        (name, unit, 0, 1, 0, weight)
        for name, of in weights.items()
        for unit, weight in enumerate(of)
    ]
    read = schemas.read_batches
    monkeypatch.setattr(schemas, "read_batches", lambda part, columns, rows: read(part, columns, 7))
    series = document_weights(write_weights(rows))
    for name, of in weights.items():
        assert series[document_key(name)] == pytest.approx(
            np.mean(np.float32(of), dtype=np.float64), abs=1e-12
        )
    assert document_key("d50") not in series
    again = write_weights([(name, 0, 0, 1, 0, 1.0) for name in "aba"], "again")
    with pytest.raises(DataError, match="two documents have the same id"):
        document_weights(again)


def test_without_datatrove_the_extra_is_named_and_parts_are_joined_all_the_same():
    code = "import sys; sys.modules['datatrove'] = None; "
    code += "import dana.scoring.engines.parts, dana.scoring.engines.datatrove"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stderr.splitlines()[-1].startswith(
        "dana.core.errors.PluginError: datatrove is not installed"
    )


def test_documents_are_converted_and_other_text_is_refused(run, records, parts):
    sources = {"one": {"source": "one"}, "two": {"file_path": "s3://bucket/a/two.jsonl.gz"}, "": {}}
    for source, metadata in sources.items():
        assert as_document(Document(text="A gene.", id="x", metadata=metadata)).source == source
    assert as_document(Document(text="Cafe\u0301\r\n", id="x")).text == "Café"
    documents = [*documents_of(records), Document(text=None, id="it")]
    with pytest.raises(DataError, match="document 'it'"):
        list(DanaScore(run, parts).run(iter(documents)))
    names = {"pool/part-00001.parquet", "scores/part-00001.parquet", "tasks/00001.json"}
    assert contents(parts).keys() == names, "what the first attempt of task 0 wrote is removed"


def test_parts_that_do_not_belong_together_are_refused(
    run, records, parts, texts, tmp_path, join_fails
):
    score(run, [], parts, 3, 4)
    join_fails(r"tasks/00000.json: expected tasks 4, got 2", parts)
    score(run, [], parts / "three", 0, 3)
    join_fails("2 of 3 tasks .* the first is 1", parts / "three")
    pool = str(texts / "pool.jsonl")
    dana.score(
        str(texts / "cells.txt"), pool, out=tmp_path / "lof", selector="lof", encoder="hashing"
    )
    score(tmp_path / "lof", records, tmp_path / "other")
    join_fails("expected selector", tmp_path / "other")
    score(run, [*records, records[0]], tmp_path / "repeated")
    join_fails(f"two documents .* '{records[0]['id']}'", tmp_path / "repeated", DataError)
    score(run, [], tmp_path / "empty")
    join_fails("no documents", tmp_path / "empty", DataError)


def test_damaged_or_lost_parts_records_and_runs_are_named(run, parts, tmp_path, join_fails):
    for table in ("pool", "scores"):
        part = parts / table / "part-00001.parquet"
        before = flip(part, 100)
        join_fails(rf"{table}/part-00001.parquet: damaged; .* task 1 ", parts)
        part.unlink()
        join_fails(rf"{table}/part-00001.parquet: is missing; .* task 1 ", parts)
        part.write_bytes(before)
        shutil.rmtree(tmp_path / "joined")
    first, second = (parts / "tasks" / f"0000{rank}.json" for rank in range(2))
    record = second.read_text()
    for content in (record[:50], "[]"):
        second.write_text(content)
        join_fails("1 of 2 tasks", parts)
    shutil.copy(first, second)
    join_fails(f"{second}: record of another task", parts)
    second.write_text(record)
    assert not (tmp_path / "joined").exists()
    assert join_scores(parts, run, tmp_path / "joined").manifest["counts"]["units"]


def test_parts_go_to_any_file_system_and_one_that_refuses_is_named(
    run, records, memory, monkeypatch, join_fails
):
    def refuse(*_):
        raise PermissionError("Access Denied")

    score(run, records, "memory://parts")
    folder = as_folder("memory://parts")
    table = pq.read_table(io.BytesIO(folder.cat_file("scores/part-00000.parquet")))
    assert table.combine_chunks().equals(read_table(run / "scores").combine_chunks())
    assert not [name for name in folder.find("") if "/." in name]
    for method, path in {"get_file": "/parts/pool/part-00000.parquet", "isdir": "/parts"}.items():
        monkeypatch.setattr(DirFileSystem, method, refuse)
        join_fails(f"^{path}: cannot be read: no permission", "memory://parts", DataError)


SECRET, URL = "s3://name:hush@pool/a", "s3://pool/run"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda run, folder: DanaScore(run, SECRET), r"s3://\*\*\*@pool/a: holds credentials"),
        (
            lambda run, folder: join_scores(SECRET, run, folder),
            r"s3://\*\*\*@pool/a: holds credentials",
        ),
        (lambda run, folder: DanaScore(URL), f"selector='{URL}'"),
        (lambda run, folder: DanaFilter(weights=URL), f"weights='{URL}'"),
        (lambda run, folder: join_scores(folder, run, URL), f"out='{URL}'"),
        (lambda run, folder: DanaFilter(), "below="),
        (lambda run, folder: DanaFilter(below=1.0, weights="w"), "below="),
        (lambda run, folder: DanaFilter(below=float("nan")), "below="),
        (lambda run, folder: DanaFilter(below="0.5"), "below="),
    ],
)
def test_urls_credentials_and_thresholds_are_refused(run, tmp_path, call, message):
    with pytest.raises(ConfigError, match=f"^{message}"):
        call(run, tmp_path / "folder")


@pytest.mark.parametrize(
    "metadata", [{}, *({"dana_score": score} for score in ("0.1", True, float("nan"), [1]))]
)
def test_documents_without_a_finite_score_are_refused(metadata):
    step = DanaFilter(below=np.float32(0.5))
    with pytest.raises(DataError, match=r"document 'it': .*dana_score"):
        list(step.run(iter([Document(text="a", id="it", metadata=metadata)])))


def test_the_cut_of_a_run_selects_as_many_units(run, records, tmp_path):
    for folder in ("scores", "pool", "target"):
        shutil.copytree(run / folder, tmp_path / folder)
    with pytest.raises(ArtifactError, match="dana weigh"):
        document_cut(tmp_path)

    def weigh(**settings):
        shutil.rmtree(tmp_path / "weights", ignore_errors=True)
        dana.weigh(tmp_path, **settings)

    documents = score(run, records)
    weigh(beta=0.2)
    budget, cut = (
        manifest_of(tmp_path / "weights")["counts"]["units"]["selected"],
        document_cut(tmp_path),
    )
    below = sum(one.metadata["dana_units"] for one in DanaFilter(below=cut).run(iter(documents)))
    equal = sum(
        one.metadata["dana_units"] for one in documents if one.metadata["dana_score"] == cut
    )
    assert below <= budget < below + equal
    weigh(budget="1 units")
    assert len(list(DanaFilter(below=document_cut(tmp_path)).run(iter(documents)))) == 1
    weigh(policy="sigmoid")
    with pytest.raises(ConfigError, match="weights"):
        document_cut(tmp_path)
