"""Which examples each step trains on."""

import numpy as np
import pytest

from dana.train.plan import Plan, epoch_order
from dana.train.settings import TrainSettings

GENERATOR = np.random.default_rng(0)
LENGTHS = GENERATOR.integers(3, 20, 37)
IDS = GENERATOR.integers(0, 2**63, 37).astype(np.uint64)
SELECTED, REPLAY = 12, 25  # the last examples are for replay

by_size = pytest.mark.parametrize("size", [{"batch_size": 8}, {"batch_tokens": 50}])


def plan(share=None, **settings):
    replay = 0 if share is None else REPLAY
    return Plan(LENGTHS, IDS, TrainSettings(max_tokens=20, replay=share or 0.0, **settings), replay)


def stream(steps):
    return [(int(epoch), int(row)) for step in steps for epoch, row in zip(step.epochs, step.rows, strict=True)]


def test_the_default_is_one_epoch():
    steps = list(plan(batch_size=8))
    assert [step.rows.size for step in steps] == [8, 8, 8, 8, 5]
    assert sorted(row for _, row in stream(steps)) == list(range(37))
    with pytest.raises(IndexError):
        plan(steps=3)[3]


def test_epochs_follow_each_other_each_in_its_own_order():
    orders = [epoch_order(IDS, 0, epoch).tolist() for epoch in range(3)]
    rows = [(epoch, row) for epoch, order in enumerate(orders) for row in order]
    assert stream(plan(batch_size=8, steps=10)) == rows[:80]
    assert orders[0] != orders[1]
    assert orders[0] != epoch_order(IDS, 1, 0).tolist(), "the order depends on the seed"
    assert stream(Plan(np.array([5]), IDS[:1], TrainSettings(steps=3, batch_size=2))) == [(at, 0) for at in range(6)]
    subset = np.array([30, 2, 17, 5, 9, 11])
    part = IDS[subset][epoch_order(IDS[subset], 4, 1)]
    both = [key for key in IDS[epoch_order(IDS, 4, 1)] if key in set(part)]
    assert both == part.tolist(), "common examples have the same order in two arms"


@by_size
@pytest.mark.parametrize("share", [None, 0.0, 0.3])
def test_a_token_budget_is_met_to_within_one_example(size, share):
    for tokens in (60, 300, 1000):
        steps = plan(share, tokens=tokens, **size)
        total = sum(int(LENGTHS[step.rows].sum()) for step in steps)
        assert tokens <= total < tokens + LENGTHS.max()
        assert steps.tokens == total


@pytest.mark.parametrize("tokens", [100, 118, 120, 150, 300])
def test_no_step_of_a_token_budget_is_empty(tokens):
    lengths = np.array([30, 30, 30, 30])  # 4 start before token 118, the last at 90: a step of 60 would be the third
    steps = Plan(lengths, np.arange(4, dtype=np.uint64), TrainSettings(max_tokens=30, batch_tokens=60, tokens=tokens))
    assert all(step.rows.size for step in steps)
    assert sum(int(lengths[step.rows].sum()) for step in steps) == steps.tokens >= tokens


def test_steps_of_equal_tokens_differ_by_at_most_one_example():
    sizes = [int(LENGTHS[step.rows].sum()) for step in plan(batch_tokens=50, steps=30)]
    assert all(50 - LENGTHS.max() < size < 50 + LENGTHS.max() for size in sizes)
    assert sum(sizes) == pytest.approx(30 * 50, abs=int(LENGTHS.max()))


def test_epochs_are_passes_over_the_selected_examples():
    for epochs, count in ((1, 37), (3, 111), (0.5, 18), (2.5, 92)):
        steps = plan(batch_size=8, epochs=float(epochs))
        assert len(stream(steps)) == count
        assert steps.epochs == pytest.approx(epochs, abs=0.02)
    assert plan(batch_size=8, steps=37).epochs == 8
    assert len(stream(plan(batch_tokens=50, epochs=2.0))) == 74
    replay = plan(0.25, epochs=2.0, batch_size=8)
    assert sum(row < SELECTED for _, row in stream(replay)) == 24
    assert replay.epochs == 2
    assert Plan(LENGTHS, IDS, TrainSettings(max_tokens=20, replay=0.9999999, epochs=1 / 20), 17).epochs >= 1 / 20


@by_size
@pytest.mark.parametrize("share", [0.1, 0.25, 0.5, 0.9])
def test_replay_has_its_share_of_every_step_and_of_every_beginning(share, size):
    examples = replays = 0
    steps = list(plan(share, steps=40, **size))
    for step in steps:
        count = int((step.rows >= SELECTED).sum())
        assert abs(count - share * step.rows.size) < 1
        examples, replays = examples + step.rows.size, replays + count
        assert replays == int(round(share * 100) * examples // 100)
    fresh = plan(share, steps=40, **size)
    for index in (17, 3, 39, 0):  # any step can be computed alone
        np.testing.assert_array_equal(fresh[index].rows, steps[index].rows)
        np.testing.assert_array_equal(fresh[index].epochs, steps[index].epochs)


def test_selected_text_and_replay_have_their_own_epochs():
    rows = stream(plan(0.5, batch_size=8, steps=20))
    selection, replay = [pair for pair in rows if pair[1] < SELECTED], [pair for pair in rows if pair[1] >= SELECTED]
    for pairs, size in ((selection, SELECTED), (replay, REPLAY)):
        assert [epoch for epoch, _ in pairs] == [at // size for at in range(80)]
        assert sorted(row for epoch, row in pairs if epoch == 0) == sorted({row for _, row in pairs})
    alone = TrainSettings(max_tokens=20, batch_size=8, steps=10)
    assert selection == stream(Plan(LENGTHS[:SELECTED], IDS[:SELECTED], alone))
