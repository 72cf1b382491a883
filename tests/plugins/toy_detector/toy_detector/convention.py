"""A detector of PyOD's convention that knows nothing of dana."""

import numpy as np


class ToyConvention:
    """Distance from the median."""

    def fit(self, X, y=None):
        """Take the median."""
        self.centre_ = np.median(X, axis=0)
        return self

    def decision_function(self, X):
        """Distance from it; higher = more anomalous."""
        return np.linalg.norm(X - self.centre_, axis=1)
