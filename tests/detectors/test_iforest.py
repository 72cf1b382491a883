"""Traversal of an isolation forest on trees written by hand; agreement with scikit-learn is in test_parity."""

import numpy as np
import pytest
import torch

from dana.detectors.iforest import FittedIsolationForest, round_down


def _forest(roots):
    """Two trees in one list: a cut at 1 with leaves at depths 1 and 3; and a single leaf, which is its own child."""
    return FittedIsolationForest(
        depth=1,
        normaliser=2.0,
        dims=1,
        roots=torch.tensor(roots),
        feature=torch.zeros(4, dtype=torch.int64),
        threshold=torch.tensor([1.0, torch.inf, torch.inf, torch.inf]),
        left=torch.tensor([1, 1, 2, 3]),
        path=torch.tensor([0.0, 1.0, 3.0, 2.0], dtype=torch.float64),
    )


def test_a_rounded_threshold_splits_like_the_exact_one():
    below, above = np.float32(0.1), np.nextafter(np.float32(0.1), np.float32(1))
    between = (float(below) + 3 * float(above)) / 4  # its nearest float32 is `above`, which must still go right
    assert np.float32(between) == above
    assert round_down(np.array([between, float(below), -between])).tolist() == [below, below, -above]


def test_scores_by_hand():
    largest = torch.finfo(torch.float32).max
    scores = _forest([0]).score(torch.tensor([[0.5], [1.0], [1.5], [largest]]))  # at the threshold: left
    assert scores.tolist() == pytest.approx([2 ** (-1 / 2), 2 ** (-1 / 2), 2 ** (-3 / 2), 2 ** (-3 / 2)])
    # mean paths (1 + 2) / 2 and (3 + 2) / 2, over c(n) = 2
    scores = _forest([0, 3]).score(torch.tensor([[0.5], [1.5]]))
    assert scores.tolist() == pytest.approx([2 ** (-1.5 / 2), 2 ** (-2.5 / 2)])
