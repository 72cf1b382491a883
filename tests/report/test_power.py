"""Power of n seeds and a test set: by hand, at its limits, and in simulated verdicts."""

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from scipy import stats

from dana.core.statistics import fewest_seeds, paired_bootstrap
from dana.report import verdicts
from dana.report.verdicts import MOST_SEEDS, Spread, detectable, seeds_needed, standard_effect
from tests.report.test_verdicts import cell

SEEDS_ALONE = Spread(2.0, 0.0, 0.0)
TEXTS_ALONE = Spread(0.0, 0.5, 0.0)


def test_the_standard_effect_by_hand():
    """Six seeds must all agree: Φ(d)⁶ = 0.8 at d = 1.793; a t test of the same level gives 1.615."""
    assert standard_effect(6, 1) == pytest.approx(1.7935, abs=1e-3)
    assert stats.norm.cdf(standard_effect(6, 1)) ** 6 == pytest.approx(0.8)
    assert stats.norm.cdf(standard_effect(9, 8)) ** 9 == pytest.approx(0.8)
    # n = 34 for an effect of 0.5, two-sided 0.05, power 0.8 (Cohen 1988, table 2.4.1, one sample)
    assert standard_effect(34, 1) == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize(("n", "questions", "extreme"), [(7, 1, 3), (8, 2, 3), (10, 4, 6)])
def test_more_seeds_have_the_power_of_t_at_the_attainable_level(n, questions, extreme):
    shift = standard_effect(n, questions) * math.sqrt(n)
    critical = stats.t.isf(extreme / 2**n, n - 1)
    assert stats.nct.sf(critical, n - 1, shift) == pytest.approx(0.8)


def test_detectable_at_its_limits():
    assert detectable(SEEDS_ALONE, 5, 1) == detectable(SEEDS_ALONE, 6, 2) == math.inf, "too few seeds"
    with pytest.raises(ValueError, match="6 seeds"):
        standard_effect(6, 2)
    assert detectable(SEEDS_ALONE, 8, 1) == pytest.approx(2 * standard_effect(8, 1))
    assert detectable(SEEDS_ALONE, 8, 2) > detectable(SEEDS_ALONE, 8, 1) > detectable(SEEDS_ALONE, 9, 1)
    floor = pytest.approx(0.5 * 1.959964, abs=1e-5)
    assert detectable(TEXTS_ALONE, 7, 1) == detectable(TEXTS_ALONE, 500, 1) == floor


def test_detectable_by_hand():
    spread, n = Spread(0.03, 0.02, 0.025), 8
    width = math.sqrt(0.02**2 + (7 * 0.03**2 + 15 * 0.025**2) / 64)
    by_interval = 1.959964 * width + 0.841621 * 0.03 / math.sqrt(n)
    assert detectable(spread, n, 1) == pytest.approx(by_interval, rel=1e-5)
    assert detectable(Spread(0.1, 0.001, 0.0), n, 4) == pytest.approx(standard_effect(n, 4) * 0.1, rel=1e-5)


def test_seeds_needed_is_the_first_that_detects():
    spread = Spread(0.03, 0.01, 0.02)
    count = seeds_needed(spread, -0.04, 2)
    assert detectable(spread, count, 2) <= 0.04 < detectable(spread, count - 1, 2)
    assert seeds_needed(spread, 10.0, 2) == fewest_seeds(2) == 7
    assert seeds_needed(SEEDS_ALONE, 0.01, 1) == MOST_SEEDS + 1
    assert seeds_needed(TEXTS_ALONE, 1.40, 1) == 6
    assert seeds_needed(TEXTS_ALONE, 0.97, 1) is None, "no number of seeds detects less than the floor"


# Simulated models: base is right on a text with probability a half; ours with what is added by the text (± `by_text`,
# the same in all seeds), by the seed (deviation `by_seed`, the same on all texts) and by the true difference.


def true_spread(texts: int, by_text: float, by_seed: float) -> Spread:
    """Compute the exact spread of the difference."""
    interaction = (0.25 - by_text**2 - by_seed**2 + 0.25) / texts
    return Spread(math.sqrt(by_seed**2 + interaction), by_text / math.sqrt(texts), math.sqrt(interaction))


def models(random, seeds: int, texts: int, by_text: float, by_seed: float, difference: float, balanced: bool = False):
    """Draw right answers; if `balanced`, what is added by the text sums to 0, as in reruns on one test set."""
    signs = random.permutation(np.resize([-1, 1], texts)) if balanced else random.choice([-1, 1], texts)
    ours = 0.5 + by_text * signs + random.normal(0, by_seed, seeds)[:, None] + difference
    return random.random((seeds, texts)) < ours, random.random((seeds, texts)) < 0.5


def decision_rate(difference: float, repeats: int, questions: int, **regime) -> float:
    """Share of repeats with the verdict better or, without a difference, any verdict."""
    random = np.random.default_rng(5)
    words = []
    for _ in range(repeats):
        ours, base = models(random, difference=difference, **regime)
        cells = [cell("base", base), cell("dana", ours)]
        # Further questions without any difference double p in Holm's first step.
        others = [replace(cell(arm, base), task=f"t{q}") for q in range(1, questions) for arm in ("base", "dana")]
        words.append(verdicts.compare_arms([*cells, *others])[0].verdict)
    return sum(word == "better" or (word == "worse" and not difference) for word in words) / repeats


@pytest.mark.parametrize(
    ("questions", "regime"),
    [
        (1, {"seeds": 6, "texts": 100, "by_text": 0.3, "by_seed": 0.02}),  # as few seeds as can be
        (1, {"seeds": 8, "texts": 150, "by_text": 0.1, "by_seed": 0.0}),  # the examples decide
        (1, {"seeds": 9, "texts": 120, "by_text": 0.0, "by_seed": 0.12}),  # the seeds decide
        (2, {"seeds": 8, "texts": 120, "by_text": 0.1, "by_seed": 0.08}),  # two questions
    ],
)
def test_verdicts_have_the_stated_power_and_level(questions, regime, monkeypatch):
    """Standard error of 150 repeats: 0.033; the formula itself is right within about 0.05."""
    monkeypatch.setattr(verdicts, "paired_bootstrap", partial(paired_bootstrap, resamples=200))
    spread = true_spread(regime["texts"], regime["by_text"], regime["by_seed"])
    smallest = detectable(spread, regime["seeds"], questions)
    assert 0.70 < decision_rate(smallest, 150, questions, balanced=True, **regime) < 0.90
    if questions == 1:
        assert decision_rate(0.0, 150, questions, **regime) <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / 150)


def test_the_spread_is_estimated_from_predictions():
    regime = {"seeds": 40, "texts": 2000, "by_text": 0.3, "by_seed": 0.02}
    ours, base = models(np.random.default_rng(1), difference=0.05, **regime)
    row = verdicts.compare_arms([cell("base", base), cell("dana", ours)])[0]
    spread = true_spread(2000, 0.3, 0.02)
    assert row.examples == pytest.approx(spread.examples, rel=0.1)
    assert row.interaction == pytest.approx(spread.interaction, rel=0.05)
    assert row.std == pytest.approx(spread.seeds, rel=0.25)
    both = spread.examples**2 + (39 * row.std**2 + 79 * spread.interaction**2) / 40**2
    assert row.error == pytest.approx(math.sqrt(both), rel=0.1)
