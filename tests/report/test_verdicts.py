"""The rule of every verdict: two-level p after Holm, no collapsed model, arms made alike; and what would decide."""

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from dana.core.statistics import two_level
from dana.report import headline
from dana.report.arm_results import ArmResult, Lineage, Predictions
from dana.report.headline import next_step
from dana.report.run import RunFrames
from dana.report.tables import difference_table
from dana.report.verdicts import (
    ArmComparison,
    best_baseline,
    compare_arms,
    contrasts,
    difference,
    main_arms,
    questions,
    reason_to_stop,
)
from dana.tasks.kinds.single_label import SingleLabel

TWO = SingleLabel.from_count(2)


def arm_result(arm: str, right: np.ndarray, **fields) -> ArmResult:
    """Make the results of models that are right where `right`, of shape (seeds, examples), is true."""
    labels = np.arange(right.shape[1]) % 2
    scores = dict(enumerate(right.mean(axis=1).tolist()))
    ids = np.array([f"{number:04d}" for number in range(labels.size)])
    predictions = Predictions(ids, labels, np.where(right, labels, 1 - labels), TWO)
    result = ArmResult(
        "t", arm, "accuracy", "higher", scores, frozenset(), {"preset.epochs": 3}, predictions
    )
    return replace(result, **fields)


def grid(share: float, seeds: int = 8, examples: int = 400) -> np.ndarray:
    """Draw which answers are right, on the same texts in every arm."""
    return np.random.default_rng(0).random((seeds, examples)) < share


def compare(*results: ArmResult, **arms: np.ndarray):
    """Rows of the comparison by their arms, of results and of right answers."""
    rows = compare_arms([*results, *(arm_result(arm, right) for arm, right in arms.items())])
    return {(row.arm, row.other): row for row in rows}


QUESTIONS = [
    ("base pool random dana", "dana-base dana-random"),
    ("base adapted", "adapted-base"),
]
QUESTIONS += [
    ("base random bm25 mine", "bm25-base bm25-random mine-base mine-random"),
    ("base mine dana", "dana-base"),
]
MIXTURES = "base dana random task task+dana task+random"
QUESTIONS += [
    (MIXTURES, "dana-base dana-random task+dana-task+random task+dana-task"),
    ("bm25 mine", "bm25-mine"),
]
QUESTIONS += [("base random task", "task-base task-random"), ("one two three", "one-two one-three")]
QUESTIONS += [("base random x x+danas", "x-base x-random x+danas-base x+danas-random")]
QUESTIONS += [
    ("roberta adapted", "adapted-roberta"),
    ("base pool", "pool-base"),
    ("base", ""),
    ("dana", ""),
]


@pytest.mark.parametrize(("arms", "pairs"), QUESTIONS)
def test_questions(arms, pairs):
    asked_pairs = questions(arms.split())
    assert asked_pairs == [tuple(pair.split("-")) for pair in pairs.split()]
    assert contrasts(arms.split())[: len(asked_pairs)] == asked_pairs, "questions come first"


def test_contrasts_and_main_arms():
    others = contrasts(["base", "pool", "random", "dana"])[2:]
    assert set(others) == {("random", "base"), ("pool", "base"), ("dana", "pool")}
    assert main_arms(["base", "random", "pool", "bm25", "mine"]) == ["bm25", "mine"]
    shown = contrasts(["base", "pool", "dana", "task", "task+dana"])
    assert ("dana", "pool") in shown, "the first of our arms is shown with all others"
    assert ("task+dana", "pool") not in shown
    assert main_arms(["base", "mine", "adapted", "dana"]) == ["dana"]


def test_of_one_seed_nothing_is_decided():
    row = compare(base=grid(0.5, 1), dana=grid(0.9, 1))["dana", "base"]
    assert (row.verdict, row.n, row.p) == ("undecided", 1, 1.0)


def test_a_gain_is_better_and_reversed_worse():
    low, high = grid(0.6), grid(0.7)
    row = compare(base=low, dana=high)["dana", "base"]
    assert (row.verdict, row.reasons, row.basis) == ("better", "", "8 seeds")
    both = two_level(high.astype(float) - low, 8)
    assert (row.mean, row.error, row.p) == pytest.approx((both.mean, both.error, both.p))
    assert (row.low, row.high) == pytest.approx(both.interval)
    assert (row.n, row.models, row.texts, row.p_holm) == (8, 8, 400, row.p)
    assert compare(base=high, dana=low)["dana", "base"].verdict == "worse"
    errors = [
        arm_result(arm, right, direction="lower") for arm, right in (("base", high), ("dana", low))
    ]
    assert compare(*errors)["dana", "base"].verdict == "better"


