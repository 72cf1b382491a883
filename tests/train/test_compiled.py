"""Compiled layers: when, that nothing else changes, and what happens where the compiler fails."""

import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from torch._dynamo.utils import counters

from dana.train import compiled
from dana.train.compiled import compile_layers, is_wanted, layers_of
from dana.train.execution import Precision
from dana.train.half_weights import HalfWeights
from dana.train.layout import BatchLayout
from dana.train.loop import take_step
from dana.train.operations import OperationCount
from dana.train.passes import Trial
from dana.train.settings import Execution, TrainSettings
from tests.train.conftest import MASKED, bert, new_state, parameters, random_examples, use_varlen

SETTINGS = TrainSettings(max_tokens=16, batch_size=8, steps=6, evaluations=0)


@pytest.fixture
def graphs(monkeypatch):
    """Layers compiled without a C++ compiler; returns torch's counters."""
    compile_layer = torch.nn.Module.compile
    monkeypatch.setattr(
        torch.nn.Module,
        "compile",
        lambda layer, **options: compile_layer(layer, backend="aot_eager", **options),
    )
    torch._dynamo.reset()
    counters.clear()
    yield counters
    torch._dynamo.reset()


def model_of(layout):
    AcceleratorState._reset_state(reset_partial_state=True)
    model = bert()
    if layout == "unpadded":
        use_varlen(model)
    return model


def trial_of(model, settings=SETTINGS):
    precision = Precision(torch.device("cpu"), "no", from_launcher=False)
    accelerator = Accelerator(cpu=True)
    return Trial(model, random_examples(64), settings, accelerator, precision, MASKED)


def train_some(model, layout, bf16):
    state = new_state(model, SETTINGS, layout=layout, bf16=bf16)
    if bf16:
        state.half = HalfWeights(state.model)
    examples = random_examples(64)
    losses = []
    for index in range(6):
        rows = np.random.default_rng(index).permutation(64)[: 8 + index]
        batch = MASKED.step_batch(examples.take(rows), 0, "batch")
        losses.append(take_step(state, batch, 1e-3, index, SETTINGS).loss)
    return losses


@pytest.mark.parametrize(("layout", "bf16"), [("padded", False), ("unpadded", True)])
def test_one_graph_serves_all_layers_and_lengths_and_the_numbers_stay(
    layout, bf16, graphs, monkeypatch
):
    monkeypatch.setattr(compiled, "saves_casts", lambda *arguments: bf16)
    plain = model_of(layout)
    losses = train_some(plain, layout, bf16)
    model = model_of(layout)
    before = parameters(model)
    random_state = torch.get_rng_state()
    settings = replace(SETTINGS, execution=Execution(compile=True))
    shape = BatchLayout(layout, 512, bf16=bf16)
    line = compile_layers(trial_of(model, settings), shape)
    assert line.startswith("compiled  2 layers in ")
    assert torch.equal(parameters(model), before)
    assert torch.equal(torch.get_rng_state(), random_state)
    assert all(value.grad is None for value in model.parameters())
    assert train_some(model, layout, bf16) == pytest.approx(losses, rel=1e-5)
    assert float((parameters(model) - parameters(plain)).abs().max()) < 1e-5
    assert graphs["stats"]["unique_graphs"] == 1


def test_a_failure_is_said_and_the_layers_run_as_they_are(monkeypatch, heard):
    def broken(graph, inputs):
        raise RuntimeError("no compiler here\nand a long story")

    compile_layer = torch.nn.Module.compile
    monkeypatch.setattr(
        torch.nn.Module,
        "compile",
        lambda layer, **options: compile_layer(layer, backend=broken, **options),
    )
    model = model_of("padded")
    settings = replace(SETTINGS, execution=Execution(compile=True))
    line = compile_layers(trial_of(model, settings), BatchLayout(budget=512))
    assert re.match("compiled  no: ArtifactError: .* raised: RuntimeError: no compiler here", line)
    assert line in heard.text
    assert all(value.grad is None for value in model.parameters())
    expected = train_some(model_of("padded"), "padded", False)
    assert train_some(model, "padded", False) == pytest.approx(expected)


def test_a_failure_on_another_rank_counts(monkeypatch, graphs):
    model = model_of("padded")
    settings = replace(SETTINGS, execution=Execution(compile=True))
    trial = trial_of(model, settings)
    ranks = SimpleNamespace(
        num_processes=2,
        device=torch.device("cpu"),
        distributed_type=SimpleNamespace(value="MULTI_CPU"),
        gather=lambda own: torch.tensor([int(own), 1]),
    )
    line = compile_layers(replace(trial, accelerator=ranks), BatchLayout(budget=512))
    assert line == "compiled  no: it fails on another rank"
    assert all(layer._compiled_call_impl is None for layer in layers_of(model))


@pytest.mark.parametrize(
    ("setting", "steps", "kind", "checkpointing", "wanted"),
    [
        ("auto", 10**7, "NO", False, True),
        ("auto", 10, "NO", False, False),  # shorter than a compilation
        ("auto", 10**7, "DEEPSPEED", False, False),
        ("auto", 10**7, "NO", True, False),
        (True, 10, "NO", False, True),
        (True, 10, "DEEPSPEED", False, False),
        (False, 10**7, "NO", False, False),
    ],
)
def test_long_runs_on_gpus_are_compiled(setting, steps, kind, checkpointing, wanted, monkeypatch):
    monkeypatch.setattr(compiled, "peak_of", lambda device: 1e9)
    execution = Execution(compile=setting, gradient_checkpointing=checkpointing)
    settings = replace(SETTINGS, steps=steps, execution=execution)
    ranks = SimpleNamespace(
        device=torch.device("cuda"),
        num_processes=1,
        distributed_type=SimpleNamespace(value=kind),
    )
    trial = replace(trial_of(bert(), settings), accelerator=ranks)
    assert is_wanted(trial) is wanted
    monkeypatch.setattr(compiled, "peak_of", lambda device: None)
    if setting == "auto":
        assert not is_wanted(trial), "of a GPU that is not known"


@pytest.mark.parametrize(("seconds", "wanted"), [(390, False), (410, True)])
def test_it_pays_where_a_sixth_or_so_of_the_run_is_longer_than_a_compilation(
    seconds, wanted, monkeypatch
):
    """60 seconds are 15 % of 400, at 30 % of the peak of two GPUs."""
    monkeypatch.setattr(compiled, "peak_of", lambda device: 1e9)
    operations = seconds * 2 * 0.3 * 1e9 / SETTINGS.steps
    monkeypatch.setattr(OperationCount, "of_step", lambda count, lengths, labels: operations)
    trial = trial_of(bert())
    ranks = SimpleNamespace(device=torch.device("cuda"), num_processes=2)
    assert compiled.pays(replace(trial, accelerator=ranks)) is wanted


def test_the_layers_are_the_longest_list_of_one_class():
    model = bert()
    assert layers_of(model) == list(model.bert.encoder.layer)
