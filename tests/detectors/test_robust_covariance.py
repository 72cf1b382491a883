"""Robust covariance: the start resists far outliers, the C-steps exclude near ones."""

import torch

from dana.detectors.robust_covariance import RobustCovariance


def _rows(rows, dims, seed):
    return torch.randn(rows, dims, generator=torch.Generator().manual_seed(seed))


def test_concentration_steps_drop_outliers_that_lie_near_the_centre():
    # A long thin cloud. A tenth of outliers is off its axis by 30 of its standard deviations there, but nearer to
    # the median than its ends are: only the steps, which measure with the covariance, can tell.
    clean = _rows(400, 2, 0) * torch.tensor([10.0, 0.1])
    outliers = torch.cat([_rows(40, 1, 1), torch.full((40, 1), 3.0)], dim=1)
    fitted = RobustCovariance().fit(torch.cat([clean, outliers]), 0)
    assert fitted.location[1].abs() < 0.05
    assert fitted.score(outliers).min() > fitted.score(clean).max()


def test_the_start_is_not_drawn_by_two_fifths_of_outliers():
    # The mean of all lies 2.4 from the clean centre; a start there ends in the cluster, 4.6 off.
    clean, outliers = _rows(300, 4, 0), _rows(200, 4, 1) * 0.5 + 3
    fitted = RobustCovariance(support=0.5).fit(torch.cat([clean, outliers]), 0)
    assert fitted.location.norm() < 0.35
    assert fitted.score(outliers).median() > fitted.score(clean).quantile(0.99)
