"""Results of one adaptation or fold each become one result, whose mean with folds is that of all folds' predictions."""

from dataclasses import replace

import pandas as pd
import pytest
from sklearn.metrics import f1_score

from dana.core.artifacts import read_manifest
from dana.core.errors import ArtifactError
from dana.finetuning.results import results_table
from dana.stages.baselines import baselines_stage
from dana.stages.finetune import FinetuneSettings, finetune_stage
from dana.stages.finetune_seed import seed_stage
from dana.stages.join import join_run, join_stage
from tests.toy_kinds import metrics
from tests.toy_task import PRESET, write_checkpoint, write_folds, write_task

TWICE = FinetuneSettings(preset="quick", epochs=1, seeds=2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Fine-tune the models of three adaptations with two seeds each, as a run does, and one with other settings."""
    folder = tmp_path_factory.mktemp("run")
    card = str(write_task(folder / "tasks"))
    for index in range(3):
        model = write_checkpoint(folder / f"model-{index}", seed=index)
        for seed in (2 * index, 2 * index + 1):
            out = folder / f"nested/{index}/finetune/toy/dana/seed-{seed}"
            seed_stage(str(model), card, TWICE, seed, out)
    longer = replace(TWICE, epochs=2)
    for seed in (0, 1):
        seed_stage(str(folder / "model-0"), card, longer, seed, folder / f"other/seed-{seed}")
    return folder


def parts(folder, *indices):
    unit = "nested/{}/finetune/toy/dana/seed-{}"
    return {
        index: [folder / unit.format(index, seed) for seed in (2 * index, 2 * index + 1)]
        for index in indices
    }


def others(folder):
    return [folder / "other/seed-0", folder / "other/seed-1"]


def test_seeds_are_looked_for_while_folders_of_other_arms_come_and_go(tmp_path, made_and_removed):
    """As the folder of an arm whose fine-tuning fails, or one that is being written."""
    arms = tmp_path / "nested" / "0" / "finetune" / "toy"
    arms.mkdir(parents=True)
    for name in ("dana", ".dana.tmp-1"):
        with made_and_removed(arms / name):
            for _ in range(200):
                join_run(tmp_path)


def test_rows_and_predictions_are_those_of_the_parts_with_their_adaptation(folder, tmp_path):
    join_stage(parts(folder, 0, 1, 2), tmp_path / "union")
    results = metrics(tmp_path / "union")
    rows = [
        {**row, "adaptation": index}
        for index in range(3)
        for part in parts(folder, index)[index]
        for row in metrics(part)["seeds"]
    ]
    assert results["seeds"] == rows
    assert [row["seed"] for row in rows] == results["settings"]["seeds"] == [0, 1, 2, 3, 4, 5]
    assert results["mean"] == pytest.approx(sum(row["score"] for row in rows) / 6)
    assert [results[name] for name in ("folds", "adaptations", "finetunings", "n")] == [
        None,
        3,
        2,
        6,
    ]
    table = pd.read_parquet(tmp_path / "union" / "predictions.parquet")
    for index, seeds in parts(folder, 0, 1, 2).items():
        rows = table[table["adaptation"] == index].reset_index(drop=True)
        tables = [pd.read_parquet(seed / "predictions.parquet") for seed in seeds]
        expected = pd.concat(tables, ignore_index=True).assign(adaptation=index)
        pd.testing.assert_frame_equal(rows, expected)


def test_it_is_replaced_by_a_join_of_other_parts(folder, tmp_path):
    union = tmp_path / "union"
    for indices, adaptations in (((1,), 1), ((0, 1), 2), ((0, 1, 2), 3), ((2,), 1)):
        join_stage(parts(folder, *indices), union)
        assert metrics(union)["adaptations"] == adaptations
    join_stage({0: others(folder)}, union)
    assert metrics(union)["settings"]["epochs"] == 2
    with pytest.raises(
        ArtifactError,
        match=r"other/seed-0 does not go with .*dana/seed-0 \(preset.epochs: 1 there, 2 now\)",
    ):
        join_stage({**parts(folder, 0), 1: others(folder)}, tmp_path / "unlike")
    assert not (tmp_path / "unlike").exists()


def test_a_run_is_joined_as_far_as_all_its_arms_got(folder, tmp_path):
    for index, arm in (
        (0, "base"),
        (1, "base"),
        (2, "base"),
        (0, "dana"),
        (2, "dana"),
        (0, "gone"),
    ):
        copy = tmp_path / f"nested/{index}/finetune/toy/{arm}"
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.symlink_to(parts(folder, index)[index][0].parent)
    results = tmp_path / "finetune" / "toy"
    join_run(tmp_path, ["base", "dana"])
    assert [sorted(read_manifest(results / arm)["parts"]) for arm in ("base", "dana")] == [
        ["0", "2"]
    ] * 2
    join_run(tmp_path)
    assert [metrics(results / arm)["adaptations"] for arm in ("base", "dana", "gone")] == [2, 2, 1]


def test_a_task_with_folds_is_fine_tuned_on_each_and_scored_on_all_predictions_together(
    folder, tmp_path
):
    card = str(write_folds(tmp_path / "tasks"))
    finetune_stage(
        str(folder / "model-0"),
        card,
        replace(TWICE, seeds=[3, 5]),
        tmp_path / "result",
        with_baselines=True,
    )
    results, table = (
        metrics(tmp_path / "result"),
        pd.read_parquet(tmp_path / "result" / "predictions.parquet"),
    )
    assert [results[name] for name in ("folds", "adaptations", "finetunings")] == [3, 3, 2]
    assert [row["seed"] for row in results["seeds"]] == [3, 5, 9, 11, 15, 17]
    assert set(table.groupby("id").size()) == {2}, (
        "each text is predicted once by each fine-tuning of its fold"
    )
    assert len(set(table["id"])) == 60
    assert results["full_texts"] == {"count": 0, "of": 60, "max_tokens": PRESET["max_tokens"]}
    pools = [table[table["seed"].isin(seeds)] for seeds in ((3, 9, 15), (5, 11, 17))]
    scores = [f1_score(pool["label"], pool["prediction"], average="macro") for pool in pools]
    assert results["mean"] == pytest.approx(sum(scores) / 2)
    assert results["mean"] != pytest.approx(sum(row["score"] for row in results["seeds"]) / 6), (
        "not that of the folds"
    )
    baselines = baselines_stage(
        card, tmp_path / "baselines", TWICE, ["majority", "tfidf"], "", folds=3
    ).path
    assert results["baselines"] == {
        name: metrics(baselines / name)["mean"] for name in ("majority", "tfidf")
    }
    assert results_table(results).splitlines()[-1] == "baselines majority 0.2607, tfidf 1.0000"
    before = (tmp_path / "result" / "metrics.json").read_bytes()
    finetune_stage(str(folder / "model-0"), card, replace(TWICE, seeds=[3, 5]), tmp_path / "result")
    assert (tmp_path / "result" / "metrics.json").read_bytes() == before
