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
from dana.train.objectives.batch import IGNORED
from dana.train.objectives.next_sentence import PairLogits
from dana.train.settings import TrainSettings
from tests.train.conftest import HELDOUT, PAIR_TOKENS, PAIRS, gradient_of_step, random_examples
from tests.train.test_loop import steps


def step_loss_of_transformers(model, batch, weights, denominator):
    """The loss of a step pair by pair, through the model's own forward pass, and its plain next-sentence loss."""
    tokens, hidden, relation = [0.0] * len(weights), [0] * len(weights), {}
    bounds = batch.examples.offsets
    for row, (first, last) in enumerate(pairwise(bounds)):
        types = torch.from_numpy(batch.pairs.types[first:last])[None]
        answer = model(torch.from_numpy(batch.inputs[first:last]).long()[None], token_type_ids=types)
        chances = answer.prediction_logits[0].log_softmax(-1)
        for place in np.flatnonzero(batch.labels[first:last] != IGNORED):
            text = batch.pairs.texts[first + place]
            tokens[text] = tokens[text] - chances[place, batch.examples.tokens[first + place]]
            hidden[text] += 1
        if batch.pairs.labels[row] != IGNORED:
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
def test_loss_and_gradient_are_those_of_transformers_summed_pair_by_pair(tiny_model, paired, denominator):
    sizes = np.where(np.arange(24) % 5 == 1, 1, paired.sizes)  # some are too short to be asked about
    weights = np.where(np.arange(24) % 4 == 3, 0, paired.weights).astype(np.float32)
    examples = replace(paired, sizes=sizes, weights=weights)
    batch = PAIRS.step_batch(examples.take(np.arange(24)), 0, denominator)
    assert set(batch.pairs.labels.tolist()) == {0, 1, IGNORED}
    model = tiny_model(next_sentence=True)
    loss, next_sentence = step_loss_of_transformers(model, batch, weights.astype(float).tolist(), denominator)
    loss.backward()
    expected = torch.cat([value.grad.flatten() for value in model.parameters()])

    settings = TrainSettings(max_tokens=16, objective="next_sentence", denominator=denominator, clip=1e9)
    prepared = prepare(tiny_model(next_sentence=True), settings, Accelerator(cpu=True), BatchLayout(budget=64))
    taken, found = gradient_of_step(prepared, batch, settings)
    assert taken.loss == pytest.approx(float(loss.detach()), abs=1e-6)
    assert taken.other_losses["next_sentence"] == pytest.approx(next_sentence, abs=1e-6)
    assert taken.grad_norm == pytest.approx(float(expected.norm()), rel=1e-5)
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("world", [2, 3])
def test_ranks_add_up_to_the_whole_step(tiny_model, paired, world):
    """What each rank's micro-batches contribute, an idle rank's included, sums to the loss of one rank."""
    batch = PAIRS.step_batch(paired.take(np.arange(4)), 0, "batch")
    module, shape = PairLogits(tiny_model(next_sentence=True)).eval(), BatchLayout(budget=16)

    def contribution(rank, ranks):
        cut = micro_batches(np.diff(batch.examples.offsets), shape, rank, ranks)
        micros = [batch.micro(rows, shape) for rows in cut]
        with torch.no_grad():
            return [float((micro.losses(module) * micro.coefficients).sum()) for micro in micros]

    (whole,), shares = [contribution(0, 1)], [contribution(rank, world) for rank in range(world)]
    assert sum(map(sum, shares)) == pytest.approx(sum(whole), abs=1e-6)
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
    taken = take_step(prepare(model, settings, Accelerator(cpu=True), BatchLayout()), batch, 1e-4, 0, settings)
    assert taken.loss == pytest.approx(expected, abs=1e-6)
    assert taken.grad_norm > 0


def test_held_out_losses_are_those_of_masked_tokens_alone(run, paired):
    prepared, records = run(paired, steps=1, objective="next_sentence")
    plain = SelectedLogits(prepared.module.model)
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
