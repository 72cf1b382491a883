"""Training steps: losses and gradients of both objectives against transformers, weights, records."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from accelerate import Accelerator

from dana.models.heads import SelectedLogits
from dana.train import DENOMINATORS
from dana.train.evaluation import measure_loss
from dana.train.layout import BatchLayout, micro_batches
from dana.train.loop import prepare, take_step
from dana.train.objectives import masked
from dana.train.objectives.batch import IGNORED
from dana.train.objectives.next_sentence import PairLogits
from dana.train.plan import Plan
from dana.train.records import EvaluationRecord, StepRecord
from dana.train.settings import TrainSettings
from tests.train.conftest import HELDOUT, PAIR_TOKENS, PAIRS, gradient_of_step, random_examples


def parameters(state):
    return torch.cat([value.detach().flatten() for value in state.module.parameters()])


def steps(records):
    return [record for record in records if isinstance(record, StepRecord)]


def weigh(examples, weights):
    return replace(examples, weights=np.asarray(weights, dtype=np.float32))


@pytest.mark.parametrize("objective", ["masked", "next_sentence"])
@pytest.mark.parametrize("denominator", DENOMINATORS)
def test_the_cut_into_micro_batches_changes_nothing(run, weighted_examples, pair_examples, objective, denominator):
    settings = {"steps": 4, "denominator": denominator, "objective": objective}
    examples = pair_examples if objective == "next_sentence" else weighted_examples
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
    hidden = masked.mask(batch.tokens, batch.offsets, batch.ids, 0, collator.masking)
    inputs, labels = torch.zeros(8, 16, dtype=torch.long), torch.full((8, 16), -100)
    attention = torch.zeros(8, 16, dtype=torch.long)
    for row, (first, last) in enumerate(zip(batch.offsets[:-1], batch.offsets[1:], strict=True)):
        inputs[row, : last - first] = torch.from_numpy(hidden.inputs[first:last])
        attention[row, : last - first] = 1
        targets = np.where(hidden.is_masked[first:last], batch.tokens[first:last], -100)
        labels[row, : last - first] = torch.from_numpy(targets)
    expected = float(tiny_model()(input_ids=inputs, attention_mask=attention, labels=labels).loss.detach())
    assert steps(records)[0].loss == pytest.approx(expected, abs=1e-6)
    assert steps(records)[0].plain_loss == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("objective", ["masked", "next_sentence"])
def test_a_step_without_weight_leaves_the_model_as_it_is(run, tiny_model, examples, pair_examples, objective):
    pairs = objective == "next_sentence"
    state, records = run(weigh(pair_examples if pairs else examples, np.zeros(24)), steps=2, objective=objective)
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


def test_records_tell_what_happened(run, weighted_examples):
    _, records = run(weighted_examples, steps=6, evaluations=2)
    step_records = steps(records)
    assert [record.step for record in records if isinstance(record, EvaluationRecord)] == [0, 2, 4, 6]
    assert [record.step for record in step_records] == [1, 2, 3, 4, 5, 6]
    assert step_records[2].examples == 24
    assert step_records[2].tokens == weighted_examples.lengths.sum(), "three steps of 8 are one epoch of 24"
    assert all(1 <= record.effective_sample_size < 8 for record in step_records)
    assert step_records[0].loss < step_records[0].plain_loss, "weights below 1 make a smaller loss under batch"


def test_training_lowers_the_loss(run, examples):
    _, records = run(examples, steps=100, learning_rate=1e-2)
    assert steps(records)[-1].plain_loss < steps(records)[0].plain_loss - 0.5


def test_every_epoch_of_a_run_has_its_own_masks(run, examples, monkeypatch):
    masks, original = {}, masked.mask

    def record(tokens, offsets, ids, epochs, masking):
        batch = original(tokens, offsets, ids, epochs, masking)
        for at, key in enumerate(zip(ids.tolist(), np.broadcast_to(epochs, ids.shape).tolist(), strict=True)):
            masks[key] = batch.is_masked[offsets[at] : offsets[at + 1]]
        return batch

    monkeypatch.setattr(masked, "mask", record)
    run(examples, steps=6)
    assert sum((masks[key, 0] != masks[key, 1]).any() for key in examples.ids.tolist()) > 18, "24 examples, two epochs"


def step_loss_of_transformers(model, batch, weights, denominator):
    """The loss of a step pair by pair, through the model's own forward pass, and its plain next-sentence loss."""
    tokens, counts, relation = [0.0] * len(weights), [0] * len(weights), {}
    bounds = batch.examples.offsets
    for row, (first, last) in enumerate(pairwise(bounds)):
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
        pair_loss = sum(weights[row] * loss for row, loss in relation.items()) / sum(
            label_weights[row] for row in relation
        )
    return token_loss + pair_loss, float(sum(relation.values()).detach()) / len(relation)


