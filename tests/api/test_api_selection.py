"""Ranking, scoring and weighing from Python write the artifacts of the commands and return them as tables."""

import shutil

import numpy as np
import pandas as pd
import pytest
import yaml

import dana
from dana.cli.main import main
from dana.core.artifacts import read_manifest
from dana.core.errors import DataError
from dana.core.schemas import iterate_documents, part_files
from tests.api.conftest import FAST
from tests.scoring.on_disk import contents_made

KNN = {"detector": "knn", "encoder": FAST["encoder"]}
FRUITS, METALS = ([f"{word} {n * n}" for n in range(9)] for word in ("pear", "iron"))


@pytest.fixture(scope="module")
def run(task_texts, pool_texts, tmp_path_factory):
    """A run's folder and its three tables, from lists."""
    out = tmp_path_factory.mktemp("python") / "run"
    ranking = dana.rank(task_texts, pool_texts, out=out, beta=0.15, **FAST)
    return out, ranking, dana.score(out=out, selector="detector"), dana.weigh(out, gamma=3)


@pytest.fixture(scope="module")
def by_commands(run, tmp_path_factory):
    """The folder that the commands write for the same texts."""
    texts, out = run[0] / "inputs", tmp_path_factory.mktemp("commands") / "run"
    files = ["--task", f"{texts}/task.jsonl", "--pool", f"{texts}/pool.jsonl"]
    fast = ["--encoder", FAST["encoder"], "--set", "ranking.detectors=[knn,pca]", "weigh.beta=0.15"]
    score = ["score", "--selector", "detector", "--out", out]
    for line in (
        ["score", "--rank-only", *files, *fast, "--out", out],
        score,
        ["weigh", out, "--gamma", "3"],
    ):
        assert main([str(part) for part in line]) == 0
    return out


def test_the_artifacts_are_those_of_the_commands_to_the_byte(run, by_commands):
    def content(folder):
        recipe = yaml.safe_load((folder / "recipe.yaml").read_text())
        manifests = {
            kind: read_manifest(folder / kind)
            for kind in ("target", "pool", "scores", "weights", "ranking")
        }
        files = {
            kind: contents_made(folder / kind) for kind in manifests if kind != "ranking"
        }  # it has seconds
        fingerprints = {kind: manifest["fingerprint"] for kind, manifest in manifests.items()}
        return (
            fingerprints,
            files,
            manifests["ranking"]["chosen"],
            manifests["weights"]["given"],
            {key: value for key, value in recipe.items() if key not in ("task", "pool")},
        )

    assert content(run[0]) == content(by_commands)
    _, files, _, given, settings = content(run[0])
    assert all(files.values())
    assert given["weigh.gamma"] == 3
    assert settings["weigh"] == {"beta": 0.15}
    before = {path: path.read_bytes() for path in part_files(run[0] / "scores")}
    assert main(["score", "--out", str(run[0])]) == 0
    assert {path: path.read_bytes() for path in part_files(run[0] / "scores")} == before


def test_tables_are_those_of_the_folder_and_low_scores_are_like_the_task(run):
    out, ranking, scores, weights = run
    pd.testing.assert_frame_equal(
        scores, pd.concat(map(pd.read_parquet, part_files(out / "scores")))
    )
    pd.testing.assert_frame_equal(
        weights, pd.concat(map(pd.read_parquet, part_files(out / "weights")))
    )
    assert list(ranking["name"]) == ["knn", "pca"]
    assert list(ranking.loc[ranking["chosen"], "name"]) == [
        read_manifest(out / "ranking")["chosen"]
    ]
    texts = {document.doc_id: document.text.lower() for document in iterate_documents(out / "pool")}
    is_alike = np.array(
        ["cell" in texts[doc_id] or "protein" in texts[doc_id] for doc_id in scores["doc_id"]]
    )
    assert scores["score"][is_alike].mean() < scores["score"][~is_alike].mean()


