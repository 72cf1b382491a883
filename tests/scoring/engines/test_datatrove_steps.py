"""Steps of a datatrove pipeline: scores as of dana score, documents kept by them, and what is amiss told first."""

import copy
import io
import json
import shutil
import subprocess
import sys
import tracemalloc

import dill
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.dirfs import DirFileSystem

import dana
from dana.core.artifacts import read_json
from dana.core.errors import ArtifactError, ConfigError, DataError
from dana.core.rng import document_key
from dana.core.schemas import iterate_documents, read_table
from dana.scoring.engines.parts import as_folder, join_scores, task_part
from dana.scoring.saved_selector import LEARNED, load_selector
from dana.stages.verify import verify

pytest.importorskip("datatrove", reason="datatrove is not installed: pip install 'dana[datatrove]'")

from datatrove.data import Document
from datatrove.pipeline.writers import JsonlWriter

from dana.scoring.engines.datatrove import DanaFilter, DanaScore, as_document, document_cut, document_weights


def given(records):
    return [Document(text=record["text"], id=record["id"], metadata={"source": record["source"]}) for record in records]


def rows(folder):
    return read_table(folder).to_pylist()


def test_scores_are_those_of_the_run_to_the_bit(run, records):
    documents = list(DanaScore(run).run(iter(given(records))))
    scores = read_table(run / "scores").to_pandas()
    by_document = scores.groupby("doc_id")["score"]
    assert [document.text for document in documents] == [record["text"] for record in records]
    for document in documents:
        of_it = by_document.get_group(document.id).to_numpy()
        assert document.metadata["dana_units"] == of_it.size
        assert document.metadata["dana_score"] == sum(of_it.tolist()) / of_it.size
    planted = [document.metadata["dana_score"] for document in documents if document.id.startswith("planted")]
    courts = [document.metadata["dana_score"] for document in documents if document.id.startswith("court")]
    assert np.median(planted) < np.median(courts)


def test_one_task_joined_is_the_run_byte_for_byte(run, records, tmp_path):
    list(DanaScore(run, tmp_path / "parts").run(iter(given(records))))
    scores = join_scores(tmp_path / "parts", run, tmp_path / "joined")
    for part in ("scores/part-00000.parquet", "scores/__dana__/held_out_task.parquet"):
        assert (tmp_path / "joined" / part).read_bytes() == (run / part).read_bytes()
    before = read_json(run / "scores" / "__dana__" / "manifest.json")
    assert {name: scores.manifest[name] for name in ("mean", "std", "seeds", "counts")} == {
        name: before[name] for name in ("mean", "std", "seeds", "counts")
    }
    assert rows(tmp_path / "joined" / "corpus") == rows(run / "corpus")
    assert read_json(tmp_path / "joined/corpus/__dana__/manifest.json")["counts"]["by_source"]["court"]["documents"]
    dana.weigh(run, beta=0.2)
    weights = dana.weigh(tmp_path / "joined", beta=0.2)
    assert weights.equals(dana.weigh(run, beta=0.2))
    assert join_scores(tmp_path / "parts", run, tmp_path / "joined").fingerprint == scores.fingerprint
    assert all(line.startswith("ok ") for line in verify(tmp_path / "joined"))


def test_tasks_have_the_shards_that_dana_score_cuts_their_parts_into(run, records, tmp_path):
    half = len(records) // 2
    for rank, mine in enumerate((records[:half], [], records[half:])):
        list(DanaScore(run, tmp_path / "parts").run(iter(given(mine)), rank, 3))
    join_scores(tmp_path / "parts", run, tmp_path / "joined")
    assert [part.name for part in sorted((tmp_path / "joined/corpus").glob("part*"))] == [
        f"part-{rank:05d}.parquet" for rank in range(3)
    ]
    saved = load_selector(run)
    documents = list(iterate_documents(tmp_path / "joined" / "corpus"))
    assert [document.doc_id for document in documents] == [record["id"] for record in records]
    expected = pa.concat_tables([*saved.tables(documents[:half]), *saved.tables(documents[half:])])
    assert read_table(tmp_path / "joined" / "scores").combine_chunks().equals(expected.combine_chunks())


