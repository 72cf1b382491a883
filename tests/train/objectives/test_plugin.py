"""An objective from outside dana: one file, docs/extend/objective.md, through the training loop as it is."""

import json
import re
import tomllib
from importlib.metadata import EntryPoint
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import BertConfig

from dana.core import registry
from dana.core.errors import ConfigError
from dana.core.registry import OBJECTIVES
from dana.stages.training import adapt_stage
from dana.train.settings import AdaptSettings
from tests.conftest import write_documents
from tests.train.objectives.test_causal import gpt2, make_batch

REPOSITORY = Path(__file__).parents[3]
PLUGIN = REPOSITORY / "tests" / "plugins" / "toy_objective"
PAGE = (REPOSITORY / "docs" / "extend" / "objective.md").read_text(encoding="utf-8")


def register(monkeypatch):
    """Registers the objectives of the package as if it were installed."""
    other_entries = registry.entry_points
    project = tomllib.loads((PLUGIN / "pyproject.toml").read_text("utf-8"))["project"]
    objectives = project["entry-points"][OBJECTIVES.group]

    def entry_points(group):
        ours = objectives.items() if group == OBJECTIVES.group else ()
        entries = [EntryPoint(name, value, group) for name, value in ours]
        return [*other_entries(group=group), *entries]

    monkeypatch.syspath_prepend(PLUGIN)
    monkeypatch.setattr(registry, "entry_points", entry_points)


@pytest.fixture
def plugin(monkeypatch):
    register(monkeypatch)


def reference(model, batch, after):
    """The mean over examples of the loss of what follows a share of each, by the model's own forward pass."""
    losses = []
    for first, last in pairwise(batch.offsets.tolist()):
        ids = torch.from_numpy(batch.tokens[first:last]).long()[None]
        labels = ids.clone()
        labels[0, : int(np.ceil(after * (last - first)))] = -100
        losses.append(model(input_ids=ids, labels=labels).loss)
    return sum(
        weight * loss for weight, loss in zip(batch.weights.tolist(), losses, strict=True)
    ) / len(losses)


def test_adapting_trains_measures_and_writes_a_folder_without_dana(
    plugin, repository_texts, byte_level, tmp_path
):
    texts = {
        "pool": repository_texts[4:20],
        "task": repository_texts[:2],
        "held_out": repository_texts[2:4],
    }
    inputs = [write_documents(tmp_path / name, some) for name, some in texts.items()]
    gpt2(len(byte_level)).save_pretrained(tmp_path / "base")
    byte_level.save_pretrained(tmp_path / "base")
    rates = {"dropout": 0.0, "learning_rate": 1e-2}
    objective = "completion:after=0.3"
    settings = AdaptSettings(
        objective=objective, steps=30, batch_size=16, max_tokens=48, evaluations=0, **rates
    )
    artifact = adapt_stage(
        str(tmp_path / "base"), inputs[0], None, *inputs[1:], settings, tmp_path / "out"
    )
    lines = [
        json.loads(line) for line in (artifact.path / "training.jsonl").read_text().splitlines()
    ]
    before, after = (line for line in lines if line["kind"] == "evaluation")
    assert after["target_loss"] < before["target_loss"] - 0.5
    decisive = artifact.manifest["depends_on"]["settings"]["objective"]
    assert (decisive["code"]["class"], decisive["after"]) == ("Completion", 0.3)
    card = (artifact.path / "README.md").read_text()
    assert "| objective | rest of a text |" in card
    assert "`AutoModelForCausalLM.from_pretrained`" in card


def test_what_it_refuses_is_refused(plugin):
    with pytest.raises(ConfigError, match=r"objective='completion'.* bert"):
        OBJECTIVES.create("completion").auto_class(BertConfig())
    with pytest.raises(ConfigError, match=r"after=1.0: must be in \[0, 1\)"):
        OBJECTIVES.create("completion:after=1.0")


def test_the_page_has_these_plugins_and_its_loop_gives_the_loss_of_a_step(plugin, byte_level):
    *files, training_loop = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    for code, name in zip(files, ("completion", "sentence_order"), strict=True):
        assert code == (PLUGIN / "toy_objective" / f"{name}.py").read_text(encoding="utf-8")
    for registration in re.findall(r"^```toml\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE):
        assert registration in (PLUGIN / "pyproject.toml").read_text()
    examples, model = make_batch(byte_level, [6, 4, 9], [1.0, 0.5, 0.25]), gpt2(60).eval()
    names = {
        "examples": examples,
        "rows": np.arange(3),
        "model": model,
        "tokenizer": byte_level,
        "epoch": 0,
    }
    exec(training_loop, names)
    loss = float(reference(model, examples.take(np.arange(3)), 0.5).detach())
    assert names["loss"] == pytest.approx(loss, abs=1e-6)