def test_one_model_of_each_arm_decides_nothing_and_two_may():
    row = compare(base=grid(0.4, 1), dana=grid(0.8, 1))["dana", "base"]
    assert (row.verdict, row.reasons) == ("undecided", "one seed says nothing about others")
    assert np.isnan([row.low, row.detectable]).all()
    assert compare(base=grid(0.1, 2), dana=grid(0.9, 2))["dana", "base"].verdict == "better"


def test_holm_counts_the_questions_of_all_tasks_and_nothing_else():
    """General against base is no question and takes nothing away."""
    arms = {"base": grid(0.62, 6), "pool": grid(0.6, 6), "dana": grid(0.66, 6)}
    rows = compare(**arms)
    row = rows["dana", "base"]
    assert (row.p_holm, rows["pool", "base"].verdict) == (row.p, "not asked")
    assert np.isnan(rows["pool", "base"].p_holm)
    both = compare(**arms, random=grid(0.66, 6))
    assert both["dana", "base"].p_holm == pytest.approx(2 * row.p)
    tasks = [
        arm_result(arm, arms[arm], task=task) for task in ("t", "u") for arm in ("base", "dana")
    ]
    assert [after.p_holm for after in compare_arms(tasks)] == pytest.approx([2 * row.p] * 2)


@pytest.mark.parametrize(("gains", "is_decided"), [(6, True), (3, False)])
def test_too_few_test_examples_decide_nothing_even_if_every_seed_gains(gains, is_decided):
    """All seeds agree, so only the twenty texts vary."""
    right = np.ones((8, 20), bool)
    right[:, :gains] = False
    row = compare(base=right, dana=np.ones((8, 20), bool))["dana", "base"]
    assert (row.verdict == "better") is is_decided
    if not is_decided:
        assert np.isnan(row.units_needed), "no number of seeds would"
        assert f"about {row.texts_needed} test texts would decide this one" in row.reasons


def add_right(right: np.ndarray, by: list[int]) -> np.ndarray:
    """Make so many more answers right (or wrong) in each seed."""
    predictions = right.copy()
    for seed, many in enumerate(by):
        predictions[seed, np.flatnonzero(predictions[seed] == (many < 0))[: abs(many)]] = many > 0
    return predictions


def test_seeds_that_disagree_are_undecided_and_more_are_planned():
    right = grid(0.5, 8, 2000)
    dana = add_right(right, [300] * 6 + [-200] * 2)
    row = compare(base=right, dana=dana)["dana", "base"]
    assert row.verdict == "undecided"
    assert row.reasons.startswith(f"p = {row.p_holm:.2g} is above 0.05; a difference of ")
    both = two_level(dana.astype(float) - right, 8)
    assert (
        both.at(row.units_needed, 2000).detectable()
        <= row.mean
        < both.at(row.units_needed - 1, 2000).detectable()
    )
    assert np.isnan(row.texts_needed)
    assert f"about {row.units_needed} seeds would decide this one" in row.reasons
    assert (row.unit_std, row.text_std) == pytest.approx((both.unit_std, both.by_text**0.5))


def test_of_two_questions_each_is_decided_after_holm_and_planned_for_at_its_level():
    right = grid(0.5, 8, 2000)
    dana = add_right(right, [300] * 6 + [-150] * 2)
    row = compare(base=right, random=right, dana=dana)["dana", "base"]
    assert row.p < 0.05 < row.p_holm
    assert row.reasons.startswith(f"p = {row.p_holm:.2g}, adjusted for 2 questions, is above 0.05")
    both = two_level(dana.astype(float) - right, 8)
    assert row.detectable == pytest.approx(both.detectable(2))
    more, fewer = (both.at(row.units_needed - less, 2000).detectable(2) for less in (0, 1))
    assert more <= row.mean < fewer