def test_blank_text_has_no_score_and_takes_no_place_in_a_shard(run, records, tmp_path, monkeypatch):
    monkeypatch.setattr("dana.scoring.engines.datatrove.DOCUMENTS_PER_SHARD", 4)
    asked = []
    tables = type(load_selector(run)).tables
    monkeypatch.setattr(
        "dana.scoring.saved_selector.SavedSelector.tables",
        lambda self, documents: asked.append([document.doc_id for document in documents]) or tables(self, documents),
    )
    mixed = given(records[:6])
    blank = [Document(text=" \n\x00", id=f"blank-{number}") for number in range(2)]
    mixed[0].metadata |= {"dana_score": "of another selector"}
    stream, step = [mixed[0], blank[0], *mixed[1:], blank[1]], DanaScore(run, tmp_path / "parts")
    found = list(step.run(iter(stream)))
    assert isinstance(mixed[0].metadata["dana_score"], float)
    assert (step.stats["scored_before"].total, step.stats["total"].total) == (1, 6)
    assert [document.id for document in found] == [document.id for document in stream]
    assert asked == [[record["id"] for record in records[:4]], [record["id"] for record in records[4:6]]]
    assert [document.metadata for document in blank] == [{"dana_score": None, "dana_units": 0}] * 2
    join_scores(tmp_path / "parts", run, tmp_path / "joined")
    counts = read_json(tmp_path / "joined/corpus/__dana__/manifest.json")["counts"]
    assert (counts["in"], counts["kept"], counts["dropped"]) == (8, 6, {"empty": 2})


def test_a_selector_that_is_missing_or_damaged_ends_before_any_document(run, tmp_path):
    def unread():
        raise AssertionError("a document was read")
        yield

    with pytest.raises(ArtifactError, match="no saved selector here"):
        list(DanaScore(tmp_path / "none", tmp_path / "out").run(unread()))
    shutil.copytree(run / "scores" / LEARNED, tmp_path / "selector")
    tensors = next((tmp_path / "selector").rglob("*.safetensors"))
    content = bytearray(tensors.read_bytes())
    content[-1] ^= 1
    tensors.write_bytes(content)
    with pytest.raises(ArtifactError, match=tensors.name):
        list(DanaScore(tmp_path / "selector", tmp_path / "out").run(unread()))
    with pytest.raises(ArtifactError, match="no table"):
        list(DanaFilter(weights=tmp_path).run(unread()))
    assert not [path for path in (tmp_path / "out").rglob("*") if path.is_file()]


def test_steps_are_plain_settings_that_travel(run, records, tmp_path):
    steps = [DanaScore(run, str(tmp_path / "out")), DanaFilter(below=0.5), DanaFilter(weights=run / "weights")]
    list(steps[0].run(iter(given(records[:3]))))  # a step that ran is as small as before
    packed = dill.dumps(steps)
    assert len(packed) < 10_000
    score, below, weights = dill.loads(packed)
    assert (score.selector, score.output.path, below.below) == (str(run), str(tmp_path / "out"), 0.5)
    again = list(score.run(iter(given(records[:3]))))
    assert again[0].metadata["dana_units"] > 0
    assert copy.deepcopy(weights).weights == str(run / "weights")


def test_what_a_stopped_task_leaves_is_no_part_and_the_next_attempt_removes_it(run, records, tmp_path, monkeypatch):
    monkeypatch.setattr("dana.scoring.engines.datatrove.DOCUMENTS_PER_SHARD", 4)
    step = DanaScore(run, tmp_path)
    stopped = step.run(iter(given(records)))
    next(stopped)
    aside = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(aside) == 2
    assert all(path.name.startswith(".part-00000.parquet.") for path in aside)
    stopped.close()
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    (tmp_path / "scores" / ".part-00000.parquet.killed").write_bytes(b"half")
    (tmp_path / "scores" / ".part-00001.parquet.alive").write_bytes(b"half")
    (tmp_path / "tasks" / ".00000.json.killed").write_bytes(b"{")
    with pytest.raises(ArtifactError, match="no scored parts here"):
        join_scores(tmp_path, run, tmp_path / "joined")
    list(step.run(iter(given(records))))
    names = [path.relative_to(tmp_path).as_posix() for path in sorted(tmp_path.rglob("*")) if path.is_file()]
    assert names == [
        "corpus/part-00000.parquet",
        "scores/.part-00001.parquet.alive",
        "scores/part-00000.parquet",
        "tasks/00000.json",
    ]
    before = {name: (tmp_path / name).read_bytes() for name in names}
    list(step.run(iter(given(records))))
    assert {name: (tmp_path / name).read_bytes() for name in names} == before


