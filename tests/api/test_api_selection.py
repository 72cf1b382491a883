"""Ranking, scoring and weighing from Python: the same artifacts as the commands write, and tables of them."""

import numpy as np
import pandas as pd
import pytest

import dana
from dana.cli.main import main
from dana.core.artifacts import read_manifest
from dana.core.errors import ConfigError, DataError
from dana.core.schemas import part_files
from tests.api.conftest import FAST


@pytest.fixture(scope="module")
def run(task_texts, general_texts, tmp_path_factory):
    """A run's folder and its three tables, from lists."""
    out = tmp_path_factory.mktemp("python") / "run"
    ranking = dana.rank(task_texts, general_texts, out=out, beta=0.15, **FAST)
    return out, ranking, dana.score(out=out, selector="detector"), dana.weigh(out, gamma=3)


@pytest.fixture(scope="module")
def commanded(run, tmp_path_factory):
    """The folder that the commands make of the same texts."""
    texts, out = run[0] / "inputs", tmp_path_factory.mktemp("commands") / "run"
    files = ["--task", f"{texts}/task.jsonl", "--general", f"{texts}/general.jsonl"]
    fast = ["--encoder", FAST["encoder"], "--detectors", "knn,pca", "--beta", "0.15"]
    score = ["score", "--selector", "detector", "--out", out]
    for line in (["rank", *files, *fast, "--out", out], score, ["weigh", out, "--gamma", "3"]):
        assert main([str(part) for part in line]) == 0
    return out


def test_the_artifacts_are_those_of_the_commands_to_the_byte(run, commanded):
    for kind in ("task", "corpus", "scores", "weights"):
        ours, theirs = read_manifest(run[0] / kind), read_manifest(commanded / kind)
        assert (ours["fingerprint"], ours["files"]) == (theirs["fingerprint"], theirs["files"])
    assert len(ours["files"]) >= 1
    ours, theirs = read_manifest(run[0] / "ranking"), read_manifest(commanded / "ranking")  # its rows have seconds
    assert (ours["fingerprint"], ours["chosen"]) == (theirs["fingerprint"], theirs["chosen"])


def test_both_folders_remember_the_same(run, commanded):
    ours = (run[0] / "settings.yaml").read_text()
    assert ours == (commanded / "settings.yaml").read_text()
    assert "gamma: 3" in ours


def test_a_command_goes_on_from_the_folder(run, capsys):
    before = {path: path.read_bytes() for path in part_files(run[0] / "scores")}
    assert main(["score", "--out", str(run[0])]) == 0
    assert {path: path.read_bytes() for path in part_files(run[0] / "scores")} == before
    assert main(["verify", str(run[0])]) == 0


def test_the_ranking_marks_the_chosen_detector(run):
    ranking = run[1]
    assert list(ranking["name"]) == ["knn", "pca"]
    chosen = read_manifest(run[0] / "ranking")["chosen"]
    assert list(ranking.loc[ranking["chosen"], "name"]) == [chosen]


def test_tables_are_those_of_the_folder(run):
    out, _, scores, weights = run
    pd.testing.assert_frame_equal(scores, pd.concat(map(pd.read_parquet, part_files(out / "scores"))))
    pd.testing.assert_frame_equal(weights, pd.concat(map(pd.read_parquet, part_files(out / "weights"))))


@pytest.mark.parametrize("settings", [{"gamma": 3}, {"policy": "sigmoid"}, {"policy": "sampled", "gamma": 4}])
def test_a_table_of_scores_is_weighed_as_the_folder_is(run, settings, task_texts, general_texts, tmp_path):
    made = dana.weigh(run[2], beta=0.15, **settings)
    assert list(made.columns) == [*run[2].columns, "segment", "weight"]
    dana.score(task_texts, general_texts, out=tmp_path, detector="knn", encoder=FAST["encoder"])
    expected = dana.weigh(tmp_path, beta=0.15, **settings)
    np.testing.assert_array_equal(made["weight"], expected["weight"])
    np.testing.assert_array_equal(made["segment"], expected["segment"])