def test_a_table_of_scores_is_weighed_as_the_folder_is(run, task_texts, pool_texts, tmp_path):
    dana.score(task_texts, pool_texts, out=tmp_path / "x", **KNN)
    for settings in ({"gamma": 3}, {"policy": "sigmoid"}, {"policy": "sampled", "gamma": 4}):
        folder = shutil.copytree(tmp_path / "x", tmp_path / settings.get("policy", "segments"))
        weights = dana.weigh(run[2], beta=0.15, **settings)
        assert list(weights.columns) == [*run[2].columns, "segment", "weight"]
        of_folder = dana.weigh(folder, beta=0.15, **settings)
        for column in ("weight", "segment"):
            np.testing.assert_array_equal(weights[column], of_folder[column])
    numpy_numbers = dana.weigh(run[2], beta=np.float64(0.3), gamma=np.int64(2))
    pd.testing.assert_frame_equal(numpy_numbers, dana.weigh(run[2], beta=0.3, gamma=2))


def test_a_score_per_text_is_weighed_like_a_table_of_texts_of_one_unit():
    values = [0.3, -1.0, 2.0, 0.1, 0.2]
    rows = table(*[(f"{index}", 0, value) for index, value in enumerate(values)])
    for settings in ({"beta": 0.4}, {"policy": "sigmoid"}, {"below": 0.25}):
        expected = dana.weigh(rows, **settings)["weight"].to_numpy()
        np.testing.assert_array_equal(dana.weigh(np.array(values), **settings), expected)
        series = dana.weigh(pd.Series(values, list("edcba"), dtype="Float64"), **settings)
        pd.testing.assert_series_equal(series, pd.Series(expected, list("edcba"), name="weight"))
    assert dana.weigh(np.array(values), beta=0.4).tolist() == [0, 1, 0, 1, 0]
    with pytest.raises(DataError, match=r"scores\[1\]"):
        dana.weigh(np.array([0.1, np.nan]))


