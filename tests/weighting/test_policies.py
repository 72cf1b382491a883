"""Policies: what is kept of a small table of scores, by hand."""

import numpy as np
import pyarrow as pa
import pytest

from dana.core.errors import ConfigError, DataError
from dana.weighting.policies import apply_policy
from dana.weighting.settings import WeighSettings

SCORES = [-2.0, 1.5, 0.5, -0.25, -3.0, 3.0]  # segments of two: means -.25, .125, 0


def table(scores=SCORES):
    units = np.arange(len(scores), dtype=np.int32)
    return pa.table({"doc_id": ["one"] * len(scores), "unit": units, "score": np.array(scores)})


@pytest.mark.parametrize("shrink", [True, False])
def test_below_keeps_the_segments_whose_mean_score_is_below(shrink):
    found = apply_policy(table(), WeighSettings(below=0, gamma=2, shrink=shrink))
    assert found.weight.tolist() == [1, 1, 0, 0, 0, 0], "a mean of 0 is not below 0"
    found = apply_policy(table(), WeighSettings(below=0.1, gamma=2, shrink=shrink))
    assert found.weight.tolist() == [1, 1, 0, 0, 1, 1]
    assert found.counts["segments"] == {"in": 3, "kept": 2}
    units = apply_policy(table(), WeighSettings(below=0, gamma=1, shrink=shrink))
    assert units.weight.tolist() == [1, 0, 0, 1, 1, 0], "single units, whose means shrink to one value"


def test_a_dropped_tail_is_not_kept_whatever_its_score():
    found = apply_policy(table([*SCORES, -9.0]), WeighSettings(below=0, gamma=2, min_tail=2))
    assert found.weight.tolist() == [1, 1, 0, 0, 0, 0, 0]
    assert found.counts["units"]["dropped_short_tail"] == 1


def test_below_that_keeps_nothing_says_the_lowest_score():
    with pytest.raises(DataError, match=r"below=-1: no segment's mean score is; the lowest is -0\.25"):
        apply_policy(table(), WeighSettings(below=-1, gamma=2))


@pytest.mark.parametrize("other", [{"budget": "3 units"}, {"policy": "sampled"}, {"policy": "sigmoid"}])
def test_below_goes_with_no_other_amount(other):
    with pytest.raises(ConfigError, match="below=0: takes the place of a budget"):
        WeighSettings(below=0, **other)


def test_below_leaves_no_beta_to_choose():
    assert not WeighSettings(below=0, beta="auto").is_auto
