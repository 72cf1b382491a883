from dataclasses import replace

import numpy as np
import pytest
import torch
from accelerate import Accelerator

from dana.models.heads import SelectedLogits
from dana.train import DENOMINATORS
from dana.train.layout import BatchLayout
from dana.train.loop import prepare, take_step
from dana.train.objectives.masked import mask
from dana.train.plan import Plan
from dana.train.records import EvaluationRecord, StepRecord
from dana.train.schedule import learning_rate_at
from dana.train.settings import Execution, TrainSettings
from dana.train.supervised import make_optimizer


def parameters(prepared):
    return torch.cat([value.detach().flatten() for value in prepared.module.parameters()])


def steps(records):
    return [record for record in records if isinstance(record, StepRecord)]


def weigh(examples, weights):
    return replace(examples, weights=np.asarray(weights, dtype=np.float32))


@pytest.mark.parametrize("denominator", DENOMINATORS)
@pytest.mark.parametrize("budget", [16, 50, 100])
def test_the_cut_into_micro_batches_changes_nothing(run, weighted, denominator, budget):
    whole, records = run(weighted, steps=4, denominator=denominator)
    cut, cut_records = run(weighted, steps=4, denominator=denominator, budget=budget)
    torch.testing.assert_close(parameters(cut), parameters(whole), atol=1e-6, rtol=0)
    for one, other in zip(steps(records), steps(cut_records), strict=True):
        assert other.loss == pytest.approx(one.loss, abs=1e-6)
        assert other.plain_loss == pytest.approx(one.plain_loss, abs=1e-6)
        assert other.grad_norm == pytest.approx(one.grad_norm, rel=1e-5)


def test_losses_and_gradients_agree_over_fifty_steps_at_a_high_rate(run, weighted):
    """Weights need not: Adam turns the rounding of a gradient that is nought into a whole step."""
    (whole, records), (cut, cut_records) = (
        run(weighted, steps=50, learning_rate=1e-3, budget=budget) for budget in (512, 32)
    )
    for one, other in zip(steps(records), steps(cut_records), strict=True):
        assert other.loss == pytest.approx(one.loss, abs=1e-6)
        assert other.grad_norm == pytest.approx(one.grad_norm, rel=1e-5)
    assert not torch.equal(parameters(whole), parameters(cut)), "equal to rounding, not bit for bit"


def test_biases_of_attention_keys_have_no_gradient_but_rounding(tiny_model, collator, weighted):
    module = SelectedLogits(tiny_model())
    batch = collator.step_batch(weighted.take(np.arange(24)), 0, "batch")
    micro = batch.micro(np.arange(24), BatchLayout())
    micro.losses(module).sum().backward()
    sizes = {name: float(value.grad.abs().max()) for name, value in module.named_parameters()}
    keys = [size for name, size in sizes.items() if "key.bias" in name]
    assert max(keys) < 1e-6 * max(sizes.values())


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


def test_half_the_weight_is_half_the_gradient_under_batch(run, examples):
    _, whole = run(examples, steps=1)
    _, half = run(weigh(examples, np.full(len(examples), 0.5)), steps=1)
    assert steps(half)[0].grad_norm == pytest.approx(0.5 * steps(whole)[0].grad_norm, rel=1e-5)
    assert steps(half)[0].loss == pytest.approx(0.5 * steps(whole)[0].loss, rel=1e-6)
    assert steps(half)[0].plain_loss == pytest.approx(steps(whole)[0].plain_loss, rel=1e-6)


def test_weight_zero_is_absence_under_weight_sum(run, examples):
    weights = np.ones(24)
    weights[::3] = 0
    zero, _ = run(weigh(examples, weights), steps=1, batch_size=24, denominator="weight_sum")
    absent, _ = run(examples.rows(np.flatnonzero(weights)), steps=1, batch_size=16, denominator="weight_sum")
    torch.testing.assert_close(parameters(zero), parameters(absent), atol=1e-6, rtol=0)


