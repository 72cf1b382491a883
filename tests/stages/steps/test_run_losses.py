"""``dana run`` on text without labels: arms are compared by the losses of held-out text, decoders' too."""

import json
import math
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

from dana.core.artifacts import read_manifest
from dana.core.errors import ConfigError, DataError
from dana.core.rng import torch_seed
from dana.core.schemas import iterate_documents
from dana.core.settings import load
from dana.stages.losses import loss_stage
from dana.stages.report import run_summary
from dana.stages.run import run_recipe
from dana.stages.settings import RunSettings
from dana.tasks.kinds import find_kind
from dana.tasks.kinds.text_loss import TextLoss
from dana.train.settings import AdaptSettings
from tests.conftest import write_documents

SHAPE = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
}


@pytest.fixture(scope="module")
def decoder(tiny_tokenizer, tmp_path_factory):
    """A Llama of one tiny layer."""
    folder = tmp_path_factory.mktemp("decoder")
    with torch_seed(1):
        LlamaForCausalLM(LlamaConfig(vocab_size=len(tiny_tokenizer), **SHAPE)).save_pretrained(
            folder
        )
    tiny_tokenizer.save_pretrained(folder)
    return str(folder)


def test_the_loss_of_each_text_is_that_of_transformers(decoder, repository_texts, tmp_path):
    long = " ".join(repository_texts[0].split()[:60])
    texts = write_documents(
        tmp_path / "texts", [*(text[:60] for text in repository_texts[1:6]), long]
    )
    settings = AdaptSettings(objective="causal", max_tokens=32)
    artifact = loss_stage(decoder, texts, "target text", settings, 3, tmp_path / "out")
    table = pd.read_parquet(artifact.path / "predictions.parquet").set_index("id")
    model, tokenizer = (
        AutoModelForCausalLM.from_pretrained(decoder).eval(),
        AutoTokenizer.from_pretrained(decoder),
    )
    special = len(tokenizer("a")["input_ids"]) - 1
    for document in iterate_documents(texts):
        ids = torch.tensor([tokenizer(document.text)["input_ids"]])
        row, windows = (
            table.loc[document.doc_id],
            math.ceil((ids.numel() - special) / (32 - special)),
        )
        assert row["label"] == ids.numel() - special + windows * (special - 1), (
            "of each window all but the first"
        )
        assert row["characters"] == len(document.text)
        if windows == 1:
            with torch.no_grad():
                nats = float(model(input_ids=ids, labels=ids).loss) * (ids.numel() - 1)
            assert row["prediction"] == pytest.approx(nats, rel=1e-5)
    assert table["label"].max() > 32, "one text has several windows"
    metrics = json.loads((artifact.path / "metrics.json").read_text())
    [row] = metrics["seeds"]
    assert row["seed"] == 3
    assert row["score"] == pytest.approx(table["prediction"].sum() / table["label"].sum())
    assert row["perplexity"] == pytest.approx(math.exp(row["score"]))
    bits = table["prediction"].sum() / math.log(2) / table["characters"].sum()
    assert row["bits_per_character"] == pytest.approx(bits)
    assert [*metrics["by_source"].values()] == [pytest.approx(row["score"])]
    one = write_documents(tmp_path / "one", ["a text alone"])
    with pytest.raises(
        DataError, match=r"one: holds 1 text\(s\) with a token to predict; a comparison needs 2"
    ):
        loss_stage(
            decoder, one, "target text", replace(settings, max_tokens=8), 0, tmp_path / "none"
        )
    assert not (tmp_path / "none").exists()
    settings = AdaptSettings(objective="causal", max_tokens=32, evaluation_tokens=99)
    few = loss_stage(decoder, texts, "target text", settings, 3, tmp_path / "few")
    assert 1 <= few.manifest["counts"]["texts"] < artifact.manifest["counts"]["texts"]


def test_a_score_is_a_ratio_of_sums_and_its_influences_average_to_it():
    kind, nats, tokens = (
        TextLoss(()),
        np.array([[4.0, 9.0, 2.0], [8.0, 9.0, 2.0]]),
        np.array([2.0, 3.0, 1.0]),
    )
    assert kind.score(nats[0], tokens, "nats_per_token") == 15 / 6
    influences = kind.influences(nats, tokens, "nats_per_token")
    assert influences.mean(1) == pytest.approx([15 / 6, 19 / 6], rel=1e-9)
    assert not kind.is_collapsed(nats[0], tokens, "nats_per_token")
    with pytest.raises(ConfigError, match=r"kind='text_loss': no kind of labels"):
        kind.check_card("nats_per_token", None, None)
    with pytest.raises(
        ConfigError, match=r"kind='nope': must be one of single_label, multi_label, regression, tok"
    ):
        find_kind("nope")


@pytest.mark.slow
def test_a_decoder_goes_from_plain_text_to_a_verdict(decoder, repository_texts, tmp_path, heard):
    (tmp_path / "task.txt").write_text("\n\n".join(repository_texts[:60]), encoding="utf-8")
    pool = [json.dumps({"text": text}) for text in repository_texts[60:]]
    (tmp_path / "pool.jsonl").write_text("\n".join(pool), encoding="utf-8")
    values = {
        "task": str(tmp_path / "task.txt"),
        "pool": [str(tmp_path / "pool.jsonl")],
        "model": decoder,
        "out": str(tmp_path / "run"),
        "selection": {"encoder": "hashing:dims=32"},
        "selector": "lexical",
        "adapt": {
            "objective": "causal",
            "steps": 20,
            "batch_size": 8,
            "max_tokens": 32,
            "learning_rate": 1e-2,
        },
        "arms": ["random", "dana"],
        "seeds": {"adaptations": 3, "finetunings": 1},
    }
    page = run_recipe(load(RunSettings, values))
    assert re.search(
        r"task +\S+task.txt has no labels: arms are compared by the loss of held-out text",
        heard.text,
    )
    summary = run_summary(tmp_path / "run")["tasks"]
    assert [*summary] == ["target text", "pool text"], "what is learnt, then what is forgotten"
    for task in summary.values():
        assert task["metric"] == "nats_per_token"
        assert {arm: row["n"] for arm, row in task["arms"].items()} == {
            "base": 3,
            "random": 3,
            "dana": 3,
        }
    [first, *_] = summary["target text"]["verdicts"]
    assert (first["a"], first["b"], first["decision"]) == ("dana", "base", "better")
    assert first["difference"] < -0.5, "nats: lower is better"
    assert "target text" in page.with_name("report.md").read_text(encoding="utf-8")
    parts = read_manifest(tmp_path / "run" / "finetune" / "target" / "dana")["parts"]
    assert len({tuple(seeds) for seeds in parts.values()}) == 3, "an adaptation each"
    losses = pd.read_csv(tmp_path / "run" / "results.csv").query("metric == 'bits_per_character'")
    assert sorted({*losses["task"]}) == ["pool", "target"]
