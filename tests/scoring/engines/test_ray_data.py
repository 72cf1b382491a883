"""A Ray data set gets the scores of the run, a row a document or a unit, whatever its batches."""

import sys

import pandas as pd
import pyarrow as pa
import pytest

from dana.core.errors import ArtifactError, DataError, PluginError
from dana.core.schemas import read_table
from dana.scoring.engines.parcel import Parcel
from dana.scoring.engines.ray_cluster import import_ray
from dana.scoring.engines.ray_data import DatasetWorker, score_dataset
from dana.scoring.saved_selector import load_selector

ROWS = {"text": ["The gene binds the protein. The court ruled.", "  ", "Motion."], "kept": [1, 2, 3]}


@pytest.fixture
def worker(run):
    """Makes workers, in this process."""
    return lambda text_field="text", id_field=None, units=False: DatasetWorker(
        Parcel.of(run), text_field, id_field, units
    )


def document_scores(run):
    return read_table(run / "scores").to_pandas().groupby("doc_id")["score"].agg(["mean", "size"])


def test_a_batch_keeps_its_rows_and_gets_the_mean_score_of_each_text(run, worker):
    scores = load_selector(run).score(ROWS["text"])["score"].tolist()
    found = worker()(pa.table({"dana_units": ["old"] * 3, **ROWS}))
    assert found.column_names == ["text", "kept", "dana_score", "dana_units"]
    assert found["dana_score"].to_pylist() == [(scores[0] + scores[1]) / 2, None, scores[2]]
    assert found["dana_units"].to_pylist() == [2, 0, 1]
    assert found["kept"].to_pylist() == [1, 2, 3]


def test_batches_of_any_size_have_the_scores_of_the_run(run, records, worker):
    score, table = worker(id_field="id"), pa.Table.from_pylist(records)
    found = pd.concat([score(table.slice(first, 50)).to_pandas() for first in range(0, table.num_rows, 50)])
    expected = document_scores(run).loc[found["id"]]
    assert found["dana_score"].tolist() == expected["mean"].tolist()
    assert found["dana_units"].tolist() == expected["size"].tolist()


def test_units_are_the_rows_of_the_run(run, records, worker):
    found = worker(id_field="id", units=True)(pa.Table.from_pylist(records))
    expected = read_table(run / "scores").combine_chunks()
    assert found.drop_columns("source").equals(expected.drop_columns("source"))
    assert worker(units=True)(pa.table({"text": [""]})).num_rows == 0


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"text_field": "body"}, "text_field='body': the data set has the columns text, kept, none"),
        ({"id_field": "kept"}, "id_field='kept': must be a string, row 0 of a batch has 1"),
        ({"text_field": "none"}, "text_field='none': must be a string, row 0 of a batch has None"),
    ],
)
def test_a_column_that_is_missing_or_holds_no_text_is_named(worker, fields, says):
    with pytest.raises(DataError, match=says):
        worker(**fields)(pa.table({**ROWS, "none": pa.nulls(3)}))


def test_without_ray_the_package_to_install_is_named(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(PluginError, match=r"pip install 'dana\[ray\]'"):
        score_dataset(None, run)


@pytest.mark.slow
def test_a_data_set_is_scored_by_workers(run, records):
    ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'dana[ray]'")
    import_ray()
    ray.init(num_cpus=2, address="local", object_store_memory=150_000_000, log_to_driver=False, logging_level="ERROR")
    try:
        dataset = ray.data.from_items(records)
        found = score_dataset(dataset, run, id_field="id", batch_size=32).to_pandas()
        units = score_dataset(dataset, run, id_field="id", units=True).to_pandas()
        with pytest.raises(ArtifactError, match="no saved selector here"):
            score_dataset(dataset, run / "corpus")
    finally:
        ray.shutdown()
    expected = document_scores(run).loc[found["id"]]
    assert len(found) == len(records) == 120
    assert found["dana_score"].tolist() == expected["mean"].tolist()
    columns = ["doc_id", "unit", "start", "end", "score"]
    scores = read_table(run / "scores").to_pandas()
    assert sorted(units[columns].itertuples(index=False)) == sorted(scores[columns].itertuples(index=False))
