"""Spread of paired differences to the smallest difference a verdict can see, and to the number of seeds one takes.

A verdict (:mod:`dana.report.verdicts`) wants a sign-flip p over the seeds after Holm, and a two-level bootstrap
interval without zero. The mean difference of n seeds on one test set is taken as normal around the true one, with
variance

    V = examples² + seeds² / n,

and the interval as normal with the variance that a bootstrap of seeds and examples has on average,

    W = examples² + ((n − 1) seeds² + (2n − 1) mixed²) / n²

(it draws the seeds' own part over again with the examples, so W > V). The smallest difference found with probability
`POWER` is the larger of what either half of the rule asks for. As n grows both tend to 2.8 · `examples`: no number of
seeds sees less, only more test examples do. Everything is two-sided, at level `ALPHA`.

It lies in the report's room because it foretells the report's verdicts; ``dana run`` (stages) is above and may ask it.

References:
    Card et al. 2020, With Little Power Comes Great Responsibility (the variance of a paired difference of accuracies is
    at most the share of examples that the models disagree on); Bouthillier et al. 2021, Accounting for Variance in
    Machine Learning Benchmarks; Owen 2007, The pigeonhole bootstrap (theorem 3, the interaction drawn over again).
"""

import math
from bisect import bisect_left
from dataclasses import dataclass

from dana.core.statistics import ALPHA, fewest_seeds

POWER = 0.8  # share of reruns that should find the difference
MOST_SEEDS = 1000  # beyond this, how many would decide is no use to anyone
# Without a pilot: what a tiny BERT and ours have on docs/results/adaptation.md; strong models disagree less.
ASSUMED_OWN = 0.01  # standard deviation over seeds on a test set without end
ASSUMED_SHARED = 0.1  # variance over examples, of one example's difference, that all seeds share
ASSUMED_MIXED = 0.2  # variance over examples that is a seed's own; both together are the share of disagreement


@dataclass(frozen=True)
class Spread:
    """What the difference of two arms varies by, as standard deviations of a mean score.

    Attributes:
        seeds: Over fine-tuning seeds, on one test set: of the paired differences, ddof 1.
        examples: Over test sets: the part that all seeds share, and no number of them takes away.
        mixed: Over test sets: a seed's own part. It is in `seeds`, too.
    """

    seeds: float
    examples: float
    mixed: float


def assumed_spread(examples: int) -> Spread:
    """The spread that is assumed where no results are there to estimate it from.

    Args:
        examples: Of the test set.
    """
    mixed = ASSUMED_MIXED / examples
    return Spread(math.sqrt(ASSUMED_OWN**2 + mixed), math.sqrt(ASSUMED_SHARED / examples), math.sqrt(mixed))


def pooled(spreads: list[Spread]) -> Spread:
    """Root mean square of several spreads, part by part."""
    parts = [[getattr(spread, name) ** 2 for spread in spreads] for name in ("seeds", "examples", "mixed")]
    return Spread(*(math.sqrt(math.fsum(part) / len(part)) for part in parts))


def detectable(spread: Spread, n: int, questions: int, other_texts: bool = True) -> float:
    """The smallest difference that n seeds decide with probability :data:`POWER`.

    Args:
        spread: Of the differences.
        n: Seeds.
        questions: How many Holm adjusts for; the first of its steps is reckoned with, which asks the most.
        other_texts: Whether the test set is drawn anew, as before a run. Of a rerun on the same one the difference
            varies by its seeds alone.

    Returns:
        In units of the score; infinite where so few seeds decide nothing.
    """
    from scipy.stats import norm

    if n < fewest_seeds(questions):
        return math.inf
    z, reach = float(norm.ppf(1 - ALPHA / 2)), float(norm.ppf(POWER))
    own = spread.seeds / math.sqrt(n)
    error = math.hypot(spread.examples, own) if other_texts else own
    width = math.sqrt(spread.examples**2 + ((n - 1) * spread.seeds**2 + (2 * n - 1) * spread.mixed**2) / n**2)
    by_seeds = standard_effect(n, questions) * spread.seeds + reach * (error - own)
    return max(by_seeds, z * width + reach * error)


def smallest_detectable(spread: Spread, other_texts: bool = True) -> float:
    """What :func:`detectable` tends to with more and more seeds: the test set's part alone."""
    from scipy.stats import norm

    return spread.examples * float(norm.ppf(1 - ALPHA / 2) + (norm.ppf(POWER) if other_texts else 0))


def standard_effect(n: int, questions: int) -> float:
    """Mean over standard deviation that the sign-flip test of n normal differences finds with :data:`POWER`.

    Where only the pattern of equal signs is extreme enough, the power is Φ(effect)ⁿ, exactly. Else it is the paired t
    test's, by the noncentral t distribution, at the level that the sign flips attain: the largest multiple of 2 / 2ⁿ
    that is not above ALPHA / questions. Simulated, that is right within 0.03 of power for 7 to 12 seeds.

    Raises:
        ValueError: If n is below :func:`dana.core.statistics.fewest_seeds`.

    References:
        Cohen 1988, Statistical power analysis, chapter 2; Lehmann and Romano 2005, Testing statistical hypotheses,
        section 15.2 (the randomization test is as powerful as t, asymptotically).
    """
    from scipy.optimize import brentq
    from scipy.stats import nct, norm, t

    if n < fewest_seeds(questions):
        raise ValueError(f"{n} seeds decide nothing of {questions} questions")
    patterns = 2.0 ** (n - 1)
    extreme = math.floor(ALPHA / max(questions, 1) * patterns * (1 + 1e-12))
    if extreme == 1:
        return float(norm.ppf(POWER ** (1 / n)))
    critical = float(t.isf(extreme / patterns / 2, n - 1))
    effect = brentq(lambda shift: nct.sf(critical, n - 1, shift) - POWER, 0, 2 * critical + 5)
    return float(effect) / math.sqrt(n)


def seeds_needed(spread: Spread, difference: float, questions: int, other_texts: bool = True) -> int | None:
    """The least number of seeds that decide a difference with probability :data:`POWER`.

    Args:
        spread: Of the differences.
        difference: In units of the score; its sign does not matter.
        questions: How many Holm adjusts for.
        other_texts: As for :func:`detectable`.

    Returns:
        The number; one more than :data:`MOST_SEEDS` for any larger one; None where no number of seeds would do.
    """
    if abs(difference) <= smallest_detectable(spread, other_texts):
        return None
    numbers = range(fewest_seeds(questions), MOST_SEEDS + 1)  # the more, the less is seen
    return numbers.start + bisect_left(
        numbers, -abs(difference), key=lambda n: -detectable(spread, n, questions, other_texts)
    )