def test_without_a_folder_nothing_is_left(task_texts, pool_texts, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    scores = dana.score(iter(task_texts), pd.Series(pool_texts), text=True, **KNN)
    assert list(tmp_path.iterdir()) == []
    first_sentences = {text.split(". ")[0].rstrip(".") + "." for text in pool_texts}
    assert set(scores.loc[scores["unit"] == 0, "text"]) <= first_sentences


def test_missing_texts_are_skipped_and_counted(task_texts, pool_texts, tmp_path):
    records = pd.DataFrame({"text": [*pool_texts, float("nan"), None]})
    scores = dana.score(task_texts, records, out=tmp_path, on_bad_record="skip", **KNN)
    assert read_manifest(tmp_path / "pool")["counts"]["rejected"] == {"no text": 2}
    np.testing.assert_array_equal(
        scores["score"], dana.score(task_texts, pool_texts, **KNN)["score"]
    )


def table(*rows):
    return pd.DataFrame(rows, columns=["doc_id", "unit", "score"])


MANY = [f"text {number}" for number in range(40)]
ODD_IDS = [pd.Series([odd], dtype=object) for odd in (["a"], ("a", 1), "\ud800")]


def selector(detector="knn", encoder=FAST["encoder"]):
    return dana.DetectorSelector(detector, encoder=encoder)


@pytest.mark.parametrize(
    ("call", "names"),
    [
        (
            lambda: dana.rank(["a"], ["b"], encodr="minilm"),
            ["dana.rank", "'encodr'", "did you mean 'encoder'?"],
        ),
        (lambda: dana.rank(["a"], ["b"], gamma=3), ["'gamma'"]),
        (
            lambda: dana.rank(["a"], ["b"], detectors="ifrest", encoder="hashing"),
            ["did you mean 'iforest'?"],
        ),
        (lambda: dana.rank(None, ["b"], encoder="hashing"), ["task=''"]),
        (lambda: dana.score(["a"], ["b"], max_target_units=0), ["max_target_units=0"]),
        (lambda: dana.score("nowhere.txt", ["b"], encoder="hashing"), ["nowhere.txt"]),
        (lambda: dana.score(["a"], ["b"], detector=None), ["dana.score", "detector=null"]),
        (lambda: dana.score(["a"], ["b"], out=""), ["out=''"]),
        (lambda: dana.score(["a"], ["b"], out=7), ["out=7"]),
        (lambda: dana.score(["a"], ["b"], out=f"{__file__}/run"), ["out=", __file__]),
        (lambda: dana.weigh("nowhere"), ["nowhere", "scores"]),
        (lambda: dana.weigh(pd.DataFrame({"score": [1.0]})), ["scores", "doc_id, unit"]),
        (lambda: dana.weigh(pd.DataFrame({"score": [1.0]}), beta=1.4), ["beta=1.4"]),
        (lambda: dana.weigh([0.1, 0.2]), ["scores='list'"]),
        (
            lambda: dana.weigh(table(("a", 0, 0.5)), budget="1e3 tokens", tokenizer="x"),
            ["budget='1e3 tokens'"],
        ),
        (
            lambda: dana.weigh(table(("a", 0, 0.5)).assign(s=0.1).rename(columns={"s": "score"})),
            ["needed: score;"],
        ),
        (lambda: dana.weigh(table(("a", 1, 0.5))), ["scores[0]", "unit 1 of 'a'"]),
        (lambda: dana.weigh(table(("a", 0, 0.5), ("a", 2, 0.5))), ["scores[1]", "unit 2 of 'a'"]),
        (lambda: dana.weigh(table(("a", 0, 0.5), ("b", 1, 0.5))), ["scores[1]", "unit 1 of 'b'"]),
        (lambda: dana.weigh(table(("a", 0, 0.5), ("a", 1, float("nan")))), ["scores[1]", "nan"]),
        (lambda: dana.weigh(table(("a", 0, "x"))), ["scores[0]", "x"]),
        (lambda: dana.weigh(table(("a", "x", 0.5))), ["scores[0]", "unit x of 'a'"]),
        (lambda: dana.weigh(table()), ["scores"]),
        (
            lambda: dana.weigh(table(("a", 0, 0.5), ("b", 0, 0.1), ("a", 0, 0.5))),
            ["scores[2]", "'a'", "again"],
        ),
        (lambda: dana.weigh(table(("a", 0, 0.5), (None, 0, 0.5))), ["scores[1]", "doc_id"]),
        (lambda: dana.weigh(table((1, 0, 0.5), ("1", 0, 0.5))), ["'doc_id'", "int and str"]),
        *(
            (lambda ids=ids: dana.weigh(table((1, 0, 0.5)).assign(doc_id=ids)), ["'doc_id'"])
            for ids in ODD_IDS
        ),
        (
            lambda: dana.score(MANY, [{"text": "b", "id": np.ones(2)}], selector="random"),
            ["id must be text", "[1.0"],
        ),
        (lambda: dana.weigh(table(("a", 0, 1 + 1j))), ["'score'", "complex128"]),
        (
            lambda: dana.weigh(table(("a", 0, pd.Timestamp("2020-01-01")))),
            ["'score'", "datetime64"],
        ),
        (lambda: dana.score({"an iron word"}, ["a zinc word"]), ["task", "set"]),
        (lambda: dana.score(["an iron word"], ["a zinc word"], out="a\0b"), ["out='a"]),
        (lambda: selector(detector=3).fit(["a"], ["b"]), ["spec=3"]),
        (lambda: selector(encoder=3).fit(["a"], ["b"]), ["spec=3"]),
        (lambda: selector().fit(pd.DataFrame({"text": ["a"]}), ["b"]), ["list of texts"]),
        (lambda: selector().fit({"text": ["a"]}, ["b"]), ["list of texts"]),
        (lambda: selector().fit(FRUITS, METALS).score(None), ["list of texts"]),
    ],
)
def test_wrong_arguments_and_tables_are_named_in_one_line(call, names, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(dana.DanaError) as refusal:
        call()
    message = str(refusal.value)
    assert [name for name in names if name not in message] == [], message
    assert "\n" not in message
    assert list(tmp_path.iterdir()) == []
