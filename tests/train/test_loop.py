"""Training steps and held-out losses: against transformers and by hand, records, gradients that are not finite."""

import json
import math
from copy import deepcopy
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.overrides import TorchFunctionMode

from dana.core.errors import DanaError
from dana.models.heads import SelectedLogits
from dana.train import DENOMINATORS
from dana.train.evaluation import HeldoutLoss, _ratio, heldout_sample
from dana.train.examples import Batch
from dana.train.execution import total
from dana.train.layout import BatchLayout, micro_batches
from dana.train.loop import take_step
from dana.train.objectives import masked
from dana.train.objectives.batch import IGNORED, StepBatch
from dana.train.objectives.masked import MaskedTokens
from dana.train.objectives.next_sentence import NextSentence, PairLogits
from dana.train.plan import Plan
from dana.train.records import EvaluationRecord, to_line
from dana.train.settings import TrainSettings
from dana.train.state import save_model, save_state
from tests.train.conftest import (
    MASKED,
    PAIR_TOKENS,
    PAIRS,
    SETTINGS,
    bert,
    gradient_of_step,
    mean_loss,
    new_state,
    parameters,
    random_examples,
    run,
    steps,
)

PAIR_SETTINGS = replace(SETTINGS, objective="next_sentence", clip=1e9)
both_objectives = pytest.mark.parametrize("objective", ["masked", "next_sentence"])


@both_objectives
@pytest.mark.parametrize("denominator", DENOMINATORS)
def test_the_cut_into_micro_batches_changes_nothing(pair_examples, weighted_examples, objective, denominator):
    settings = {"steps": 3, "denominator": denominator, "objective": objective}
    examples = pair_examples if objective == "next_sentence" else weighted_examples
    state, records = run(examples, **settings)
    for budget in (16, 50):
        cut, cut_records = run(examples, budget=budget, **settings)
        torch.testing.assert_close(parameters(cut.module), parameters(state.module), atol=1e-6, rtol=0)
        for one, other in zip(steps(records), steps(cut_records), strict=True):
            assert other.loss == pytest.approx(one.loss, abs=1e-6)
            assert other.plain_loss == pytest.approx(one.plain_loss, abs=1e-6)
            assert other.other_losses == (one.other_losses and pytest.approx(one.other_losses, abs=1e-6))
            assert other.grad_norm == pytest.approx(one.grad_norm, rel=1e-5)


@pytest.mark.parametrize("denominator", ["weight_sum", "token_count"])
def test_with_equal_weights_the_first_loss_is_that_of_transformers(examples, denominator):
    _, records = run(examples, steps=1, denominator=denominator)
    rows = Plan(examples.lengths, examples.ids, TrainSettings(steps=1, batch_size=8, max_tokens=16))[0].rows
    batch = examples.take(rows)
    masks = masked.mask(batch.tokens, batch.offsets, batch.ids, 0, MASKED.masking)
    inputs, attention, labels = torch.zeros(8, 16).long(), torch.zeros(8, 16), torch.full((8, 16), -100)
    for row, (first, last) in enumerate(pairwise(batch.offsets)):
        inputs[row, : last - first] = torch.from_numpy(masks.inputs[first:last])
        attention[row, : last - first] = 1
        targets = np.where(masks.is_masked[first:last], batch.tokens[first:last], -100)
        labels[row, : last - first] = torch.from_numpy(targets)
    loss = float(bert()(input_ids=inputs, attention_mask=attention, labels=labels).loss.detach())
    assert steps(records)[0].loss == pytest.approx(loss, abs=1e-6)
    assert steps(records)[0].plain_loss == pytest.approx(loss, abs=1e-6)


@both_objectives
def test_a_step_without_weight_leaves_the_model_as_it_is(pair_examples, examples, objective):
    pairs = objective == "next_sentence"
    examples = replace(pair_examples if pairs else examples, weights=np.zeros(24, dtype=np.float32))
    state, records = run(examples, steps=2, objective=objective)
    assert torch.equal(parameters(state.module), parameters(bert(next_sentence=pairs)))
    assert [(record.loss, record.plain_loss, record.other_losses) for record in steps(records)] == [(0, None, None)] * 2


def test_dropout_follows_the_seed_and_not_the_callers_generator(examples):
    torch.manual_seed(1)
    before = torch.get_rng_state()
    one, _ = run(examples, dropout=0.3, steps=3)
    assert torch.equal(torch.get_rng_state(), before), "the caller's generator is left alone"
    torch.manual_seed(2)
    same, other = (run(examples, dropout=0.3, steps=3, seed=seed)[0] for seed in (0, 1))
    assert torch.equal(parameters(one.module), parameters(same.module))
    assert not torch.equal(parameters(one.module), parameters(other.module))


