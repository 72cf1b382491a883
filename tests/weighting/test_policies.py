"""Policies: what is kept of a small table of scores, by hand."""

import re

import numpy as np
import pyarrow as pa
import pytest

from dana.core.errors import ConfigError, DataError
from dana.weighting.pool import Pool
from dana.weighting.selection import make_rule
from dana.weighting.settings import Budget, WeighSettings
from dana.weighting.tally import WeightTally
from tests.weighting.in_memory import apply_policy, score_table

SCORES = [-2.0, 1.5, 0.5, -0.25, -3.0, 3.0]  # segments of two: means -.25, .125, 0


def weigh(scores, **settings):
    return apply_policy(score_table(scores), WeighSettings(**settings)).weight.tolist()


def counts_of(scores, **settings):
    """Units by what became of them."""
    spans = {"source": ["one"] * len(scores), "start": [0] * len(scores), "end": [1] * len(scores)}
    table, settings = score_table(scores, **spans), WeighSettings(**settings)
    rule, tally = make_rule(Pool(table), settings), WeightTally(1, 0)
    for block in Pool(table).blocks(table.column_names, settings):
        tally.add(block, rule.weigh([block]))
    return tally.counts["units"]


@pytest.mark.parametrize("shrink", [True, False])
def test_below_selects_by_segment_mean(shrink):
    assert weigh(SCORES, below=0, gamma=2, shrink=shrink) == [1, 1, 0, 0, 0, 0], "a mean of 0 is not below 0"
    assert weigh(SCORES, below=0, gamma=1, shrink=shrink) == [1, 0, 0, 1, 1, 0], "means that shrink to one value"
    result = apply_policy(score_table(SCORES), WeighSettings(below=0.1, gamma=2, shrink=shrink))
    assert result.weight.tolist() == [1, 1, 0, 0, 1, 1]
    assert result.counts["segments"] == {"in": 3, "kept": 2}
    with pytest.raises(DataError, match=r"below=-1: .*-0\.25"):
        weigh(SCORES, below=-1, gamma=2, shrink=shrink)


def test_dropped_tails_and_weights_that_round_to_0_are_not_selected():
    tail = {"below": 0, "gamma": 2, "min_tail": 2}
    assert weigh([*SCORES, -9.0], **tail) == [1, 1, 0, 0, 0, 0, 0]
    assert counts_of([*SCORES, -9.0], **tail)["dropped_short_tail"] == 1
    weight = np.array(weigh([-1.0, 0.0, 1.0], policy="sigmoid", sharpness=60))
    assert (weight > 0).all()
    assert weight.astype(np.float32).tolist().count(0) == 1
    counts = {"in": 3, "kept": 2, "dropped_by_weight": 1, "dropped_short_tail": 0}
    assert counts_of([-1.0, 0.0, 1.0], policy="sigmoid", sharpness=60) == counts


def test_sampled_draws_by_weight_in_any_order():
    """Units of three scores: the draw is by what the sigmoid gives each, whatever their order in the pool."""
    scores = np.repeat([40.0, 1.0, 0.0], [20, 2000, 2000])
    units = pa.table({"doc_id": [f"d{row}" for row in range(4020)], "unit": [0] * 4020, "score": scores})
    settings = {"policy": "sampled", "gamma": 1, "budget": "600 units", "sharpness": 5.0, "midpoint": -0.2}
    draw = apply_policy(units, WeighSettings(**settings, shrink=False)).weight > 0
    assert draw.sum() == 600
    standard = (np.array([40.0, 1.0, 0.0]) - scores.mean()) / scores.std()
    far, middle, near = 1 / (1 + np.exp(-5 * (-0.2 - standard)))
    assert far < 1e-20
    assert not draw[:20].any()
    # The first draws are nearly independent; exhaustion lowers the ratio a little.
    assert 0.7 * near / middle < draw[2020:].sum() / draw[20:2020].sum() < 1.1 * near / middle
    order = np.random.default_rng(0).permutation(4020)
    again = apply_policy(units.take(order), WeighSettings(**settings, shrink=False))
    np.testing.assert_array_equal(again.weight > 0, draw[order])
    assert (apply_policy(units, WeighSettings(**settings, shrink=False, seed=2)).weight > 0).tolist() != draw.tolist()


@pytest.mark.parametrize("policy", ["segments", "sigmoid", "sampled"])
def test_scores_that_are_not_finite_are_refused_by_row(policy):
    for bad in (np.nan, np.inf, -1e101):
        with pytest.raises(DataError, match=re.escape(f"scores[4] is {bad:.3g}")):
            weigh([*SCORES[:4], bad], policy=policy, gamma=2)
    assert np.isfinite(weigh([*SCORES[:4], 1e100], policy=policy, gamma=2)).all()


def test_budgets_are_parsed():
    budgets = {"0.2": (0.2,), "50000 units": (50000, "units"), "2e6 tokens": (2e6, "tokens")}
    budgets["300 documents"] = (300, "documents")
    assert {text: Budget.parse(text) for text in budgets} == {text: Budget(*one) for text, one in budgets.items()}


@pytest.mark.parametrize(
    "settings",
    [
        *({"budget": budget} for budget in ("0", "1.4", "-3 units", "5 words", "many", "1e400 units")),
        *({"below": 0, **other} for other in ({"budget": "3 units"}, {"policy": "sampled"}, {"policy": "sigmoid"})),
        *({"balance": "clusters", **other} for other in ({"policy": "sigmoid"}, {"below": 0.0}, {"beta": "auto"})),
        *({"balance": text} for text in ("", "clusters:", "clusters:0", "clusters:=1", "clusters:a=b", ":0=1")),
        *({"balance": f"clusters:{text}"} for text in ("0=nan", "0=1.0,0=0", "0=0.5,1=0.4", "0=1.5,1=-0.5")),
        *({"balance": f"clusters:{text}"} for text in ("0=0.5,,1=0.5", "0=0.5,1=0.5,")),
    ],
    ids=str,
)
def test_bad_budgets_and_balances_are_refused(settings):
    key = next(iter(settings))
    with pytest.raises(ConfigError, match=f"{key}="):
        WeighSettings(**settings)
