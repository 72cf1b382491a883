"""The weighted loss of a step, by hand."""

import numpy as np
import pytest
import torch

from dana.core.errors import ConfigError
from dana.models.heads import token_losses
from dana.train import DENOMINATORS
from dana.train.objectives.batch import loss_scale, micro_loss

WEIGHTS = np.array([0.5, 1.0, 0.25])
COUNTS = np.array([2, 1, 4])
OWNERS = torch.tensor([0, 0, 1, 2, 2, 2, 2])
LOSSES = torch.tensor([1.0, 3.0, 5.0, 2.0, 2.0, 4.0, 8.0])


def loss(weights, counts, denominator, owners=OWNERS, losses=LOSSES):
    step = loss_scale(np.array(weights), np.array(counts), denominator)
    return float(micro_loss(losses, torch.from_numpy(step.coefficients)[owners], step.total))


@pytest.mark.parametrize(
    ("denominator", "value", "half", "equal"),
    [
        ("batch", (0.5 * 2 + 1 * 5 + 0.25 * 4) / 3, 0.5, (2 + 5 + 4) / 3),
        ("weight_sum", (0.5 * 4 + 1 * 5 + 0.25 * 16) / (0.5 * 2 + 1 * 1 + 0.25 * 4), 1.0, 25 / 7),
        ("token_count", (0.5 * 4 + 1 * 5 + 0.25 * 16) / 7, 0.5, 25 / 7),
    ],
)
def test_the_three_denominators_by_hand(denominator, value, half, equal):
    """With half of every weight, and with equal weights, too."""
    denominator = "".join(list(denominator))  # equal, not the same object, as from a file
    assert loss(WEIGHTS, COUNTS, denominator) == pytest.approx(value)
    assert loss(0.5 * WEIGHTS, COUNTS, denominator) == pytest.approx(half * value)
    assert loss(np.ones(3), COUNTS, denominator) == pytest.approx(equal)


def test_under_weight_sum_weight_two_is_a_duplicate_and_zero_is_absence():
    twice = loss([2.0, 1.0], [2, 1], "weight_sum", torch.tensor([0, 0, 1]), LOSSES[:3])
    owners, losses = torch.tensor([0, 0, 1, 1, 2]), LOSSES[[0, 1, 0, 1, 2]]
    assert twice == pytest.approx(loss(np.ones(3), [2, 2, 1], "weight_sum", owners, losses))
    without = loss(WEIGHTS[:2], COUNTS[:2], "weight_sum", OWNERS[:3], LOSSES[:3])
    assert loss([0.5, 1.0, 0.0], COUNTS, "weight_sum") == pytest.approx(without)


@pytest.mark.parametrize("denominator", DENOMINATORS)
def test_micro_batches_and_ranks_add_up_to_the_whole(denominator):
    step = loss_scale(WEIGHTS, COUNTS, denominator)
    coefficients = torch.from_numpy(step.coefficients)[OWNERS]
    total = micro_loss(LOSSES, coefficients, step.total)
    parts = [slice(0, 3), slice(3, 4), slice(4, 7)]
    for world, accumulation in ((1, 1), (3, 1), (1, 3), (2, 4)):
        shares = [
            micro_loss(LOSSES[part], coefficients[part], step.total, world, accumulation)
            for part in parts
        ]
        assert float(sum(shares) / (world * accumulation)) == pytest.approx(float(total), rel=1e-9)


@pytest.mark.parametrize("denominator", DENOMINATORS)
def test_a_step_without_weight_or_label_has_a_total_of_zero(denominator):
    assert loss_scale(np.zeros(2), np.array([3, 1]), denominator).total == 0
    assert loss_scale(np.ones(2), np.array([0, 0]), denominator).total == 0
    assert loss_scale(np.array([1.0, 0.0]), np.array([0, 3]), denominator).total == 0
    step = loss_scale(np.ones(2), np.array([0, 2]), "batch")
    assert step.total == 2, "an example without a label is an example"
    np.testing.assert_array_equal(step.coefficients, [0, 0.5])


def test_token_losses_are_those_of_the_softmax_by_hand():
    logits = torch.log(torch.tensor([[0.5, 0.25, 0.25], [0.1, 0.1, 0.8]]))
    losses = token_losses(logits, torch.tensor([0, 1]))
    np.testing.assert_allclose(losses.numpy(), [np.log(2), np.log(10)], rtol=1e-6)


def test_token_losses_of_half_precision_logits_are_computed_in_float32():
    logits = torch.randn(5, 1000, generator=torch.Generator().manual_seed(0)).bfloat16()
    labels = torch.arange(5)
    losses = token_losses(logits, labels)
    assert losses.dtype == torch.float32
    assert torch.equal(losses, token_losses(logits.float(), labels))


def test_an_unknown_denominator_is_refused():
    with pytest.raises(ConfigError, match="denominator='mean'"):
        loss_scale(WEIGHTS, COUNTS, "mean")
