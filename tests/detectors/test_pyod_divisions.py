"""PyOD's detectors say in one line that a density divides by zero."""

import warnings

import pytest
import torch

from dana.core.registry import DETECTORS
from tests.detectors.clouds import cloud


@pytest.mark.parametrize("spec", ["pyod:LOF", "pyod:ABOD"])
def test_copies_among_the_fitted_rows_are_said_once(spec, caplog, recwarn):
    rows = cloud(60, 4, 0)
    copies = torch.cat([rows, rows[:2].repeat(25, 1)])
    DETECTORS.create(spec).fit(copies, 0)
    said = [line for line in caplog.messages if "divides by zero" in line]
    assert len(said) == 1
    assert "50 of 110 fitted rows are copies of others" in said[0]
    assert not recwarn.list


@pytest.mark.parametrize("spec", ["pyod:LOF", "pyod:KNN", "pyod:HBOS"])
def test_nothing_is_said_of_rows_that_differ(spec, caplog):
    DETECTORS.create(spec).fit(cloud(60, 4, 0), 0)
    assert not caplog.messages


def test_other_warnings_pass(monkeypatch):
    detector = DETECTORS.create("pyod:KNN")
    fit = type(detector.candidate).fit

    def warned(self, rows):
        for _ in range(3):
            warnings.warn("a thing of its own", stacklevel=2)
        return fit(self, rows)

    monkeypatch.setattr(type(detector.candidate), "fit", warned)
    with pytest.warns(UserWarning, match="a thing of its own") as caught:
        detector.fit(cloud(60, 4, 0), 0)
    assert len([one for one in caught if "its own" in str(one.message)]) == 1
