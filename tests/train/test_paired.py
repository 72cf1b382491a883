import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from accelerate import Accelerator

from dana.errors import ConfigError
from dana.mlm.heads import MaskedLogits, PairedLogits
from dana.mlm.layout import LAYOUTS, micro_batches
from dana.mlm.loss import DENOMINATORS
from dana.mlm.next_sentence import UNASKED
from dana.train.batch import Shape
from dana.train.evaluation import evaluate
from dana.train.loop import prepare, take_step
from dana.train.paired import PairedBatch
from dana.train.plan import Step
from dana.train.planner import Planner
from dana.train.records import StepRecord
from dana.train.settings import Execution, TrainSettings
from tests.train.conftest import PAIR_FRAME, random_examples

ALL = Step(np.arange(24), np.zeros(24, dtype=int))


def parameters(prepared):
    return torch.cat([value.detach().flatten() for value in prepared.module.parameters()])


def steps(records):
    return [record for record in records if isinstance(record, StepRecord)]


def weigh(examples, weights):
    return replace(examples, weights=np.asarray(weights, dtype=np.float32))


def step_loss_of_transformers(model, batch, weights, denominator):
    """The loss of a step pair by pair, through the model's own forward pass, and its plain next-sentence loss."""
    tokens, hidden, relation = [0.0] * len(weights), [0] * len(weights), {}
    bounds = batch.examples.offsets
    for row, (first, last) in enumerate(pairwise(bounds)):
        types = torch.from_numpy(batch.pairs.types[first:last])[None]
        answer = model(torch.from_numpy(batch.masked.inputs[first:last]).long()[None], token_type_ids=types)
        chances = answer.prediction_logits[0].log_softmax(-1)
        for place in np.flatnonzero(batch.masked.hidden[first:last]):
            text = batch.pairs.texts[first + place]
            tokens[text] = tokens[text] - chances[place, batch.examples.tokens[first + place]]
            hidden[text] += 1
        if batch.pairs.labels[row] != UNASKED:
            relation[row] = -answer.seq_relationship_logits[0].log_softmax(-1)[batch.pairs.labels[row]]
    if denominator == "batch":
        masked = sum(w * s / n for w, s, n in zip(weights, tokens, hidden, strict=True) if n) / len(weights)
        paired = sum(weights[row] * loss for row, loss in relation.items()) / len(weights)
    else:
        counted = weights if denominator == "weight_sum" else np.ones(len(weights))
        masked = sum(w * s for w, s in zip(weights, tokens, strict=True)) / np.dot(counted, hidden)
        paired = sum(weights[row] * loss for row, loss in relation.items()) / sum(counted[row] for row in relation)
    return masked + paired, float(sum(relation.values()).detach()) / len(relation)