def test_weight_zero_gives_an_example_no_gradient_under_batch(run, examples):
    weights = np.zeros(24)
    weights[0] = 1
    _, among_others = run(weigh(examples, weights), steps=1, batch_size=24)
    _, alone = run(examples.rows(np.array([0])), steps=1, batch_size=1)
    assert steps(among_others)[0].grad_norm == pytest.approx(steps(alone)[0].grad_norm / 24, rel=1e-5)


def test_weight_two_is_a_duplicate_under_weight_sum(run, examples):
    twice, _ = run(weigh(examples, [2.0] * 4 + [1.0] * 20), steps=1, batch_size=24, denominator="weight_sum")
    copied = examples.rows(np.array([0, 1, 2, 3, *range(24)]))
    duplicated, _ = run(copied, steps=1, batch_size=28, denominator="weight_sum")
    torch.testing.assert_close(parameters(twice), parameters(duplicated), atol=1e-6, rtol=0)


def test_a_step_without_weight_leaves_the_model_as_it_is(run, tiny_model, examples):
    prepared, records = run(weigh(examples, np.zeros(24)), steps=2)
    before = torch.cat([value.detach().flatten() for value in tiny_model().parameters()])
    assert torch.equal(parameters(prepared), before)
    assert [record.loss for record in steps(records)] == [0, 0]
    assert steps(records)[0].plain_loss is None


def test_padding_of_an_idle_rank_has_no_gradient(tiny_model, collator, examples):
    batch = collator.step_batch(examples.take(np.arange(3)), 0, "batch")
    micro = batch.micro(np.array([], dtype=int), BatchLayout())
    assert micro.inputs["input_ids"].shape[0] == 1
    assert micro.inputs["where"].numel() == micro.targets.numel() == micro.coefficients.numel() == 0


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
    _, records = run(examples, steps=200, learning_rate=1e-2)
    assert steps(records)[-1].plain_loss < steps(records)[0].plain_loss - 0.5


def test_learning_rate_rises_then_falls_by_hand():
    rates = [learning_rate_at(step, 10, 1.0, 0.2) for step in range(10)]
    assert rates == pytest.approx([0.5, 1, 1, 7 / 8, 6 / 8, 5 / 8, 4 / 8, 3 / 8, 2 / 8, 1 / 8])
    assert [learning_rate_at(step, 2, 1.0, 0.01) for step in range(2)] == pytest.approx([1, 0.5])


def test_only_matrices_decay(tiny_model):
    model = tiny_model()
    decaying, others = make_optimizer(model, 1e-3, 0.01).param_groups
    assert (decaying["weight_decay"], others["weight_decay"]) == (0.01, 0.0)
    names = {id(value): name for name, value in model.named_parameters()}
    assert all("LayerNorm" not in names[id(value)] for value in decaying["params"])
    assert all(names[id(value)].endswith("bias") or "LayerNorm" in names[id(value)] for value in others["params"])
    assert len(decaying["params"]) + len(others["params"]) == len(names)


def take_one(tiny_model, collator, examples, rate, index, dropout=0.0):
    settings = TrainSettings(max_tokens=16, execution=Execution(micro_batch_tokens=512))
    prepared = prepare(tiny_model(dropout), settings, Accelerator(cpu=True), BatchLayout(budget=512))
    batch = collator.step_batch(examples.take(np.arange(8)), 0, "batch")
    before = parameters(prepared).clone()
    loss = take_step(prepared, batch, rate, index, settings).loss
    return loss, float((parameters(prepared) - before).abs().max())


def test_a_step_moves_no_weight_further_than_the_rate_it_was_given(tiny_model, collator, examples):
    _, moved = take_one(tiny_model, collator, examples, rate=1e-5, index=0)
    assert moved == pytest.approx(1e-5, rel=0.05), "Adam's first step is the rate times the gradient's sign"


def test_dropout_is_drawn_anew_in_every_step_and_can_be_repeated(tiny_model, collator, examples):
    losses = [take_one(tiny_model, collator, examples, 1e-5, index, dropout=0.3)[0] for index in (0, 1, 0)]
    assert losses[0] == losses[2] != losses[1]
