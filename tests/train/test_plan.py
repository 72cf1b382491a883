import numpy as np
import pytest

from dana.core.errors import ConfigError
from dana.train.plan import Plan, epoch_order
from dana.train.settings import Execution, TrainSettings

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


def test_a_single_example_is_an_epoch():
    steps = list(Plan(np.array([5]), IDS[:1], TrainSettings(steps=3, batch_size=2)))
    assert stream(steps) == [(epoch, 0) for epoch in range(6)]


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


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"steps": 0}, "steps=0: must be at least 1, or null"),
        ({"steps": 5, "tokens": 5}, "steps=5: must be null when tokens is given"),
        ({"batch_size": 0}, "batch_size=0: must be at least 1"),
        ({"batch_tokens": 10}, "batch_tokens=10: must be at least max_tokens=256"),
        ({"learning_rate": 0.0}, "learning_rate=0.0: must be above 0"),
        ({"warmup": 1.0}, "warmup=1.0: must be in"),
        ({"objective": "masked:mask_rate=0.0"}, "mask_rate=0.0: must be in"),
        ({"final": "first"}, "final='first': must be one of last, best"),
        ({"denominator": "mean"}, "denominator='mean': must be one of batch"),
        ({"execution": Execution(micro_batch_tokens=100)}, "micro_batch_tokens=100: must be at least max_tokens=256"),
    ],
)
def test_settings_are_checked(settings, message):
    with pytest.raises(ConfigError) as caught:
        TrainSettings(**settings)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"layout": "loose"}, "layout='loose': must be one of auto, padded, unpadded"),
        ({"resume": "always"}, "resume='always': must be one of auto, never"),
        ({"save_every": -1}, "save_every=-1: must be at least 0"),
    ],
)
def test_how_to_execute_is_checked(settings, message):
    with pytest.raises(ConfigError) as caught:
        Execution(**settings)
    assert message in str(caught.value)


def test_epochs_are_times_through_every_example():
    for epochs, seen in ((1, 37), (3, 111), (0.5, 18), (2.5, 92)):
        planned = plan(batch_size=8, epochs=float(epochs))
        assert len(stream(planned)) == seen
        assert planned.epochs == pytest.approx(epochs, abs=0.02)
    assert plan(batch_size=8, steps=37).epochs == 8
    assert len(stream(plan(batch_tokens=50, epochs=2.0))) == 74


REPLAYED = 25  # of the 37 examples, the last ones


def mixed(share, **settings):
    return Plan(LENGTHS, IDS, TrainSettings(max_tokens=20, replay=share, **settings), REPLAYED)


@pytest.mark.parametrize("share", [0.1, 0.25, 0.5, 0.9])
@pytest.mark.parametrize("size", [{"batch_size": 8}, {"batch_tokens": 50}])
def test_replay_is_that_share_of_every_step_and_exactly_that_of_every_beginning(share, size):
    seen, of_replay = 0, 0
    for step in mixed(share, steps=40, **size):
        replay_count = int((step.rows >= 12).sum())
        assert abs(replay_count - share * step.rows.size) < 1
        seen, of_replay = seen + step.rows.size, of_replay + replay_count
        assert of_replay == int(round(share * 100) * seen // 100)


def test_both_texts_of_a_replay_go_through_epochs_of_their_own():
    seen = stream(mixed(0.5, batch_size=8, steps=20))
    kept, replay_count = [pair for pair in seen if pair[1] < 12], [pair for pair in seen if pair[1] >= 12]
    for own, size in ((kept, 12), (replay_count, 25)):
        assert [epoch for epoch, _ in own] == [place // size for place in range(80)]
        assert sorted(row for epoch, row in own if epoch == 0) == sorted({row for _, row in own})
    assert kept == stream(Plan(LENGTHS[:12], IDS[:12], TrainSettings(max_tokens=20, batch_size=8, steps=10)))


@pytest.mark.parametrize("size", [{"batch_size": 8}, {"batch_tokens": 50}])
def test_a_token_budget_counts_replayed_text_so_that_arms_stay_equal(size):
    for share in (0.0, 0.3):
        for tokens in (60, 300, 5000):
            planned = mixed(share, tokens=tokens, **size)
            total = sum(int(LENGTHS[step.rows].sum()) for step in planned)
            assert tokens <= total < tokens + LENGTHS.max()
            assert planned.tokens == total


@pytest.mark.parametrize("size", [{"batch_size": 8}, {"batch_tokens": 50}])
def test_any_step_of_a_replay_can_be_asked_for_alone(size):
    ahead, fresh = list(mixed(0.3, steps=20, **size)), mixed(0.3, steps=20, **size)
    for index in (17, 3, 19, 0):
        np.testing.assert_array_equal(fresh[index].rows, ahead[index].rows)
        np.testing.assert_array_equal(fresh[index].epochs, ahead[index].epochs)


def test_epochs_of_a_replay_are_those_of_what_was_kept():
    planned = mixed(0.25, epochs=2.0, batch_size=8)
    assert sum(row < 12 for _, row in stream(planned)) == 24
    assert planned.epochs == 2


def test_a_replay_of_almost_everything_still_comes_to_what_was_kept():
    almost = Plan(LENGTHS, IDS, TrainSettings(max_tokens=20, replay=0.9999999, epochs=1 / 20), replay_count=17)
    assert almost.epochs >= 1 / 20
