"""Cosine detector in PyOD's convention, which needs nothing of dana."""

import numpy as np


class CosineToMean:
    """One minus the cosine to the mean of the target's embeddings; higher = more anomalous."""

    def fit(self, X):
        """Take the mean of X, shape (rows, dims)."""
        self.mean = X.mean(axis=0)
        return self

    def decision_function(self, X):
        """Scores of shape (rows,)."""
        lengths = np.linalg.norm(X, axis=1) * np.linalg.norm(self.mean)
        return 1 - X @ self.mean / np.maximum(lengths, 1e-12)
