"""A step whose gradient is not finite leaves the model alone and is recorded; ten in a row end the run."""

import json
import math
from copy import deepcopy
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.overrides import TorchFunctionMode

from dana.core.errors import DanaError
from dana.models.heads import SelectedLogits
from dana.train.execution import total
from dana.train.loop import take_step
from dana.train.objectives.batch import StepBatch
from dana.train.plan import Plan
from dana.train.records import to_line
from dana.train.settings import TrainSettings
from dana.train.state import save_model, save_state
from tests.train.conftest import MASKED, parameters, run, steps

SETTINGS = TrainSettings(steps=6, batch_size=4, max_tokens=16)


@pytest.fixture
def poison(monkeypatch, examples):
    """Makes the training losses of the first example of some steps NaN, wherever it occurs; returns its id."""

    def call(*steps):
        plan = Plan(examples.lengths, examples.ids, SETTINGS)
        ids = np.array([examples.ids[plan[step].rows[0]] for step in steps], dtype=np.uint64)
        make_micro, forward = StepBatch.micro, SelectedLogits.forward

        def micro(self, rows, layout):
            batch = make_micro(self, rows, layout)
            bad = torch.from_numpy(np.isin(self.examples.ids, ids))[batch.owners]
            return replace(batch, inputs={**batch.inputs, "bad": bad})

        def spoil(self, input_ids, where, bad=None, **attention):
            logits = forward(self, input_ids, where, **attention)
            return logits if bad is None or not self.training else logits + torch.where(bad, math.nan, 0.0)[:, None]

        monkeypatch.setattr(StepBatch, "micro", micro)
        monkeypatch.setattr(SelectedLogits, "forward", spoil)
        return ids

    return call


def test_a_step_without_a_finite_gradient_is_skipped_and_recorded(examples, poison, caplog):
    poison(2)
    state, records = run(examples, steps=6, batch_size=4)
    assert [record.skipped for record in steps(records)] == [False, False, True, False, False, False]
    assert "step 3: skipped, its gradient is not finite (loss nan, gradient norm nan)" in caplog.text
    line = json.loads(to_line(steps(records)[2]))
    assert (line["skipped"], line["loss"], line["grad_norm"]) == (True, None, None)
    weights, moments = parameters(state.module), deepcopy(state.optimizer.state_dict()["state"])
    assert torch.isfinite(weights).all()
    batch = MASKED.step_batch(examples.take(np.arange(24)), 0, "batch")
    assert take_step(state, batch, 1e-3, 1, SETTINGS).skipped
    assert torch.equal(parameters(state.module), weights)
    for name, values in state.optimizer.state_dict()["state"].items():
        assert all(torch.equal(value, moments[name][key]) for key, value in values.items())
    assert all(value.grad is None for value in state.module.parameters())


def test_ten_in_a_row_end_the_run_and_one_an_epoch_does_not(examples, poison):
    ids = poison(0)
    _, records = run(examples, steps=36, batch_size=4)
    assert sum(record.skipped for record in steps(records)) == 6
    with pytest.raises(DanaError, match=r"10 steps in a row, up to step 10.*learning_rate"):
        run(examples.rows(np.flatnonzero(np.isin(examples.ids, ids))), steps=60)
    with pytest.raises(DanaError, match=r"10 steps in a row.*learning_rate"):
        run(examples, steps=60, learning_rate=1e30, clip=1e30)


def test_what_is_not_finite_is_not_saved(examples, tiny_tokenizer, tmp_path):
    state, _ = run(examples, steps=1)
    save_state(state, tmp_path / "sound")
    with torch.no_grad():
        next(iter(state.module.parameters()))[0, 0] = math.inf
    for save in (lambda path: save_state(state, path), lambda path: save_model(state, tiny_tokenizer, path)):
        with pytest.raises(DanaError, match=r"word_embeddings.*not finite.*learning_rate"):
            save(tmp_path / "spoilt")
        assert not (tmp_path / "spoilt").exists()


def test_the_scaler_of_fp16_is_called_for_skipped_steps(examples, poison, monkeypatch):
    """It starts with too high a scale, and must see the overflow to lower it."""
    poison(0)
    state, _ = run(examples, steps=1, batch_size=4)
    calls, accelerator = [], state.accelerator
    names = ("device", "distributed_type", "gradient_accumulation_steps", "process_index", "num_processes", "no_sync")
    values = {name: getattr(accelerator, name) for name in (*names, "clip_grad_norm_", "backward")}
    state.accelerator = SimpleNamespace(**values, scaler=SimpleNamespace())
    monkeypatch.setattr("accelerate.optimizer.AcceleratedOptimizer.step", lambda self: calls.append(1))
    assert take_step(state, MASKED.step_batch(examples.take(np.arange(24)), 0, "batch"), 1e-3, 1, SETTINGS).skipped
    assert calls == [1]


class NoFloat64OnDevice(TorchFunctionMode):
    """Stands in for a Mac's device, without float64: tensors that were not copied to the host count as its own."""

    def __init__(self):
        self.on_host = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is torch.Tensor.double:
            assert any(args[0] is tensor for tensor in self.on_host), "float64 on the device"
        result = func(*args, **(kwargs or {}))
        if func is torch.Tensor.cpu:
            result = result.clone()
            self.on_host.append(result)
        return result


def test_no_float64_reaches_the_device(examples):
    with NoFloat64OnDevice() as mode:
        run(examples, steps=2)
    assert len(mode.on_host) > 2
    alone = SimpleNamespace(num_processes=1, device=torch.device("meta"))
    assert total(alone, torch.ones(3, dtype=torch.float64)).tolist() == [1, 1, 1]
