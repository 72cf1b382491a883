"""Every unit to its cluster: the same bytes whoever did what and however often it was killed."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from dana.core import schemas
from dana.core.launch import Share
from dana.scoring.inputs import GeneralCorpus
from dana.stages.texts import corpus_stage
from dana.studies.clusters.description import FOLDER
from dana.studies.clusters.settings import ClusterSettings
from dana.studies.clusters.stage import Clustering
from tests.stages.two_topics import SELECTION
from tests.studies.toy_pool import content

SETTINGS = ClusterSettings(k=[2, 3], pca=8, seeds=2, fit=150)


@pytest.fixture
def clustering(texts, tmp_path, monkeypatch):
    """Eight shards of a small pool."""
    monkeypatch.setitem(schemas.ROWS_PER_GROUP, True, 17)
    general = GeneralCorpus(corpus_stage([str(texts / "pool.jsonl")], tmp_path / "corpus"))

    def make(name="clusters", **changes):
        return replace(Clustering(general, SELECTION, SETTINGS, tmp_path / name), **changes)

    return make


def test_three_workers_make_the_bytes_of_one(clustering):
    reference = content(clustering("one").run().path)
    many = clustering("many")
    many.prepare()
    for number in (2, 0, 1):
        worker = clustering("many")
        worker.score(worker.load_prepared(), Share(number, 3))
    assert content(many.merge().path) == reference


def test_the_sample_is_of_distinct_units_and_has_the_rows_of_the_table(clustering):
    artifact = clustering().run()
    sample = pd.read_parquet(artifact.path / FOLDER / "sample.parquet")
    assert len(sample) == artifact.manifest["counts"]["fitted_on"] <= SETTINGS.fit
    assert sample["text"].is_unique
    both = sample.merge(pd.read_parquet(artifact.path), on=["doc_id", "unit", "source"], suffixes=("", "_row"))
    assert len(both) == len(sample)
    assert (both["cluster"] == both["cluster_row"]).all()
    assert np.array_equal(both["log_density"].astype("float32"), both["log_density_row"])
    assert np.array_equal(both["responsibility"].astype("float32"), both["responsibility_row"])
    fits = pd.read_parquet(artifact.path / FOLDER / "assignments.parquet")
    assert list(fits.columns) == ["k2-0", "k2-1", "k3-0", "k3-1"]
    assert len(fits) == len(sample)
    rows = pd.read_parquet(artifact.path / FOLDER / "fits.parquet")
    assert rows.groupby("k")["kept"].sum().tolist() == [1, 1]
    best_fit = rows[rows["kept"] & (rows["k"] == artifact.manifest["k"])].iloc[0]
    assert fits[f"k{best_fit['k']}-{best_fit['seed']}"].tolist() == sample["cluster"].tolist()