@pytest.mark.parametrize("denominator", DENOMINATORS)
def test_loss_and_gradient_are_those_of_transformers_summed_pair_by_pair(tiny_model, masking, paired, denominator):
    sizes = np.where(np.arange(24) % 5 == 1, 1, paired.sizes)  # some are too short to be asked about
    weights = np.where(np.arange(24) % 4 == 3, 0, paired.weights).astype(np.float32)
    examples = replace(paired, sizes=sizes, weights=weights)
    batch = PairedBatch.of(examples, ALL, masking, denominator)
    assert set(batch.pairs.labels.tolist()) == {0, 1, UNASKED}
    model = tiny_model(next_sentence=True)
    loss, next_sentence = step_loss_of_transformers(model, batch, weights.astype(float).tolist(), denominator)
    loss.backward()
    expected = torch.cat([value.grad.flatten() for value in model.parameters()])

    settings = TrainSettings(max_tokens=16, next_sentence=True, denominator=denominator, clip=1e9)
    prepared = prepare(tiny_model(next_sentence=True), settings, Accelerator(cpu=True), Shape(budget=64))
    found = {}
    zero_grad = prepared.optimizer.zero_grad

    def keep_gradients():
        found["gradient"] = torch.cat([value.grad.flatten() for value in prepared.module.parameters()])
        zero_grad()

    prepared.optimizer.zero_grad = keep_gradients
    weighted_loss, _, norm, pairs = take_step(prepared, batch, 1e-4, 0, settings)
    assert weighted_loss == pytest.approx(float(loss.detach()), abs=1e-6)
    assert pairs == pytest.approx(next_sentence, abs=1e-6)
    assert norm == pytest.approx(float(expected.norm()), rel=1e-5)
    torch.testing.assert_close(found["gradient"], expected, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("denominator", DENOMINATORS)
@pytest.mark.parametrize("budget", [16, 50, 100])
def test_the_cut_into_micro_batches_changes_nothing(run, paired, denominator, budget):
    whole, records = run(paired, steps=4, denominator=denominator, next_sentence=True)
    cut, cut_records = run(paired, steps=4, denominator=denominator, next_sentence=True, budget=budget)
    torch.testing.assert_close(parameters(cut), parameters(whole), atol=1e-6, rtol=0)
    for one, other in zip(steps(records), steps(cut_records), strict=True):
        assert other.loss == pytest.approx(one.loss, abs=1e-6)
        assert other.next_sentence_loss == pytest.approx(one.next_sentence_loss, abs=1e-6)
        assert other.grad_norm == pytest.approx(one.grad_norm, rel=1e-5)


@pytest.mark.parametrize("world", [2, 3])
def test_ranks_add_up_to_the_whole_step(tiny_model, masking, paired, world):
    """What each rank's micro-batches contribute, an idle rank's included, sums to the loss of one rank."""
    batch = PairedBatch.of(paired, Step(np.arange(4), np.zeros(4, dtype=int)), masking, "batch")
    module, shape = PairedLogits(tiny_model(next_sentence=True)).eval(), Shape(budget=16)

    def contribution(rank, ranks):
        cut = micro_batches(np.diff(batch.examples.offsets), shape.budget, rank, ranks, "padded", 0)
        micros = [batch.micro(rows, shape) for rows in cut]
        with torch.no_grad():
            return [float((micro.losses(module) * micro.coefficients).sum()) for micro in micros]

    (whole,), shares = [contribution(0, 1)], [contribution(rank, world) for rank in range(world)]
    assert sum(map(sum, shares)) == pytest.approx(sum(whole), abs=1e-6)
    assert (0.0 in [share for rank in shares for share in rank]) is (world == 3), (
        "4 rows leave one of 3 idle at the end"
    )


def test_pairs_of_weight_zero_have_no_gradient(tiny_model, masking, paired):
    examples = weigh(paired, np.arange(24) % 2)
    batch = PairedBatch.of(examples, ALL, masking, "weight_sum")
    bounds = batch.examples.offsets
    of_zero = [
        row
        for row, (first, last) in enumerate(pairwise(bounds))
        if not examples.weights[batch.pairs.texts[first:last]].any()
    ]
    settings = TrainSettings(max_tokens=16, next_sentence=True)
    prepared = prepare(tiny_model(next_sentence=True), settings, Accelerator(cpu=True), Shape(budget=512))
    for rows, nothing in ((of_zero, True), ([1], False)):
        micro = batch.micro([np.array([row]) for row in rows], prepared.shape)
        prepared.module.zero_grad()
        (micro.losses(prepared.module) * micro.coefficients).sum().backward()
        gradients = torch.cat([value.grad.flatten() for value in prepared.module.parameters()])
        assert bool((gradients == 0).all()) is nothing
    assert len(of_zero) > 3


def test_a_step_without_weight_leaves_the_model_as_it_is(run, tiny_model, paired):
    prepared, records = run(weigh(paired, np.zeros(24)), steps=2, next_sentence=True)
    before = torch.cat([value.detach().flatten() for value in tiny_model(next_sentence=True).parameters()])
    assert torch.equal(parameters(prepared), before)
    assert [record.next_sentence_loss for record in steps(records)] == [None, None]


def test_held_out_losses_are_those_of_masked_tokens_alone(run, masking, paired):
    prepared, records = run(paired, steps=1, next_sentence=True)
    plain = MaskedLogits(prepared.module.model)
    heldout = evaluate(plain, random_examples(6, 11), masking, Shape(), Accelerator(cpu=True))
    assert heldout.mean == pytest.approx(records[-1].task_loss, abs=1e-6)


def test_all_tokens_of_the_step_are_counted_the_one_between_halves_too(run, paired):
    _, records = run(paired, steps=3, next_sentence=True)
    assert steps(records)[-1].tokens == paired.lengths.sum() == paired.sizes.sum() + 3 * 24


def texts_of_topics(count, seed):
    """Texts whose tokens are all of one of five topics, so that halves of two texts mostly do not fit together."""
    generator = np.random.default_rng(seed)
    examples = random_examples(count, seed)
    topic = np.repeat(generator.integers(0, 5, count), examples.sizes)
    return replace(examples, stream=(5 + 11 * topic + generator.integers(0, 11, topic.size)), frame=PAIR_FRAME)


def test_training_teaches_which_halves_belong_together(run):
    _, records = run(texts_of_topics(256, 0), steps=250, batch_size=64, learning_rate=1e-2, next_sentence=True)
    losses = [record.next_sentence_loss for record in steps(records)]
    assert np.mean(losses[:5]) == pytest.approx(math.log(2), abs=0.05), "a new head knows nothing"
    assert np.mean(losses[-10:]) < 0.5, "halves that exchange within a topic cannot be told"


@pytest.mark.parametrize("layout", [layout for layout in LAYOUTS if layout != "padded"])
def test_layouts_without_a_row_for_each_pair_are_refused(layout):
    with pytest.raises(ConfigError, match=f"layout='{layout}': must be auto or padded with next_sentence=true"):
        TrainSettings(next_sentence=True, execution=Execution(layout=layout))
    with pytest.raises(ConfigError, match="compile='on': must be auto or off with next_sentence=true"):
        TrainSettings(next_sentence=True, execution=Execution(compile="on"))


def test_the_planner_chooses_rows_and_says_why(tiny_model, masking, paired, monkeypatch):
    monkeypatch.setattr("dana.train.planner.SHORT", 0)
    settings = TrainSettings(steps=2, batch_size=8, max_tokens=16, next_sentence=True)
    accelerator = Accelerator(cpu=True, mixed_precision="no")
    choice = Planner(tiny_model(next_sentence=True), paired, masking, settings, accelerator).choose()
    assert (choice.shape.layout, choice.compiled) == ("padded", False)
    assert choice.reasons[1].startswith("layout    padded: each next-sentence pair needs a row, ")


def test_memory_running_out_halves_the_micro_batch_and_not_the_batch(run, paired, monkeypatch):
    whole, _ = run(paired, steps=2, next_sentence=True)
    forward = PairedLogits.forward

    def small_memory(self, input_ids, where, **attention):
        if self.training and input_ids.numel() > 40:
            raise torch.OutOfMemoryError("not enough")
        return forward(self, input_ids, where, **attention)

    monkeypatch.setattr(PairedLogits, "forward", small_memory)
    cut, _ = run(paired, steps=2, next_sentence=True)
    assert cut.pieces > 1
    torch.testing.assert_close(parameters(cut), parameters(whole), atol=1e-6, rtol=0)
