"""The loop of all supervised training: one step a batch, whatever parts its loss comes in."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dana.core.errors import DanaError
from dana.train.supervised import batches_by_length, make_optimizer, train_supervised


def trained(batches, cut, rates, clip=None):
    """A linear layer after some batches of numbers, each batch's mean cut into parts; and the losses."""
    layer = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.constant_(layer.weight, 2.0)

    def losses(batch):
        for part in np.array_split(batch, cut):
            yield (layer(torch.tensor(part, dtype=torch.float32)[:, None]) ** 2).sum() / len(batch)

    optimizer = torch.optim.SGD(layer.parameters(), lr=1.0)
    return layer, train_supervised(optimizer, batches, losses, lambda step: rates[step], "toy", clip)


def test_two_steps_by_hand():
    layer, taken = trained([np.array([1.0]), np.array([2.0])], 1, [0.25, 0.125])
    assert next(taken) == 4.0, "(2 · 1)²"
    assert layer.weight.item() == 1.0, "2 - 0.25 · 2 · 2"
    assert next(taken) == 4.0, "(1 · 2)²"
    assert layer.weight.item() == 0.0, "1 - 0.125 · 8"


def test_a_loss_in_parts_is_one_step():
    batch = np.linspace(-1, 1, 12)
    (whole, first), (parts, second) = trained([batch], 1, [0.1]), trained([batch], 5, [0.1])
    assert list(first) == pytest.approx(list(second))
    assert whole.weight.item() == pytest.approx(parts.weight.item()) != 2.0


def test_a_gradient_is_clipped():
    layer, taken = trained([np.array([1.0])], 1, [1.0], clip=0.5)
    list(taken)
    assert layer.weight.item() == pytest.approx(1.5)


def test_a_batch_without_a_loss_leaves_the_model_as_it_is():
    layer = torch.nn.Linear(2, 2)
    before = layer.weight.clone()
    optimizer = make_optimizer(layer, 0.1, weight_decay=0.5)
    assert list(train_supervised(optimizer, [1, 2], lambda batch: [], lambda step: 0.1, "toy")) == [0.0, 0.0]
    assert torch.equal(layer.weight, before)


def test_a_loss_that_is_not_finite_ends_the_training_before_its_step():
    layer, taken = trained([np.array([1.0]), np.array([np.nan])], 1, [0.25, 0.5])
    next(taken)
    with pytest.raises(DanaError, match=r"^toy, step 2: the loss is nan; lower learning_rate=0.5$"):
        next(taken)
    assert layer.weight.item() == 1.0


@given(st.lists(st.integers(1, 50), min_size=1, max_size=200), st.integers(1, 9), st.integers(0, 3))
def test_an_epoch_sees_every_row_once(lengths, size, seed):
    steps = batches_by_length(lengths, size, np.random.default_rng(seed))
    assert sorted(np.concatenate(steps)) == list(range(len(lengths)))
    assert len(steps) == -(-len(lengths) // size)
    assert max(map(len, steps)) <= size


def test_steps_that_were_sorted_together_are_of_like_length_and_not_in_the_order_of_length():
    lengths = np.random.default_rng(0).permutation(8 * 32)
    steps = batches_by_length(lengths, 8, np.random.default_rng(0), together=32)
    longest = [lengths[rows].max() for rows in steps]
    assert max(np.ptp(lengths[rows]) for rows in steps) == 7  # one bucket holds all, so a step holds 8 neighbours
    assert longest != sorted(longest)
