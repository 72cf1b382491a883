"""The spread of kept text over the pool's clusters, in a run's report."""

import json
import shutil

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from dana.core.artifacts import MANIFEST, make, read_manifest
from dana.core.errors import ArtifactError
from dana.core.schemas import read_table, write_parts
from dana.stages.report import report_stage
from dana.studies.clusters.pool import cluster_amounts, spread_table
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


def read_spread(run, weights):
    return spread_table(cluster_amounts(run / "clusters", weights, 4)).frame


def test_kept_text_of_one_cluster_is_told_beside_an_even_pool(run):
    def clusters(weight):  # kept: half 0, half 1; left out: all four alike
        kept = weight > 0
        return np.where(kept, np.cumsum(kept) % 2, np.cumsum(~kept) % 4)

    write_clusters(run, clusters)
    table, weights = pd.read_parquet(run / "clusters"), pd.read_parquet(run / "weights")["weight"]
    shares = table["cluster"].value_counts(normalize=True)
    assert (weights > 0).sum() == 192
    page = report_stage(run).read_text(encoding="utf-8")
    (row,) = pd.read_csv(run / "tables" / "spread.csv").to_dict("records")
    assert row == {
        "arm": "adapted",
        "clusters": 4,
        "pool": pytest.approx(np.exp(-(shares * np.log(shares)).sum())),
        "kept": pytest.approx(2),
    }
    said = (
        f"By the effective number of clusters the kept text is spread over 2.0 of 4, the pool over {row['pool']:.1f}."
    )
    assert said in page
    assert said in (run / "report.md").read_text(encoding="utf-8")


def test_every_arm_of_a_run_has_a_row_and_a_unit_counts_by_its_weight(run):
    shutil.copytree(run / "weights", run / "arms" / "random" / "weights")
    write_clusters(run, lambda weight: np.where(weight > 0, np.arange(weight.size) % 3, 3))
    found = read_spread(run, {"dana": run / "weights", "random": run / "arms" / "random" / "weights"})
    assert found["arm"].tolist() == ["dana", "random"]
    assert found["kept"].between(2.5, 3).all()
    assert (found["pool"] < found["kept"]).all()  # nearly all of it is in cluster 3
    report_stage(run)
    assert pd.read_csv(run / "tables" / "spread.csv")["arm"].tolist() == ["adapted", "random"]


def test_clusters_of_another_corpus_or_of_other_units_are_not_told(run):
    for others in (None, "another"):
        if others:
            write_clusters(run, lambda weight: np.zeros(weight.size), general=others)
        report_stage(run)
        assert "What is the pool made of?" not in (run / "report.md").read_text()
        assert not (run / "tables" / "spread.csv").exists()
    shutil.rmtree(run / "clusters")
    write_clusters(run, lambda weight: np.zeros(weight.size))
    table = read_table(run / "weights")
    write_parts([table.slice(1)], run / "shifted", table.schema)
    write_parts([table.set_column(6, "weight", pa.array(np.zeros(len(table))))], run / "nothing", table.schema)
    write_parts([table], run / "parts", table.schema, rows_per_part=500)
    others = {name: run / name for name in ("shifted", "nothing", "parts")}
    assert read_spread(run, others).empty
    amounts = cluster_amounts(run / "clusters", others, 4)
    assert amounts.isna().any().to_dict() == {"units": False, "shifted": True, "nothing": False, "parts": True}
    report_stage(run)
    assert pd.read_csv(run / "tables" / "spread.csv")["kept"].tolist() == [1.0]


def test_a_manifest_without_a_number_of_clusters_is_named(run):
    write_clusters(run, lambda weight: np.zeros(weight.size))
    file = run / "clusters" / MANIFEST
    content = json.loads(file.read_text())
    del content["k"]
    file.write_text(json.dumps(content))
    with pytest.raises(ArtifactError, match=r"clusters/__dana__/manifest\.json: no key k; make it again"):
        report_stage(run)
