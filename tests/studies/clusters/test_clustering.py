"""Every unit to its cluster: the same bytes whoever did what and however often it was killed."""

import os
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from dana.core import schemas
from dana.core.errors import ArtifactError, DataError
from dana.core.launch import Share
from dana.core.schemas import read_table
from dana.encoders.hashing import HashingEncoder
from dana.scoring import sharded
from dana.scoring.inputs import GeneralCorpus
from dana.scoring.settings import Selection
from dana.stages.texts import corpus_stage
from dana.studies.clusters.description import FOLDER
from dana.studies.clusters.model import FittedClusters
from dana.studies.clusters.settings import ClusterSettings
from dana.studies.clusters.stage import SCHEMA, Clustering
from tests.stages.two_topics import SELECTION

SETTINGS = ClusterSettings(k=[2, 3], pca=8, seeds=2, fit=150)


@pytest.fixture
def clustering(texts, tmp_path, monkeypatch):
    """Eight shards of a small pool."""
    monkeypatch.setitem(schemas.ROWS_PER_GROUP, True, 17)
    general = GeneralCorpus(corpus_stage([str(texts / "pool.jsonl")], tmp_path / "corpus"))

    def make(name="clusters", **changes):
        return replace(Clustering(general, SELECTION, SETTINGS, tmp_path / name), **changes)

    return make


def content(folder):
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != "manifest.json"]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_every_unit_has_a_row(clustering):
    made = clustering(settings=replace(SETTINGS, k=[2])).run()
    table = pd.read_parquet(made.path)
    assert list(table.columns) == SCHEMA.names
    assert len(table) == made.manifest["counts"]["units"] == made.manifest["counts"]["general_units"] > 400
    assert sorted(table["cluster"].unique()) == [0, 1]
    assert not table.duplicated(["doc_id", "unit"]).any()
    assert table["responsibility"].between(0.5, 1).all()
    assert not clustering().shards.path.exists()


def test_three_workers_make_the_bytes_of_one(clustering):
    expected = content(clustering("one").run().path)
    many = clustering("many")
    many.prepare()
    for number in (2, 0, 1):
        worker = clustering("many")
        worker.score(worker.load_prepared(), Share(number, 3))
    assert content(many.merge().path) == expected


def test_shards_and_batches_of_another_size_change_no_bit(clustering, texts, tmp_path, monkeypatch):
    expected = content(clustering("one").run().path)
    monkeypatch.setitem(schemas.ROWS_PER_GROUP, True, 5)
    general = GeneralCorpus(corpus_stage([str(texts / "pool.jsonl")], tmp_path / "other-corpus"))
    original = sharded.split_documents
    monkeypatch.setattr(sharded, "split_documents", lambda documents, splitter: original(documents, splitter, 7))
    assert content(clustering("other", general=general).run().path) == expected


def test_a_killed_run_goes_on(clustering, monkeypatch):
    expected = content(clustering("one").run().path)
    killed = clustering("killed")
    killed.prepare()
    child = os.fork()
    if child == 0:  # pragma: no cover
        original = Clustering.rows

        def rows(*arguments):
            return os._exit(9) if len(list(killed.shards.path.glob("shard-*"))) == 3 else original(*arguments)

        monkeypatch.setattr(Clustering, "rows", rows)
        killed.score(killed.load_prepared(), Share())
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    assert len(list(killed.shards.path.glob("shard-*"))) == 3
    monkeypatch.setattr(HashingEncoder, "encode", _counted(HashingEncoder.encode, counted := []))
    assert content(clustering("killed").run().path) == expected
    assert 0 < sum(counted) < len(read_table(clustering("one").folder)), "what was there is not embedded again"


def _counted(original, counted):
    def encode(encoder, texts):
        counted.append(len(texts))
        return original(encoder, texts)

    return encode