def test_records_tell_what_happened(weighted_examples, monkeypatch):
    epochs, original = [], masked.MaskedCollator.step_batch

    def record(collator, examples, epoch, denominator):
        epochs.append(np.unique(epoch).tolist())
        return original(collator, examples, epoch, denominator)

    monkeypatch.setattr(masked.MaskedCollator, "step_batch", record)
    _, records = run(weighted_examples, steps=6, evaluations=2)
    assert [record.step for record in records if isinstance(record, EvaluationRecord)] == [0, 2, 4, 6]
    assert [record.step for record in steps(records)] == [1, 2, 3, 4, 5, 6]
    assert steps(records)[2].examples == 24
    assert steps(records)[2].tokens == weighted_examples.lengths.sum(), "three steps of 8 are one epoch of 24"
    assert all(1 <= record.effective_sample_size < 8 for record in steps(records))
    assert steps(records)[0].loss < steps(records)[0].plain_loss, "weights below 1 make a smaller loss under batch"
    assert [epoch for epoch in epochs if epoch == [1]] == [[1]] * 3, "the second epoch has masks of its own"


def step_loss_of_transformers(model, batch, weights, denominator):
    """The loss of a step pair by pair, through the model's own forward pass, and its plain next-sentence loss."""
    tokens, counts, relation = [0.0] * len(weights), [0] * len(weights), {}
    for row, (first, last) in enumerate(pairwise(batch.examples.offsets)):
        types = torch.from_numpy(batch.pairs.types[first:last])[None]
        answer = model(torch.from_numpy(batch.inputs[first:last]).long()[None], token_type_ids=types)
        chances = answer.prediction_logits[0].log_softmax(-1)
        for position in np.flatnonzero(batch.labels[first:last] != IGNORED):
            text = batch.pairs.texts[first + position]
            tokens[text] = tokens[text] - chances[position, batch.examples.tokens[first + position]]
            counts[text] += 1
        if batch.pairs.labels[row] != IGNORED:
            relation[row] = -answer.seq_relationship_logits[0].log_softmax(-1)[batch.pairs.labels[row]]
    if denominator == "batch":
        token_loss = sum(w * s / n for w, s, n in zip(weights, tokens, counts, strict=True) if n) / len(weights)
        pair_loss = sum(weights[row] * loss for row, loss in relation.items()) / len(weights)
    else:
        label_weights = np.array(weights if denominator == "weight_sum" else np.ones(len(weights)))
        token_loss = sum(w * s for w, s in zip(weights, tokens, strict=True)) / np.dot(label_weights, counts)
        pair_loss = sum(weights[row] * loss for row, loss in relation.items()) / label_weights[list(relation)].sum()
    return token_loss + pair_loss, float(sum(relation.values()).detach()) / len(relation)


