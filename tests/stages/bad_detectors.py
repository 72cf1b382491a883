"""Detectors of a third party that go wrong in every way the ranking must survive."""

import numpy as np


class _Convention:
    def fit(self, X, y=None):
        return self

    def decision_function(self, X):
        return np.zeros(len(X))


class NotANumber(_Convention):
    """One score is none."""

    def decision_function(self, X):
        scores = np.arange(float(len(X)))
        scores[-1] = np.nan
        return scores


class TooMany(_Convention):
    """Two scores a unit."""

    def decision_function(self, X):
        return np.zeros(2 * len(X))


class Raises(_Convention):
    """Fails while fitting."""

    def fit(self, X, y=None):
        raise ZeroDivisionError("by zero")


class NeedsAnArgument(_Convention):
    """Cannot be made from its name alone."""

    def __init__(self, power):
        self.power = power
