"""The PyOD adapter changes neither the object nor a global random generator nor later scores."""

import os
import random
import subprocess
import sys

import numpy as np
import pytest
import torch

from dana.core.errors import PluginError
from dana.core.registry import DETECTORS
from dana.detectors.pyod import as_detector, restore, save_fitted

ROWS = torch.randn(30, 3, generator=torch.Generator().manual_seed(0))


class Noise:
    """Scores are one number drawn while fitting."""

    def __init__(self, random_state=None):
        if random_state is not None:
            self.random_state = random_state

    def fit(self, X):
        """Draw from `random_state` where there is one, else from numpy's global generator."""
        own = getattr(self, "random_state", None)
        self.drawn = np.random.rand() if own is None else np.random.RandomState(own).rand()  # noqa: NPY002

    def decision_function(self, X):
        """The number, plus one for each call so far, as a detector that writes into itself would."""
        self.drawn += 1
        return np.full(len(X), self.drawn)


@pytest.mark.parametrize("make", [Noise, lambda: Noise(random_state=7)], ids=["global", "random_state"])
def test_the_seed_decides_what_is_drawn(make):
    def scores(seed):
        return as_detector(make()).fit(ROWS, seed).score(ROWS)

    assert torch.equal(scores(1), scores(1))
    assert not torch.equal(scores(1), scores(2))


def test_numpys_global_generator_is_left_as_it_was():
    before = np.random.get_state()[1].tolist(), np.random.get_state()[2]  # noqa: NPY002
    as_detector(Noise()).fit(ROWS, 1)
    assert (np.random.get_state()[1].tolist(), np.random.get_state()[2]) == before  # noqa: NPY002


def test_an_object_that_writes_into_itself_scores_the_same_every_time():
    fitted = as_detector(Noise()).fit(ROWS, 1)
    assert not fitted.row_by_row
    assert torch.equal(fitted.score(ROWS), fitted.score(ROWS))


class Drawn:
    """Scores are the distance from a point that is drawn while fitting."""

    def __init__(self, draw):
        self.draw = draw

    def fit(self, X):
        """Draw it."""
        self.point = self.draw(X.shape[1])

    def decision_function(self, X):
        """The distance."""
        return np.linalg.norm(X - self.point, axis=1)


DRAWS = {
    "torch": lambda dims: torch.randn(dims).numpy(),
    "numpy": lambda dims: np.random.randn(dims),  # noqa: NPY002
    "python": lambda dims: np.array([random.random() for _ in range(dims)]),
}


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_a_second_fit_is_the_first_whatever_generator_it_draws_from(tmp_path, draw):
    detector = as_detector(Drawn(draw))
    fitted = detector.fit(ROWS, 1)
    save_fitted(fitted, "drawn", tmp_path)
    for disturb in (lambda: torch.manual_seed(99), lambda: random.seed(99)):
        disturb()
        assert torch.equal(restore(detector, tmp_path).score(ROWS), fitted.score(ROWS))
    assert not torch.equal(detector.fit(ROWS, 2).score(ROWS), fitted.score(ROWS))


def test_torchs_and_pythons_generators_are_left_as_they_were():
    before = torch.get_rng_state(), random.getstate()
    as_detector(Drawn(DRAWS["torch"])).fit(ROWS, 1)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]


def test_what_a_second_fit_does_not_reproduce_is_refused_with_the_reason(tmp_path):
    detector = as_detector(Drawn(lambda dims: np.frombuffer(os.urandom(dims), np.uint8) / 9))
    save_fitted(detector.fit(ROWS, 3), "drawn", tmp_path)
    with pytest.raises(PluginError, match=r"Drawn: two fits with seed 3 on the same rows differ .*random_state"):
        restore(detector, tmp_path)


def test_scores_of_a_row_at_a_time_are_announced_with_what_a_million_take(heard):
    rows = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
    as_detector(DETECTORS.create("pyod:LODA")).fit(rows, 0)
    assert not heard.messages
    as_detector(DETECTORS.create("pyod:ECOD")).fit(rows, 0)
    assert "scores of ECOD depend on the batch, so each row is scored alone" in heard.text


LOAD = """
import sys
from pathlib import Path
import torch
from dana.detectors.pyod import as_detector, restore, save_fitted
from dana.core.registry import DETECTORS
rows = torch.randn(60, 8, generator=torch.Generator().manual_seed(0))
folder = Path(sys.argv[1])
spec = "pyod:DeepSVDD,n_features=8,epochs=2,verbose=0"
detector = as_detector(DETECTORS.create(spec))
if not folder.exists():
    folder.mkdir()
    save_fitted(detector.fit(rows, 1), spec, folder)
print("scores", restore(detector, folder).score(rows + 1).tolist())
"""


@pytest.mark.slow
def test_a_deep_detector_scores_alike_in_every_process(tmp_path):
    command = [sys.executable, "-c", LOAD, str(tmp_path / "fitted")]
    runs = [subprocess.run(command, capture_output=True, text=True, timeout=120) for _ in range(2)]
    one, two = ([line for line in run.stdout.splitlines() if line.startswith("scores")] for run in runs)
    assert one, runs[0].stderr
    assert one == two
