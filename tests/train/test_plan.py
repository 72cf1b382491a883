import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as checks
from hypothesis import strategies as st

from dana.errors import ConfigError
from dana.train.plan import Plan, epoch_order, micro_batches
from dana.train.settings import TrainSettings

GENERATOR = np.random.default_rng(0)
LENGTHS = GENERATOR.integers(3, 20, 37)
IDS = GENERATOR.integers(0, 2**63, 37).astype(np.uint64)


def plan(**settings):
    return Plan(LENGTHS, IDS, TrainSettings(max_tokens=20, **settings))


def stream(steps):
    return [(int(epoch), int(row)) for step in steps for epoch, row in zip(step.epochs, step.rows, strict=True)]


def test_without_a_budget_every_example_is_seen_once():
    steps = list(plan(batch_size=8))
    assert [step.rows.size for step in steps] == [8, 8, 8, 8, 5]
    assert sorted(row for _, row in stream(steps)) == list(range(37))


def test_epochs_follow_each_other_each_in_its_own_order():
    seen = stream(plan(batch_size=8, steps=10))
    assert len(seen) == 80
    orders = [[row for epoch, row in seen if epoch == number] for number in range(3)]
    assert orders[0] == epoch_order(IDS, 0, 0).tolist()
    assert orders[1] == epoch_order(IDS, 0, 1).tolist()
    assert orders[0] != orders[1]
    assert orders[2] == epoch_order(IDS, 0, 2).tolist()[:6]


@pytest.mark.parametrize("size", [{"batch_size": 8}, {"batch_tokens": 50}])
def test_a_token_budget_is_met_to_within_one_example(size):
    for tokens in (60, 300, 1000):
        planned = plan(tokens=tokens, **size)
        total = sum(int(LENGTHS[step.rows].sum()) for step in planned)
        assert tokens <= total < tokens + LENGTHS.max()
        assert planned.tokens == total


def test_steps_of_equal_tokens_differ_by_at_most_one_example():
    sizes = [int(LENGTHS[step.rows].sum()) for step in plan(batch_tokens=50, steps=30)]
    assert len(sizes) == 30
    assert all(50 - LENGTHS.max() < size < 50 + LENGTHS.max() for size in sizes)
    assert sum(sizes) == pytest.approx(30 * 50, abs=int(LENGTHS.max()))


@pytest.mark.parametrize("size", [{"batch_size": 8}, {"batch_tokens": 50}])
def test_any_step_can_be_asked_for_alone(size):
    ahead = list(plan(steps=20, **size))
    fresh = plan(steps=20, **size)
    for index in (17, 3, 19, 0):
        np.testing.assert_array_equal(fresh[index].rows, ahead[index].rows)
        np.testing.assert_array_equal(fresh[index].epochs, ahead[index].epochs)


def test_common_examples_come_in_the_same_order_in_two_arms():
    subset = np.array([30, 2, 17, 5, 9, 11])
    whole = IDS[epoch_order(IDS, 4, 1)]
    part = IDS[subset][epoch_order(IDS[subset], 4, 1)]
    assert [key for key in whole if key in set(part)] == part.tolist()


def test_order_depends_on_the_seed():
    assert epoch_order(IDS, 0, 0).tolist() != epoch_order(IDS, 1, 0).tolist()


def test_a_step_beyond_the_end_does_not_exist():
    with pytest.raises(IndexError):
        plan(steps=3)[3]


@given(
    lengths=st.lists(st.integers(1, 64), min_size=1, max_size=60),
    budget=st.integers(64, 400),
    world=st.integers(1, 4),
)
@checks(deadline=None)
def test_micro_batches_share_a_step_among_ranks(lengths, budget, world):
    lengths = np.array(lengths)
    ranks = [micro_batches(lengths, budget, rank, world) for rank in range(world)]
    assert len({len(batches) for batches in ranks}) == 1, "collectives need equally many on every rank"
    rows = np.concatenate([rows for batches in ranks for rows in batches])
    assert sorted(rows.tolist()) == list(range(lengths.size))
    for batches in ranks:
        for batch in batches:
            assert batch.size == 0 or batch.size * lengths[batch].max() <= budget


def test_micro_batches_hold_similar_lengths():
    lengths = np.array([4, 40, 5, 41, 6, 42])
    assert [sorted(lengths[rows]) for rows in micro_batches(lengths, 126, 0, 1)] == [[40, 41, 42], [4, 5, 6]]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"steps": 0}, "steps=0: must be at least 1, or null"),
        ({"steps": 5, "tokens": 5}, "steps=5: must be null when tokens is given"),
        ({"batch_size": 0}, "batch_size=0: must be at least 1"),
        ({"batch_tokens": 10}, "batch_tokens=10: must be at least max_tokens=256"),
        ({"learning_rate": 0.0}, "learning_rate=0.0: must be above 0"),
        ({"warmup": 1.0}, "warmup=1.0: must be in"),
        ({"mask_rate": 0.0}, "mask_rate=0.0: must be in"),
        ({"denominator": "mean"}, "denominator='mean': must be one of batch"),
        ({"micro_batch_tokens": 100}, "micro_batch_tokens=100: must be at least max_tokens=256"),
    ],
)
def test_settings_are_checked(settings, message):
    with pytest.raises(ConfigError) as caught:
        TrainSettings(**settings)
    assert message in str(caught.value)
