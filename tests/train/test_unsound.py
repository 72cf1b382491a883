"""A step whose gradient is not finite leaves the model alone, is counted and logged; ten in a row end the run."""

import json
import math
from copy import deepcopy
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from torch.overrides import TorchFunctionMode

from dana.core.errors import DanaError
from dana.models.heads import SelectedLogits
from dana.train.execution import total
from dana.train.loop import take_step
from dana.train.objectives.batch import StepBatch
from dana.train.plan import Plan
from dana.train.records import StepRecord, to_line
from dana.train.settings import TrainSettings
from dana.train.state import save_model, save_state
from tests.train.test_loop import parameters, steps

SETTINGS = TrainSettings(steps=6, batch_size=4, max_tokens=16)


@pytest.fixture
def poison(monkeypatch):
    """Spoils the losses of the first example of chosen steps, in whatever step it comes again."""

    def at(steps, examples):
        forward, plan = SelectedLogits.forward, Plan(examples.lengths, examples.ids, SETTINGS)
        ids = {int(examples.ids[plan[step].rows[0]]) for step in steps}
        of = StepBatch.of

        def marked(*arguments):
            batch = of(*arguments)
            object.__setattr__(batch, "bad", np.isin(batch.examples.ids, np.array(sorted(ids), dtype=np.uint64)))
            return batch

        make_micro = StepBatch.micro

        def micro_marked(self, rows, layout):
            micro = make_micro(self, rows, layout)
            bad = torch.from_numpy(self.bad)[micro.owners]
            return replace(micro, inputs={**micro.inputs, "bad": bad})

        def spoilt(self, input_ids, where, bad=None, **attention):
            logits = forward(self, input_ids, where, **attention)
            return logits if bad is None or not self.training else logits + torch.where(bad, math.nan, 0.0)[:, None]

        monkeypatch.setattr(StepBatch, "of", staticmethod(marked))
        monkeypatch.setattr(StepBatch, "micro", micro_marked)
        monkeypatch.setattr(SelectedLogits, "forward", spoilt)
        return ids

    return at


def test_a_step_without_a_finite_gradient_is_skipped_counted_and_told(run, examples, poison, caplog):
    poison([2], examples)
    prepared, records = run(examples, steps=6, batch_size=4)
    taken = steps(records)
    assert [record.skipped for record in taken] == [False, False, True, False, False, False]
    assert [record.step for record in taken] == [1, 2, 3, 4, 5, 6], "the plan goes on"
    assert torch.isfinite(parameters(prepared)).all()
    assert "step 3: skipped, its gradient is not finite (loss nan, gradient norm nan)" in caplog.text
    line = json.loads(to_line(taken[2]))
    assert (line["skipped"], line["loss"], line["grad_norm"]) == (True, None, None)
    assert "skipped" not in json.loads(to_line(taken[1]))


def test_a_skipped_step_leaves_weights_and_moments_as_they_were(run, examples, poison, collator):
    prepared, _ = run(examples, steps=1, batch_size=4)
    weights, moments = parameters(prepared), deepcopy(prepared.optimizer.state_dict()["state"])
    poison([0], examples)
    batch = collator.step_batch(examples.take(np.arange(24)), 0, "batch")
    taken = take_step(prepared, batch, 1e-3, 1, SETTINGS)
    assert taken.skipped
    assert torch.equal(parameters(prepared), weights)
    for name, state in prepared.optimizer.state_dict()["state"].items():
        assert all(torch.equal(value, moments[name][key]) for key, value in state.items())
    assert all(value.grad is None for value in prepared.module.parameters()), "nor in the next step's sum"


def test_ten_in_a_row_end_the_run(run, examples, poison):
    ids = poison([0], examples)
    with pytest.raises(DanaError, match=r"10 steps in a row, up to step 10, had no finite gradient") as told:
        run(examples.rows(np.flatnonzero(np.isin(examples.ids, np.array([*ids], dtype=np.uint64)))), steps=60)
    assert "try a lower learning_rate" in str(told.value)


def test_one_bad_example_an_epoch_does_not_end_a_run(run, examples, poison):
    poison([0], examples)
    _, records = run(examples, steps=72, batch_size=4)
    assert sum(bool(record.skipped) for record in steps(records)) == 12
    assert not steps(records)[-1].skipped or not steps(records)[-2].skipped


def test_a_rate_that_wrecks_the_weights_stops_the_run(run, examples):
    with pytest.raises(DanaError, match=r"10 steps in a row.*try a lower learning_rate"):
        run(examples, steps=60, learning_rate=1e30, clip=1e30)


def test_weights_that_are_not_finite_are_not_saved(run, examples, tmp_path):
    prepared, _ = run(examples, steps=1)
    save_state(prepared, tmp_path / "sound")
    with torch.no_grad():
        next(iter(prepared.module.parameters()))[0, 0] = math.inf
    with pytest.raises(DanaError, match=r"parameter\..* not finite"):
        save_state(prepared, tmp_path / "spoilt")
    assert not (tmp_path / "spoilt").exists()


def test_a_model_that_is_not_finite_is_no_result(run, examples, tiny_tokenizer, tmp_path):
    wrecked, records = run(examples, steps=3, learning_rate=1e38, clip=1e30)
    assert [bool(record.skipped) for record in records if isinstance(record, StepRecord)][-1], "too short for ten"
    with pytest.raises(DanaError, match="not finite, so nothing was saved; lower learning_rate"):
        save_model(wrecked, tiny_tokenizer, tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_where_a_scaler_skips_it_is_asked_to(run, examples, poison, monkeypatch):
    """float16 starts with too high a scale: the scaler must see the overflow to lower it."""
    poison([0, 1, 2, 3, 4, 5], examples)
    calls = []
    monkeypatch.setattr("accelerate.optimizer.AcceleratedOptimizer.step", lambda self: calls.append(1))
    monkeypatch.setattr(Accelerator, "scaler", object(), raising=False)
    original = Accelerator.__init__

    def scaled(self, *args, **kwargs):
        original(self, *args, **kwargs)
        self.scaler = SimpleNamespace()

    monkeypatch.setattr(Accelerator, "__init__", scaled)
    monkeypatch.setattr(Accelerator, "unscale_gradients", lambda self, optimizer=None: None)
    monkeypatch.setattr(Accelerator, "backward", lambda self, loss: loss.backward())
    run(examples, steps=2, batch_size=4)
    assert len(calls) == 2


class OnlyHostsHaveFloat64(TorchFunctionMode):
    """A device without float64, as Macs' are: whatever was not copied to the host is taken to be on it."""

    def __init__(self):
        self.on_host = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is torch.Tensor.double:
            assert any(args[0] is tensor for tensor in self.on_host), "float64 on the device"
        found = func(*args, **(kwargs or {}))
        if func is torch.Tensor.cpu:
            found = found.clone()
            self.on_host.append(found)
        return found


def test_no_float64_reaches_the_device(run, examples):
    with OnlyHostsHaveFloat64() as seen:
        run(examples, steps=2)
    assert len(seen.on_host) > 2


def test_sums_of_one_rank_never_leave_the_host():
    alone = SimpleNamespace(num_processes=1, device=torch.device("meta"))
    assert total(alone, torch.ones(3, dtype=torch.float64)).tolist() == [1, 1, 1]
