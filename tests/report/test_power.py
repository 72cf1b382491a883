"""Coverage, false decisions and power of simulated verdicts; ``python -m tests.report.test_power`` is the long one."""

import math
import sys
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

from dana.core.statistics import FIRST_LOOK
from dana.report.verdicts import compare_arms, difference, reason_to_stop
from tests.report.test_verdicts import arm_result

# Variances of a model's latent score of a text, which sum to 1: of the text (all models), of text
# and arm, of text and adaptation, of text and model. Two models of an arm then disagree on a sixth
# of the texts, as measured.
TEXT, ARM, ADAPTATION, MODEL = 0.70, 0.06, 0.12, 0.12
SLOPE = norm.pdf(norm.ppf(0.65))  # accuracy per latent score, at an accuracy of .65
SEED_DEVIATION = 0.01


def simulate(random, units, models, texts, deviation, gains, folds=False):
    """Simulate arms `base`, `random`, ...: right answers of equally good models, but for the gains in accuracy.

    Args:
        random: Generator.
        units: Number of adaptations or folds; all models of base share one.
        models: Number of fine-tunings of each.
        texts: Number of texts.
        deviation: Deviation of accuracy between adaptations.
        gains: Gain of each arm.
        folds: Test each text in its own fold.
    """
    shape, text = (units, models, texts), random.normal(0, math.sqrt(TEXT), texts)
    results = []
    for arm, gain in gains.items():
        by_unit = random.normal(0, deviation * (arm != "base"), (units, 1, 1))
        by_seed = random.normal(0, SEED_DEVIATION, (units, models, 1))
        score = (
            norm.ppf(0.65)
            + (gain + by_unit + by_seed) / SLOPE
            + text
            + random.normal(0, math.sqrt(ARM), texts)
        )
        score = score + random.normal(
            0, math.sqrt(ADAPTATION), (1 if arm == "base" else units, 1, texts)
        )
        right = score + random.normal(0, math.sqrt(MODEL), shape) > 0
        result = arm_result(arm, right.reshape(-1, texts), adaptations=units)
        if folds:
            fold = np.arange(texts) % units
            result = arm_result(
                arm, right[fold, :, np.arange(texts)].T, scores=result.scores, adaptations=units
            )
            result = replace(result, predictions=replace(result.predictions, folds=fold))
        results.append(result)
    return results


def rates(repeats, pair=None, **regime):
    """Return how often an interval covers the true gain of dana over base, and how often any question is decided.

    Args:
        repeats: Number of simulated runs.
        pair: The question that counts; None for any.
        regime: As :func:`simulate`.
    """
    random, gains = np.random.default_rng(5), regime["gains"]
    covers, decisions = [], []
    for _ in range(repeats):
        results = simulate(random, **regime)
        rows = [row for row in compare_arms(results) if row.asked]
        covers += [row.low <= gains[row.arm] - gains[row.other] <= row.high for row in rows]
        asked = [row for row in rows if pair in (None, (row.arm, row.other))]
        decisions.append(any(row.verdict in ("better", "worse") for row in asked))
    return float(np.mean(covers)), float(np.mean(decisions))


ALIKE = {"base": 0.0, "random": 0.0, "dana": 0.0}
REPEATS = 300


@pytest.mark.parametrize(
    "regime",
    [
        {"units": 5, "models": 2, "texts": 500, "deviation": 0.0125, "folds": True},
        {"units": 5, "models": 1, "texts": 500, "deviation": 0.0125},
        {"units": 10, "models": 1, "texts": 300, "deviation": 0.0125},
    ],
)
def test_intervals_cover_and_nothing_is_decided_without_a_difference(regime):
    """Standard errors of 300 repeats: .009 of the coverage of two questions, .013 of the decisions."""
    coverage, decisions = rates(REPEATS, gains=ALIKE, **regime)
    assert coverage >= 0.93
    assert decisions <= 0.05 + 2 * 0.0126


