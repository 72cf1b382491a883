"""Training steps and held-out losses: against transformers and by hand; gradients that are not finite."""

import json
import math
from copy import deepcopy
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from hypothesis import given
from hypothesis import strategies as st
from torch.overrides import TorchFunctionMode

from dana.core.errors import DanaError
from dana.models.heads import SelectedLogits
from dana.train import DENOMINATORS
from dana.train.evaluation import HeldOut, HeldoutLoss, _ratio, heldout_sample
from dana.train.examples import Batch, Examples
from dana.train.execution import total
from dana.train.layout import BatchLayout, micro_batches
from dana.train.loop import prepare, take_step, train
from dana.train.objectives import masked
from dana.train.objectives.batch import IGNORED
from dana.train.objectives.masked import MaskedTokens
from dana.train.objectives.next_sentence import NextSentence, PairLogits
from dana.train.plan import Phase
from dana.train.records import EvaluationRecord, to_line
from dana.train.settings import Execution, TrainSettings
from dana.train.state import read_state, save_model
from dana.train.supervised import batches_by_length, make_optimizer, train_supervised
from tests.train.conftest import (
    MASKED,
    PAIR_TOKENS,
    PAIRS,
    SETTINGS,
    TEXTS,
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
def test_the_cut_into_micro_batches_changes_nothing(
    pair_examples, weighted_examples, objective, denominator
):
    settings = {"steps": 3, "denominator": denominator, "objective": objective}
    examples = pair_examples if objective == "next_sentence" else weighted_examples
    state, records = run(examples, **settings)
    for budget in (16, 50):
        cut, cut_records = run(examples, budget=budget, **settings)
        torch.testing.assert_close(
            parameters(cut.module), parameters(state.module), atol=1e-6, rtol=0
        )
        for one, other in zip(steps(records), steps(cut_records), strict=True):
            assert other.loss == pytest.approx(one.loss, abs=1e-6)
            assert other.plain_loss == pytest.approx(one.plain_loss, abs=1e-6)
            assert other.other_losses == (
                one.other_losses and pytest.approx(one.other_losses, abs=1e-6)
            )
            assert other.grad_norm == pytest.approx(one.grad_norm, rel=1e-5)


@pytest.mark.parametrize("denominator", ["weight_sum", "token_count"])
def test_with_equal_weights_the_first_loss_is_that_of_transformers(examples, denominator):
    _, records = run(examples, steps=1, denominator=denominator)
    rows = Phase(examples, TrainSettings(steps=1, batch_size=8, max_tokens=16))[0].rows
    batch = examples.take(rows)
    masked_inputs, predicted_tokens = masked.mask(
        batch.tokens, batch.offsets, batch.ids, 0, MASKED.masking
    )
    inputs, attention, labels = (
        torch.zeros(8, 16).long(),
        torch.zeros(8, 16),
        torch.full((8, 16), -100),
    )
    for row, (first, last) in enumerate(pairwise(batch.offsets)):
        inputs[row, : last - first] = torch.from_numpy(masked_inputs[first:last])
        attention[row, : last - first] = 1
        labels[row, : last - first] = torch.from_numpy(predicted_tokens[first:last])
    loss = float(bert()(input_ids=inputs, attention_mask=attention, labels=labels).loss.detach())
    assert steps(records)[0].loss == pytest.approx(loss, abs=1e-6)
    assert steps(records)[0].plain_loss == pytest.approx(loss, abs=1e-6)


@both_objectives
def test_a_step_without_weight_leaves_the_model_as_it_is(pair_examples, examples, objective):
    pairs = objective == "next_sentence"
    examples = replace(pair_examples if pairs else examples, weights=np.zeros(24, dtype=np.float32))
    state, records = run(examples, steps=2, objective=objective)
    assert torch.equal(parameters(state.module), parameters(bert(next_sentence=pairs)))
    assert [(record.loss, record.plain_loss, record.other_losses) for record in steps(records)] == [
        (0, None, None)
    ] * 2


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
    assert [record.step for record in records if isinstance(record, EvaluationRecord)] == [
        0,
        2,
        4,
        6,
    ]
    assert [record.step for record in steps(records)] == [1, 2, 3, 4, 5, 6]
    assert steps(records)[2].examples == 24
    assert steps(records)[2].tokens == weighted_examples.lengths.sum(), (
        "three steps of 8 are one epoch of 24"
    )
    assert all(1 <= record.effective_sample_size < 8 for record in steps(records))
    assert steps(records)[0].loss < steps(records)[0].plain_loss, (
        "weights below 1 make a smaller loss under batch"
    )
    assert [epoch for epoch in epochs if epoch == [1]] == [[1]] * 3, (
        "the second epoch has masks of its own"
    )


def step_loss_of_transformers(model, batch, weights, denominator):
    """The loss of a step pair by pair, through the model's own forward pass, and its plain next-sentence loss."""
    tokens, counts, relation = [0.0] * len(weights), [0] * len(weights), {}
    for row, (first, last) in enumerate(pairwise(batch.examples.offsets)):
        types = torch.from_numpy(batch.pairs.types[first:last])[None]
        answer = model(
            torch.from_numpy(batch.inputs[first:last]).long()[None], token_type_ids=types
        )
        chances = answer.prediction_logits[0].log_softmax(-1)
        for position in np.flatnonzero(batch.labels[first:last] != IGNORED):
            text = batch.pairs.texts[first + position]
            tokens[text] = tokens[text] - chances[position, batch.examples.tokens[first + position]]
            counts[text] += 1
        if batch.pairs.labels[row] != IGNORED:
            relation[row] = -answer.seq_relationship_logits[0].log_softmax(-1)[
                batch.pairs.labels[row]
            ]
    if denominator == "batch":
        token_loss = sum(
            w * s / n for w, s, n in zip(weights, tokens, counts, strict=True) if n
        ) / len(weights)
        pair_loss = sum(weights[row] * loss for row, loss in relation.items()) / len(weights)
    else:
        label_weights = np.array(weights if denominator == "weight_sum" else np.ones(len(weights)))
        token_loss = sum(w * s for w, s in zip(weights, tokens, strict=True)) / np.dot(
            label_weights, counts
        )
        pair_loss = (
            sum(weights[row] * loss for row, loss in relation.items())
            / label_weights[list(relation)].sum()
        )
    return token_loss + pair_loss, float(sum(relation.values()).detach()) / len(relation)


@pytest.mark.parametrize("denominator", DENOMINATORS)
def test_loss_and_gradient_are_those_of_transformers_summed_pair_by_pair(
    pair_examples, denominator
):
    sizes = np.where(
        np.arange(24) % 5 == 1, 1, pair_examples.sizes
    )  # some are too short to be asked about
    weights = np.where(np.arange(24) % 4 == 3, 0, pair_examples.weights).astype(np.float32)
    examples = replace(pair_examples, sizes=sizes, weights=weights)
    batch = PAIRS.step_batch(examples.take(np.arange(24)), 0, denominator)
    assert set(batch.pairs.labels.tolist()) == {0, 1, IGNORED}
    model = bert(next_sentence=True)
    loss, next_sentence = step_loss_of_transformers(
        model, batch, weights.astype(float).tolist(), denominator
    )
    loss.backward()
    reference = torch.cat([value.grad.flatten() for value in model.parameters()])
    settings = replace(PAIR_SETTINGS, denominator=denominator)
    outcome, gradient = gradient_of_step(
        new_state(bert(next_sentence=True), settings, budget=64), batch, settings
    )
    assert outcome.loss == pytest.approx(float(loss.detach()), abs=1e-6)
    assert outcome.other_losses["next_sentence"] == pytest.approx(next_sentence, abs=1e-6)
    assert outcome.grad_norm == pytest.approx(float(reference.norm()), rel=1e-5)
    torch.testing.assert_close(gradient, reference, atol=1e-6, rtol=1e-5)


def test_without_a_layout_rows_are_padded_to_the_tokens_that_the_settings_allow():
    settings, model = (
        TrainSettings(steps=1, max_tokens=16, execution=Execution(micro_batch_tokens=48)),
        bert(),
    )
    assert prepare(model, settings, Accelerator(cpu=True)).shape == BatchLayout.from_config(
        model.config, 48
    )


@pytest.mark.parametrize("world", [2, 3])
def test_ranks_add_up_to_the_whole_step(pair_examples, world):
    """What each rank's micro-batches contribute, an idle rank's included, sums to the loss of one rank."""
    batch = PAIRS.step_batch(pair_examples.take(np.arange(4)), 0, "batch")
    module, shape = PairLogits(bert(next_sentence=True)).eval(), BatchLayout(budget=16)

    @torch.no_grad()
    def contribution(rank, ranks):
        micros = [
            batch.micro(rows, shape) for rows in micro_batches(batch.lengths, shape, rank, ranks)
        ]
        return [float((micro.losses(module) * micro.coefficients).sum()) for micro in micros]

    (total,), shares = [contribution(0, 1)], [contribution(rank, world) for rank in range(world)]
    assert sum(map(sum, shares)) == pytest.approx(sum(total), abs=1e-6)
    assert any(0.0 in share for share in shares) is (world == 3), (
        "4 rows leave one of 3 idle at the end"
    )


@pytest.mark.parametrize(
    ("denominator", "pairs"), [("batch", 2), ("weight_sum", 1), ("token_count", 2)]
)
def test_pairs_count_where_no_masked_token_does(denominator, pairs):
    def batches():
        for seed in range(200):  # now and then both masked tokens are of the second text
            texts = replace(
                random_examples(2, seed, np.array([1.0, 0.0])), special_tokens=PAIR_TOKENS
            )
            batch = replace(texts, starts=np.array([0, 2]), sizes=np.array([2, 2])).take(
                np.arange(2)
            )
            yield PAIRS.step_batch(batch, 0, denominator)

    batch = next(batch for batch in batches() if batch.counts[0] == 0)
    model = bert(next_sentence=True).eval()
    ids, types = (values[None, : batch.lengths[0]] for values in (batch.inputs, batch.pairs.types))
    answer = model(
        torch.from_numpy(ids).long(), token_type_ids=torch.from_numpy(types)
    ).seq_relationship_logits[0]
    loss = float(-answer.log_softmax(-1)[batch.pairs.labels[0]].detach()) / pairs
    outcome = take_step(new_state(model, PAIR_SETTINGS), batch, 1e-4, 0, PAIR_SETTINGS)
    assert outcome.loss == pytest.approx(loss, abs=1e-6)
    assert outcome.grad_norm > 0


def test_mean_and_standard_error_by_hand():
    # ratio 12/4 = 3; deviations 4 - 3·1, 8 - 3·3 = 1, -1; √(2·2/1) / 4
    assert _ratio(np.array([4.0, 8.0]), np.array([1, 3]))[:2] == pytest.approx((3, 2 / 4))
    assert _ratio(np.array([3.0]), np.array([2])) == HeldoutLoss(1.5, None)
    assert _ratio(np.array([0.0, 0.0]), np.array([0, 0])) == HeldoutLoss(None, None)
    sums = np.random.default_rng(0).normal(10, 2, 400)
    assert _ratio(sums, np.ones(400, dtype=int)).standard_error == pytest.approx(
        sums.std(ddof=1) / 20
    )
    assert [str(HeldoutLoss(mean, None)) for mean in (None, 1.25)] == [
        "nothing to measure",
        "1.2500 nats",
    ]
    assert str(HeldoutLoss(0.5, None, unit="")) == "0.5000"


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
    labels = [
        one.heldout_collator(tiny_tokenizer).step_batch(batch, 0, "token_count").labels
        for one in objectives
    ]
    assert all(np.array_equal(one, labels[0]) for one in labels[1:])
    assert (labels[0] != IGNORED).mean() == pytest.approx(0.15, abs=0.03)


def test_a_sample_is_short_not_empty_and_does_not_depend_on_the_order(examples):
    sample = heldout_sample(examples, 50)
    assert 34 < sample.lengths.sum() <= 50
    assert len(heldout_sample(examples, 1)) == 1
    backwards = examples.rows(np.arange(len(examples))[::-1])
    assert set(heldout_sample(backwards, 50).ids.tolist()) == set(sample.ids.tolist())
    assert heldout_sample(examples, 10**6).lengths.sum() == examples.lengths.sum()
    heavy = replace(
        examples, weights=np.where(np.arange(len(examples)) % 2, 1, 1e-6).astype(np.float32)
    )
    assert set(heldout_sample(heavy, 50).ids.tolist()) <= set(examples.ids[1::2].tolist())


def test_random_text_is_cut_as_short_as_the_selected_text(examples):
    short = replace(examples, sizes=np.full(len(examples), 2))
    selection = Examples.mixture(
        {"selected": short, "pool": examples}, {"selected": 0.5, "pool": 0.5}
    )
    texts = HeldOut({"pool": examples}, None).with_selected(selection, 10**6).texts
    assert texts["selected"].sizes.tolist() == texts["random"].sizes.tolist() == [2] * len(examples)
    few = HeldOut({"pool": examples}, None).with_selected(selection, 9).texts
    assert [part.lengths.sum() <= 9 for part in few.values()] == [False, True, True]


def poisoned(examples, step=0):
    """The examples, and the first one of a step: its weight, and so its loss, is NaN wherever it occurs."""
    settings = TrainSettings(steps=6, batch_size=4, max_tokens=16)
    row = Phase(examples, settings)[step].rows[0]
    weights = examples.weights.copy()
    weights[row] = math.nan
    return replace(examples, weights=weights), row


def test_a_step_without_a_finite_gradient_is_skipped_and_recorded(examples, caplog):
    examples, _ = poisoned(examples, step=2)
    state, records = run(examples, steps=6, batch_size=4)
    assert [record.skipped for record in steps(records)] == [
        False,
        False,
        True,
        False,
        False,
        False,
    ]
    assert (
        "step 3: skipped, its gradient is not finite (loss nan, gradient norm nan)" in caplog.text
    )
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


def test_ten_in_a_row_end_the_run_and_one_an_epoch_does_not(examples):
    poison, row = poisoned(examples)
    _, records = run(poison, steps=36, batch_size=4)
    assert sum(record.skipped for record in steps(records)) == 6
    with pytest.raises(DanaError, match=r"10 steps in a row, up to step 10.*learning_rate"):
        run(poison.rows(np.array([row])), steps=60)
    with pytest.raises(DanaError, match=r"10 steps in a row.*learning_rate"):
        run(examples, steps=60, learning_rate=1e30, clip=1e30)


def test_what_is_not_finite_is_not_saved(examples, tiny_tokenizer, tmp_path):
    state, _ = run(examples, steps=1)
    assert read_state(state)
    with torch.no_grad():
        next(iter(state.module.parameters()))[0, 0] = math.inf
    with pytest.raises(DanaError, match=r"word_embeddings.*not finite.*learning_rate"):
        read_state(state)
    with pytest.raises(DanaError, match=r"word_embeddings.*not finite.*learning_rate"):
        save_model(state, tiny_tokenizer, tmp_path / "spoilt")
    assert not (tmp_path / "spoilt").exists()
    with pytest.raises(
        DanaError, match=r"step 0: the held-out loss is not finite \(target nan nats.*learning_rate"
    ):
        next(train(state, examples, [MASKED], SETTINGS, TEXTS))


def test_the_scaler_of_fp16_is_called_for_skipped_steps(examples, monkeypatch):
    """It starts with too high a scale, and must see the overflow to lower it."""
    state, calls = new_state(bert()), []
    state.accelerator.scaler = SimpleNamespace()
    monkeypatch.setattr(state.optimizer, "step", lambda: calls.append(1))
    monkeypatch.setattr(state.accelerator, "backward", lambda loss: loss.backward())
    monkeypatch.setattr(state.accelerator, "unscale_gradients", lambda optimizer=None: None)
    batch = MASKED.step_batch(poisoned(examples)[0].take(np.arange(24)), 0, "batch")
    assert take_step(state, batch, 1e-3, 1, SETTINGS).skipped
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


def test_no_float64_reaches_a_device_without_it(examples, monkeypatch):
    monkeypatch.setattr("dana.core.device.has_float64", lambda device: False)
    with NoFloat64OnDevice() as mode:
        run(examples, steps=2)
    assert len(mode.on_host) > 2
    alone = SimpleNamespace(num_processes=1, device=torch.device("meta"))
    assert total(alone, torch.ones(3, dtype=torch.float64)).tolist() == [1, 1, 1]


def fit(batches, parts, rates, clip=None):
    """Yields loss and weight after each step of y = 2x on squared outputs, each batch's mean cut into parts."""
    layer = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.constant_(layer.weight, 2.0)

    def losses(batch):
        for part in np.array_split(batch, parts):
            yield (layer(torch.tensor(part, dtype=torch.float32)[:, None]) ** 2).sum() / len(batch)

    optimizer = torch.optim.SGD(layer.parameters(), lr=1.0)
    for loss in train_supervised(optimizer, batches, losses, lambda step: rates[step], "toy", clip):
        yield loss, layer.weight.item()


def test_steps_by_hand():
    steps = fit([np.array([1.0]), np.array([2.0]), np.array([np.nan])], 1, [0.25, 0.125, 0.5])
    assert next(steps) == (4.0, 1.0), "(2 · 1)² and 2 - 0.25 · 2 · 2"
    assert next(steps) == (4.0, 0.0), "(1 · 2)² and 1 - 0.125 · 8"
    with pytest.raises(DanaError, match=r"^toy, step 3: .*nan.*learning_rate=0.5$"):
        next(steps)
    assert list(fit([np.array([1.0])], 1, [1.0], clip=0.5)) == [(4.0, pytest.approx(1.5))]
    batch = np.linspace(-1, 1, 12)
    [(loss, weight)] = fit([batch], 1, [0.1])
    assert list(fit([batch], 5, [0.1])) == [(pytest.approx(loss), pytest.approx(weight))], (
        "parts are one step"
    )


def test_a_batch_without_a_loss_leaves_the_model_as_it_is():
    layer = torch.nn.Linear(2, 2)
    before = layer.weight.clone()
    optimizer = make_optimizer(layer, 0.1, weight_decay=0.5)
    assert list(train_supervised(optimizer, [1, 2], lambda batch: [], lambda step: 0.1, "toy")) == [
        0.0,
        0.0,
    ]
    assert torch.equal(layer.weight, before)


@given(st.lists(st.integers(1, 50), min_size=1, max_size=200), st.integers(1, 9), st.integers(0, 3))
def test_an_epoch_has_every_row_once(lengths, size, seed):
    batches = batches_by_length(lengths, size, np.random.default_rng(seed))
    assert sorted(np.concatenate(batches)) == list(range(len(lengths)))
    assert len(batches) == -(-len(lengths) // size)
    assert max(map(len, batches)) <= size


def test_batches_have_similar_lengths_and_are_shuffled():
    lengths = np.random.default_rng(0).permutation(8 * 32)
    batches = batches_by_length(lengths, 8, np.random.default_rng(0), together=32)
    longest = [lengths[rows].max() for rows in batches]
    assert (
        max(np.ptp(lengths[rows]) for rows in batches) == 7
    )  # one bucket, so 8 neighbours in each
    assert longest != sorted(longest)
