"""Policies: what is kept of a small table of scores, by hand."""

import re

import numpy as np
import pyarrow as pa
import pytest

from dana.core.errors import ConfigError, DataError
from dana.weighting.pool import Pool
from dana.weighting.selection import make_rule
from dana.weighting.settings import WeighSettings
from dana.weighting.tally import WeightTally
from tests.weighting.in_memory import apply_policy

SCORES = [-2.0, 1.5, 0.5, -0.25, -3.0, 3.0]  # segments of two: means -.25, .125, 0


def table(scores=SCORES):
    units = np.arange(len(scores), dtype=np.int32)
    return pa.table({"doc_id": ["one"] * len(scores), "unit": units, "score": np.array(scores)})


def counts_of(scores, settings):
    """Units by what became of them."""
    columns = {"source": ["one"] * len(scores), "start": [0] * len(scores), "end": [1] * len(scores)}
    whole = pa.table({**dict(zip(table().column_names, table(scores).columns, strict=True)), **columns})
    rule, tally = make_rule(Pool(whole), settings), WeightTally(1, 0)
    for block in Pool(whole).blocks(whole.column_names, settings):
        tally.add(block, rule.weigh([block]))
    return tally.counts["units"]


@pytest.mark.parametrize("shrink", [True, False])
def test_below_selects_by_segment_mean(shrink):
    found = apply_policy(table(), WeighSettings(below=0, gamma=2, shrink=shrink))
    assert found.weight.tolist() == [1, 1, 0, 0, 0, 0], "a mean of 0 is not below 0"
    found = apply_policy(table(), WeighSettings(below=0.1, gamma=2, shrink=shrink))
    assert found.weight.tolist() == [1, 1, 0, 0, 1, 1]
    assert found.counts["segments"] == {"in": 3, "kept": 2}
    units = apply_policy(table(), WeighSettings(below=0, gamma=1, shrink=shrink))
    assert units.weight.tolist() == [1, 0, 0, 1, 1, 0], "single units, whose means shrink to one value"


def test_a_dropped_tail_is_not_selected():
    settings = WeighSettings(below=0, gamma=2, min_tail=2)
    assert apply_policy(table([*SCORES, -9.0]), settings).weight.tolist() == [1, 1, 0, 0, 0, 0, 0]
    assert counts_of([*SCORES, -9.0], settings)["dropped_short_tail"] == 1


def test_below_that_selects_nothing_names_the_lowest_mean():
    with pytest.raises(DataError, match=r"below=-1: .*-0\.25"):
        apply_policy(table(), WeighSettings(below=-1, gamma=2))


def test_weights_that_round_to_0_are_not_selected():
    settings = WeighSettings(policy="sigmoid", sharpness=60)
    found = apply_policy(table([-1.0, 0.0, 1.0]), settings)
    assert (found.weight > 0).all()
    assert found.weight.astype(np.float32).tolist().count(0) == 1
    expected = {"in": 3, "kept": 2, "dropped_by_weight": 1, "dropped_short_tail": 0}
    assert counts_of([-1.0, 0.0, 1.0], settings) == expected


@pytest.mark.parametrize("other", [{"budget": "3 units"}, {"policy": "sampled"}, {"policy": "sigmoid"}])
def test_below_excludes_other_amounts(other):
    with pytest.raises(ConfigError, match="below=0"):
        WeighSettings(below=0, **other)


def test_sampled_draws_by_weight_in_any_order():
    """Units of three scores: the draw is by what the sigmoid gives each, whatever their order in the pool."""
    rng = np.random.default_rng(0)
    scores = np.repeat([40.0, 1.0, 0.0], [20, 2000, 2000])
    units = pa.table({"doc_id": [f"d{row}" for row in range(4020)], "unit": [0] * 4020, "score": scores})
    settings = WeighSettings(policy="sampled", gamma=1, budget="600 units", sharpness=5.0, midpoint=-0.2, shrink=False)
    drawn = apply_policy(units, settings).weight > 0
    assert drawn.sum() == 600
    standard = (np.array([40.0, 1.0, 0.0]) - scores.mean()) / scores.std()
    far, middle, near = 1 / (1 + np.exp(-5 * (-0.2 - standard)))
    assert far < 1e-20
    assert not drawn[:20].any()
    # The first draws are nearly independent; exhaustion lowers the ratio a little.
    ratio = drawn[2020:].sum() / drawn[20:2020].sum()
    assert 0.7 * near / middle < ratio < 1.1 * near / middle
    order = rng.permutation(4020)
    again = apply_policy(units.take(order), settings)
    np.testing.assert_array_equal(again.weight > 0, drawn[order])
    other = apply_policy(units, WeighSettings(**{**vars(settings), "seed": 2})).weight > 0
    assert (other != drawn).any()


@pytest.mark.parametrize("policy", ["segments", "sigmoid", "sampled"])
def test_scores_that_are_not_finite_are_refused_by_row(policy):
    for bad in (np.nan, np.inf, -1e101):
        with pytest.raises(DataError, match=re.escape(f"scores[4] is {bad:.3g}")):
            apply_policy(table([*SCORES[:4], bad]), WeighSettings(policy=policy, gamma=2))
    assert np.isfinite(apply_policy(table([*SCORES[:4], 1e100]), WeighSettings(policy=policy, gamma=2)).weight).all()
