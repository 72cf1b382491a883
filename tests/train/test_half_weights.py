"""Weights that a step casts once: the numbers of autocast, with a quarter fewer launches a step."""

from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoConfig, AutoModelForMaskedLM

from dana.core.rng import torch_seed
from dana.train.half_weights import HalfWeights, saves_casts
from dana.train.layout import BatchLayout
from dana.train.loop import take_step
from dana.train.planner import before_wrapping
from dana.train.settings import TrainSettings
from dana.train.training_state import TrainingState
from tests.train.conftest import (
    COLLATORS,
    MASKED,
    PAIR_TOKENS,
    bert,
    new_state,
    parameters,
    random_documents,
    random_examples,
    use_varlen,
)


def steps_of(objective, budget, half, dropout=0.1):
    """Parameters and losses after three steps in bfloat16, with half weights or without."""
    settings = TrainSettings(max_tokens=16, objective=objective)
    made = settings.make_objective()
    model = bert(dropout, objective == "next_sentence")
    examples = random_examples()
    if made.has_own_head:
        examples = random_documents(24, draw=made.draw(0))
    elif objective == "next_sentence":
        examples.__dict__["special_tokens"] = PAIR_TOKENS
    with torch_seed(3):
        state = new_state(model, settings, budget, bf16=True)
    if half:
        state.half = HalfWeights(state.model)
    outcomes = []
    for index in range(3):
        rows = np.arange(8) + 8 * index
        batch = COLLATORS[objective].step_batch(examples.take(rows), 0, "batch")
        outcomes.append(take_step(state, batch, 1e-3, index, settings))
    return parameters(state.module), outcomes, state


@pytest.mark.parametrize("objective", COLLATORS)
def test_a_step_of_one_pass_has_the_bits_of_autocast(objective):
    plain, plain_outcomes, _ = steps_of(objective, 512, half=False)
    half, outcomes, state = steps_of(objective, 512, half=True)
    assert outcomes == plain_outcomes
    assert torch.equal(half, plain)
    assert {value.dtype for value in state.module.parameters()} == {torch.float32}


@pytest.mark.parametrize("objective", COLLATORS)
def test_passes_are_added_in_float32(objective):
    plain, _, _ = steps_of(objective, 48, half=False)
    half, _, _ = steps_of(objective, 48, half=True)
    apart = float((half - plain).norm()) / float(plain.norm())
    assert apart < 1e-5, "the order of a sum, not the rounding of bfloat16"


def test_frozen_layers_have_no_gradient_and_an_error_leaves_the_weights_in_place():
    model = bert()
    frozen = model.bert.encoder.layer[0].attention.self.query
    frozen.requires_grad_(False)
    names = dict(model.named_parameters())
    half = HalfWeights(model)

    def stop():
        with half.in_place():
            some = model.bert.encoder.layer[1].output.dense.weight
            some.sum().backward()  # of a pass that ends in an error
            assert frozen.weight.dtype == torch.bfloat16
            assert not frozen.weight.requires_grad
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        stop()
    assert all(value is names[name] for name, value in model.named_parameters())
    half.collect()
    assert all(value.grad is None for value in model.parameters()), "none is left of that pass"


@pytest.mark.parametrize(
    ("processes", "kind", "device", "bf16", "launch", "expected"),
    [
        (1, "NO", "cuda", True, None, True),
        (1, "NO", "cuda", False, None, False),  # the model failed in bfloat16
        (1, "NO", "cuda", False, "bf16", True),
        (2, "MULTI_GPU", "cuda", True, None, False),
        (1, "DEEPSPEED", "cuda", True, None, False),
        (1, "NO", "cpu", True, None, False),
    ],
)
def test_one_process_on_a_gpu_has_them(
    processes, kind, device, bf16, launch, expected, monkeypatch
):
    monkeypatch.delenv("ACCELERATE_MIXED_PRECISION", raising=False)
    if launch:
        monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", launch)
    monkeypatch.setattr("dana.train.execution.has_bf16", lambda device: True)
    accelerator = SimpleNamespace(
        num_processes=processes,
        distributed_type=SimpleNamespace(value=kind),
        device=torch.device(device),
        mixed_precision=launch or "no",
    )
    model = bert()
    assert saves_casts(model, accelerator, bf16) is expected
    model.peft_config = {"default": "lora"}
    assert not saves_casts(model, accelerator, bf16)
    shape = before_wrapping(BatchLayout(bf16=bf16), accelerator)
    assert shape.bf16 is (bf16 or launch == "bf16"), "and a new head is warmed up alike"


class Kernel(torch.autograd.Function):
    """Stands in for the kernel as one operator forward and one backward."""

    @staticmethod
    def forward(context, query, key, value):
        return query.clone()

    @staticmethod
    def backward(context, gradient):
        return gradient.clone(), gradient, gradient


class CountLaunches(TorchDispatchMode):
    """Counts operators that compute something. A CPU's dropout is three, a GPU's one."""

    VIEWS = ("empty", "detach", "_unsafe_view", "reshape")

    def __init__(self):
        super().__init__()
        self.counts = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        if not func.is_view and not name.startswith(self.VIEWS):
            self.counts[name] += 1
        return func(*args, **(kwargs or {}))

    @property
    def total(self):
        dropouts = self.counts["bernoulli_"]
        return sum(self.counts.values()) - 2 * dropouts


def test_a_pass_of_bert_base_has_880_launches_at_most(monkeypatch):
    def stand_in(query, key, value, bounds, longest, *others):
        parts = (part[0].transpose(0, 1) for part in (query, key, value))
        return Kernel.apply(*parts).unsqueeze(0)

    monkeypatch.setattr("dana.models.varlen.kernel_attention", stand_in)
    monkeypatch.setattr("dana.models.varlen.has_kernel", lambda device: True)
    shape = {"hidden_size": 24, "num_attention_heads": 12, "intermediate_size": 32}
    config = AutoConfig.for_model("bert", vocab_size=60, num_hidden_layers=12, **shape)
    model = AutoModelForMaskedLM.from_config(config)
    use_varlen(model)
    settings = TrainSettings(max_tokens=16)
    state = new_state(model, settings, 1 << 20, layout="unpadded", bf16=True)
    batch = MASKED.step_batch(random_examples(24).take(np.arange(24)), 0, "batch")
    take_step(state, batch, 1e-4, 0, settings)  # the optimizer makes its moments
    counts = {}
    for name, half in (("autocast", None), ("half weights", HalfWeights(model))):
        measured: TrainingState = state
        measured.half = half
        with CountLaunches() as counter:
            take_step(measured, batch, 1e-4, 0, settings)
        counts[name] = counter.total
    assert counts["half weights"] < 880
    assert counts["autocast"] - counts["half weights"] > 200
