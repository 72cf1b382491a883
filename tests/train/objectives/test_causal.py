"""A causal objective from outside dana: one file, docs/extend/objective.md, through the training loop as it is."""

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, BertConfig, GPT2Config, GPT2LMHeadModel

from dana.core.errors import ConfigError
from dana.core.registry import OBJECTIVES
from dana.core.rng import torch_seed
from dana.core.schemas import iterate_documents
from dana.stages.training import adapt_stage
from dana.train import DENOMINATORS
from dana.train.examples import Examples, build_examples
from dana.train.layout import BatchLayout
from dana.train.loop import prepare
from dana.train.settings import AdaptSettings, Execution, TrainSettings
from dana.train.tokens import Tokens
from tests.conftest import write_documents
from tests.train.conftest import gradient_of_step

REPOSITORY = Path(__file__).parents[3]
PLUGIN = REPOSITORY / "tests" / "plugins" / "toy_objective"
PAGE = (REPOSITORY / "docs" / "extend" / "objective.md").read_text(encoding="utf-8")
# With so large an eps Adam cannot amplify rounding to 1e-6.
VALUES = {"steps": 6, "batch_size": 8, "max_tokens": 48, "evaluations": 0, "learning_rate": 2e-5, "eps": 1e-5}
ADAPT = AdaptSettings(**VALUES, dropout=0.0)


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    """The package as if it were installed: a folder for PYTHONPATH."""
    folder = tmp_path / "site"
    shutil.copytree(PLUGIN / "toy_objective", folder / "toy_objective")
    info = folder / "toy_objective-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: toy-objective\nVersion: 0.1.0\n")
    (info / "entry_points.txt").write_text("[dana.objectives]\ncausal = toy_objective.causal:Causal\n")
    monkeypatch.syspath_prepend(str(folder))
    yield folder
    for name in [name for name in sys.modules if name.startswith("toy_objective")]:
        del sys.modules[name]


def gpt2(vocabulary, dropout=0.1):
    shape = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 64, "bos_token_id": 0}
    rates = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), dropout)
    with torch_seed(1):
        return GPT2LMHeadModel(GPT2Config(vocab_size=vocabulary, **shape, **rates))


@pytest.fixture
def base(byte_level, tmp_path):
    folder = tmp_path / "gpt2"
    gpt2(len(byte_level)).save_pretrained(folder)
    byte_level.save_pretrained(folder)
    return folder


@pytest.fixture
def inputs(tmp_path, repository_texts):
    texts = {"corpus": repository_texts[4:20], "task": repository_texts[:2], "general": repository_texts[2:4]}
    return [write_documents(tmp_path / "in" / name, some) for name, some in texts.items()]


def records(folder, kind):
    lines = [json.loads(line) for line in (folder / "training.jsonl").read_text().splitlines()]
    return [line for line in lines if line["kind"] == kind]


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
    expected = reference(model, batch.examples, denominator)
    expected.backward()
    gradient = torch.cat([value.grad.flatten() for value in model.parameters()])
    execution = Execution(micro_batch_tokens=16)
    settings = TrainSettings(max_tokens=16, objective="causal", denominator=denominator, clip=1e9, execution=execution)
    state = prepare(gpt2(60, 0.0), settings, Accelerator(cpu=True), BatchLayout(budget=budget))
    outcome, found = gradient_of_step(state, batch, settings)
    assert outcome.loss == pytest.approx(float(expected.detach()), abs=1e-6)
    torch.testing.assert_close(found, gradient, atol=1e-6, rtol=1e-5)


def test_adapting_trains_measures_and_writes_a_folder_without_dana(plugin, base, inputs, byte_level, tmp_path):
    settings = replace(ADAPT, objective="causal", steps=40, batch_size=16, learning_rate=1e-2)
    artifact = adapt_stage(str(base), inputs[0], None, *inputs[1:], settings, tmp_path / "out")
    before, after = records(artifact.path, "evaluation")
    assert after["task_loss"] < before["task_loss"] - 0.5
    assert artifact.manifest["depends_on"]["settings"]["objective"]["code"]["class"] == "Causal"
    card = (artifact.path / "README.md").read_text()
    assert "| objective | next token |" in card
    assert "`AutoModelForCausalLM.from_pretrained`" in card
    collator = OBJECTIVES.create("causal").heldout_collator(byte_level)
    tokens = Tokens.of(iterate_documents(inputs[1]), byte_level)
    heldout, _ = build_examples(tokens, None, collator.special_tokens, 48)
    batch = collator.step_batch(heldout.take(np.arange(len(heldout))), 0, "token_count").examples
    for folder, line in ((base, before), (artifact.path, after)):
        model = AutoModelForCausalLM.from_pretrained(folder).eval()
        assert line["task_loss"] == pytest.approx(float(reference(model, batch, "token_count").detach()), abs=1e-5)


def test_other_architectures_and_layouts_are_refused(plugin):
    with pytest.raises(ConfigError, match=r"objective='causal'.* bert"):
        OBJECTIVES.create("causal").auto_class(BertConfig())
    with pytest.raises(ConfigError, match=r"layout='unpadded'.*objective=causal"):
        TrainSettings(objective="causal", execution=Execution(layout="unpadded"))


def test_the_page_has_this_plugin_and_its_loop_gives_the_loss_of_a_step(plugin, byte_level):
    code, loop = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)[:2]
    assert code == (PLUGIN / "toy_objective" / "causal.py").read_text(encoding="utf-8")
    registration = re.findall(r"^```toml\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)[0]
    assert registration in (PLUGIN / "pyproject.toml").read_text()
    examples, model = make_batch(byte_level, [6, 4, 9], [1.0, 0.5, 0.25]), gpt2(60).eval()
    names = {"examples": examples, "rows": np.arange(3), "model": model, "tokenizer": byte_level, "epoch": 0}
    exec(loop, names)
    expected = float(reference(model, examples.take(np.arange(3)), "batch").detach())
    assert names["loss"] == pytest.approx(expected, abs=1e-6)


@pytest.mark.slow
def test_two_processes_give_the_weights_of_one(plugin, base, inputs, tmp_path):
    one = adapt_stage(
        str(base), inputs[0], None, *inputs[1:], replace(ADAPT, objective="causal"), tmp_path / "one"
    ).path
    run = tmp_path / "run"
    for name, folder in zip(("corpus", "task/held_out", "held_out"), inputs, strict=True):
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).symlink_to(folder)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", "-m", "dana"]
    command += ["adapt", run, "--model", base, "--unweighted", "--to", tmp_path / "two", "--objective", "causal"]
    values = {**VALUES, "dropout": 0.0, "learning_rate": "2.0e-5", "eps": "1.0e-5"}
    command += [
        "--set",
        "adapt.execution.micro_batch_tokens=96",
        *(f"adapt.{key}={value}" for key, value in values.items()),
    ]
    environment = {**os.environ, "PYTHONPATH": f"{plugin}:{REPOSITORY}", "ACCELERATE_USE_CPU": "true"}
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=240, env=environment)
    assert done.returncode == 0, done.stderr
    assert "2 process(es) on cpu, MULTI_CPU" in done.stderr
    expected, found = (load_file(folder / "model.safetensors") for folder in (one, tmp_path / "two"))
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, atol=1e-6, rtol=0)
    for first, second in zip(records(one, "step"), records(tmp_path / "two", "step"), strict=True):
        assert second["loss"] == pytest.approx(first["loss"], abs=1e-6)
