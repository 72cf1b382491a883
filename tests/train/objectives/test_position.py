"""The fifth of its document that a sentence stands in: labels, loss and gradient, and what is trained."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from dana.core.errors import ConfigError
from dana.core.registry import OBJECTIVES
from dana.train import DENOMINATORS
from dana.train.documents import DrawSentences
from dana.train.evaluation import HeldOut, measure_loss
from dana.train.execution import make_accelerator
from dana.train.layout import BatchLayout, micro_batches
from dana.train.loop import take_step, train
from dana.train.objectives.batch import micro_loss
from dana.train.objectives.classes import ClassCollator
from dana.train.objectives.position import Position
from dana.train.settings import TrainSettings
from tests.train.conftest import (
    SPECIAL_TOKENS,
    bert,
    gradient_of_step,
    new_state,
    parameters,
    random_documents,
    some_weights,
    steps,
    use_varlen,
)

SETTINGS = TrainSettings(objective="position", max_tokens=16, batch_size=6, steps=3, clip=1e9)
COLLATOR = ClassCollator(Position(), SPECIAL_TOKENS, 0)


def documents(count=12, weights=some_weights, sentences=2):
    return random_documents(count, 4, DrawSentences(0, sentences), weights)


def step_of(examples, denominator="batch"):
    return COLLATOR.step_batch(examples.take(np.arange(len(examples))), 0, denominator)


def reference_loss(module, batch, denominator):
    """The loss of a step by the model's own forward pass, one sentence at a time."""
    losses = []
    for first, last in zip(batch.offsets[:-1], batch.offsets[1:], strict=True):
        ids = torch.from_numpy(batch.tokens[first:last]).long()[None]
        vector = module.model.bert(input_ids=ids)[0][0].mean(0)
        losses.append(module.head(vector))
    labels = [int(5 * (p + 0.5) / n) for p, n in zip(batch.numbers, batch.totals, strict=True)]
    each = cross_entropy(torch.stack(losses), torch.tensor(labels), reduction="none")
    weights = torch.from_numpy(batch.weights)
    total = float(weights.sum()) if denominator == "weight_sum" else len(labels)
    return (each * weights).sum() / total


def warm(state):
    """Gives the head, which begins at zero, some weights."""
    with torch.no_grad():
        generator = torch.Generator().manual_seed(0)
        for parameter in state.inner_module.head.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) / 2)
    return state


@pytest.mark.parametrize("total", [4, 5, 7, 12])
def test_labels_are_the_fifths_of_the_document(total):
    examples = random_documents(1, 0, DrawSentences(0, None), sentences=total)
    labels = step_of(examples).labels.tolist()
    assert labels == [int(np.floor(5 * (p + 0.5) / total)) for p in range(total)]


