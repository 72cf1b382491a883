import numpy as np
import pytest
import torch

from dana.core.errors import ConfigError
from dana.train import DENOMINATORS
from dana.train.objectives.batch import loss_scale, micro_loss, token_losses

WEIGHTS = np.array([0.5, 1.0, 0.25])
HIDDEN = np.array([2, 1, 4])
OWNERS = torch.tensor([0, 0, 1, 2, 2, 2, 2])
LOSSES = torch.tensor([1.0, 3.0, 5.0, 2.0, 2.0, 4.0, 8.0])


def loss(weights, hidden, denominator, owners=OWNERS, losses=LOSSES):
    step = loss_scale(weights, hidden, denominator)
    return float(micro_loss(losses, torch.from_numpy(step.coefficients)[owners], step.total))


@pytest.mark.parametrize(
    ("denominator", "expected"),
    [
        ("batch", (0.5 * 2 + 1 * 5 + 0.25 * 4) / 3),
        ("weight_sum", (0.5 * 4 + 1 * 5 + 0.25 * 16) / (0.5 * 2 + 1 * 1 + 0.25 * 4)),
        ("token_count", (0.5 * 4 + 1 * 5 + 0.25 * 16) / 7),
    ],
)
def test_the_three_denominators_by_hand(denominator, expected):
    read = "".join(list(denominator))  # equal, not the same object, as from a file
    assert loss(WEIGHTS, HIDDEN, read) == pytest.approx(expected)


@pytest.mark.parametrize("denominator", ["weight_sum", "token_count"])
def test_equal_weights_give_the_plain_mean_over_tokens(denominator):
    assert loss(np.ones(3), HIDDEN, denominator) == pytest.approx(float(LOSSES.mean()))


def test_equal_weights_and_equally_many_hidden_tokens_give_the_plain_mean_under_batch():
    owners = torch.tensor([0, 0, 1, 1])
    assert loss(np.ones(2), np.array([2, 2]), "batch", owners, LOSSES[:4]) == pytest.approx(float(LOSSES[:4].mean()))


def test_halving_every_weight_halves_the_loss_under_batch_and_changes_nothing_under_weight_sum():
    for denominator, ratio in (("batch", 0.5), ("token_count", 0.5), ("weight_sum", 1.0)):
        whole, half = (loss(factor * WEIGHTS, HIDDEN, denominator) for factor in (1.0, 0.5))
        assert half == pytest.approx(ratio * whole)


def test_weight_two_is_a_duplicate_under_weight_sum():
    twice = loss(np.array([2.0, 1.0]), np.array([2, 1]), "weight_sum", torch.tensor([0, 0, 1]), LOSSES[:3])
    owners, losses = torch.tensor([0, 0, 1, 1, 2]), LOSSES[[0, 1, 0, 1, 2]]
    assert twice == pytest.approx(loss(np.ones(3), np.array([2, 2, 1]), "weight_sum", owners, losses))


def test_weight_zero_is_absence_under_weight_sum():
    without = loss(WEIGHTS[:2], HIDDEN[:2], "weight_sum", OWNERS[:3], LOSSES[:3])
    assert loss(np.array([0.5, 1.0, 0.0]), HIDDEN, "weight_sum") == pytest.approx(without)


@pytest.mark.parametrize("denominator", DENOMINATORS)
def test_micro_batches_and_ranks_add_up_to_the_whole(denominator):
    step = loss_scale(WEIGHTS, HIDDEN, denominator)
    coefficients = torch.from_numpy(step.coefficients)[OWNERS]
    whole = micro_loss(LOSSES, coefficients, step.total)
    cuts = [slice(0, 3), slice(3, 4), slice(4, 7)]
    for world, accumulation in ((1, 1), (3, 1), (1, 3), (2, 4)):
        shares = [micro_loss(LOSSES[cut], coefficients[cut], step.total, world, accumulation) for cut in cuts]
        assert float(sum(shares) / (world * accumulation)) == pytest.approx(float(whole), rel=1e-9)


@pytest.mark.parametrize("denominator", DENOMINATORS)
def test_nothing_to_learn_from_gives_a_total_of_zero(denominator):
    assert loss_scale(np.zeros(2), np.array([3, 1]), denominator).total == 0
    assert loss_scale(np.ones(2), np.array([0, 0]), denominator).total == 0


def test_an_example_without_a_hidden_token_counts_as_an_example_but_costs_nothing():
    step = loss_scale(np.ones(2), np.array([0, 2]), "batch")
    assert step.total == 2
    np.testing.assert_array_equal(step.coefficients, [0, 0.5])


def test_token_losses_are_those_of_the_softmax_by_hand():
    logits = torch.log(torch.tensor([[0.5, 0.25, 0.25], [0.1, 0.1, 0.8]]))
    losses = token_losses(logits, torch.tensor([0, 1]))
    np.testing.assert_allclose(losses.numpy(), [np.log(2), np.log(10)], rtol=1e-6)


def test_an_unknown_denominator_is_refused():
    with pytest.raises(ConfigError, match="denominator='mean': must be one of batch, weight_sum, token_count"):
        loss_scale(WEIGHTS, HIDDEN, "mean")