@pytest.mark.parametrize("denominator", DENOMINATORS)
def test_loss_and_gradient_are_those_of_transformers_summed_pair_by_pair(pair_examples, denominator):
    sizes = np.where(np.arange(24) % 5 == 1, 1, pair_examples.sizes)  # some are too short to be asked about
    weights = np.where(np.arange(24) % 4 == 3, 0, pair_examples.weights).astype(np.float32)
    examples = replace(pair_examples, sizes=sizes, weights=weights)
    batch = PAIRS.step_batch(examples.take(np.arange(24)), 0, denominator)
    assert set(batch.pairs.labels.tolist()) == {0, 1, IGNORED}
    model = bert(next_sentence=True)
    loss, next_sentence = step_loss_of_transformers(model, batch, weights.astype(float).tolist(), denominator)
    loss.backward()
    reference = torch.cat([value.grad.flatten() for value in model.parameters()])
    settings = replace(PAIR_SETTINGS, denominator=denominator)
    outcome, gradient = gradient_of_step(new_state(bert(next_sentence=True), settings, budget=64), batch, settings)
    assert outcome.loss == pytest.approx(float(loss.detach()), abs=1e-6)
    assert outcome.other_losses["next_sentence"] == pytest.approx(next_sentence, abs=1e-6)
    assert outcome.grad_norm == pytest.approx(float(reference.norm()), rel=1e-5)
    torch.testing.assert_close(gradient, reference, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("world", [2, 3])
def test_ranks_add_up_to_the_whole_step(pair_examples, world):
    """What each rank's micro-batches contribute, an idle rank's included, sums to the loss of one rank."""
    batch = PAIRS.step_batch(pair_examples.take(np.arange(4)), 0, "batch")
    module, shape = PairLogits(bert(next_sentence=True)).eval(), BatchLayout(budget=16)

    @torch.no_grad()
    def contribution(rank, ranks):
        micros = [batch.micro(rows, shape) for rows in micro_batches(batch.lengths, shape, rank, ranks)]
        return [float((micro.losses(module) * micro.coefficients).sum()) for micro in micros]

    (total,), shares = [contribution(0, 1)], [contribution(rank, world) for rank in range(world)]
    assert sum(map(sum, shares)) == pytest.approx(sum(total), abs=1e-6)
    assert any(0.0 in share for share in shares) is (world == 3), "4 rows leave one of 3 idle at the end"


@pytest.mark.parametrize(("denominator", "pairs"), [("batch", 2), ("weight_sum", 1), ("token_count", 2)])
def test_pairs_count_where_no_masked_token_does(denominator, pairs):
    def batches():
        for seed in range(200):  # now and then both masked tokens are of the second text
            texts = replace(random_examples(2, seed, np.array([1.0, 0.0])), special_tokens=PAIR_TOKENS)
            batch = replace(texts, starts=np.array([0, 2]), sizes=np.array([2, 2])).take(np.arange(2))
            yield PAIRS.step_batch(batch, 0, denominator)

    batch = next(batch for batch in batches() if batch.counts[0] == 0)
    model = bert(next_sentence=True).eval()
    ids, types = (values[None, : batch.lengths[0]] for values in (batch.inputs, batch.pairs.types))
    answer = model(torch.from_numpy(ids).long(), token_type_ids=torch.from_numpy(types)).seq_relationship_logits[0]
    loss = float(-answer.log_softmax(-1)[batch.pairs.labels[0]].detach()) / pairs
    outcome = take_step(new_state(model, PAIR_SETTINGS), batch, 1e-4, 0, PAIR_SETTINGS)
    assert outcome.loss == pytest.approx(loss, abs=1e-6)
    assert outcome.grad_norm > 0


def test_mean_and_standard_error_by_hand():
    # ratio 12/4 = 3; deviations 4 - 3·1, 8 - 3·3 = 1, -1; √(2·2/1) / 4
    assert _ratio(np.array([4.0, 8.0]), np.array([1, 3])) == pytest.approx((3, 2 / 4))
    assert _ratio(np.array([3.0]), np.array([2])) == (1.5, None)
    assert _ratio(np.array([0.0, 0.0]), np.array([0, 0])) == (None, None)
    sums = np.random.default_rng(0).normal(10, 2, 400)
    assert _ratio(sums, np.ones(400, dtype=int)).standard_error == pytest.approx(sums.std(ddof=1) / 20)
    assert [str(HeldoutLoss(mean, None)) for mean in (None, 1.25)] == ["nothing to measure", "1.2500 nats"]


def test_the_loss_does_not_depend_on_batches_order_or_dropout(examples):
    module = SelectedLogits(bert(dropout=0.5)).train()
    backwards = examples.rows(np.arange(len(examples))[::-1])
    loss = mean_loss(module, examples, MASKED)
    assert mean_loss(module, examples, MASKED, budget=16) == pytest.approx(loss, abs=1e-6)
    assert mean_loss(module, backwards, MASKED) == pytest.approx(loss, abs=1e-6)
    assert loss == pytest.approx(np.log(60), abs=0.15), "an untrained model guesses"
    assert module.training
    assert all(value.grad is None for value in module.parameters())


def test_held_out_masks_do_not_depend_on_the_objective(tiny_tokenizer, repository_texts):
    ids = tiny_tokenizer(repository_texts[:8])["input_ids"]
    offsets, keys = np.cumsum([0, *map(len, ids)]), np.arange(8, dtype=np.uint64)
    batch = Batch(np.concatenate(ids).astype(np.int32), offsets, keys, np.ones(8, dtype=np.float32))
    objectives = MaskedTokens(), MaskedTokens(0.5), MaskedTokens(whole_word=True), NextSentence(0.3)
    labels = [one.heldout_collator(tiny_tokenizer).step_batch(batch, 0, "token_count").labels for one in objectives]
    assert all(np.array_equal(one, labels[0]) for one in labels[1:])
    assert (labels[0] != IGNORED).mean() == pytest.approx(0.15, abs=0.03)


def test_a_sample_is_short_not_empty_and_does_not_depend_on_the_order(examples):
    sample = heldout_sample(examples, 50)
    assert 34 < sample.lengths.sum() <= 50
    assert len(heldout_sample(examples, 1)) == 1
    backwards = examples.rows(np.arange(len(examples))[::-1])
    assert set(heldout_sample(backwards, 50).ids.tolist()) == set(sample.ids.tolist())
    assert heldout_sample(examples, 10**6).lengths.sum() == examples.lengths.sum()


@pytest.fixture
def poison(monkeypatch, examples):
    """Makes the training losses of the first example of some steps NaN, wherever it occurs; returns its id."""

    def call(*steps):
        plan = Plan(examples.lengths, examples.ids, TrainSettings(steps=6, batch_size=4, max_tokens=16))
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
