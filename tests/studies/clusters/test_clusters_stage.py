"""``dana clusters`` from text and in a run's folder, by its command line."""

import shutil

import pandas as pd
import pytest
import yaml

from dana.cli.main import main
from tests.studies.toy_pool import write_pool

ENCODER = ["--encoder", "hashing:dims=64,words=1"]
FEW = ["--k", "2", "3", "--pca", "6", "--seeds", "2", "--fit", "200"]


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    """Forty documents of each of two topics."""
    return write_pool(tmp_path_factory.mktemp("pool"))


@pytest.fixture(scope="module")
def clusters_run(pool, tmp_path_factory):
    """A folder that ``dana clusters`` made."""
    out = tmp_path_factory.mktemp("runs") / "clustered"
    assert main(["clusters", "--general", str(pool), "--out", str(out), *ENCODER, *FEW]) == 0
    return out


def test_text_becomes_a_table_that_pandas_opens(clusters_run):
    table = pd.read_parquet(clusters_run / "clusters")
    assert len(table) == 320
    shares = pd.crosstab(table["source"], table["cluster"], normalize="index")
    assert shares.max(axis=1).min() > 0.95
    assert shares.idxmax(axis=1).nunique() == 2


def test_true_domains_can_be_told_later_without_another_fit(clusters_run, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(clusters_run, run, ignore=shutil.ignore_patterns(".*"))
    model = run / "clusters" / "__dana__" / "mixture" / "mixture.safetensors"
    before = model.stat().st_mtime_ns
    assert main(["clusters", "--out", str(run), "--true-domains", "all"]) == 0
    assert model.stat().st_mtime_ns == before
    assert "Purity is " in (run / "clusters.md").read_text()
    confusion = pd.read_csv(run / "tables" / "cluster_confusion.csv")
    assert confusion["units"].sum() == 320


def test_a_runs_folder_is_clustered_without_naming_or_reading_its_text(clusters_run, tmp_path, capsys):
    run = tmp_path / "run"
    shutil.copytree(clusters_run, run, ignore=shutil.ignore_patterns("clusters", ".*"))
    settings_file = run / "settings.yaml"
    settings = yaml.safe_load(settings_file.read_text())
    settings_file.write_text(yaml.safe_dump(settings | {"general": [str(tmp_path / "gone.jsonl")]}))
    before = {path: path.stat().st_mtime_ns for path in (run / "embeddings").rglob("*.safetensors")}
    assert before
    assert main(["clusters", "--out", str(run)]) == 0
    assert pd.read_parquet(run / "clusters").equals(pd.read_parquet(clusters_run / "clusters"))
    after = {path: path.stat().st_mtime_ns for path in (run / "embeddings").rglob("*.safetensors")}
    assert after == before, "no vector was made again"
    assert str(run / "clusters") in capsys.readouterr().out