def test_the_sample_is_of_distinct_units_and_has_the_rows_of_the_table(clustering):
    made = clustering().run()
    sample = pd.read_parquet(made.path / FOLDER / "sample.parquet")
    assert len(sample) == made.manifest["counts"]["fitted_on"] <= SETTINGS.fit
    assert sample["text"].is_unique
    both = sample.merge(pd.read_parquet(made.path), on=["doc_id", "unit", "source"], suffixes=("", "_row"))
    assert len(both) == len(sample)
    assert (both["cluster"] == both["cluster_row"]).all()
    assert np.array_equal(both["log_density"].astype("float32"), both["log_density_row"])
    assert np.array_equal(both["responsibility"].astype("float32"), both["responsibility_row"])
    fits = pd.read_parquet(made.path / FOLDER / "assignments.parquet")
    assert list(fits.columns) == ["k2-0", "k2-1", "k3-0", "k3-1"]
    assert len(fits) == len(sample)
    rows = pd.read_parquet(made.path / FOLDER / "fits.parquet")
    assert rows.groupby("k")["kept"].sum().tolist() == [1, 1]
    kept = rows[rows["kept"] & (rows["k"] == made.manifest["k"])].iloc[0]
    assert fits[f"k{kept['k']}-{kept['seed']}"].tolist() == sample["cluster"].tolist()


def test_the_model_that_is_kept_assigns_new_text(clustering):
    made = clustering().run()
    sample = pd.read_parquet(made.path / FOLDER / "sample.parquet")
    fitted = FittedClusters.load(made.path / FOLDER)
    vectors = SELECTION.context("").embed(list(sample["text"][:5]))
    assert fitted.assign(vectors).clusters.tolist() == sample["cluster"][:5].tolist()


def test_a_store_changes_nothing_but_the_rounding(clustering, tmp_path):
    stored = replace(SELECTION, store=str(tmp_path / "embeddings"))
    one = content(clustering("one", selection=stored).run().path)
    assert list((tmp_path / "embeddings").glob("*/meta.json"))
    assert content(clustering("two", selection=stored).run().path) == one


def test_other_settings_are_refused_with_the_difference(clustering):
    clustering().prepare()
    for changes, says in (
        ({"settings": replace(SETTINGS, pca=7)}, "clusters.pca: 8 there, 7 now"),
        ({"selection": replace(SELECTION, geometry="l2")}, 'geometry: "center.l2" there, "l2" now'),
    ):
        with pytest.raises(ArtifactError, match=says):
            clustering(**changes).prepare()
    clustering(selection=replace(SELECTION, max_task_units=7)).prepare()


@pytest.mark.parametrize("when", ["fitting", "assigning"])
def test_a_vector_that_is_not_finite_is_refused_at_every_step(clustering, monkeypatch, when):
    fitted = clustering().prepare() if when == "assigning" else None
    original = HashingEncoder.encode

    def broken(encoder, texts):
        return torch.where(torch.arange(len(texts))[:, None] == 2, float("nan"), original(encoder, texts))

    monkeypatch.setattr(HashingEncoder, "encode", broken)
    with pytest.raises(DataError, match=r"vector 2 of \d+ is not finite"):
        clustering().prepare() if fitted is None else clustering().score(fitted, Share())


def test_too_few_units_are_one_line_and_leave_nothing(write_corpus, tmp_path):
    corpus = write_corpus("few", ["One here.", "Two there.", "Three men in a boat.", "One here.", "ONE here"])
    corpus_stage([str(corpus)], tmp_path / "corpus")
    general = GeneralCorpus.open(tmp_path / "corpus")
    settings = ClusterSettings(k=[4], pca=2)
    asked = Clustering(general, Selection(encoder="hashing:dims=8,words=1"), settings, tmp_path / "clusters")
    with pytest.raises(DataError, match="k=4: there are 3 distinct units to fit on"):
        asked.run()
    assert not asked.folder.exists()
    assert not asked.shards.path.exists()
    auto = replace(asked, settings=ClusterSettings(pca=2))
    assert auto.run().manifest["k"] in (2, 3), "auto leaves out what is too many"
