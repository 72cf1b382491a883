"""``dana studies topics``: fit, show and assign from text by their command line; killed or shared, the same bytes."""

import numpy as np
import pandas as pd
import pytest

from dana.cli.main import main
from dana.core import schemas
from dana.core.artifacts import open_artifact
from dana.core.launch import Share
from dana.scoring.inputs import PoolText
from dana.studies.topics import stage
from dana.studies.topics.model import Topics
from dana.studies.topics.stage import TOPIC_SHARES, Assignment, top_words
from tests.studies.toy_pool import content, write_pool

FEW = ["--min-documents", "2", "--max-share", "1"]
LDA = ["--model", "lda", "--k", "2", "3", "--seeds", "2", *FEW]


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    """Forty documents of each of two topics, and one of neither."""
    return write_pool(
        tmp_path_factory.mktemp("pool"), {"id": "none", "source": "other", "text": "12 7"}
    )


@pytest.fixture(scope="module")
def run(pool, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "fitted"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schemas, "DOCUMENTS_PER_SHARD", 9)
        assert main(["studies", "topics", "fit", "--pool", str(pool), "--out", str(out), *LDA]) == 0
    assert main(["studies", "topics", "assign", "--out", str(out)]) == 0
    return out


def test_text_becomes_topics_that_separate_it(run):
    table = pd.read_parquet(run / "topics")
    assert list(table.columns) == TOPIC_SHARES.names
    assert len(table) == 81
    theta = np.stack(table["theta"])
    np.testing.assert_allclose(theta.sum(1), 1, atol=1e-5)
    assert (theta.argmax(1) == table["topic"]).all()
    assert (theta.max(1) == table["share"]).all()
    empty = table[table["doc_id"] == "none"].iloc[0]
    assert (empty["words"], empty["topic"], empty["share"]) == (
        0,
        0,
        pytest.approx(1 / theta.shape[1]),
    )
    assert table["words"].drop(empty.name).eq(32).all()
    shares = pd.crosstab(table["topic"], table["source"])[["cells", "courts"]]
    assert (shares.max(axis=1) / shares.sum(axis=1)).min() > 0.95


def test_every_number_and_seed_is_fitted_and_the_best_is_kept(run):
    model = run / "topic-model"
    fits = pd.read_csv(model / "fits.csv")
    assert fits[["k", "seed"]].to_numpy().tolist() == [[2, 0], [2, 1], [3, 0], [3, 1]]
    np.testing.assert_allclose(fits["quality"], fits["coherence"] * fits["diversity"])
    means = fits.groupby("k")["quality"].mean()
    topics = pd.read_csv(model / "topics.csv")
    assert len(topics) == means.idxmax()
    best_quality = fits[fits["k"] == len(topics)]["quality"].max()
    best = top_words(Topics.load(model).beta, 25)
    assert topics["coherence"].mean() * np.unique(best).size / best.size == pytest.approx(
        best_quality
    )
    assert topics["share"].sum() == pytest.approx(1)
    assert topics["documents"].sum() == 80


def test_collapse_is_in_the_manifest_and_said(pool, tmp_path, capsys):
    line = ["studies", "topics", "fit", "--pool", str(pool), "--out", str(tmp_path), *FEW]
    assert main([*line, "--model", "etm:steps=1", "--k", "30"]) == 0
    measures = open_artifact(tmp_path / "topic-model", "topic-model").manifest["measures"]
    assert measures["unused"] > 0
    assert (
        f"collapse: {measures['unused']} topics are the largest of no document"
        in capsys.readouterr().out
    )


def test_topics_are_assigned_to_other_text(run, pool, tmp_path, capsys):
    other = tmp_path / "other.jsonl"
    lines = pool.read_text(encoding="utf-8").splitlines()[10:14]
    other.write_text("\n".join(lines), encoding="utf-8")
    command = [
        "studies",
        "topics",
        "assign",
        "--pool",
        str(other),
        "--topics-of",
        str(run),
        "--out",
        str(tmp_path / "run"),
    ]
    assert main(command) == 0
    assert "(4 documents)" in capsys.readouterr().out
    table = pd.read_parquet(tmp_path / "run" / "topics").set_index("doc_id")
    all_rows = pd.read_parquet(run / "topics").set_index("doc_id").loc[table.index]
    pd.testing.assert_frame_equal(table, all_rows)


def test_three_workers_and_one_assign_the_same_bytes(run, tmp_path):
    def worker():
        return Assignment(PoolText.open(run / "pool"), stage.open_topics(run), tmp_path / "many")

    worker().prepare()
    for number in (2, 0, 1):
        worker().score(worker().load_prepared(), Share(number, 3))
    assert content(worker().merge().path) == content(run / "topics")


def test_a_killed_fit_goes_on_with_the_fits_that_are_missing(run, pool, tmp_path, monkeypatch):
    out, original, fits_made = tmp_path / "run", stage.fit_topics, []

    def fit(*flags):
        fits_made.append(flags[2:])
        if len(fits_made) == 3:
            raise KeyboardInterrupt
        return original(*flags)

    monkeypatch.setattr(stage, "fit_topics", fit)
    command = ["studies", "topics", "fit", "--pool", str(pool), "--out", str(out), *LDA]
    assert main(command) == 130
    assert not (out / "topic-model").exists()
    fits_made.clear()
    monkeypatch.setattr(
        stage, "fit_topics", lambda *flags: fits_made.append(flags[2:]) or original(*flags)
    )
    assert main(command) == 0
    assert [k for k, _ in fits_made] == [3, 3]
    assert content(out / "topic-model") == content(run / "topic-model")
