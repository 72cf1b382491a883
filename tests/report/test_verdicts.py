"""The one rule of every verdict: sign-flip p after Holm, two-level bootstrap, no collapsed seed, arms made alike."""

from dataclasses import replace

import numpy as np
import pytest

from dana.core.statistics import paired_bootstrap
from dana.report.cells import Finetuned, Predictions
from dana.report.verdicts import compare_arms, contrasts, own_arms, questions
from dana.tasks.kinds.single_label import SingleLabel

SETTINGS = {"preset.epochs": 3}
TWO = SingleLabel.numbered(2)


def cell(arm: str, right: np.ndarray, **fields) -> Finetuned:
    """A cell whose models are right where `right` says, of shape (seeds, examples)."""
    labels = np.arange(right.shape[1]) % 2
    predicted = np.where(right, labels, 1 - labels)
    scores = {seed: float(own.mean()) for seed, own in enumerate(right)}
    ids = np.array([f"{number:04d}" for number in range(labels.size)])
    made = Finetuned(
        "t",
        arm,
        "accuracy",
        "higher",
        scores,
        frozenset(),
        SETTINGS,
        Predictions(ids, labels, predicted, TWO),
    )
    return replace(made, **fields)


def grid(share: float, seeds: int = 8, examples: int = 400) -> np.ndarray:
    """Right as often as `share` says, on the same texts in every arm."""
    return np.random.default_rng(0).random((seeds, examples)) < share


def judged(*cells: Finetuned):
    return {(row.arm, row.other): row for row in compare_arms(cells)}


def test_every_arm_is_shown_with_base_and_ours_with_the_others():
    found = contrasts(["base", "general", "random", "dana"])
    assert found[:2] == [("dana", "base"), ("dana", "random")]
    assert set(found[2:]) == {("random", "base"), ("general", "base"), ("dana", "general")}
    assert contrasts(["base", "adapted"]) == [("adapted", "base")]
    assert contrasts(["base"]) == []


@pytest.mark.parametrize(
    ("arms", "asked"),
    [
        (["base", "general", "random", "dana"], [("dana", "base"), ("dana", "random")]),
        (["base", "adapted"], [("adapted", "base")]),
        (["base", "mine"], [("mine", "base")]),
        (
            ["base", "random", "bm25", "mine"],
            [("bm25", "base"), ("bm25", "random"), ("mine", "base"), ("mine", "random")],
        ),
        (["base", "mine", "dana"], [("dana", "base")]),
        (["bm25", "mine"], [("bm25", "mine")]),
        (["one", "two", "three"], [("one", "two"), ("one", "three")]),
        (["roberta", "adapted"], [("adapted", "roberta")]),
        (["base", "general"], [("general", "base")]),
        (["base"], []),
        (["dana"], []),
    ],
)
def test_what_is_asked(arms, asked):
    assert questions(arms) == asked
    assert set(asked) <= set(contrasts(arms))


def test_our_arms_are_those_that_are_no_controls():
    assert own_arms(["base", "mine"]) == ["mine"]
    assert own_arms(["base", "random", "general", "bm25", "mine"]) == ["bm25", "mine"]
    assert own_arms(["base", "mine", "adapted", "dana"]) == ["dana"]
    assert own_arms(["base"]) == []


def test_a_gain_that_seeds_and_examples_bear_out_is_better_and_turned_round_worse():
    low, high = grid(0.6), grid(0.7)
    row = judged(cell("base", low), cell("dana", high))["dana", "base"]
    assert (row.verdict, row.reasons) == ("better", "")
    both = np.vstack([cell("x", right).predictions.predicted for right in (high, low)])
    answers, labels, counts = TWO.alike(both, np.arange(400) % 2)
    expected = paired_bootstrap(TWO.scorer(answers, labels, "accuracy"), counts)
    assert (row.low, row.high, row.error) == (expected.low, expected.high, expected.std)
    assert (row.n, row.p, row.p_holm) == (8, 2 / 256, 2 / 256)
    assert judged(cell("base", high), cell("dana", low))["dana", "base"].verdict == "worse"
    lower = [replace(made, direction="lower") for made in (cell("base", high), cell("dana", low))]
    assert judged(*lower)["dana", "base"].verdict == "better"


@pytest.mark.parametrize(("seeds", "verdict"), [(1, "undecided"), (5, "undecided"), (6, "better")])
def test_fewer_than_six_seeds_decide_nothing(seeds, verdict):
    row = judged(cell("base", grid(0.4, seeds)), cell("dana", grid(0.8, seeds)))["dana", "base"]
    assert row.verdict == verdict
    if verdict == "undecided":
        assert row.reasons.startswith(f"{seeds} seed")
        assert row.reasons.endswith("at least 6 are needed")
        assert "the interval holds zero" not in row.reasons
    if seeds == 5:
        assert row.seeds == 6


