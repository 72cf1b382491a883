"""The loop of supervised training: one optimizer step per batch, whatever parts its loss comes in."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dana.core.errors import DanaError
from dana.train.supervised import batches_by_length, make_optimizer, train_supervised


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
    assert list(fit([batch], 5, [0.1])) == [(pytest.approx(loss), pytest.approx(weight))], "parts are one step"


def test_a_batch_without_a_loss_leaves_the_model_as_it_is():
    layer = torch.nn.Linear(2, 2)
    before = layer.weight.clone()
    optimizer = make_optimizer(layer, 0.1, weight_decay=0.5)
    assert list(train_supervised(optimizer, [1, 2], lambda batch: [], lambda step: 0.1, "toy")) == [0.0, 0.0]
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
    assert max(np.ptp(lengths[rows]) for rows in batches) == 7  # one bucket, so 8 neighbours in each
    assert longest != sorted(longest)
