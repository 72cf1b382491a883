"""The report's section on the pool's clusters: shares by hand, a run by its commands, what is not known."""

import json

import numpy as np
import pandas as pd
import pytest

from dana.cli.main import main
from dana.studies.clusters.pool import pool_table
from tests.stages.two_topics import CELLS, COURTS, one_document

ENCODER = ["--encoder", "hashing:dims=64,words=1"]


def test_shares_by_hand_those_that_most_is_kept_of_first():
    pool = pd.DataFrame({"cluster": [0, 1, 2], "name": ["law", "cells", "odds"], "units": [50, 40, 10]})
    rows = pool_table(pool.assign(kept=[2.0, 18.0, 0.0])).frame.set_index("name")
    assert rows.index.tolist() == ["cells", "law", "odds"]
    assert rows["share_of_units"].tolist() == [0.4, 0.5, 0.1]
    assert rows["share_of_kept"].tolist() == [0.9, 0.1, 0]
    assert rows["share_of_its_units_kept"].tolist() == [0.45, 0.04, 0]
    table = pool_table(pool.assign(kept=np.nan))
    assert [cells[-2:] for cells, _ in table.rows()] == [["–", "–"]] * 3


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
    table = pd.read_csv(run / "tables" / "pool_clusters.csv").sort_values("cluster")
    clusters, weights = (pd.read_parquet(run / name) for name in ("clusters", "weights"))
    together = clusters.merge(weights, on=["doc_id", "unit"])
    assert len(together) == 320
    assert table["units"].tolist() == [(clusters["cluster"] == at).sum() for at in range(4)]
    assert table["kept"].tolist() == together.groupby("cluster")["weight"].sum().reindex(range(4)).tolist()
    page = (run / "report.html").read_text()
    assert "What is the pool made of?" in page
