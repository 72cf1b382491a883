"""Units and kept text of the pool's clusters, in a run's report."""

import shutil

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from dana.core.artifacts import make, read_manifest
from dana.core.schemas import read_table, write_parts
from dana.stages.report import report_stage
from dana.studies.clusters.pool import amounts_by_cluster, pool_table
from dana.studies.clusters.stage import SCHEMA
from tests.report.conftest import write_selection


def write_clusters(run, clusters, k=4, general=None):
    """clusters/ of a run's units: `clusters` from their weights to the cluster of each."""
    table = read_table(run / "weights")
    size = table.num_rows
    columns = [pa.array(np.asarray(clusters(table["weight"].to_numpy())), pa.int32()), *[pa.array(np.ones(size))] * 2]
    rows = pa.Table.from_arrays([*(table[name] for name in SCHEMA.names[:5]), *columns], names=SCHEMA.names)

    def write(draft):
        write_parts([rows], draft.path, SCHEMA)
        draft.notes |= {"k": k, "names": [f"name {at}" for at in range(k)]}

    make(run / "clusters", "clusters", {"general": general or read_manifest(run / "corpus")["fingerprint"]}, write)


@pytest.fixture
def run(tmp_path):
    write_selection(tmp_path / "run")
    return tmp_path / "run"


def test_a_unit_counts_by_its_weight(run):
    write_clusters(run, lambda weight: np.where(weight > 0, np.arange(weight.size) % 3, 3))
    units, weight_sums = amounts_by_cluster(run / "clusters", run / "weights", 4)
    table = pd.read_parquet(run / "clusters").assign(weight=pd.read_parquet(run / "weights")["weight"])
    assert units.tolist() == table["cluster"].value_counts().sort_index().tolist()
    assert weight_sums.tolist() == table.groupby("cluster")["weight"].sum().tolist()
    assert weight_sums[3] == 0
    assert np.isnan(amounts_by_cluster(run / "clusters", None, 4)[1]).all()


def test_clusters_of_another_corpus_or_of_other_units_are_not_told(run):
    for others in (None, "another"):
        if others:
            write_clusters(run, lambda weight: np.zeros(weight.size), general=others)
        report_stage(run)
        assert "What is the pool made of?" not in (run / "report.md").read_text()
        assert not (run / "tables" / "pool_clusters.csv").exists()
    shutil.rmtree(run / "clusters")
    write_clusters(run, lambda weight: np.zeros(weight.size))
    table = read_table(run / "weights")
    write_parts([table.slice(1)], run / "shifted", table.schema)
    write_parts([table.set_column(6, "weight", pa.array(np.zeros(len(table))))], run / "nothing", table.schema)
    write_parts([table], run / "parts", table.schema, rows_per_part=500)
    for name, is_known in {"shifted": False, "nothing": True, "parts": False}.items():
        assert np.isfinite(amounts_by_cluster(run / "clusters", run / name, 4)[1]).all() == is_known


def test_shares_by_hand_those_that_most_is_kept_of_first():
    pool = pd.DataFrame({"cluster": [0, 1, 2], "name": ["law", "cells", "odds"], "units": [50, 40, 10]})
    rows = pool_table(pool.assign(kept=[2.0, 18.0, 0.0])).frame.set_index("name")
    assert rows.index.tolist() == ["cells", "law", "odds"]
    assert rows["share_of_units"].tolist() == [0.4, 0.5, 0.1]
    assert rows["share_of_kept"].tolist() == [0.9, 0.1, 0]
    assert rows["share_of_its_units_kept"].tolist() == [0.45, 0.04, 0]
    table = pool_table(pool.assign(kept=np.nan))
    assert [cells[-2:] for cells, _ in table.rows()] == [["–", "–"]] * 3
