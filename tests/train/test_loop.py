from dataclasses import replace

import numpy as np
import pytest
import torch

from dana.train import DENOMINATORS
from dana.train.objectives.masked import mask
from dana.train.plan import Plan
from dana.train.records import EvaluationRecord, StepRecord
from dana.train.settings import TrainSettings


def parameters(prepared):
    return torch.cat([value.detach().flatten() for value in prepared.module.parameters()])


def steps(records):
    return [record for record in records if isinstance(record, StepRecord)]


def weigh(examples, weights):
    return replace(examples, weights=np.asarray(weights, dtype=np.float32))


@pytest.mark.parametrize("objective", ["masked", "next_sentence"])
@pytest.mark.parametrize("denominator", DENOMINATORS)
def test_the_cut_into_micro_batches_changes_nothing(run, weighted, paired, objective, denominator):
    settings = {"steps": 4, "denominator": denominator, "objective": objective}
    examples = paired if objective == "next_sentence" else weighted
    whole, records = run(examples, **settings)
    for budget in (16, 50, 100):
        cut, cut_records = run(examples, budget=budget, **settings)
        torch.testing.assert_close(parameters(cut), parameters(whole), atol=1e-6, rtol=0)
        same_records(records, cut_records)


def same_records(records, cut_records):
    for one, other in zip(steps(records), steps(cut_records), strict=True):
        assert other.loss == pytest.approx(one.loss, abs=1e-6)
        assert other.plain_loss == pytest.approx(one.plain_loss, abs=1e-6)
        assert other.other_losses == (one.other_losses and pytest.approx(one.other_losses, abs=1e-6))
        assert other.grad_norm == pytest.approx(one.grad_norm, rel=1e-5)


@pytest.mark.parametrize("denominator", ["weight_sum", "token_count"])
def test_with_equal_weights_the_first_loss_is_that_of_transformers(run, tiny_model, collator, examples, denominator):
    _, records = run(examples, steps=1, denominator=denominator)
    rows = Plan(examples.lengths, examples.ids, TrainSettings(steps=1, batch_size=8, max_tokens=16))[0].rows
    batch = examples.take(rows)
    masked = mask(batch.tokens, batch.offsets, batch.ids, 0, collator.masking)
    inputs, labels = torch.zeros(8, 16, dtype=torch.long), torch.full((8, 16), -100)
    attention = torch.zeros(8, 16, dtype=torch.long)
    for row, (first, last) in enumerate(zip(batch.offsets[:-1], batch.offsets[1:], strict=True)):
        inputs[row, : last - first] = torch.from_numpy(masked.inputs[first:last])
        attention[row, : last - first] = 1
        targets = np.where(masked.is_masked[first:last], batch.tokens[first:last], -100)
        labels[row, : last - first] = torch.from_numpy(targets)
    expected = float(tiny_model()(input_ids=inputs, attention_mask=attention, labels=labels).loss.detach())
    assert steps(records)[0].loss == pytest.approx(expected, abs=1e-6)
    assert steps(records)[0].plain_loss == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("objective", ["masked", "next_sentence"])
def test_a_step_without_weight_leaves_the_model_as_it_is(run, tiny_model, examples, paired, objective):
    pairs = objective == "next_sentence"
    state, records = run(weigh(paired if pairs else examples, np.zeros(24)), steps=2, objective=objective)
    before = torch.cat([value.detach().flatten() for value in tiny_model(next_sentence=pairs).parameters()])
    assert torch.equal(parameters(state), before)
    assert [(record.loss, record.plain_loss, record.other_losses) for record in steps(records)] == [(0, None, None)] * 2


def test_dropout_follows_the_seed_and_not_the_callers_generator(run, examples):
    torch.manual_seed(1)
    before = torch.get_rng_state()
    one, _ = run(examples, dropout=0.3, steps=3)
    assert torch.equal(torch.get_rng_state(), before), "the caller's generator is left alone"
    torch.manual_seed(2)
    same, _ = run(examples, dropout=0.3, steps=3)
    other, _ = run(examples, dropout=0.3, steps=3, seed=1)
    assert torch.equal(parameters(one), parameters(same))
    assert not torch.equal(parameters(one), parameters(other))


def test_records_tell_what_happened(run, weighted):
    _, records = run(weighted, steps=6, evaluations=2)
    taken = steps(records)
    assert [record.step for record in records if isinstance(record, EvaluationRecord)] == [0, 2, 4, 6]
    assert [record.step for record in taken] == [1, 2, 3, 4, 5, 6]
    assert taken[2].examples == 24
    assert taken[2].tokens == weighted.lengths.sum(), "three steps of 8 are one epoch of 24"
    assert all(1 <= record.effective_sample_size < 8 for record in taken)
    assert taken[0].loss < taken[0].plain_loss, "weights below 1 make a smaller loss under batch"


def test_training_lowers_the_loss(run, examples):
    _, records = run(examples, steps=100, learning_rate=1e-2)
    assert steps(records)[-1].plain_loss < steps(records)[0].plain_loss - 0.5


def test_every_epoch_of_a_run_has_its_own_masks(run, examples, monkeypatch):
    from dana.train.objectives import masked

    masks, original = {}, masked.mask

    def record(tokens, offsets, ids, epochs, masking):
        batch = original(tokens, offsets, ids, epochs, masking)
        for at, key in enumerate(zip(ids.tolist(), np.broadcast_to(epochs, ids.shape).tolist(), strict=True)):
            masks[key] = batch.is_masked[offsets[at] : offsets[at + 1]]
        return batch

    monkeypatch.setattr(masked, "mask", record)
    run(examples, steps=6)
    assert sum((masks[key, 0] != masks[key, 1]).any() for key in examples.ids.tolist()) > 18, "24 examples, two epochs"
