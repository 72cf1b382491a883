"""A causal objective from outside dana: one file, docs/extend/objective.md, through the training loop as it is."""

import json
import re
from importlib.metadata import EntryPoint
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, BertConfig, GPT2Config, GPT2LMHeadModel

from dana.core import registry
from dana.core.errors import ConfigError
from dana.core.registry import OBJECTIVES
from dana.core.rng import torch_seed
from dana.core.schemas import iterate_documents
from dana.stages.training import adapt_stage
from dana.train import DENOMINATORS
from dana.train.examples import Examples, build_examples
from dana.train.settings import AdaptSettings, Execution, TrainSettings
from dana.train.tokens import Tokens
from tests.conftest import write_documents
from tests.train.conftest import gradient_of_step, new_state

REPOSITORY = Path(__file__).parents[3]
PLUGIN = REPOSITORY / "tests" / "plugins" / "toy_objective"
PAGE = (REPOSITORY / "docs" / "extend" / "objective.md").read_text(encoding="utf-8")


@pytest.fixture
def plugin(monkeypatch):
    """Registers the package as if it were installed."""
    other_entries = registry.entry_points

    def entry_points(group):
        entry = EntryPoint("causal", "toy_objective.causal:Causal", group)
        return [*other_entries(group=group), *([entry] if group == OBJECTIVES.group else [])]

    monkeypatch.syspath_prepend(PLUGIN)
    monkeypatch.setattr(registry, "entry_points", entry_points)


def gpt2(vocabulary, dropout=0.1):
    shape = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 64, "bos_token_id": 0}
    rates = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), dropout)
    with torch_seed(1):
        return GPT2LMHeadModel(GPT2Config(vocab_size=vocabulary, **shape, **rates))


def make_batch(tokenizer, sizes, weights):
    special = OBJECTIVES.create("causal").collator(tokenizer, 0).special_tokens
    stream = np.random.default_rng(0).integers(5, 60, sum(sizes))
    starts, ids = np.cumsum(sizes) - sizes, np.arange(len(sizes), dtype=np.uint64)
    return Examples(stream, starts, np.array(sizes), ids, np.array(weights, dtype=np.float32), special)


def reference(model, batch, denominator):
    """The step's loss by the model's own forward pass, example by example."""
    sums, counts, weights = [], [], batch.weights.astype(float)
    for first, last in pairwise(batch.offsets.tolist()):
        ids = torch.from_numpy(batch.tokens[first:last]).long()[None]
        counts.append(last - first - 1)
        sums.append(model(input_ids=ids, labels=ids).loss * counts[-1] if counts[-1] else torch.zeros(()))
    shares = [weight * part for weight, part in zip(weights, sums, strict=True)]
    if denominator == "batch":
        return sum(share / count for share, count in zip(shares, counts, strict=True) if count) / len(counts)
    return sum(shares) / np.dot(weights if denominator == "weight_sum" else np.ones(len(counts)), counts)


@pytest.mark.parametrize("denominator", DENOMINATORS)
@pytest.mark.parametrize("budget", [16, 50, 512])
def test_loss_and_gradient_are_those_of_transformers(plugin, byte_level, denominator, budget):
    sizes = [1, 2, 5, 16, 9, 12, 3, 16]  # one token alone has nothing to predict
    examples = make_batch(byte_level, sizes, [0.3, 1.0, 0.0, 0.7, 0.2, 1.0, 0.5, 0.9])
    collator = OBJECTIVES.create("causal").collator(byte_level, 0)
    batch = collator.step_batch(examples.take(np.arange(8)), 0, denominator)
    model = gpt2(60, 0.0)
    loss = reference(model, batch.examples, denominator)
    loss.backward()
    autograd = torch.cat([value.grad.flatten() for value in model.parameters()])
    settings = TrainSettings(max_tokens=16, objective="causal", denominator=denominator, clip=1e9)
    outcome, gradient = gradient_of_step(new_state(gpt2(60, 0.0), settings, budget), batch, settings)
    assert outcome.loss == pytest.approx(float(loss.detach()), abs=1e-6)
    torch.testing.assert_close(gradient, autograd, atol=1e-6, rtol=1e-5)


def test_adapting_trains_measures_and_writes_a_folder_without_dana(plugin, repository_texts, byte_level, tmp_path):
    texts = {"corpus": repository_texts[4:20], "task": repository_texts[:2], "general": repository_texts[2:4]}
    inputs = [write_documents(tmp_path / name, some) for name, some in texts.items()]
    gpt2(len(byte_level)).save_pretrained(tmp_path / "base")
    byte_level.save_pretrained(tmp_path / "base")
    rates = {"dropout": 0.0, "learning_rate": 1e-2}
    settings = AdaptSettings(objective="causal", steps=30, batch_size=16, max_tokens=48, evaluations=0, **rates)
    artifact = adapt_stage(str(tmp_path / "base"), inputs[0], None, *inputs[1:], settings, tmp_path / "out")
    lines = [json.loads(line) for line in (artifact.path / "training.jsonl").read_text().splitlines()]
    before, after = (line for line in lines if line["kind"] == "evaluation")
    assert after["task_loss"] < before["task_loss"] - 0.5
    assert artifact.manifest["depends_on"]["settings"]["objective"]["code"]["class"] == "Causal"
    card = (artifact.path / "README.md").read_text()
    assert "| objective | next token |" in card
    assert "`AutoModelForCausalLM.from_pretrained`" in card
    collator = OBJECTIVES.create("causal").heldout_collator(byte_level)
    tokens = Tokens.of(iterate_documents(inputs[1]), byte_level)
    heldout, _ = build_examples(tokens, None, collator.special_tokens, 48)
    batch = collator.step_batch(heldout.take(np.arange(len(heldout))), 0, "token_count").examples
    for folder, line in ((tmp_path / "base", before), (artifact.path, after)):
        model = AutoModelForCausalLM.from_pretrained(folder).eval()
        assert line["task_loss"] == pytest.approx(float(reference(model, batch, "token_count").detach()), abs=1e-5)


def test_other_architectures_and_layouts_are_refused(plugin):
    with pytest.raises(ConfigError, match=r"objective='causal'.* bert"):
        OBJECTIVES.create("causal").auto_class(BertConfig())
    with pytest.raises(ConfigError, match=r"layout='unpadded'.*objective=causal"):
        TrainSettings(objective="causal", execution=Execution(layout="unpadded"))


def test_the_page_has_this_plugin_and_its_loop_gives_the_loss_of_a_step(plugin, byte_level):
    code, training_loop = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)[:2]
    assert code == (PLUGIN / "toy_objective" / "causal.py").read_text(encoding="utf-8")
    registration = re.findall(r"^```toml\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)[0]
    assert registration in (PLUGIN / "pyproject.toml").read_text()
    examples, model = make_batch(byte_level, [6, 4, 9], [1.0, 0.5, 0.25]), gpt2(60).eval()
    names = {"examples": examples, "rows": np.arange(3), "model": model, "tokenizer": byte_level, "epoch": 0}
    exec(training_loop, names)
    loss = float(reference(model, examples.take(np.arange(3)), "batch").detach())
    assert names["loss"] == pytest.approx(loss, abs=1e-6)
