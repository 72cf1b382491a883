"""Choose the objective of an adaptation by a pilot: what short trainings do to probes of the training texts.

Each candidate, and the base as it is, predicts every training text several times, by probes that were
fitted to other training texts (:func:`dana.finetuning.probe.cross_validated`). x_ci is what text i adds
to the metric of candidate c (:meth:`dana.tasks.kinds.base.Kind.influences`; of accuracy it is 1 or 0),
averaged over the predictions of the text. With d_ci = x_ci - x_0i, where 0 is the base, of n texts:

    gain_c = mean of d_ci over the texts, the change of the metric
    bar_c = max(0.01, k * standard deviation of d_ci / sqrt(n))

Of the candidates with gain_c >= bar_c the one with the largest gain is chosen; if there is none, none.
A metric that is better when lower changes the sign of d. Texts of one group count as independent.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dana.tasks.kinds.base import Kind

VERSION = 2  # of the choice, and of which candidates are tried
NONE = "none"  # the base as it is
LEAST_GAIN = 0.01
STANDARD_ERRORS = 0.5  # k; benchmarks/pilot.py compares 0, 0.5 and 1 (docs/results/objectives.md)


@dataclass(frozen=True)
class Trial:
    """What a pilot found of one candidate.

    Attributes:
        objective: Name of the objective; ``none`` is the base as it is.
        score: Metric of the task by the probes, the mean of several divisions of the texts.
        gain: Improvement of the score over that of the base.
        error: Standard error of the gain over texts.
        bar: Least gain that counts.
    """

    objective: str
    score: float
    gain: float
    error: float
    bar: float

    @property
    def is_better(self) -> bool:
        """Whether the candidate may be chosen."""
        return self.objective != NONE and self.gain >= self.bar


def judge(
    predictions: Mapping[str, np.ndarray],
    labels: np.ndarray,
    kind: Kind,
    metric: str,
    standard_errors: float = STANDARD_ERRORS,
) -> list[Trial]:
    """Compare the candidates of a pilot with the base.

    Args:
        predictions: Predicted labels of shape (repeats, texts) by candidate, with ``none``.
        labels: Labels of shape (texts,), as the kind represents them.
        kind: Kind of the labels.
        metric: Metric of the task.
        standard_errors: k of the rule.

    Returns:
        A trial for each candidate, in the order of `predictions`.
    """
    sign = -1 if kind.metrics[metric] == "lower" else 1
    parts = {
        name: kind.influences(repeats, labels, metric).mean(0)
        for name, repeats in predictions.items()
    }
    texts = len(labels)
    trials = []
    for name, influences in parts.items():
        differences = sign * (influences - parts[NONE])
        error = float(differences.std(ddof=1)) / math.sqrt(texts) if texts > 1 else math.inf
        trial = Trial(
            objective=name,
            score=float(influences.mean()),
            gain=float(differences.mean()),
            error=error,
            bar=max(LEAST_GAIN, standard_errors * error),
        )
        trials.append(trial)
    return trials


def choose_objective(trials: list[Trial]) -> str:
    """Return the name of the objective with the largest gain that counts, or ``none``; of equals the first."""
    better = [trial for trial in trials if trial.is_better]
    if not better:
        return NONE
    return max(better, key=lambda trial: trial.gain).objective