@pytest.mark.parametrize("denominator", DENOMINATORS)
def test_loss_and_gradient_are_those_of_one_sentence_at_a_time(denominator):
    examples = documents()
    settings = replace(SETTINGS, denominator=denominator)
    state = warm(new_state(bert(), settings))
    module = state.inner_module
    loss = reference_loss(module, examples.take(np.arange(12)), denominator)
    trained = [value for value in module.parameters() if value.requires_grad]
    reference = torch.cat([part.flatten() for part in torch.autograd.grad(loss, trained)])
    outcome, gradient = gradient_of_step(state, step_of(examples, denominator), settings)
    assert outcome.loss == pytest.approx(float(loss.detach()), abs=1e-6)
    torch.testing.assert_close(gradient, reference, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("denominator", DENOMINATORS)
@pytest.mark.parametrize("layout", ["padded", "unpadded"])
@pytest.mark.parametrize("budget", [16, 50])
def test_micro_batches_and_layouts_change_nothing(denominator, layout, budget):
    settings = replace(SETTINGS, denominator=denominator)
    batch = step_of(documents(), denominator)
    one, gradient = gradient_of_step(warm(new_state(bert(), settings)), batch, settings)
    model = bert()
    if layout == "unpadded":
        use_varlen(model)
    state = warm(new_state(model, settings, budget, layout=layout))
    other, other_gradient = gradient_of_step(state, batch, settings)
    assert other.loss == pytest.approx(one.loss, abs=1e-6)
    assert other.other_losses == pytest.approx(one.other_losses)
    torch.testing.assert_close(other_gradient, gradient, atol=1e-6, rtol=1e-4)


def test_ranks_share_the_gradient_of_a_step_and_an_idle_one_adds_nothing():
    batch = step_of(documents(1))
    state = warm(new_state(bert(), SETTINGS))
    _, gradient = gradient_of_step(state, batch, SETTINGS)
    module = warm(new_state(bert(), SETTINGS)).inner_module
    shape = BatchLayout(budget=512)
    for rank in range(5):
        for rows in micro_batches(batch.lengths, shape, rank, 5):
            micro = batch.micro(rows, shape)
            loss = micro_loss(micro.losses(module), micro.coefficients, batch.scale.total)
            loss.backward()
    shared = torch.cat([v.grad.flatten() for v in module.parameters() if v.requires_grad])
    torch.testing.assert_close(shared, gradient, atol=1e-6, rtol=1e-5)


def test_under_weight_sum_weight_0_is_absence_and_elsewhere_only_z_counts_it():
    def with_weights(values):
        return replace(documents(6, np.ones), sentence_weights=values)

    weights = some_weights(documents(6, np.ones).sizes.size)
    examples = documents(6, np.ones)
    absent = np.array([1, 4])
    is_absent = np.isin(np.repeat(np.arange(6), np.diff(examples.firsts)), absent)
    some = with_weights(np.where(is_absent, 0, weights))
    others = with_weights(weights).rows(np.array([0, 2, 3, 5]))
    for denominator, factor in (("weight_sum", 1), ("batch", 4 / 6), ("token_count", 4 / 6)):
        settings = replace(SETTINGS, denominator=denominator)
        results = []
        for part in (some, others):
            state = warm(new_state(bert(), settings))
            results.append(gradient_of_step(state, step_of(part, denominator), settings))
        (one, gradient), (other, other_gradient) = results
        assert one.loss == pytest.approx(other.loss * factor, abs=1e-6)
        torch.testing.assert_close(gradient, other_gradient * factor, atol=1e-6, rtol=1e-4)


def test_the_head_has_ten_times_the_rate_and_begins_at_zero():
    state = new_state(bert(), SETTINGS)
    before = {name: value.clone() for name, value in state.inner_module.named_parameters()}
    take_step(state, step_of(documents()), 1e-3, 0, SETTINGS)
    after = dict(state.inner_module.named_parameters())
    assert not before["head.weight"].any()
    # The first step of Adam moves each parameter by its rate.
    assert after["head.weight"].detach().abs().max() == pytest.approx(1e-2, rel=1e-3)
    moved = [name for name in before if not torch.allclose(before[name], after[name], atol=1e-5)]
    assert moved == ["head.weight", "head.bias"]


def test_the_head_for_masked_tokens_stays_as_it_is_and_the_rest_is_trained():
    state = new_state(bert(), SETTINGS)
    settings = replace(SETTINGS, steps=3, learning_rate=1e-2)
    heldout = HeldOut({"pool": documents(5, sentences=None)}, COLLATOR)
    records = list(train(state, documents(), [COLLATOR], settings, heldout))
    original = bert()
    for name, value in original.named_parameters():
        now = dict(state.model.named_parameters())[name]
        is_new = name.startswith("bert.") and "pooler" not in name
        assert torch.equal(value, now) != is_new, name
    assert [record.other_losses.keys() for record in steps(records)] == [{"accuracy"}] * 3


def test_held_out_accuracy_stands_beside_that_of_guessing():
    state = warm(new_state(bert(), SETTINGS))
    examples = documents(8, sentences=None)
    loss = measure_loss(state.module, examples, COLLATOR, state.shape, make_accelerator())
    batch = examples.take(np.arange(8))
    expected = reference_loss(state.inner_module, batch, "token_count")
    labels = step_of(examples).labels
    assert loss.guess == np.bincount(labels).max() / labels.size
    with torch.no_grad():
        inputs = step_of(examples).micro(np.arange(len(batch)), state.shape).inputs
        hits = (state.module.eval()(**inputs).argmax(1).numpy() == labels).mean()
    assert loss.accuracy == pytest.approx(hits)
    unweighted = replace(examples, sentence_weights=np.ones(examples.sizes.size))
    expected = reference_loss(state.inner_module, unweighted.take(np.arange(8)), "token_count")
    assert loss.mean == pytest.approx(float(expected.detach()), abs=1e-6)
    assert f"{hits:.1%} right, guessing" in str(loss)


def test_all_sentences_or_some(tiny_tokenizer):
    assert OBJECTIVES.create("position") == Position(sentences=2)
    assert (
        OBJECTIVES.create("position:sentences=0")
        .card_terms()
        .objective.endswith("all sentences of each document a pass")
    )
    with pytest.raises(ConfigError, match="sentences=-1"):
        Position(sentences=-1)


def test_decoders_are_refused():
    from transformers import GPT2Config

    with pytest.raises(
        ConfigError, match=r"a model of type gpt2 has no .*; adapt it with --objective causal"
    ):
        Position().auto_class(GPT2Config())


def test_dropout_follows_the_seed(caplog):
    def trained(seed):
        state = new_state(bert(dropout=0.3), SETTINGS)
        settings = replace(SETTINGS, seed=seed, learning_rate=1e-2)
        list(train(state, documents(), [COLLATOR], settings, HeldOut({}, COLLATOR)))
        return parameters(state.inner_module)

    assert torch.equal(trained(0), trained(0))
    assert not torch.equal(trained(0), trained(1))