def scored(run, records, folder, tasks=2, of=None):
    for rank in range(tasks):
        list(DanaScore(run, folder).run(iter(given(records[rank::tasks])), rank, of or tasks))


def test_two_writers_of_one_task_leave_a_whole_part_or_an_error(run, records, tmp_path):
    """Slurm may start a task again whose first process still runs."""
    saved = load_selector(run)
    documents = list(iterate_documents(run / "corpus"))
    first = task_part(as_folder(tmp_path), 0, 1, "x")
    writer = first.__enter__()
    for table in saved.tables(documents):
        writer.add(documents, table)
    list(DanaScore(run, tmp_path).run(iter(given(records))))
    with pytest.raises(FileNotFoundError):
        first.__exit__(None, None, None)
    assert join_scores(tmp_path, run, tmp_path / "joined").manifest["counts"]["units"]


def test_documents_are_kept_below_a_score(run, records, tmp_path):
    documents = list(DanaScore(run).run(iter([*given(records), Document(text=" ", id="blank")])))
    scores = [document.metadata["dana_score"] for document in documents[:-1]]
    bound = sorted(scores)[30]
    step = DanaFilter(below=bound, exclusion_writer=JsonlWriter(str(tmp_path / "left"), compression=None))
    kept = list(step.run(iter(documents)))
    assert len(kept) == 30
    assert {document.metadata["dana_score"] < bound for document in kept} == {True}
    left = [json.loads(line) for line in (tmp_path / "left" / "00000.jsonl").read_text().splitlines()]
    assert len(left) == len(records) + 1 - 30
    assert {line["metadata"]["filter_reason"] for line in left} == {"foreign", "blank"}
    assert step.stats["dropped_blank"].total == 1


def test_documents_are_kept_by_the_weights_of_a_run(records, write_weights):
    first, second, third = (record["id"] for record in records[:3])
    folder = write_weights([(second, 0, 0, 5, 0, 1.0), (second, 1, 5, 9, 0, 0.0), (first, 0, 0, 5, 0, 0.0)])
    documents = [*given(records[:3]), Document(text="", id="blank")]
    step = DanaFilter(weights=folder)
    assert [document.id for document in step.run(iter(documents))] == [second]
    assert [document.metadata["dana_weight"] for document in documents] == [0.0, 0.5, None, None]
    assert step.stats["dropped_weight_0"].total == 1
    assert step.stats["dropped_not_weighed"].total == 2
    with pytest.raises(DataError, match=r"none of the 1 documents of task 4 has a weight"):
        list(DanaFilter(weights=folder).run(iter(given(records[2:3])), 4, 5))
    assert list(DanaFilter(weights=folder).run(iter([]), 4, 5)) == []
    assert third not in {first, second}


def test_weights_of_documents_take_no_more_memory_than_planned(write_weights):
    count = 300_000
    folder = write_weights([(f"a document whose name is long {at}", 0, 0, 1, 0, 1.0) for at in range(count)])
    tracemalloc.start()
    weights = document_weights(folder)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert weights.size == count
    assert peak < 100 * count  # names of all of them would be 160 bytes each


def test_weights_of_documents_are_those_of_the_table_whatever_its_batches(tmp_path, write_weights, monkeypatch):
    import dana.scoring.engines.datatrove as module

    random = np.random.default_rng(0)
    sizes = random.integers(1, 9, 50)
    table = [(f"d{at}", unit, 0, 1, 0, float(random.random())) for at, size in enumerate(sizes) for unit in range(size)]
    folder = write_weights(table)
    every = module.read_batches
    monkeypatch.setattr(module, "read_batches", lambda part, columns: every(part, columns, 7))
    found = document_weights(folder)
    for at in range(50):
        mine = [np.float32(row[5]) for row in table if row[0] == f"d{at}"]
        assert found[document_key(f"d{at}")] == pytest.approx(np.mean(mine, dtype=np.float64), abs=1e-12)
    assert document_key("d50") not in found
    again = write_weights([("a", 0, 0, 1, 0, 1.0), ("b", 0, 0, 1, 0, 1.0), ("a", 0, 0, 1, 0, 0.0)], "again")
    with pytest.raises(DataError, match="two documents have the same id"):
        document_weights(again)


