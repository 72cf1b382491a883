"""Learning curves say what labels are worth, and are silent where they know nothing."""

import math

import numpy as np
import pytest

from dana.core import learning_curve
from dana.core.learning_curve import CurvePoint, forecast_gain, labels_worth

SIZES = (50, 100, 200, 400)


def power_law(labels, ceiling=0.9, drop=0.5, exponent=0.5):
    return ceiling - drop * (labels / SIZES[0]) ** -exponent


def points_of(score_of, deviation=0.01, draws=10, sizes=SIZES):
    return [CurvePoint(size, score_of(size), deviation, draws) for size in sizes]


@pytest.mark.parametrize("exponent", [0.3, 0.5, 1.0])
def test_a_power_law_is_continued(exponent):
    def score_of(labels):
        return power_law(labels, exponent=exponent)

    forecast = forecast_gain(points_of(score_of, deviation=0.001), 800)
    gain = score_of(800) - score_of(400)
    assert forecast.labels == 800
    assert forecast.low < gain < forecast.high
    assert forecast.gain == pytest.approx(gain, abs=0.01)


def test_a_curve_that_has_ended_gains_nothing():
    forecast = forecast_gain(points_of(lambda labels: 0.8, deviation=0.004), 800)
    assert forecast.gain == pytest.approx(0.0, abs=0.01)
    assert forecast.low < 0 < forecast.high


def test_more_labels_further_on_are_less_certain():
    near = forecast_gain(points_of(power_law, deviation=0.0), 500)
    far = forecast_gain(points_of(power_law, deviation=0.0), 3_200)
    assert far.high - far.low > near.high - near.low > 0.01


def test_scores_that_vary_leave_the_interval_wide():
    exact = forecast_gain(points_of(power_law, deviation=0.002), 800)
    varied = forecast_gain(points_of(power_law, deviation=0.05), 800)
    assert varied.high - varied.low > 1.3 * (exact.high - exact.low)


def test_no_score_is_forecast_above_one():
    forecast = forecast_gain(points_of(lambda labels: 1.0, deviation=0.0), 10_000)
    assert forecast.high <= 0.0


def test_the_interval_holds_what_later_labels_give(monkeypatch):
    """Of exact power laws, the interval of 80 % without an allowance for others holds about so often."""
    monkeypatch.setattr(learning_curve, "DRIFT", 0.0)
    monkeypatch.setattr(learning_curve, "MISFIT", 0.0005)
    random = np.random.default_rng(0)
    held = 0
    trials = 100
    spread = 0.3
    for _ in range(trials):
        exponent = random.uniform(0.2, 1.0)
        points = []
        for size in SIZES:
            noise = random.normal(0, spread / math.sqrt(10 * size))
            score = power_law(size, exponent=exponent) + noise
            points.append(CurvePoint(size, score, spread / math.sqrt(size), 10))
        rise = power_law(800, exponent=exponent) - power_law(400, exponent=exponent)
        gain = rise + random.normal(0, spread * math.sqrt(1 / 400 - 1 / 800))
        forecast = forecast_gain(points, 800)
        held += forecast.low <= gain <= forecast.high
    assert 70 <= held <= 92


def test_a_last_score_that_is_off_the_curve_is_no_loss_to_come():
    points = [*points_of(power_law), CurvePoint(500, power_law(500) + 0.05, math.nan, 1)]
    assert forecast_gain(points, 800).gain > 0


def test_the_order_of_the_points_and_a_second_call_change_nothing():
    points = points_of(power_law)
    assert forecast_gain(points, 800) == forecast_gain(points[::-1], 800)


@pytest.mark.parametrize(
    ("sizes", "labels"),
    [((50, 100, 150), 400), ((200, 400), 800), (SIZES, 400), (SIZES, 100)],
    ids=["fewer than 200 labels", "two points", "as many labels as measured", "fewer"],
)
def test_nothing_is_said_without_evidence(sizes, labels):
    assert forecast_gain(points_of(power_law, sizes=sizes), labels) is None


def test_one_draw_tells_no_deviation():
    points = [CurvePoint(size, power_law(size), math.nan, 1) for size in SIZES]
    forecast = forecast_gain(points, 800)
    assert forecast.low < power_law(800) - power_law(400) < forecast.high


@pytest.mark.parametrize(
    ("score", "worth"),
    [(0.4, 0.0), (0.5, 0.0), (0.6, 100.0), (0.65, 182.84), (0.7, 300.0), (0.71, math.inf)],
)
def test_a_gain_is_worth_the_labels_that_bring_the_other_as_far(score, worth):
    points = [
        CurvePoint(size, value, 0.01, 10)
        for size, value in ((50, 0.3), (100, 0.5), (200, 0.6), (400, 0.7))
    ]
    assert labels_worth(points, score, 100) == pytest.approx(worth, abs=0.01)
    assert labels_worth(points[::-1], score, 100) == pytest.approx(worth, abs=0.01)


def test_nothing_is_worth_labels_that_were_not_measured():
    assert labels_worth(points_of(power_law), 0.8, 300) is None
