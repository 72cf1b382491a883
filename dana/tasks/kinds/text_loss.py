"""The loss of a text under a language model: a measure of the model itself, without any label."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from dana.core.errors import ConfigError
from dana.tasks.kinds.base import Label, Tallies
from dana.tasks.kinds.regression import Regression


@dataclass(frozen=True)
class TextLoss(Regression):
    """Nats that a language model needs for a text.

    The label of a text is its number of predicted tokens. A prediction is the sum of the negative
    log-likelihoods of these tokens, in nats; the score is the ratio of both sums, the mean loss of
    a token. ``dana run`` makes such results (:mod:`dana.stages.losses`), no task card does.
    """

    name = "text_loss"
    metrics = {"nats_per_token": "lower"}  # noqa: RUF012, never changed
    main_metric = "nats_per_token"

    def check_card(self, metric: str, template: str | None, text_pair: str | None) -> None:
        raise ConfigError(
            f"kind={self.name!r}: no kind of labels, but what dana run measures on text without any"
        )

    def read(self, value: Any) -> Label:
        raise ValueError("a text's loss is no label")

    def tallies(self, predictions: np.ndarray, labels: np.ndarray, metric: str) -> Tallies:
        tokens = np.repeat(labels[:, None], len(predictions), axis=1)
        return (predictions.T, tokens), np.divide

    def is_collapsed(self, predictions: np.ndarray, labels: np.ndarray, metric: str) -> bool:
        return False