def test_without_datatrove_the_extra_is_named_and_parts_are_joined_all_the_same():
    code = (
        "import sys; sys.modules['datatrove'] = None\n"
        "import dana.scoring.engines.parts\n"
        "from dana.core.errors import PluginError\n"
        "try:\n    import dana.scoring.engines.datatrove\n"
        "except PluginError as error:\n    print(error)\n"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "datatrove is not installed: pip install 'dana[datatrove]'" in out.stdout


def test_documents_are_converted_and_other_text_is_refused(run, records, tmp_path):
    metadata = [{"source": "one"}, {"file_path": "s3://bucket/a/two.jsonl.gz"}, {}]
    assert [as_document(Document(text="A gene.", id="x", metadata=one)).source for one in metadata] == [
        "one",
        "two",
        "",
    ]
    assert as_document(Document(text="Cafe\u0301\r\n", id="x")).text == "Café"
    list(DanaScore(run, tmp_path).run(iter(given(records))))
    with pytest.raises(DataError, match="document 'it'"):
        list(DanaScore(run, tmp_path).run(iter([*given(records), Document(text=None, id="it")])))
    assert not [path for path in tmp_path.rglob("*") if path.is_file()], "the record of the first attempt is removed"


def join_fails(match, error, parts, run, out):
    with pytest.raises(error, match=match):
        join_scores(parts, run, out)
    assert not (out / "scores").exists()


def test_parts_that_do_not_belong_together_are_refused(run, records, texts, tmp_path):
    out, parts = tmp_path / "joined", tmp_path / "missing"
    scored(run, records, parts, 2, of=3)
    join_fails("1 of 3 tasks .* the first is 2", ArtifactError, parts, run, out)
    list(DanaScore(run, parts).run(iter([]), 2, 4))
    join_fails(r"tasks/00000.json: expected tasks 4, got 3", ArtifactError, parts, run, out)
    pool = str(texts / "pool.jsonl")
    dana.score(str(texts / "cells.txt"), pool, out=tmp_path / "lof", selector="lof", encoder="hashing")
    scored(tmp_path / "lof", records, tmp_path / "other", 1)
    join_fails("expected selector", ArtifactError, tmp_path / "other", run, out)
    list(DanaScore(run, tmp_path / "repeated").run(iter(given([*records, records[0]]))))
    join_fails(f"two documents .* '{records[0]['id']}'", DataError, tmp_path / "repeated", run, out)
    list(DanaScore(run, tmp_path / "empty").run(iter([])))
    join_fails("no documents", DataError, tmp_path / "empty", run, out)


@pytest.mark.parametrize("table", ["corpus", "scores"])
def test_a_damaged_or_lost_part_is_named_with_its_task(run, records, tmp_path, table):
    parts, out = tmp_path / "parts", tmp_path / "joined"
    scored(run, records, parts)
    part = parts / table / "part-00001.parquet"
    whole = part.read_bytes()
    part.write_bytes(whole[:100] + bytes([whole[100] ^ 1]) + whole[101:])
    join_fails(rf"{table}/part-00001.parquet: damaged; .* task 1 ", ArtifactError, parts, run, out)
    part.unlink()
    join_fails(rf"{table}/part-00001.parquet: is missing; .* task 1 ", ArtifactError, parts, run, out)
    part.write_bytes(whole)
    assert join_scores(parts, run, out).manifest["counts"]["units"]


def test_damaged_records_and_runs_are_refused(run, records, tmp_path):
    parts, out = tmp_path / "parts", tmp_path / "joined"
    scored(run, records, parts)
    first, second = (parts / "tasks" / f"0000{rank}.json" for rank in range(2))
    whole = second.read_text()
    for content in (whole[:50], json.dumps({**json.loads(whole), "documents": 1}), "[]"):
        second.write_text(content)
        join_fails("1 of 2 tasks", ArtifactError, parts, run, out)
    shutil.copy(first, second)
    join_fails(f"{second}: record of another task", ArtifactError, parts, run, out)
    second.write_text(whole)
    shutil.copytree(run, tmp_path / "run")
    file = tmp_path / "run" / "scores" / "__dana__" / "held_out_task.parquet"
    content = file.read_bytes()
    file.write_bytes(content[:40] + bytes([content[40] ^ 1]) + content[41:])
    join_fails("held_out_task.parquet", ArtifactError, parts, tmp_path / "run", out)
    assert not out.exists()


def test_parts_go_to_any_file_system_and_one_that_refuses_is_named(run, records, memory, tmp_path, monkeypatch):
    def refuse(*_):
        raise PermissionError("Access Denied")

    list(DanaScore(run, "memory://parts").run(iter(given(records))))
    folder = as_folder("memory://parts")
    found = pq.read_table(io.BytesIO(folder.cat_file("scores/part-00000.parquet")))
    assert found.combine_chunks().equals(read_table(run / "scores").combine_chunks())
    assert not [name for name in folder.find("") if "/." in name]
    for method, path in {"get_file": "/parts/corpus/part-00000.parquet", "isdir": "/parts"}.items():
        monkeypatch.setattr(DirFileSystem, method, refuse)
        join_fails(f"^{path}: cannot be read: no permission", DataError, "memory://parts", run, tmp_path / "joined")


def test_urls_are_refused_for_local_folders_and_with_credentials(run, tmp_path):
    secret = "s3://name:hush@pool/a"
    for call in (lambda: DanaScore(run, secret), lambda: join_scores(secret, run, tmp_path / "joined")):
        with pytest.raises(ConfigError, match=r"^s3://\*\*\*@pool/a: holds credentials"):
            call()
    for key, call in {
        "selector": lambda: DanaScore("s3://pool/run"),
        "weights": lambda: DanaFilter(weights="s3://pool/run"),
        "out": lambda: join_scores(tmp_path, run, "s3://pool/run"),
    }.items():
        with pytest.raises(ConfigError, match=f"^{key}='s3://pool/run'"):
            call()


def test_the_cut_of_a_run_selects_as_many_units(run, records, tmp_path):
    def weigh(**settings):
        shutil.rmtree(tmp_path / "run" / "weights", ignore_errors=True)
        dana.weigh(tmp_path / "run", **settings)

    for folder in ("scores", "corpus", "task"):
        shutil.copytree(run / folder, tmp_path / "run" / folder)
    with pytest.raises(ArtifactError, match="dana weigh"):
        document_cut(tmp_path / "run")
    documents = list(DanaScore(run).run(iter(given(records))))
    weigh(beta=0.2)
    budget = read_json(tmp_path / "run/weights/__dana__/manifest.json")["counts"]["units"]["kept"]
    cut = document_cut(tmp_path / "run")
    below = sum(one.metadata["dana_units"] for one in DanaFilter(below=cut).run(iter(documents)))
    equal = sum(one.metadata["dana_units"] for one in documents if one.metadata["dana_score"] == cut)
    assert below <= budget < below + equal
    weigh(budget="1 units")
    assert len(list(DanaFilter(below=document_cut(tmp_path / "run")).run(iter(documents)))) == 1
    weigh(policy="sigmoid")
    with pytest.raises(ConfigError, match="weights"):
        document_cut(tmp_path / "run")


@pytest.mark.parametrize("settings", [{}, {"below": 1.0, "weights": "w"}, {"below": float("nan")}, {"below": "0.5"}])
def test_a_filter_needs_one_finite_threshold_or_weights(settings):
    with pytest.raises(ConfigError, match="below="):
        DanaFilter(**settings)


@pytest.mark.parametrize("metadata", [{}, *({"dana_score": score} for score in ("0.1", True, float("nan"), [1]))])
def test_documents_without_a_finite_score_are_refused(metadata):
    step = DanaFilter(below=np.float32(0.5))
    with pytest.raises(DataError, match=r"document 'it': .*dana_score"):
        list(step.run(iter([Document(text="a", id="it", metadata=metadata)])))
