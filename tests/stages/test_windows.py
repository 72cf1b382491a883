"""Long texts: what is cut is said, and windows read it; in the probe, in fine-tuning and when labelling."""

import json
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
import toy_kinds
import toy_pairs
import toy_task
from toy_kinds import metrics

from dana.core.errors import ConfigError
from dana.encoders.transformer import TransformerEncoder
from dana.finetuning.encoded_split import MOST_WINDOWS, EncodedSplit
from dana.finetuning.probe import fitted
from dana.finetuning.result_model import Description, pipeline_targets, save_vectors
from dana.finetuning.settings import FinetuneSettings, ProbeSettings
from dana.finetuning.text_model import open_text_model
from dana.models.folder import load_own_tokenizer
from dana.stages.finetune import finetune_stage
from dana.stages.probe import probe_stage
from dana.tasks.card import load_card
from dana.tasks.examples import Example
from tests.stages.tiny_training import label

WIDTH = 12  # tokens of a window
INSIDE = WIDTH - 2  # without the two special ones
SETTINGS = FinetuneSettings(
    preset="quick", seeds=1, max_tokens=WIDTH, epochs=12, pooling="mean", windows="mean"
)


def late_rows(count, seed):
    """Texts whose label is given away in the second window alone."""
    random = np.random.default_rng(seed)
    rows = []
    for number in range(count):
        name = list(toy_task.SIGNS)[number % len(toy_task.SIGNS)]
        signs = random.choice(toy_task.SIGNS[name], 6)
        words = [*random.choice(toy_task.FILLERS, INSIDE + 1), *signs]
        rows.append({"id": f"{seed}-{number}", "text": " ".join(words), "label": name})
    return rows


@pytest.fixture(scope="module")
def late_card(tmp_path_factory):
    folder = tmp_path_factory.mktemp("late")
    path = toy_task.write_task(folder)
    for seed, (split, count) in enumerate({"train": 120, "dev": 30, "test": 60}.items(), 1):
        toy_task.write_split(folder / "toy", split, late_rows(count, seed))
    return str(path)


@pytest.fixture(scope="module")
def in_windows(checkpoint, late_card, tmp_path_factory):
    out = tmp_path_factory.mktemp("windows") / "out"
    finetune_stage(checkpoint, late_card, replace(SETTINGS, save=True), out)
    return out


def test_windows_read_what_is_cut_without_them(in_windows, checkpoint, late_card, tmp_path):
    finetune_stage(checkpoint, late_card, replace(SETTINGS, windows=None), tmp_path / "cut")
    assert metrics(tmp_path / "cut")["mean"] < 0.5
    assert metrics(in_windows)["mean"] > 0.7
    assert metrics(tmp_path / "cut")["full_texts"]["count"] == 60
    assert metrics(in_windows)["full_texts"]["count"] == 0
    assert metrics(in_windows)["settings"]["windows"] == "mean"
    assert metrics(tmp_path / "cut")["settings"]["windows"] is None


def test_the_saved_model_labels_in_windows_and_its_card_says_so(in_windows, late_card, tmp_path):
    folder = in_windows.with_name("out-model")
    assert "labels in dana alone" in (folder / "README.md").read_text()
    file = tmp_path / "new.jsonl"
    rows = late_rows(60, 3)  # the test texts
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    answers = [row["label"] for row in label(folder, file)]
    table = pq.read_table(in_windows / "predictions.parquet").to_pandas()
    names = load_card(late_card).labels
    tested = dict(zip(table["id"], table["prediction"], strict=True))
    assert answers == [names[tested[row["id"]]] for row in rows]


def test_a_text_longer_than_all_windows_is_cut_and_counted(checkpoint):
    tokenizer = load_own_tokenizer(checkpoint)
    texts = [" ".join(["apple"] * count) for count in (3, INSIDE * (MOST_WINDOWS + 2))]
    examples = [Example("", text, 0) for text in texts]
    split = EncodedSplit.from_examples(examples, tokenizer, WIDTH, windows=True)
    assert [len(windows) for windows in split.windows] == [1, MOST_WINDOWS]
    assert split.count_cut(WIDTH) == 1


