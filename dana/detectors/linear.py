"""Linear score: embeddings to minus the log odds of a fitted hyperplane, in torch; shared by the linear classifiers."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dana.detectors.base import OnDevice, check_rows, score_blocks


@dataclass(frozen=True)
class FittedLinear(OnDevice):
    """A hyperplane between task and background.

    Attributes:
        offset: Score of the zero vector.
        weights: float64 of shape (dims,); the score rises along them.
    """

    offset: float
    weights: Tensor

    def score(self, embeddings: Tensor) -> Tensor:
        """Log odds of background against task at equal priors; higher = more anomalous. O(units · dims)."""
        check_rows(embeddings, self.weights.numel())
        per_row = 3 * self.weights.numel()
        return score_blocks(embeddings, per_row, lambda rows: rows.double() @ self.weights + self.offset)

    @classmethod
    def of_classifier(cls, classifier: Any, device: torch.device) -> "FittedLinear":
        """The hyperplane of a fitted binary classifier of scikit-learn whose positive class is the task."""
        weights = torch.from_numpy(-classifier.coef_[0]).double().to(device)
        return cls(-float(classifier.intercept_[0]), weights)
