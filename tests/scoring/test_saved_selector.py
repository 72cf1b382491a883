"""A saved selector scores text as the run scored its pool, wherever its folder went; else it says what is amiss."""

import json
import logging
import shutil

import pyarrow as pa
import pytest

import dana
from dana.core.artifacts import add_seal, read_json, write_json
from dana.core.errors import ArtifactError, ConfigError, DataError, PluginError
from dana.core.schemas import iterate_documents, read_table
from dana.corpus.text import document_id, normalise
from dana.scoring.saved_selector import LEARNED, SAVED, load_selector
from tests.stages.two_topics import CELLS, SELECTION, write_scores

ENCODER = {"encoder": SELECTION.encoder}
KNN = {"selector": "detector", "detector": "knn", **ENCODER}
RUNS = {
    "knn": KNN,
    "knn in int8": {**KNN, "store_dtype": "int8"},
    "knn without a store": {**KNN, "store": "none"},
    "contrastive": {"selector": "lda", **ENCODER},
    "another library's": {"selector": "pyod:HBOS", **ENCODER},
    "two encoders": {"selector": "cascade:first=hashing", "detector": "knn", **ENCODER},
    "several": {"selector": "auto", **ENCODER},
    "n-gram models": {"selector": "moore_lewis"},
    "hashed n-grams": {"selector": "dsir"},
    "words": {"selector": "lexical"},
    "chance": {"selector": "random"},
}


def score_run(texts, out, **settings):
    dana.score(str(texts / "cells.txt"), str(texts / "pool.jsonl"), out=out, **settings)
    return out


@pytest.fixture(scope="module")
def run(texts, tmp_path_factory):
    return score_run(texts, tmp_path_factory.mktemp("run") / "it", **KNN)


@pytest.fixture
def moved(run, tmp_path):
    """The selector's folder alone, elsewhere."""
    shutil.copytree(run / "scores" / LEARNED, tmp_path / "moved")
    return tmp_path / "moved"


def change(folder, **values):
    about = {**read_json(folder / SAVED), **values}
    del about["digest"]
    write_json(folder / SAVED, add_seal(about))


@pytest.mark.parametrize("settings", RUNS.values(), ids=RUNS)
def test_the_folder_alone_gives_the_scores_of_the_run_to_the_bit(texts, tmp_path, settings):
    run = score_run(texts, tmp_path / "run", **settings)
    documents, scores = list(iterate_documents(run / "corpus")), read_table(run / "scores")
    shutil.move(run / "scores" / LEARNED, tmp_path / "alone")
    shutil.rmtree(run)
    saved = dana.load_selector(tmp_path / "alone")
    assert pa.concat_tables(saved.tables(documents)).equals(scores.combine_chunks())
    found = saved.score([document.text for document in documents], [document.doc_id for document in documents])
    assert found["score"].tolist() == scores["score"].to_pylist()
    assert found["start"].tolist() == scores["start"].to_pylist()


def test_text_of_the_task_scores_lower_and_rows_say_which_text(run):
    saved = load_selector(run)
    texts = ["The court heard the appeal. The judge read the motion.", "  ", " The gene binds the protein.\r\n"]
    table = saved.score(texts)
    assert table.columns.tolist() == ["doc_id", "source", "unit", "start", "end", "score"]
    assert table["unit"].tolist() == [0, 1, 0]
    assert table["end"].tolist()[-1] == len(texts[2].strip())
    assert table["doc_id"].nunique() == 2
    assert table["score"].iloc[2] < table["score"].iloc[:2].min()
    assert saved.score(texts[2:])["doc_id"].tolist() == table["doc_id"].tolist()[2:]
    assert saved.score(texts, ["a", "b", "c"])["doc_id"].tolist() == ["a", "a", "c"]
    assert saved.score([]).empty


def test_a_run_its_scores_and_the_selector_itself_are_places_of_it(run, moved):
    folders = (run, run / "scores", run / "scores" / LEARNED, moved, str(moved))
    assert len({load_selector(folder).score([" ".join(CELLS)])["score"].iloc[0] for folder in folders}) == 1


