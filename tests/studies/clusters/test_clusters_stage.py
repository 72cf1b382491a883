"""``dana studies clusters`` by its command line, from text and in a run's folder; shared by workers, the same bytes."""

import shutil

import numpy as np
import pandas as pd
import pytest
import yaml

from dana.cli.main import main
from dana.core import schemas
from dana.core.artifacts import read_manifest
from dana.core.launch import Share
from dana.scoring.inputs import PoolText
from dana.scoring.settings import Selection
from dana.studies.clusters.description import FOLDER
from dana.studies.clusters.settings import ClusterSettings
from dana.studies.clusters.stage import Clustering
from tests.studies.toy_pool import content, write_pool

ENCODER = "hashing:dims=64,words=1"
FLAGS = ["--encoder", ENCODER, "--k", "2", "3", "--pca", "6", "--seeds", "2", "--fit", "200"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A folder that ``dana studies clusters`` wrote, in many shards; its text is two topics and a unit that repeats."""
    out = tmp_path_factory.mktemp("runs") / "clustered"
    again = {
        "id": "again",
        "source": "cells",
        "text": "The receptor of a cell binds the ligand of a gene. " * 8,
    }
    pool = write_pool(tmp_path_factory.mktemp("pool"), again)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schemas, "DOCUMENTS_PER_SHARD", 17)
        assert main(["studies", "clusters", "--pool", str(pool), "--out", str(out), *FLAGS]) == 0
    return out


def test_text_becomes_a_table_that_pandas_opens(run):
    table = pd.read_parquet(run / "clusters")
    assert len(table) == 328
    shares = pd.crosstab(table["source"], table["cluster"], normalize="index")
    assert shares.max(axis=1).min() > 0.95
    assert shares.idxmax(axis=1).nunique() == 2


def test_three_workers_make_the_bytes_of_one(run, tmp_path):
    selection = Selection(encoder=ENCODER, store=str(run / "embeddings"))
    settings = ClusterSettings(k=[2, 3], pca=6, seeds=2, fit=200)

    def worker():
        return Clustering(PoolText.open(run / "pool"), selection, settings, tmp_path / "many")

    worker().prepare()
    for number in (2, 0, 1):
        worker().score(worker().load_prepared(), Share(number, 3))
    assert content(worker().merge().path) == content(run / "clusters")


def test_the_sample_is_of_distinct_units_and_has_the_rows_of_the_table(run):
    folder, manifest = run / "clusters" / FOLDER, read_manifest(run / "clusters")
    sample = pd.read_parquet(folder / "sample.parquet")
    assert len(sample) == manifest["counts"]["fitted_on"] <= 200
    assert sample["text"].is_unique
    both = sample.merge(
        pd.read_parquet(run / "clusters"), on=["doc_id", "unit", "source"], suffixes=("", "_row")
    )
    assert len(both) == len(sample)
    assert (both["cluster"] == both["cluster_row"]).all()
    for name in ("log_density", "responsibility"):
        assert np.array_equal(both[name].astype("float32"), both[f"{name}_row"])
    fits, rows = (
        pd.read_parquet(folder / "assignments.parquet"),
        pd.read_parquet(folder / "fits.parquet"),
    )
    assert list(fits.columns) == ["k2-0", "k2-1", "k3-0", "k3-1"]
    assert rows.groupby("k")["kept"].sum().tolist() == [1, 1]
    best_fit = rows[rows["kept"] & (rows["k"] == manifest["k"])].iloc[0]
    assert fits[f"k{best_fit['k']}-{best_fit['seed']}"].tolist() == sample["cluster"].tolist()


def test_true_domains_can_be_told_later_without_another_fit(run, tmp_path):
    copy = shutil.copytree(run, tmp_path / "run", ignore=shutil.ignore_patterns(".*"))
    model = copy / "clusters" / FOLDER / "mixture.safetensors"
    before = model.stat().st_mtime_ns
    assert main(["studies", "clusters", "--out", str(copy), "--true-domains", "all"]) == 0
    assert model.stat().st_mtime_ns == before
    assert "Purity is " in (copy / "clusters.md").read_text()
    assert pd.read_csv(copy / "tables" / "cluster_confusion.csv")["units"].sum() == 328


def test_a_runs_folder_is_clustered_without_naming_or_reading_its_text(run, tmp_path, capsys):
    copy = shutil.copytree(run, tmp_path / "run", ignore=shutil.ignore_patterns("clusters", ".*"))
    settings = yaml.safe_load((copy / "recipe.yaml").read_text())
    (copy / "recipe.yaml").write_text(
        yaml.safe_dump(settings | {"pool": [str(tmp_path / "gone.jsonl")]})
    )
    before = {path: path.stat().st_mtime_ns for path in (copy / "embeddings").rglob("*.sqlite")}
    assert before
    assert main(["studies", "clusters", "--out", str(copy)]) == 0
    assert pd.read_parquet(copy / "clusters").equals(pd.read_parquet(run / "clusters"))
    after = {path: path.stat().st_mtime_ns for path in (copy / "embeddings").rglob("*.sqlite")}
    assert after == before, "no vector was made again"
    assert str(copy / "clusters") in capsys.readouterr().out
