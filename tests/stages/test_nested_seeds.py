"""Results of one seed each, of models of their own, become one result that the report reads like any other."""

import json
from dataclasses import replace

import pyarrow.parquet as pq
import pytest
import toy_task

from dana.core.artifacts import read_manifest
from dana.core.errors import ArtifactError
from dana.report.cells import read_cell
from dana.report.verdicts import measure_pair
from dana.stages.finetune import FinetuneSettings, finetune_stage
from dana.stages.finetune_cells import join_seeds_stage

ONE = FinetuneSettings(preset="quick", epochs=1)
SEEDS = (4, 7, 2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Fine-tune three models with a seed each, and the first with two."""
    folder = tmp_path_factory.mktemp("nested")
    card = str(toy_task.write_task(folder / "tasks"))
    for seed in SEEDS:
        model = toy_task.write_checkpoint(folder / f"model-{seed}", seed=seed)
        finetune_stage(str(model), card, replace(ONE, seeds=[seed]), folder / str(seed))
    finetune_stage(str(folder / "model-4"), card, replace(ONE, seeds=[4, 7]), folder / "base")
    return folder


def metrics(folder):
    return json.loads((folder / "metrics.json").read_text(encoding="utf-8"))


def test_rows_and_predictions_are_those_of_the_parts(folder, tmp_path):
    parts = [folder / str(seed) for seed in SEEDS]
    join_seeds_stage(parts, tmp_path / "union")
    results = metrics(tmp_path / "union")
    assert results["seeds"] == [metrics(part)["seeds"][0] for part in parts]
    assert [row["seed"] for row in results["seeds"]] == results["settings"]["seeds"] == [4, 7, 2]
    scores = [row["score"] for row in results["seeds"]]
    assert (results["n"], results["mean"]) == (3, pytest.approx(sum(scores) / 3))
    table = pq.read_table(tmp_path / "union" / "predictions.parquet")
    for part, seed in zip(parts, SEEDS, strict=True):
        rows = table.filter([value == seed for value in table["seed"].to_pylist()])
        assert rows.equals(pq.read_table(part / "predictions.parquet"))


def test_it_is_compared_with_a_fine_tuning_and_takes_more_seeds_but_no_others(folder, tmp_path):
    parts = [folder / str(seed) for seed in SEEDS]
    join_seeds_stage(parts[:2], tmp_path / "union")
    union, base = (read_cell(path / "metrics.json", path.name) for path in (tmp_path / "union", folder / "base"))
    assert union.seeds == base.seeds == [4, 7]
    assert union.unlike(base) == []
    assert (union.adaptations, base.adaptations) == (2, 1)
    assert measure_pair(union, base).unit == "adaptation"
    assert read_manifest(tmp_path / "union")["nested"] is True
    join_seeds_stage(parts, tmp_path / "union")
    for others in (parts[:2], [*parts, folder / "nowhere"]):
        with pytest.raises(ArtifactError):
            join_seeds_stage(others, tmp_path / "union")
        assert metrics(tmp_path / "union")["n"] == 3