def test_nobody_is_advised_more_folds():
    gains = np.concatenate([np.arange(100) < gain for gain in (2, 4, 9, 11)])
    results = [
        arm_result(arm, right[None]) for arm, right in (("base", gains & False), ("dana", gains))
    ]
    folds = np.arange(400) // 100
    results = [
        replace(one, predictions=replace(one.predictions, folds=folds), adaptations=4)
        for one in results
    ]
    row = compare(*results)["dana", "base"]
    assert (row.basis, row.verdict) == ("4 folds", "undecided")
    assert np.isnan(row.units_needed)
    assert f"about {row.texts_needed:,.0f} labelled texts would decide this one" in row.reasons


def test_nobody_is_advised_more_seeds_where_adaptations_are_missing():
    right = grid(0.5, 8, 2000)
    dana = add_right(right, [300] * 6 + [-200] * 2)
    adapted = arm_result("dana", dana, lineage=Lineage(frozenset({("name", "m")})))
    row = compare(adapted, base=right)["dana", "base"]
    assert row.basis == "8 seeds of this one adaptation"
    assert row.reasons.endswith("only more adaptations tell how another would do")
    assert " seeds would" not in row.reasons
    row = compare(replace(adapted, adaptations=4), base=right)["dana", "base"]
    assert row.basis == "4 adaptations"
    assert f"about {row.units_needed} adaptations would decide this one" in row.reasons
    by_unit = dana.astype(float).mean(1).reshape(4, 2).mean(1) - right.mean(1).reshape(4, 2).mean(1)
    text_error = (dana.astype(float) - right).mean(0).std(ddof=1) / 2000**0.5
    assert row.error**2 == pytest.approx(by_unit.var(ddof=1) / 4 + text_error**2)


def test_arms_with_a_collapsed_seed_or_made_differently():
    row = compare(arm_result("base", grid(0.4), collapsed_seeds=frozenset({2})), dana=grid(0.8))[
        "dana", "base"
    ]
    assert (row.verdict, row.reasons) == ("undecided", "1 of 16 models collapsed")
    base = arm_result("base", grid(0.4, 6), settings={"preset.epochs": 2})
    rows = compare(base, random=grid(0.4, 6), dana=grid(0.8, 6))
    row = rows["dana", "base"]
    assert (row.verdict, row.reasons, row.n) == ("not compared", "epochs 3 against 2", 0)
    assert np.isnan([row.mean, row.low, row.p, row.p_holm]).all()
    assert rows["dana", "random"].p_holm == rows["dana", "random"].p  # one question is left


@pytest.mark.parametrize(
    ("shares", "horizon", "reason"),
    [
        ((0.2, 0.2, 0.8), 5, "2 of 2 questions are decided"),
        (
            (0.2, 0.8, 0.8),
            5,
            "1 of 2 questions are decided; the chance that the rest would decide another is ",
        ),
        (
            (0.5, 0.5, 0.5),
            5,
            "0 of 2 questions are decided; the chance that the rest would decide another is ",
        ),
        ((0.2, 0.78, 0.8), 5, ""),
        ((0.8, 0.78, 0.8), 5, ""),
        ((0.5, 0.5, 0.5), 3, ""),
    ],
)
def test_a_run_may_stop_if_each_question_is_decided_or_hardly_would_be(shares, horizon, reason):
    right = [np.tile(np.arange(300) < share * 300, (3, 1)) for share in shares]
    arms = dict(zip(("base", "random", "dana"), right, strict=True))
    results = {
        arm: arm_result(arm, hits, adaptations=3, horizon=horizon) for arm, hits in arms.items()
    }
    rows = compare_arms(list(results.values()))
    stop = reason_to_stop(rows)
    assert stop.startswith(reason)
    assert bool(stop) == bool(reason)
    asked = [row for row in rows if row.asked]
    undecided = [row for row in asked if row.verdict == "undecided" and horizon == 5]
    chances = [
        difference(results["dana"], results[row.other]).chance(len(undecided)) for row in undecided
    ]
    assert [row.chance for row in undecided] == chances
    assert all(row.p_holm >= row.p > 0 for row in asked)
    levels = [difference(results["dana"], results[row.other]).level(len(asked)) for row in asked]
    assert [row.level for row in asked] == levels
    assert not reason_to_stop([])
    seeds = compare_arms([replace(one, adaptations=1) for one in results.values()])
    assert {row.horizon for row in seeds} == {0}, "a run's looks are at its adaptations"


