"""Results of one seed each, of models of their own, become one result that the report reads like any other."""

import json
from dataclasses import replace

import pyarrow.parquet as pq
import pytest
import toy_task

from dana.core.artifacts import MANIFEST
from dana.core.errors import ArtifactError
from dana.report.cells import read_cell
from dana.report.verdicts import measure_pair
from dana.stages.finetune import FinetuneSettings, finetune_stage
from dana.stages.finetune_cells import join_seeds_stage

ONE = FinetuneSettings(preset="quick", epochs=1)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Three fine-tunings of a seed each, of three models."""
    folder = tmp_path_factory.mktemp("nested")
    card = str(toy_task.write_task(folder / "tasks"))
    for place, seed in enumerate((4, 7, 2)):
        model = toy_task.write_checkpoint(folder / f"model-{place}", seed=place)
        finetune_stage(str(model), card, replace(ONE, seeds=[seed]), folder / str(place))
    return folder


def metrics(folder):
    return json.loads((folder / "metrics.json").read_text(encoding="utf-8"))


def test_rows_and_predictions_are_those_of_the_parts(made, tmp_path):
    parts = [made / str(place) for place in range(3)]
    join_seeds_stage(parts, tmp_path / "joined")
    found = metrics(tmp_path / "joined")
    assert found["seeds"] == [metrics(part)["seeds"][0] for part in parts]
    assert [row["seed"] for row in found["seeds"]] == found["settings"]["seeds"] == [4, 7, 2]
    scores = [row["score"] for row in found["seeds"]]
    assert (found["n"], found["mean"]) == (3, pytest.approx(sum(scores) / 3))
    table = pq.read_table(tmp_path / "joined" / "predictions.parquet")
    for part, seed in zip(parts, (4, 7, 2), strict=True):
        own = table.filter([value == seed for value in table["seed"].to_pylist()])
        assert own.equals(pq.read_table(part / "predictions.parquet"))


def test_it_is_read_as_a_fine_tuning_and_compared_with_one(made, tmp_path):
    parts = [made / str(place) for place in range(2)]
    join_seeds_stage(parts, tmp_path / "joined")
    card = str(toy_task.write_task(tmp_path / "tasks"))
    finetune_stage(str(made / "model-0"), card, replace(ONE, seeds=[4, 7]), tmp_path / "base")
    joined, base = (read_cell(tmp_path / name / "metrics.json", name) for name in ("joined", "base"))
    assert joined.seeds == base.seeds == [4, 7]
    assert joined.unlike(base) == []
    assert (joined.nested, base.nested) == (True, False)
    assert measure_pair(joined, base).nested
    assert json.loads((tmp_path / "joined" / MANIFEST).read_text())["nested"] is True


def test_more_seeds_are_put_to_those_there_and_others_are_refused(made, tmp_path):
    parts = [made / str(place) for place in range(3)]
    join_seeds_stage(parts[:2], tmp_path / "joined")
    join_seeds_stage(parts, tmp_path / "joined")
    assert metrics(tmp_path / "joined")["n"] == 3
    with pytest.raises(ArtifactError, match="joined"):
        join_seeds_stage(parts[:2], tmp_path / "joined")
    assert metrics(tmp_path / "joined")["n"] == 3
    with pytest.raises(ArtifactError):
        join_seeds_stage([*parts, made / "nowhere"], tmp_path / "joined")
    assert metrics(tmp_path / "joined")["n"] == 3
