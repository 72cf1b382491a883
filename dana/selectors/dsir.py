"""DSIR selector: the log ratio of two hashed n-gram distributions, general over task, per n-gram of a unit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from dana.core.config import require
from dana.corpus.hashed_ngrams import HashedNgrams
from dana.corpus.unit_stream import Units
from dana.selectors.base import FittedSelector, Selector

NORMALISE = ("token", "none")


@dataclass(frozen=True)
class FittedDSIR(FittedSelector):
    """The log ratio of each bucket, and how to count and add up.

    Attributes:
        log_ratio: float64 of shape (buckets,), log p(bucket | task) - log p(bucket | general), in nats.
        order: Longest n-gram.
        normalise: ``token`` or ``none``.
    """

    log_ratio: Tensor
    order: int
    normalise: str

    def score_units(self, units: Units) -> np.ndarray:
        """Minus the log importance weight in nats, or its mean an n-gram; 0 for a unit without n-grams."""
        counts = HashedNgrams(self.order, self.log_ratio.numel()).counts(units.texts)
        scores = -(counts @ self.log_ratio.numpy())
        return scores / np.maximum(counts.sum(axis=1), 1) if self.normalise == "token" else scores


@dataclass(frozen=True)
class DSIRSelector(Selector):
    """Hashed words and word pairs: how much rarer they are in task text than in general text; higher = more foreign.

    The log importance weight of a text is the sum over its n-grams of log p_task - log p_general, so long texts are at
    the ends of the published ranking. Its mean an n-gram, the default here, finds more of a task's text
    (docs/results/selectors.md); ``normalise=none`` is the published sum. Where the package draws without replacement by
    these weights, dana keeps the lowest scores: the noise of the draw is small beside the weights of whole documents.
    The package's filter of texts below 100 tokens has no counterpart, since a unit is a sentence.

    Attributes:
        normalise: ``token``: the mean an n-gram; ``none``: the sum, as published.
        order: Longest n-gram.
        buckets: Of the hash.
        smoothing: Added to each bucket's probability before the logarithm.
        background: General units that stand for the general corpus.

    References:
        Xie, Santurkar, Ma and Liang 2023, Data selection for language models via importance resampling, section 3;
        the package ``data-selection`` 1.0.3, whose log weights ``normalise=none`` gives. It splits by NLTK, whose
        releases of 2026 differ from these words in combining marks and superscripts.
    """

    normalise: str = "token"
    order: int = 2
    buckets: int = 10_000
    smoothing: float = 1e-8
    background: int = 5000
    version: ClassVar[int] = 1
    fitted_type: ClassVar[type] = FittedDSIR

    def __post_init__(self) -> None:
        require(self.normalise in NORMALISE, "normalise", self.normalise, f"one of {', '.join(NORMALISE)}")
        require(self.smoothing > 0, "smoothing", self.smoothing, "above 0")
        require(self.background >= 1, "background", self.background, "at least 1")
        HashedNgrams(self.order, self.buckets)

    def samples(self, task_units: int) -> Mapping[str, int]:
        """``background``: what the general corpus looks like."""
        return {"background": self.background}

    def learn(self, task: Units, general: Mapping[str, Units], seed: int) -> FittedDSIR:
        """Count both; nothing is random.

        Raises:
            DataError: If one of them has no word.
        """
        task_log = self._log_probabilities(task.texts, "task")
        general_log = self._log_probabilities(general["background"].texts, "background")
        return FittedDSIR(torch.from_numpy(task_log - general_log), self.order, self.normalise)

    def _log_probabilities(self, texts: Sequence[str], name: str) -> np.ndarray:
        counts = HashedNgrams(self.order, self.buckets).counts_of(texts, name).sum(axis=0)
        return np.log(counts / counts.sum() + self.smoothing)