def test_windows_are_cut_by_the_saved_encoders_tokenizer(texts, tmp_path, pieces):
    settings = {"encoder": f"transformer:{pieces}", "units": "window:5", "detector": "pca"}
    run = score_run(texts, tmp_path / "run", **settings)
    documents = list(iterate_documents(run / "corpus"))
    shutil.copytree(pieces, tmp_path / "elsewhere")
    saved = load_selector(run, encoder=f"transformer:{tmp_path / 'elsewhere'}")
    assert pa.concat_tables(saved.tables(documents)).equals(read_table(run / "scores").combine_chunks())
    with pytest.raises(ArtifactError, match=r"identity|encoder\."):
        load_selector(run, encoder="hashing:dims=64,words=1")


def test_another_encoder_under_the_same_name_is_refused_other_code_is_told(moved, caplog):
    identity = read_json(moved / SAVED)["identity"]
    other = json.loads(json.dumps(identity))
    other["encoder"]["code"]["version"] = 0
    change(moved, identity=other)
    with caplog.at_level(logging.WARNING):
        load_selector(moved)
    assert "fitted by other code (encoder.code.version: 0 there, 1 now)" in caplog.text
    change(moved, identity={**identity, "encoder": {**identity["encoder"], "dims": 65}})
    with pytest.raises(ArtifactError, match=r"encoder\.dims: 65 there, 64 now; it needs the encoder '"):
        load_selector(moved)


def test_ids_are_normalised_as_those_of_a_corpus(run):
    scores = load_selector(run).score(["A gene.", "A court.", "A cell."], ids=[" a\u0301 ", "b\ud800", " "])
    assert scores["doc_id"].tolist() == [normalise(" a\u0301 "), normalise("b\ud800"), document_id("", "A cell.")]
    assert scores["doc_id"][0] == "\u00e1"


def test_a_folder_without_a_selector_is_refused(texts, tmp_path, run):
    with pytest.raises(ArtifactError, match=r"make one with: dana score"):
        load_selector(tmp_path)
    with pytest.raises(ArtifactError, match="did you mean"):
        load_selector(run.with_name("itt"))
    with pytest.raises(ArtifactError, match=SAVED):  # built without a spec
        load_selector(write_scores(texts, tmp_path)[2])
    for folder in (None, "s3://bucket/run"):
        with pytest.raises(ConfigError, match=f"folder={folder!r}"):
            load_selector(folder)


def test_damage_is_named_by_file(moved):
    victim = next(path for path in sorted(moved.rglob("*.safetensors")))
    content = victim.read_bytes()
    victim.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(ArtifactError, match=victim.name):
        load_selector(moved)
    victim.unlink()
    with pytest.raises(ArtifactError, match=victim.name):
        load_selector(moved)
    text = (moved / SAVED).read_text(encoding="utf-8")
    for damaged in ("", "[1]", '{"format": 1}', text.replace('"language": "en"', '"language": "de"')):
        (moved / SAVED).write_text(damaged, encoding="utf-8")
        with pytest.raises(ArtifactError, match=SAVED):
            load_selector(moved)


def test_another_format_and_an_unknown_selector_are_refused(moved):
    change(moved, selector="nobodys")
    with pytest.raises(PluginError, match="'nobodys'"):
        load_selector(moved)
    change(moved, format=2, dana="9.1")
    with pytest.raises(ArtifactError, match=r"format 2, .*dana 9\.1"):
        load_selector(moved)


@pytest.mark.parametrize(
    ("documents", "ids", "name"),
    [
        ("one text", None, "texts"),
        (["a", 3], None, r"texts\[1\]"),
        (["a"], ["x", "y"], "ids"),
        (["a"], [None], r"ids\[0\]"),
    ],
)
def test_bad_texts_and_ids_are_named(run, documents, ids, name):
    with pytest.raises(DataError, match=name):
        load_selector(run).score(documents, ids)
