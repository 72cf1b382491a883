"""Each kind of folder opens with pandas, datasets or transformers, which skip the manifest beside the content."""

from dataclasses import replace

import pandas as pd
import pytest
import toy_task
from datasets import Dataset, load_dataset
from transformers import AutoModelForMaskedLM, AutoModelForSequenceClassification, AutoTokenizer

from dana.core.artifacts import read_manifest
from dana.finetuning.settings import FinetuneSettings
from dana.stages.finetune import finetune_stage
from dana.stages.texts import held_out_stage
from tests.stages.tiny_training import ADAPT
from tests.stages.two_topics import write_weights_of


@pytest.fixture(scope="module")
def folders(topics, checkpoint, tmp_path_factory):
    """One folder of each kind, by its name."""
    run = topics[2]
    made = tmp_path_factory.mktemp("made")
    write_weights_of(topics, made / "weights")
    held_out_stage(run / "pool", made / "held_out")
    card = str(toy_task.write_task(made / "tasks"))
    settings = FinetuneSettings(preset="quick", epochs=1, seeds=1)
    finetune_stage(checkpoint, card, replace(settings, save=True), made / "finetune")
    return {
        "pool": run / "pool",
        "target": run / "target" / "fit",
        "scores": run / "scores",
        "weights": made / "weights",
        "held_out": made / "held_out",
        "finetune": made / "finetune",
        "classifier": made / "finetune-model",
    }


@pytest.mark.parametrize("kind", ["pool", "target", "scores", "weights", "held_out", "finetune"])
def test_each_folder_opens_without_dana(folders, kind, tmp_path):
    folder = folders[kind]
    if kind == "target":  # its parts, fit and held_out, are folders of their own
        assert read_manifest(folder.parent)["kind"] == kind
    else:
        assert read_manifest(folder)["kind"] == kind
    if kind == "finetune":
        predictions = folder / "predictions.parquet"
        frame = pd.read_parquet(predictions)
        rows = Dataset.from_parquet(str(predictions), cache_dir=str(tmp_path))
    else:
        frame = pd.read_parquet(folder)
        options = {"data_dir": str(folder), "cache_dir": str(tmp_path)}
        rows = load_dataset("parquet", split="train", **options)
    assert len(frame) > 0
    assert rows.column_names == frame.columns.tolist()
    assert len(rows) == len(frame)


def test_each_model_opens_with_transformers(folders, adapted_to):
    for folder, auto_class in (
        (adapted_to(ADAPT).path, AutoModelForMaskedLM),
        (folders["classifier"], AutoModelForSequenceClassification),
    ):
        tokens = AutoTokenizer.from_pretrained(folder)("a text", return_tensors="pt")
        assert auto_class.from_pretrained(folder)(**tokens).logits.isfinite().all()
