"""A step of training waits for its device once: while the CPU waits, it prepares nothing for it."""

from collections import Counter

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import BertConfig, BertLMHeadModel

from dana.models.varlen import padded_attention
from dana.train import LAYOUTS
from dana.train.layout import BatchLayout
from dana.train.loop import _numbers_of_step, passes_of, prepare, take_step
from dana.train.objectives.causal import CausalCollator
from dana.train.settings import TrainSettings
from tests.train.conftest import (
    COLLATORS,
    PAIR_TOKENS,
    SPECIAL_TOKENS,
    bert,
    new_state,
    random_documents,
    random_examples,
    use_varlen,
)

# Operators whose result the CPU needs before it goes on; bincount, as it sizes its result by the
# largest number.
WAITS = ("_local_scalar_dense", "nonzero", "masked_select", "_unique", "bincount", "equal")
ALL_COLLATORS = {**COLLATORS, "causal": CausalCollator(SPECIAL_TOKENS)}


def is_mask(part):
    return isinstance(part, torch.Tensor) and part.dtype == torch.bool


class CountWaits(TorchDispatchMode):
    """Counts the waits by operator; an index that is a mask is one."""

    def __init__(self):
        super().__init__()
        self.waits = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        indices = args[1] if name.startswith("index") and isinstance(args[1], list) else []
        if name.startswith(WAITS) or any(map(is_mask, indices)):
            self.waits[name] += 1
        return func(*args, **(kwargs or {}))


def step_of(objective):
    """The settings, model and batch of a step."""
    settings = TrainSettings(max_tokens=16, objective=objective)
    model = bert(0.1, objective == "next_sentence")
    if objective == "causal":
        model = BertLMHeadModel(BertConfig(**{**model.config.to_dict(), "is_decoder": True}))
    made = settings.make_objective()
    examples = random_examples()
    if made.has_own_head:
        examples = random_documents(8, draw=made.draw(0))
    elif objective == "next_sentence":
        examples.__dict__["special_tokens"] = PAIR_TOKENS
    batch = ALL_COLLATORS[objective].step_batch(examples.take(np.arange(8)), 0, "batch")
    return settings, model, batch


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("objective", ALL_COLLATORS)
def test_a_step_of_several_passes_waits_once(objective, layout, monkeypatch):
    settings, model, batch = step_of(objective)
    if layout not in settings.make_objective().layouts:
        pytest.skip("its pairs need padded rows")
    if layout == "unpadded":
        use_varlen(model)
    state = new_state(model, settings, 48, layout=layout)
    passes = passes_of(state, batch)
    assert len(passes) > 1
    reads = []

    def count_reads(*parts):
        reads.append(1)
        return _numbers_of_step(*parts)

    monkeypatch.setattr("dana.train.loop._numbers_of_step", count_reads)
    take_step(state, batch, 1e-4, 0, settings, passes)  # the optimizer makes its moments
    reads.clear()
    with CountWaits() as counted:
        outcome = take_step(state, batch, 1e-4, 1, settings, passes)
    assert outcome.loss > 0
    assert reads == [1]
    # The padded layout's mask is looked at by transformers: whether all of it is True.
    looks = counted.waits.pop("_local_scalar_dense", 0)
    assert looks <= (2 * len(passes) if layout == "padded" else 0)
    assert not counted.waits


def test_the_product_that_stands_in_for_the_kernel_waits_for_nothing():
    parts = torch.randn(3, 1, 2, 9, 4, requires_grad=True)
    bounds = torch.tensor([0, 4, 5, 9], dtype=torch.int32)
    with CountWaits() as counted:
        padded_attention(*parts.unbind(0), bounds, 4, sides=(1, 1)).sum().backward()
    assert not counted.waits


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("objective", ["masked", "position", "crops"])
def test_a_gpu_is_waited_for_once(objective):
    settings, model, batch = step_of(objective)
    use_varlen(model)
    shape = BatchLayout("unpadded", budget=48, bf16=True)
    state = prepare(model, settings, Accelerator(), shape)
    passes = passes_of(state, batch)
    assert passes[0].micro.inputs["input_ids"].is_pinned()
    take_step(state, batch, 1e-4, 0, settings, passes)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with pytest.warns(UserWarning, match="synchronizing") as warnings:
            take_step(state, batch, 1e-4, 1, settings, passes)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert len([one for one in warnings if "synchronizing" in str(one.message)]) == 1