@pytest.mark.parametrize(
    ("write", "reason"),
    [
        (lambda folder: toy_kinds.write_task(folder, "token_labels"), "word"),
        (toy_pairs.write_task, "pairs"),
    ],
)
def test_tags_and_pairs_are_refused(checkpoint, tmp_path, write, reason):
    card = str(write(tmp_path / "tasks"))
    settings = replace(SETTINGS, pooling=None)
    with pytest.raises(ConfigError, match=f"windows.*null.*{reason}"):
        finetune_stage(checkpoint, card, settings, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
def test_a_vector_is_the_mean_of_the_windows_weighted_by_their_tokens(checkpoint, pooling):
    words = [row["text"] for row in late_rows(3, 5)]
    short = "apple pear word1"
    plain = TransformerEncoder(checkpoint, pooling, max_tokens=WIDTH, batch_tokens=64)
    encoder = replace(plain, windows="mean")
    vectors = encoder.encode([*words, short])
    assert torch.equal(vectors[-1], plain.encode([short])[0])
    for text, vector in zip(words, vectors, strict=False):
        pieces = text.split()
        parts = [pieces[start : start + INSIDE] for start in range(0, len(pieces), INSIDE)]
        weights = torch.tensor([len(part) + 2.0 for part in parts])
        windows = plain.encode([" ".join(part) for part in parts])
        expected = (windows * weights[:, None]).sum(0) / weights.sum()
        assert torch.allclose(vector, expected, atol=1e-6)
        assert torch.equal(encoder.encode([text])[0], vector), "other texts change nothing"


def test_the_encoder_without_windows_is_known_as_before(checkpoint):
    plain = TransformerEncoder(checkpoint)
    assert "windows" not in plain.identity()
    assert replace(plain, windows="mean").identity()["windows"] == "mean"


def test_a_probe_reads_windows_and_says_what_it_cuts_without(
    checkpoint, late_card, tmp_path, caplog
):
    settings = ProbeSettings(sizes=[50], draws=2, max_tokens=WIDTH)
    caplog.set_level("INFO", logger="dana")
    probe_stage(checkpoint, late_card, settings, tmp_path / "cut")
    assert "180 of 180 texts fill the 12 tokens that are read" in caplog.text
    caplog.clear()
    probe_stage(checkpoint, late_card, replace(settings, windows="mean"), tmp_path / "windows")
    assert "cut" not in caplog.text
    scores = {}
    for name in ("cut", "windows"):
        content = json.loads((tmp_path / name / "probe.json").read_text())
        scores[name] = content["sizes"][-1]["mean"]
    assert scores["cut"] < 0.6 < scores["windows"]


def test_a_few_cut_texts_are_said_too(checkpoint, tmp_path, caplog):
    card = str(toy_task.write_task(tmp_path / "tasks"))
    examples = [{**row, "text": "word1 apple"} for row in toy_task.rows(60, 3)]
    examples[0]["text"] = " ".join(["apple"] * 40)
    toy_task.write_split(tmp_path / "tasks" / "toy", "test", examples)
    caplog.set_level("INFO", logger="dana")
    brief = FinetuneSettings(preset="quick", epochs=1, seeds=1)
    finetune_stage(checkpoint, card, brief, tmp_path / "out")
    assert "1 of 60 test texts fill the 24 tokens that are read; text beyond was cut" in caplog.text


def test_a_saved_model_of_vectors_reads_windows_when_it_labels(checkpoint, late_card, tmp_path):
    task = load_card(late_card)
    rows = late_rows(120, 1)
    encoder = TransformerEncoder(checkpoint, "auto", max_tokens=WIDTH, windows="mean")
    labels = [task.labels.index(row["label"]) for row in rows]
    vectors = encoder.encode([row["text"] for row in rows]).numpy()
    pipeline = fitted(vectors, pipeline_targets(labels, task.label_kind), task.label_kind, 10.0)
    description = Description.of_card("vectors", task, windows="mean")
    folder = tmp_path / "model"
    folder.mkdir()
    save_vectors(folder, checkpoint, pipeline, replace(description, max_tokens=WIDTH))
    model = open_text_model(str(folder))
    assert model.longest is None
    new = late_rows(60, 3)
    answers = model.label([Example(row["id"], row["text"], 0) for row in new])
    expected = pipeline.predict_proba(encoder.encode([row["text"] for row in new]).numpy())
    assert np.allclose(answers.outputs.max(1), expected.max(1), atol=1e-5)
    assert answers.cut == 0