def test_without_a_folder_nothing_is_left(task_texts, general_texts, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    scores = dana.score(iter(task_texts), pd.Series(general_texts), detector="knn", text=True, encoder=FAST["encoder"])
    assert list(tmp_path.iterdir()) == []
    assert set(scores.loc[scores["unit"] == 0, "text"]) <= {
        text.split(". ")[0].rstrip(".") + "." for text in general_texts
    }


def test_low_scores_are_like_the_task(run):
    out, _, scores, _ = run
    from dana.core.schemas import iterate_documents

    texts = {document.doc_id: document.text for document in iterate_documents(out / "corpus")}
    alike = np.array(
        ["cell" in texts[doc_id].lower() or "protein" in texts[doc_id].lower() for doc_id in scores["doc_id"]]
    )
    assert scores["score"][alike].mean() < scores["score"][~alike].mean()


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (
            lambda: dana.rank(["a"], ["b"], encodr="minilm"),
            "dana.rank: unknown keyword 'encodr'; did you mean 'encoder'?",
        ),
        (lambda: dana.rank(["a"], ["b"], gamma=3), "unknown keyword 'gamma'"),
        (lambda: dana.rank(["a"], ["b"], detectors="ifrest", encoder="hashing"), "did you mean 'iforest'?"),
        (lambda: dana.rank(None, ["b"], encoder="hashing"), "task='': must be"),
        (lambda: dana.score(["a"], ["b"], max_task_units=0), "max_task_units=0: must be at least 1"),
        (
            lambda: dana.score("nowhere.txt", ["b"], encoder="hashing"),
            "task 'nowhere.txt': is neither a file nor a task card",
        ),
        (
            lambda: dana.score(["a"], ["b"], selector="random", geometry="l2"),
            "geometry is not looked at with selector=random",
        ),
        (lambda: dana.weigh("nowhere", policy="sigmoid", gamma=3), "gamma is not looked at with policy=sigmoid"),
        (lambda: dana.weigh("nowhere"), "no scores here"),
        (lambda: dana.weigh(pd.DataFrame({"score": [1.0]})), "scores: no column doc_id, unit; it has score"),
        (lambda: dana.weigh(pd.DataFrame({"score": [1.0]}), beta=1.4), "beta=1.4: must be in (0, 1]"),
        (lambda: dana.weigh([0.1, 0.2]), "scores='list': must be a run's folder or a pandas table"),
        (lambda: dana.score(["a"], ["b"], detector=None), "dana.score: detector=null: must be text"),
        (lambda: dana.score(["a"], ["b"], out=""), "out='': must be a folder"),
        (lambda: dana.score(["a"], ["b"], out=7), "out=7: must be a folder"),
        (lambda: dana.score(["a"], ["b"], out=__file__), "must be a folder, and"),
        (lambda: dana.score(["a"], ["b"], out=f"{__file__}/run"), "must be a folder, and"),
    ],
)
def test_what_a_user_can_mend_is_one_line(call, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(dana.DanaError) as raised:
        call()
    assert says in str(raised.value)
    assert "\n" not in str(raised.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([("a", 1, 0.5)], "scores[0]: unit 1 of 'a' does not follow"),
        ([("a", 0, 0.5), ("a", 2, 0.5)], "scores[1]: unit 2 of 'a' does not follow"),
        ([("a", 0, 0.5), ("b", 1, 0.5)], "scores[1]: unit 1 of 'b' does not follow"),
        ([("a", 0, 0.5), ("a", 1, float("nan"))], "scores[1]: score nan; must be a finite number"),
        ([("a", 0, "x")], "scores[0]: score x; must be a finite number"),
        ([("a", "x", 0.5)], "scores[0]: unit x of 'a' does not follow"),
        ([], "scores: no row"),
    ],
)
def test_a_table_with_holes_is_not_weighed(rows, says):
    with pytest.raises(DataError) as raised:
        dana.weigh(pd.DataFrame(rows, columns=["doc_id", "unit", "score"]))
    assert says in str(raised.value)


def test_tokens_cannot_be_counted_without_a_folder(run):
    with pytest.raises(ConfigError, match="give that as scores"):
        dana.weigh(run[2], budget="1e3 tokens", tokenizer="x")


def test_a_table_with_a_column_twice_is_not_weighed():
    table = pd.DataFrame([("a", 0, 0.5, 0.1)], columns=["doc_id", "unit", "score", "score"])
    with pytest.raises(DataError, match="more than one column 'score'"):
        dana.weigh(table)


def test_numbers_of_numpy_are_numbers(run):
    pd.testing.assert_frame_equal(
        dana.weigh(run[2], beta=np.float64(0.3), gamma=np.int64(2)), dana.weigh(run[2], beta=0.3, gamma=2)
    )


def test_what_is_no_text_is_skipped_when_asked_for_and_counted(task_texts, general_texts, tmp_path):
    table = pd.DataFrame({"text": [*general_texts, float("nan"), None]})
    settings = {"detector": "knn", "encoder": FAST["encoder"]}
    scores = dana.score(task_texts, table, out=tmp_path, on_bad_record="skip", **settings)
    assert read_manifest(tmp_path / "corpus")["counts"]["rejected"] == {"no text": 2}
    expected = dana.score(task_texts, general_texts, **settings)
    np.testing.assert_array_equal(scores["score"], expected["score"])


@pytest.mark.parametrize("given", [pd.DataFrame({"text": ["a"]}), {"text": ["a"]}, 7, None])
def test_a_selector_takes_a_list_of_texts_and_nothing_like_it(given, task_texts, general_texts):
    selector = dana.DetectorSelector("knn", encoder=FAST["encoder"])
    with pytest.raises(DataError, match="give a list of texts"):
        selector.fit(given, general_texts)
    with pytest.raises(DataError, match="give a list of texts"):
        selector.fit(task_texts, general_texts).score(given)


@pytest.mark.parametrize("given", [{"detector": 3}, {"encoder": 3}])
def test_a_spec_that_is_no_text_is_refused(given, task_texts, general_texts):
    with pytest.raises(ConfigError, match="spec=3: must be text"):
        dana.DetectorSelector(**{"detector": "knn", "encoder": FAST["encoder"], **given}).fit(task_texts, general_texts)
