"""Two pieces of one document among those of others: loss and gradient, the same for any cut."""

from contextlib import nullcontext
from dataclasses import replace
from itertools import pairwise
from math import exp, log
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dana.core.errors import ConfigError
from dana.train import DENOMINATORS
from dana.train.documents import DrawCrops
from dana.train.evaluation import measure_loss
from dana.train.execution import make_accelerator
from dana.train.joint import collect_vectors, joint_backward
from dana.train.layout import BatchLayout
from dana.train.objectives.crops import Crops, CropsCollator, near_repeats, pair_losses
from dana.train.settings import TrainSettings
from dana.train.training_state import TrainingState
from tests.train.conftest import (
    SPECIAL_TOKENS,
    assert_passes_change_nothing,
    bert,
    gradient_of_step,
    new_state,
    random_documents,
    some_weights,
)

SETTINGS = TrainSettings(objective="crops", max_tokens=16, batch_size=6, steps=3, clip=1e9)
COLLATOR = CropsCollator(SPECIAL_TOKENS)


def documents(count=8, weights=some_weights):
    return random_documents(count, 4, DrawCrops(0), weights)


def step_of(examples, denominator="batch", collator=COLLATOR):
    return collator.step_batch(examples.take(np.arange(len(examples))), 0, denominator)


def loss_by_hand(vectors, weights, is_negative, denominator, temperature=0.05):
    """The sum over documents as it is written, in plain numbers."""
    units = [vector / np.linalg.norm(vector) for vector in vectors]
    total = 0.0
    for i, weight in enumerate(weights):
        cosines = [float(units[2 * i] @ units[2 * j + 1]) for j in range(len(weights))]
        others = sum(
            weights[j] * exp(cosines[j] / temperature)
            for j in range(len(weights))
            if is_negative[i][j]
        )
        own = exp(cosines[i] / temperature)
        total += weight * -log(own / (own + others))
    return total / (sum(weights) if denominator == "weight_sum" else len(weights))


