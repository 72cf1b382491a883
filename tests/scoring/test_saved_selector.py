"""A saved selector scores text as the run scored its pool, wherever its folder went; else it says what is amiss."""

import json
import logging
import shutil

import pyarrow as pa
import pytest

import dana
from dana.core.artifacts import read_json, write_json
from dana.core.errors import ArtifactError, ConfigError, DataError, PluginError
from dana.core.schemas import SCORES, iterate_documents, read_table
from dana.corpus.text import document_id, normalise
from dana.scoring.saved_selector import LEARNED, SAVED, load_selector
from tests.stages.two_topics import SELECTION, write_scores

ENCODER = {"encoder": SELECTION.encoder}
KNN = {"selector": "detector", "detector": "knn", **ENCODER}
RUNS = {
    "knn in int8": {**KNN, "store_dtype": "int8"},
    "knn without a store": {**KNN, "store": "none"},
}
RUNS |= {
    "contrastive": {"selector": "lda", **ENCODER},
    "another library's": {"selector": "pyod:HBOS", **ENCODER},
}
RUNS |= {"two encoders": {"selector": "cascade:first=hashing", "detector": "knn", **ENCODER}}
RUNS |= {
    "several": {"selector": "auto:lexical+lda,folds=2", **ENCODER},
    "n-gram models": {"selector": "moore_lewis"},
}
RUNS |= {"hashed n-grams": {"selector": "dsir"}}


def score_run(texts, out, **settings):
    dana.score(str(texts / "cells.txt"), str(texts / "pool.jsonl"), out=out, **settings)
    return out


@pytest.fixture(scope="module")
def run(texts, tmp_path_factory):
    return score_run(texts, tmp_path_factory.mktemp("run") / "it", **KNN)


@pytest.fixture
def moved(run, tmp_path):
    """The selector's folder alone, elsewhere."""
    return shutil.copytree(run / "scores" / LEARNED, tmp_path / "elsewhere")


def change(folder, **values):
    write_json(folder / SAVED, {**read_json(folder / SAVED), **values})


def check_refused(error, message, folder, **settings):
    with pytest.raises(error, match=message):
        load_selector(folder, **settings)


@pytest.mark.parametrize("settings", RUNS.values(), ids=RUNS)
def test_the_folder_alone_gives_the_scores_of_the_run_to_the_bit(texts, tmp_path, settings):
    run = score_run(texts, tmp_path / "run", **settings)
    documents, scores = list(iterate_documents(run / "pool")), read_table(run / "scores")
    shutil.move(run / "scores" / LEARNED, tmp_path / "alone")
    shutil.rmtree(run)
    selector = dana.load_selector(tmp_path / "alone")
    assert pa.concat_tables(selector.tables(documents)).equals(scores.combine_chunks())
    table = selector.score(
        [document.text for document in documents], [document.doc_id for document in documents]
    )
    for column in ("score", "start"):
        assert table[column].tolist() == scores[column].to_pylist()


def test_text_of_the_task_scores_lower_and_rows_say_which_text(run, moved):
    selector = load_selector(run)
    texts = [
        "The court heard the appeal. The judge read the motion.",
        "  ",
        " The gene binds the protein.\r\n",
    ]
    table = selector.score(texts)
    assert table.columns.tolist() == SCORES.names
    assert table["unit"].tolist() == [0, 1, 0]
    assert table["end"].tolist()[-1] == len(texts[2].strip())
    assert table["doc_id"].nunique() == 2
    assert table["score"].iloc[2] < table["score"].iloc[:2].min()
    assert selector.score(texts[2:])["doc_id"].tolist() == table["doc_id"].tolist()[2:]
    assert selector.score(texts, ["a", "b", "c"])["doc_id"].tolist() == ["a", "a", "c"]
    assert selector.score([]).empty
    for folder in (run / "scores", run / "scores" / LEARNED, moved, str(moved)):
        assert load_selector(folder).score(texts).equals(table)


def test_windows_are_cut_by_the_saved_encoders_tokenizer(texts, tmp_path, pieces):
    settings = {"encoder": f"transformer:{pieces}", "units": "window:5", "detector": "pca"}
    settings["min_words"] = 0  # or the largest score of all would stand in rows of one word
    run = score_run(texts, tmp_path / "run", **settings)
    shutil.copytree(pieces, tmp_path / "elsewhere")
    selector = load_selector(run, encoder=f"transformer:{tmp_path / 'elsewhere'}")
    tables = selector.tables(list(iterate_documents(run / "pool")))
    assert pa.concat_tables(tables).equals(read_table(run / "scores").combine_chunks())
    check_refused(ArtifactError, r"identity|encoder\.", run, encoder="hashing:dims=64,words=1")


def test_another_encoder_under_the_same_name_is_refused_other_code_is_told(moved, caplog):
    identity = read_json(moved / SAVED)["identity"]
    other = json.loads(json.dumps(identity))
    other["encoder"]["code"]["version"] = 0
    change(moved, identity=other)
    with caplog.at_level(logging.WARNING):
        load_selector(moved)
    assert "fitted by other code (encoder.code.version: 0 there, 1 now)" in caplog.text
    change(moved, identity={**identity, "encoder": {**identity["encoder"], "dims": 65}})
    check_refused(ArtifactError, r"encoder\.dims: 65 there, 64 now; it needs the encoder '", moved)


def test_ids_are_normalised_as_those_of_a_pool_and_bad_ones_are_named(run):
    selector = load_selector(run)
    scores = selector.score(["A gene.", "A court.", "A cell."], ids=[" a\u0301 ", "b\ud800", " "])
    assert scores["doc_id"].tolist() == ["\u00e1", normalise("b\ud800"), document_id("", "A cell.")]
    wrong = {"texts": ("one text",), r"texts\[1\]": (["a", 3],)}
    for name, arguments in {
        **wrong,
        "ids": (["a"], ["x", "y"]),
        r"ids\[0\]": (["a"], [None]),
    }.items():
        with pytest.raises(DataError, match=name):
            selector.score(*arguments)


def test_a_folder_without_a_selector_is_refused(texts, tmp_path, run):
    check_refused(ArtifactError, "make one with: dana score", tmp_path)
    check_refused(ArtifactError, "did you mean", run.with_name("itt"))
    check_refused(ArtifactError, SAVED, write_scores(texts, tmp_path)[2])  # built without a spec
    for folder in (None, "s3://bucket/run"):
        check_refused(ConfigError, f"folder={folder!r}", folder)


def test_damaged_files_other_formats_and_unknown_selectors_are_named(moved):
    text, tensors = (moved / SAVED).read_text(encoding="utf-8"), next(moved.rglob("*.safetensors"))
    change(moved, selector="nobodys")
    check_refused(PluginError, "'nobodys'", moved)
    change(moved, format=1, dana="9.1")
    check_refused(ArtifactError, r"format 1, .*dana 9\.1", moved)
    for content in ("", "[1]", '{"format": 2}'):
        (moved / SAVED).write_text(content, encoding="utf-8")
        check_refused(ArtifactError, SAVED, moved)
    (moved / SAVED).write_text(text, encoding="utf-8")
    tensors.write_bytes(tensors.read_bytes()[:-1])
    check_refused(ArtifactError, tensors.name, moved)
    tensors.unlink()
    check_refused(ArtifactError, tensors.name, moved)
