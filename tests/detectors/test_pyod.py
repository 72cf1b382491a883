"""The PyOD adapter changes neither the object nor a global random generator nor later scores."""

import os
import random

import numpy as np
import pytest
import torch

from dana.core.errors import PluginError
from dana.detectors.pyod import as_detector, restore, save_fitted

ROWS = torch.randn(30, 3, generator=torch.Generator().manual_seed(0))


class RandomPoint:
    """Scores are the distance from a point that is drawn while fitting."""

    def __init__(self, draw):
        self.draw = draw

    def fit(self, X):
        self.point = self.draw(X.shape[1])

    def decision_function(self, X):
        self.calls = getattr(self, "calls", 0) + 1
        return np.linalg.norm(X - self.point, axis=1) * self.calls


DRAWS = {
    "torch": lambda dims: torch.randn(dims).numpy(),
    "numpy": lambda dims: np.random.randn(dims),  # noqa: NPY002
    "python": lambda dims: np.array([random.random() for _ in range(dims)]),
}


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_a_second_fit_is_the_first_and_generators_are_restored(tmp_path, draw):
    detector = as_detector(RandomPoint(draw))
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[2]  # noqa: NPY002
    model = detector.fit(ROWS, 1)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert (random.getstate(), np.random.get_state()[2]) == before[1:]  # noqa: NPY002
    save_fitted(model, "drawn", tmp_path)
    for disturb in (lambda: torch.manual_seed(99), lambda: random.seed(99)):
        disturb()
        assert torch.equal(restore(detector, tmp_path).score(ROWS), model.score(ROWS))
    assert not torch.equal(detector.fit(ROWS, 2).score(ROWS), model.score(ROWS))


def test_a_fit_that_does_not_repeat_is_refused(tmp_path):
    detector = as_detector(RandomPoint(lambda dims: np.frombuffer(os.urandom(dims), np.uint8) / 9))
    save_fitted(detector.fit(ROWS, 3), "drawn", tmp_path)
    with pytest.raises(PluginError, match=r"RandomPoint: .*random_state"):
        restore(detector, tmp_path)
