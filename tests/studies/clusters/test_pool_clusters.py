"""The report's section on the pool's clusters: shares by hand, a run by its commands, what is not known."""

import json
import shutil

import numpy as np
import pandas as pd
import pytest

from dana.cli.main import main
from dana.encoders.cache import create_encoder
from dana.studies.clusters.model import FittedClusters
from dana.studies.clusters.pool import UNKNOWN_TASK, pool_finding, pool_table
from tests.stages.two_topics import CELLS, COURTS, one_document

POOL = pd.DataFrame(
    {
        "cluster": [0, 1, 2],
        "name": ["law", "cells", "odds"],
        "units": [50, 40, 10],
        "kept": [2.0, 18.0, 0.0],
        "task_units": [5, 14, 1],
    }
)
ENCODER = ["--encoder", "hashing:dims=64,words=1"]


def test_shares_by_hand_those_like_the_task_first():
    table = pool_table(POOL)
    rows = table.frame.set_index("name")
    assert rows.index.tolist() == ["cells", "law", "odds"], "the odds have 5 % of the task and 10 % of the pool"
    assert rows["share_of_units"].tolist() == [0.4, 0.5, 0.1]
    assert rows["share_of_task_units"].tolist() == [0.7, 0.25, 0.05]
    assert rows["times_in_task"].tolist() == pytest.approx([1.75, 0.5, 0.5])
    assert rows["share_of_kept"].tolist() == [0.9, 0.1, 0]
    assert rows["share_of_its_units_kept"].tolist() == [0.45, 0.04, 0]
    assert "20 distinct held-out units" in table.caption
    assert [column.header for column in table.columns][-2:] == ["share of its units kept", "share of kept"]


def test_what_is_said_of_them():
    assert pool_finding(pool_table(POOL).frame, True).replace("\N{NO-BREAK SPACE}", " ") == (
        "The pool falls into 3 clusters; clusters.html says what each is. Where the task has a larger share than the"
        " pool ('cells'), there is 70.0 % of the task's held-out text, 40.0 % of the pool and 90.0 % of what is kept."
    )


@pytest.mark.parametrize("name", ["task_units", "kept"])
def test_what_is_not_known_is_said_and_not_shown(name):
    table = pool_table(POOL.assign(**{name: np.nan}))
    said = pool_finding(table.frame, True)
    titles = " ".join(column.header for column in table.columns)
    if name == "kept":
        assert said.endswith("The weights keep nothing, or are of other units than the clusters.")
        assert "kept" not in titles
        assert "kept" not in pool_finding(table.frame, False)
    else:
        assert UNKNOWN_TASK in said
        assert "task" not in titles
        assert table.frame["name"].tolist() == ["cells", "law", "odds"], "by what is kept of each"
    assert "nan" not in said


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of two topics, with clusters, made by its commands."""
    random = np.random.default_rng(0)
    folder = tmp_path_factory.mktemp("runs")
    pool = [
        {"id": f"{topic}-{number}", "source": topic, "text": one_document(vocabulary, random, 4)}
        for number in range(40)
        for topic, vocabulary in (("cells", CELLS), ("courts", COURTS))
    ]
    task = [{"id": f"t{number}", "text": one_document(CELLS, random, 4)} for number in range(60)]
    for name, records in (("pool", pool), ("task", task)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    texts = ["--task", str(folder / "task.jsonl"), "--general", str(folder / "pool.jsonl")]
    out = ["--out", str(folder / "run")]
    assert main(["score", *texts, *out, *ENCODER, "--detector", "knn"]) == 0
    assert main(["clusters", *out, "--k", "4", "--pca", "6", "--seeds", "2"]) == 0
    assert main(["weigh", str(folder / "run"), "--beta", "0.2", "--gamma", "2"]) == 0
    return folder / "run"


def test_a_run_is_counted_cluster_by_cluster(run):
    assert main(["report", str(run)]) == 0
    found = pd.read_csv(run / "tables" / "pool_clusters.csv").sort_values("cluster")
    clusters, weights = (pd.read_parquet(run / name) for name in ("clusters", "weights"))
    together = clusters.merge(weights, on=["doc_id", "unit"])
    assert len(together) == 320
    assert found["units"].tolist() == [(clusters["cluster"] == at).sum() for at in range(4)]
    assert found["kept"].tolist() == together.groupby("cluster")["weight"].sum().reindex(range(4)).tolist()
    held_out = pd.read_parquet(run / "scores" / "__dana__" / "held_out_task.parquet")
    documents = pd.read_parquet(run / "task" / "held_out").set_index("doc_id")["text"]
    texts = {documents[row.doc_id][row.start : row.end] for row in held_out.itertuples()}
    encoder = create_encoder(ENCODER[1], str(run / "embeddings"))
    fitted = FittedClusters.load(run / "clusters" / "__dana__" / "mixture")
    expected = np.bincount(fitted.assign(encoder.encode(sorted(texts))).clusters, minlength=4)
    assert expected.sum() >= 10
    assert found["task_units"].tolist() == expected.tolist()
    page = (run / "report.html").read_text()
    assert "What is the pool made of?" in page


def test_without_the_vectors_and_with_weights_of_other_units_it_says_so(run, tmp_path):
    other = tmp_path / "run"
    shutil.copytree(run, other, ignore=shutil.ignore_patterns("embeddings", ".*"))
    file = other / "clusters" / "part-00000.parquet"
    pd.read_parquet(file).iloc[::-1].to_parquet(file, index=False)
    assert main(["report", str(other)]) == 0
    said = (other / "report.md").read_text()
    assert UNKNOWN_TASK in said
    assert "are of other units than the clusters" in said
    shutil.rmtree(other / "clusters")
    assert main(["report", str(other)]) == 0
    assert "What is the pool made of?" not in (other / "report.md").read_text()