def test_holm_counts_the_questions_and_nothing_else():
    """Six seeds decide one question and not two; general against base is no question and takes nothing away."""
    arms = {"base": 0.4, "general": 0.6, "dana": 0.8}
    cells = {arm: cell(arm, grid(share, 6)) for arm, share in arms.items()}
    found = judged(*cells.values())
    assert found["dana", "base"].verdict == "better"
    assert (found["general", "base"].verdict, found["general", "base"].p) == ("not asked", 2 / 64)
    assert np.isnan(found["general", "base"].p_holm)
    found = judged(*cells.values(), cell("random", grid(0.5, 6)))
    assert found["dana", "base"].verdict == "undecided"
    assert found["dana", "base"].reasons == (
        "6 seeds are too few for 2 questions, p cannot fall below 0.062; at least 7 are needed"
    )


def test_two_tasks_are_adjusted_together():
    one = [cell("base", grid(0.4, 6)), cell("dana", grid(0.8, 6))]
    other = [replace(made, task="u") for made in one]
    assert [row.verdict for row in compare_arms(one)] == ["better"]
    assert [row.verdict for row in compare_arms([*one, *other])] == ["undecided", "undecided"]


def test_a_gain_on_too_few_test_examples_is_undecided_although_every_seed_gained():
    """All seeds agree, so p is the least it can be: only the test examples could have fallen otherwise."""
    right = np.ones((8, 20), bool)
    right[:, :4] = False
    row = judged(cell("base", right), cell("dana", np.ones((8, 20), bool)))["dana", "base"]
    assert row.p_holm <= 0.05
    assert row.verdict == "better"  # four of twenty: in 1 of 87 samples none of them is drawn
    right[:, 3] = True  # three: in 1 of 26
    row = judged(cell("base", right), cell("dana", np.ones((8, 20), bool)))["dana", "base"]
    assert row.p_holm <= 0.05
    plan = "no number of seeds would decide it, the test set is too small for such a difference"
    assert row.reasons == f"the interval holds zero; {plan}"
    assert np.isnan(row.seeds)


def moved(right: np.ndarray, by: list[int]) -> np.ndarray:
    """The same with so many more right (or fewer) in each seed."""
    found = right.copy()
    for seed, many in enumerate(by):
        found[seed, np.flatnonzero(found[seed] == (many < 0))[: abs(many)]] = many > 0
    return found


def test_seeds_that_disagree_are_undecided_by_p_and_more_of_them_are_named():
    right = grid(0.5, 8, 2000)
    better = moved(right, [300, 300, 300, 300, 300, 300, -200, -200])
    row = judged(cell("base", right), cell("dana", better))["dana", "base"]
    assert row.verdict == "undecided"
    assert row.reasons.startswith(f"p = {row.p_holm:.2g} after Holm is above 0.05; ")
    # mean 0.0875, std 0.116: an effect of 0.757 is found with a power of 0.8 first at n = 16
    assert row.seeds == 16
    assert row.reasons.endswith("; about 16 seeds would decide it, if mean and deviation stay")


def test_it_is_the_adjusted_p_that_decides():
    """Six seeds gain 300, two lose 100: of 256 sign patterns 8 are as extreme. 0.031 would do for one question."""
    right = grid(0.5, 8, 2000)
    better = moved(right, [300] * 6 + [-100] * 2)
    base, dana = cell("base", right), cell("dana", better)
    assert judged(base, dana)["dana", "base"].verdict == "better"
    row = judged(base, cell("random", right), dana)["dana", "base"]
    assert (row.p, row.p_holm) == (8 / 256, 16 / 256)
    assert row.low > 0
    assert row.reasons.startswith("p = 0.062 after Holm is above 0.05; about 11 seeds")
    assert row.seeds == 11  # 0.1 / 0.0926, of two questions


def test_a_collapsed_seed_is_named_and_no_number_of_seeds_with_it():
    row = judged(cell("base", grid(0.4), collapsed=frozenset({2})), cell("dana", grid(0.8)))["dana", "base"]
    assert (row.verdict, row.reasons) == ("undecided", "1 of 16 models collapsed")


def test_arms_made_otherwise_are_not_compared_and_not_counted():
    base = cell("base", grid(0.4, 6), settings={"preset.epochs": 2})
    found = judged(base, cell("random", grid(0.4, 6)), cell("dana", grid(0.8, 6)))
    row = found["dana", "base"]
    assert (row.verdict, row.reasons, row.n) == ("not compared", "epochs 3 against 2", 0)
    assert np.isnan([row.mean, row.low, row.p, row.p_holm]).all()
    assert found["dana", "random"].verdict == "better"  # one question is left, and six seeds decide one


def test_seeds_to_decide_take_the_test_set_as_it_is():
    """A quarter of twenty texts, deviation 0.097: on other texts it might be missed, on these it is apart from zero."""
    right = np.ones((5, 20), bool)
    right[:, :5] = False
    row = judged(cell("base", right), cell("dana", np.ones((5, 20), bool)))["dana", "base"]
    assert 1.96 * row.examples < row.mean < 2.8 * row.examples
    assert (row.verdict, row.seeds) == ("undecided", 6)