@pytest.mark.parametrize("folds", [False, True])
def test_the_detectable_difference_is_decided_in_four_of_five_reruns(folds):
    regime = {"units": 10, "models": 2, "texts": 500, "deviation": 0.0125, "folds": folds}
    random, gains = np.random.default_rng(6), {"base": 0.0, "dana": 0.0}
    pairs = [simulate(random, gains=gains, **regime) for _ in range(60)]
    smallest = float(np.mean([difference(dana, base).detectable() for base, dana in pairs]))
    _, decisions = rates(REPEATS, gains={**gains, "dana": smallest}, **regime)
    assert 0.72 < decisions < 0.92


FOUR = dict.fromkeys(
    ["base", "random", "dana", "task", "task+random", "task+dana"], 0.0
)  # as many questions


def after(results, units):
    """Return the results as they were after so many adaptations or folds, in a run that may stop early."""
    horizon, early = results[0].adaptations, []
    for one in results:
        parts, rows = one.predictions, len(one.scores) * units // horizon
        if parts.folds is None:
            result = arm_result(
                one.arm, (parts.predicted == parts.labels)[:rows], adaptations=units
            )
        else:
            tested = parts.folds < units
            right = (parts.predicted == parts.labels)[:, tested]
            result = arm_result(
                one.arm, right, scores=dict(list(one.scores.items())[:rows]), adaptations=units
            )
            result = replace(
                result, predictions=replace(result.predictions, folds=parts.folds[tested])
            )
        early.append(replace(result, horizon=horizon))
    return early


def stopped(results):
    """Look after each unit; return the rows of the look that stops, or of the last."""
    for units in range(FIRST_LOOK, results[0].adaptations + 1):
        rows = [row for row in compare_arms(after(results, units)) if row.asked]
        if reason_to_stop(rows):
            break
    return rows


def stopping_rates(repeats, gains, seed=7, **regime):
    """Return coverage, how often any true null is decided, how often dana is better than random, and mean units."""
    random, numbers = np.random.default_rng(seed), []
    for _ in range(repeats):
        rows = stopped(simulate(random, gains=gains, **regime))
        truth = {(row.arm, row.other): gains[row.arm] - gains[row.other] for row in rows}
        decided = {(row.arm, row.other): row.verdict in ("better", "worse") for row in rows}
        covers = [row.low <= truth[row.arm, row.other] <= row.high for row in rows]
        false = any(decided[pair] for pair, gain in truth.items() if not gain)
        numbers.append((np.mean(covers), false, decided["dana", "random"], rows[0].n))
    return np.mean(numbers, axis=0)


@pytest.mark.parametrize("folds", [False, True])
def test_a_run_that_may_stop_early_decides_no_more_by_chance_and_its_intervals_cover(folds):
    regime = {"units": 5, "models": 2, "texts": 500, "deviation": 0.0125, "folds": folds}
    coverage, false, _, units = stopping_rates(150, FOUR, **regime)
    assert coverage >= 0.95
    assert false <= 0.05 + 2 * 0.018
    assert units < 5, "some stop"


def row_of(kind, units, texts, deviation, folds, repeats):
    """Return coverage and false decisions, and of a run that may stop power and mean units, of four questions."""
    regime = {"units": units, "models": 2, "texts": texts, "deviation": deviation, "folds": folds}
    gains = {arm: 0.03 * (kind.endswith("gain") and arm in ("dana", "task+dana")) for arm in FOUR}
    if kind.startswith("stop"):
        return stopping_rates(repeats, gains, **regime)
    return rates(
        repeats, gains=gains, pair=("dana", "random") if kind.endswith("gain") else None, **regime
    )


if (
    __name__ == "__main__"
):  # whole, whole-gain, stop or stop-gain; UNITS TEXTS DEVIATION FOLDS REPEATS
    kind, units, texts, deviation, folds, repeats = sys.argv[1:]
    numbers = row_of(kind, int(units), int(texts), float(deviation), bool(int(folds)), int(repeats))
    print(*sys.argv[1:], *(f"{number:.3f}" for number in numbers))