@pytest.mark.parametrize("chances", [(math.nan, 0.02), (0.02, math.nan)])
def test_a_question_whose_chance_is_unknown_keeps_a_run_going(chances):
    shares = {"base": 0.5, "random": 0.5, "dana": 0.5}
    results = [
        arm_result(arm, grid(share, 3), adaptations=3, horizon=5) for arm, share in shares.items()
    ]
    asked = [row for row in compare_arms(results) if row.asked]
    known = [replace(row, chance=0.02) for row in asked]
    assert len(known) == 2
    assert reason_to_stop(known)
    unknown = [replace(row, chance=chance) for row, chance in zip(asked, chances, strict=True)]
    assert reason_to_stop(unknown) == ""


def test_a_baseline_has_no_models_that_could_collapse():
    dana = arm_result("dana", grid(0.8), collapsed_seeds=frozenset({2}))
    baseline = arm_result("TF-IDF", grid(0.5, 1), scores={}, is_baseline=True)
    [row] = compare_arms([dana], [baseline])
    assert row.reasons == "1 of 8 models collapsed"
    table = difference_table([row])
    assert table is not None
    [(cells, _)] = table.rows()
    assert "1 of 8" in cells


def test_collapsed_models_have_no_chance_and_what_does_not_compare_is_not_waited_for():
    arms = {"base": grid(0.5, 3), "dana": grid(0.55, 3)}
    results = [
        arm_result(arm, right, adaptations=3, horizon=9, collapsed_seeds=frozenset({0}))
        for arm, right in arms.items()
    ]
    assert reason_to_stop(compare_arms(results)).endswith("another is 0, below 0.1")
    alone = [results[0], replace(results[1], metric="macro_f1")]
    assert reason_to_stop(compare_arms(alone)) == ""


def test_a_baseline_counts_on_the_folds_that_the_arms_have():
    """A run with folds, stopped after two of four."""
    folds, right = np.arange(80) // 20, np.arange(80) % 3 > 0
    baseline = arm_result("TF-IDF", right[None], scores={}, is_baseline=True)
    baseline = replace(baseline, predictions=replace(baseline.predictions, folds=folds))
    arm = arm_result("dana", np.tile(right, (2, 1))[:, :40], adaptations=2)
    arm = replace(arm, predictions=replace(arm.predictions, folds=folds[:40]))
    assert arm.unlike(baseline) == ["the test examples differ (40 are in only one)"]
    part = baseline.on_folds_of(arm)
    assert (arm.unlike(part), part.estimate.mean) == ([], right[:40].mean())
    assert baseline.on_folds_of(arm_result("dana", right[None])) is baseline


def test_the_best_baseline_is_by_the_direction_of_the_metric():
    low, high = (
        arm_result(name, np.arange(80)[None] % size > 0) for name, size in (("low", 2), ("high", 5))
    )
    assert best_baseline([low, high], "t") is high
    assert best_baseline([replace(one, direction="lower") for one in (low, high)], "t").arm == "low"
    assert best_baseline([low], "another") is None


@pytest.mark.parametrize(
    ("shares", "fields", "remedy"),
    [
        ((0.6, 0.3, 0.1), {"unit": "adaptation"}, "adaptations"),
        ((0.3, 0.6, 0.1), {"unit": "adaptation"}, "fine-tunings of each adaptation"),
        ((0.3, 0.1, 0.6), {"unit": "adaptation"}, "test texts"),
        ((0.3, 0.1, 0.6), {"unit": "fold"}, "labelled texts"),
        ((0.6, 0.0, 0.4), {"unit": "seed"}, "seeds"),
        ((0.6, 0.0, 0.4), {"unit": "seed", "one_adaptation": True}, "adaptations"),
        ((0.1, 0.0, 0.9), {"unit": "adaptation", "n": 1}, "adaptations"),
    ],
)
def test_more_of_what_has_the_largest_share_is_advised_but_no_seeds_of_one_adaptation(
    shares, fields, remedy
):
    parts = dict(zip(("unit_share", "seed_share", "text_share"), shares, strict=True))
    row = ArmComparison(
        "t",
        "accuracy",
        "dana",
        "base",
        verdict="undecided",
        error=0.1,
        **{"n": 3, **parts, **fields},
    )
    assert row.remedy == remedy
    run = RunFrames(Path(), results=())
    analysis = SimpleNamespace(first_questions=[row], is_of_vectors=False, run=run)
    assert next_step(analysis) == f"nothing is decided yet; more {remedy} would help most"
    assert headline.variance_finding(row).endswith(
        f"more {remedy}{', which it knows nothing of,' * ('one_adaptation' in fields)} would help most."
    )
