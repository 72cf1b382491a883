"""The adapter leaves no trace: not in the object, not in numpy's generator, not in later scores."""

import numpy as np
import pytest
import torch

from dana.detectors.base import as_detector

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