@pytest.mark.parametrize("denominator", DENOMINATORS)
def test_loss_and_gradient_are_those_of_transformers_summed_pair_by_pair(tiny_model, pair_examples, denominator):
    sizes = np.where(np.arange(24) % 5 == 1, 1, pair_examples.sizes)  # some are too short to be asked about
    weights = np.where(np.arange(24) % 4 == 3, 0, pair_examples.weights).astype(np.float32)
    examples = replace(pair_examples, sizes=sizes, weights=weights)
    batch = PAIRS.step_batch(examples.take(np.arange(24)), 0, denominator)
    assert set(batch.pairs.labels.tolist()) == {0, 1, IGNORED}
    model = tiny_model(next_sentence=True)
    loss, next_sentence = step_loss_of_transformers(model, batch, weights.astype(float).tolist(), denominator)
    loss.backward()
    expected = torch.cat([value.grad.flatten() for value in model.parameters()])

    settings = TrainSettings(max_tokens=16, objective="next_sentence", denominator=denominator, clip=1e9)
    state = prepare(tiny_model(next_sentence=True), settings, Accelerator(cpu=True), BatchLayout(budget=64))
    outcome, gradient = gradient_of_step(state, batch, settings)
    assert outcome.loss == pytest.approx(float(loss.detach()), abs=1e-6)
    assert outcome.other_losses["next_sentence"] == pytest.approx(next_sentence, abs=1e-6)
    assert outcome.grad_norm == pytest.approx(float(expected.norm()), rel=1e-5)
    torch.testing.assert_close(gradient, expected, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("world", [2, 3])
def test_ranks_add_up_to_the_whole_step(tiny_model, pair_examples, world):
    """What each rank's micro-batches contribute, an idle rank's included, sums to the loss of one rank."""
    batch = PAIRS.step_batch(pair_examples.take(np.arange(4)), 0, "batch")
    module, shape = PairLogits(tiny_model(next_sentence=True)).eval(), BatchLayout(budget=16)

    def contribution(rank, ranks):
        cut = micro_batches(np.diff(batch.examples.offsets), shape, rank, ranks)
        micros = [batch.micro(rows, shape) for rows in cut]
        with torch.no_grad():
            return [float((micro.losses(module) * micro.coefficients).sum()) for micro in micros]

    (total,), shares = [contribution(0, 1)], [contribution(rank, world) for rank in range(world)]
    assert sum(map(sum, shares)) == pytest.approx(sum(total), abs=1e-6)
    assert (0.0 in [share for rank in shares for share in rank]) is (world == 3), (
        "4 rows leave one of 3 idle at the end"
    )


@pytest.mark.parametrize(("denominator", "pairs"), [("batch", 2), ("weight_sum", 1), ("token_count", 2)])
def test_pairs_count_where_no_masked_token_does(denominator, pairs, tiny_model):
    def batches():
        for seed in range(200):  # now and then both masked tokens are of the second text
            texts = replace(random_examples(2, seed, np.array([1.0, 0.0])), special_tokens=PAIR_TOKENS)
            batch = replace(texts, starts=np.array([0, 2]), sizes=np.array([2, 2])).take(np.arange(2))
            yield PAIRS.step_batch(batch, 0, denominator)

    batch = next(batch for batch in batches() if batch.counts[0] == 0)
    model = tiny_model(next_sentence=True).eval()
    ids, types = (values[None, : batch.lengths[0]] for values in (batch.inputs, batch.pairs.types))
    answer = model(torch.from_numpy(ids).long(), token_type_ids=torch.from_numpy(types)).seq_relationship_logits[0]
    expected = float(-answer.log_softmax(-1)[batch.pairs.labels[0]].detach()) / pairs
    settings = TrainSettings(max_tokens=16, objective="next_sentence")
    outcome = take_step(prepare(model, settings, Accelerator(cpu=True), BatchLayout()), batch, 1e-4, 0, settings)
    assert outcome.loss == pytest.approx(expected, abs=1e-6)
    assert outcome.grad_norm > 0


def test_held_out_losses_are_those_of_masked_tokens_alone(run, pair_examples):
    state, records = run(pair_examples, steps=1, objective="next_sentence")
    plain = SelectedLogits(state.module.model)
    heldout = measure_loss(plain, random_examples(6, 11), HELDOUT, BatchLayout(), Accelerator(cpu=True))
    assert heldout.mean == pytest.approx(records[-1].task_loss, abs=1e-6)


def test_training_teaches_which_halves_belong_together(run):
    """Each text is of one of five topics; halves that exchange within a topic cannot be told apart."""
    generator = np.random.default_rng(0)
    examples = random_examples(256, 0)
    topic = np.repeat(generator.integers(0, 5, 256), examples.sizes)
    stream = 5 + 11 * topic + generator.integers(0, 11, topic.size)
    examples = replace(examples, stream=stream, special_tokens=PAIR_TOKENS)
    _, records = run(examples, steps=180, batch_size=64, learning_rate=1e-2, objective="next_sentence")
    losses = [record.other_losses["next_sentence"] for record in steps(records)]
    assert steps(records)[3].tokens == examples.lengths.sum() == examples.sizes.sum() + 3 * 256
    assert np.mean(losses[:5]) == pytest.approx(math.log(2), abs=0.05), "a new head knows nothing"
    assert np.mean(losses[-10:]) < 0.55