@pytest.mark.parametrize("denominator", DENOMINATORS)
def test_loss_and_gradient_are_those_of_one_piece_at_a_time(denominator):
    examples = documents()
    batch = step_of(examples, denominator)
    chosen = replace(SETTINGS, denominator=denominator)
    state = new_state(bert(), chosen)
    module = state.inner_module
    pieces = batch.examples
    vectors = [
        module.model.bert(input_ids=torch.from_numpy(pieces.tokens[a:b]).long()[None])[0][0].mean(0)
        for a, b in pairwise(pieces.offsets)
    ]
    losses, _ = pair_losses(
        torch.stack(vectors),
        torch.from_numpy(batch.document_weights),
        torch.from_numpy(batch.is_negative),
        0.05,
    )
    weights = batch.document_weights
    total = weights.sum() if denominator == "weight_sum" else 8
    loss = (losses * torch.from_numpy(weights)).sum() / float(total)
    by_hand = loss_by_hand(
        [vector.detach().double().numpy() for vector in vectors],
        weights.tolist(),
        batch.is_negative,
        denominator,
    )
    assert float(loss.detach()) == pytest.approx(by_hand, rel=1e-4)
    trained = [value for value in module.parameters() if value.requires_grad]
    reference = torch.cat([part.flatten() for part in torch.autograd.grad(loss, trained)])
    outcome, gradient = gradient_of_step(state, batch, chosen)
    assert outcome.loss == pytest.approx(by_hand, rel=1e-4)
    torch.testing.assert_close(gradient, reference, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("layout", ["padded", "unpadded"])
@pytest.mark.parametrize("budget", [16, 50, 200])
def test_passes_and_layouts_change_nothing(layout, budget):
    assert_passes_change_nothing(step_of(documents()), SETTINGS, layout, budget)


def test_a_second_pass_has_the_dropout_of_the_first(monkeypatch):
    """With dropout, passes that run twice give the gradient of passes that keep their graphs."""
    batch = step_of(documents())
    results = []
    for padded_tokens in (0, 10**9):  # as if all passes fitted into one, and as if they did not
        monkeypatch.setattr("dana.train.joint._padded_tokens", lambda *_, n=padded_tokens: n)
        state = new_state(bert(dropout=0.1), SETTINGS, budget=50)
        results.append(gradient_of_step(state, batch, SETTINGS))
    (one, gradient), (other, other_gradient) = results
    assert other.loss == pytest.approx(one.loss, abs=1e-6)
    torch.testing.assert_close(other_gradient, gradient, atol=1e-6, rtol=1e-4)
    without = gradient_of_step(new_state(bert(), SETTINGS, budget=50), batch, SETTINGS)
    assert abs(without[0].loss - one.loss) > 1e-3, "dropout does something"


class OneOfRanks:
    """Stands in for Accelerate on one of several ranks; what the others add to a sum is given."""

    device = torch.device("cpu")
    gradient_accumulation_steps = 1

    def __init__(self, rank, ranks, vectors):
        self.process_index = rank
        self.num_processes = ranks
        self.vectors = vectors

    def reduce(self, own):
        is_mine = own.any(1)
        torch.testing.assert_close(own[is_mine], self.vectors[is_mine])
        return self.vectors.clone()

    def no_sync(self, module):
        return nullcontext()

    def backward(self, loss):
        loss.backward()


@pytest.mark.parametrize(("ranks", "budget"), [(2, 512), (3, 40), (6, 512)])
def test_ranks_share_the_gradient_of_a_step_and_an_idle_one_adds_nothing(ranks, budget):
    batch = step_of(documents(2))  # four pieces
    shape = BatchLayout(budget=budget)
    outcome, gradient = gradient_of_step(new_state(bert(), SETTINGS), batch, SETTINGS)
    module = new_state(bert(), SETTINGS).inner_module.train()
    alone = SimpleNamespace(process_index=0, num_processes=1, device="cpu", reduce=lambda own: own)
    with torch.no_grad():
        vectors = collect_vectors(module, batch, shape, alone, lambda: None)
    sums = 0
    for rank in range(ranks):
        accelerator = OneOfRanks(rank, ranks, vectors)
        passes = batch.passes(shape, rank, ranks)
        rank_state = TrainingState(module, None, accelerator, shape)
        sums += joint_backward(rank_state, batch, passes, seed=0)
    trained = [value for value in module.parameters() if value.requires_grad]
    shared = torch.cat([value.grad.flatten() for value in trained]) / ranks
    torch.testing.assert_close(shared, gradient, atol=1e-6, rtol=1e-4)
    assert float(sums[0]) == pytest.approx(outcome.loss, abs=1e-6)


def test_passes_that_fit_run_once(monkeypatch):
    batch = step_of(documents())
    for budget, runs in ((512, 1), (50, 2)):
        state = new_state(bert(), SETTINGS, budget)
        calls = []
        forward = type(state.inner_module).forward

        def counted(module, *args, forward=forward, calls=calls, **kwargs):
            calls.append(kwargs["texts"])
            return forward(module, *args, **kwargs)

        monkeypatch.setattr(type(state.inner_module), "forward", counted)
        gradient_of_step(state, batch, SETTINGS)
        monkeypatch.undo()
        assert sum(calls) == runs * 16, "every piece, so many times"


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 10**6), tiny=st.sampled_from([0.0, 1e-30]))
@example(seed=461, tiny=1e-30)  # its cosines differ so much that e^s makes 1e-12 count
def test_weight_0_is_absence_as_a_pair_and_as_a_negative(seed, tiny):
    generator = torch.Generator().manual_seed(seed)
    vectors = torch.randn(12, 5, generator=generator, dtype=torch.float32, requires_grad=True)
    weights = torch.rand(6, generator=generator)
    weights[2] = tiny
    is_negative = ~torch.eye(6, dtype=torch.bool)
    losses, _ = pair_losses(vectors, weights, is_negative, 0.05)
    (gradient,) = torch.autograd.grad((losses * weights).sum() / weights.sum(), vectors)
    others = torch.tensor([0, 1, 3, 4, 5])
    rows = torch.stack([2 * others, 2 * others + 1], 1).flatten()
    alone = vectors.detach()[rows].requires_grad_()
    fewer, _ = pair_losses(alone, weights[others], is_negative[:5, :5], 0.05)
    loss = (fewer * weights[others]).sum() / weights[others].sum()
    (gradient_alone,) = torch.autograd.grad(loss, alone)
    torch.testing.assert_close(fewer, losses[others], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(gradient_alone, gradient[rows], atol=1e-4, rtol=1e-4)
    assert torch.isfinite(gradient).all()


def test_the_order_of_the_documents_changes_nothing():
    examples = documents()
    order = np.array([3, 1, 7, 0, 5, 2, 6, 4])
    results = [
        gradient_of_step(new_state(bert(), SETTINGS), step_of(part), SETTINGS)
        for part in (examples, examples.rows(order))
    ]
    (one, gradient), (other, other_gradient) = results
    assert other.loss == pytest.approx(one.loss, abs=1e-6)
    torch.testing.assert_close(other_gradient, gradient, atol=2e-6, rtol=1e-4)


def test_near_repeats_are_no_negatives_of_each_other():
    text = np.arange(5, 25)
    half = np.concatenate([text[:12], np.arange(30, 38)])  # 9 of its 17 runs are those of the text
    less = np.concatenate([text[:10], np.arange(40, 50)])  # 7 of 17
    short = np.array([50, 51])  # has no run at all
    texts = [text, half, less, short, text[:8]]
    offsets = np.cumsum([0, *map(len, texts)])
    near = near_repeats(np.concatenate(texts), offsets)
    expected = np.zeros((5, 5), dtype=bool)
    for i, j in ((0, 1), (0, 4), (1, 4), (1, 2), (2, 4)):
        expected[i, j] = expected[j, i] = True
    shared_of_half_and_less = 7  # of 17: not near
    assert shared_of_half_and_less < 17 / 2
    expected[1, 2] = expected[2, 1] = False
    assert near.tolist() == expected.tolist()


def test_runs_do_not_cross_documents():
    tokens = np.array([1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6])
    near = near_repeats(tokens, np.array([0, 3, 6, 9, 12]))
    assert not near.any()


def test_a_repeated_document_does_not_push_its_copy_away():
    examples = documents(2, np.ones)
    twice = examples.rows(np.array([0, 0, 1]))
    batch = step_of(twice)
    assert batch.is_negative.tolist() == [
        [False, False, True],
        [False, False, True],
        [True, True, False],
    ]
    assert batch.guess == pytest.approx((1 / 2 + 1 / 2 + 1 / 3) / 3)


def test_held_out_groups_are_fixed():
    examples = documents(7, np.ones)
    collator = replace(COLLATOR, group=3)
    batch = step_of(examples, collator=collator)
    group = np.arange(7) // 3
    assert (
        batch.is_negative.tolist() == ((group[:, None] == group) & ~np.eye(7, dtype=bool)).tolist()
    )
    assert batch.guess == pytest.approx((6 / 3 + 1) / 7)
    state = new_state(bert(), SETTINGS, budget=50)
    loss = measure_loss(state.module, examples, collator, state.shape, make_accelerator())
    parts = [
        measure_loss(
            state.module,
            examples.rows(np.arange(first, min(first + 3, 7))),
            COLLATOR,
            state.shape,
            make_accelerator(),
        )
        for first in (0, 3, 6)
    ]
    assert loss.mean == pytest.approx((3 * parts[0].mean + 3 * parts[1].mean + parts[2].mean) / 7)
    assert loss.accuracy == pytest.approx(
        (3 * parts[0].accuracy + 3 * parts[1].accuracy + parts[2].accuracy) / 7
    )
    assert loss.guess == batch.guess


def test_a_single_document_has_nothing_to_learn_from():
    outcome, gradient = gradient_of_step(
        new_state(bert(), SETTINGS), step_of(documents(1)), SETTINGS
    )
    assert outcome.loss == pytest.approx(0, abs=1e-6)
    assert not gradient.any()


def test_the_temperature_is_a_setting():
    assert Crops(temperature=0.1).collator.__self__.temperature == 0.1
    with pytest.raises(ConfigError, match="temperature=0"):
        Crops(temperature=0)
