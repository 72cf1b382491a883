"""A report says what an adaptation is worth in labels, and is silent where the probes do not tell."""

import numpy as np
import pytest

from dana.report.label_worth import round_labels, worth_lines
from dana.report.probes import ALL, LINEAR, NEIGHBOURS, ProbeResult

TEXTS = 1_000
SIZES = (50, 100, 200, 400)


def probes_of(arm, scores, metric="accuracy", task="tickets", method=LINEAR):
    """Return the probes of an arm that is right on the first texts, as many as its scores say."""
    results = []
    for size, score in zip(SIZES, scores, strict=False):
        values = (np.arange(TEXTS) < round(score * TEXTS)).astype(float)[None]
        name = ALL if size == SIZES[-1] else str(size)
        draws = 1 if name == ALL else 10
        ids = np.array([f"{number:04}" for number in range(TEXTS)])
        head = (task, arm, metric, "higher")
        results.append(ProbeResult(*head, method, name, size, draws, values, ids, deviation=0.01))
    return results


BASE = probes_of("base", (0.50, 0.60, 0.70, 0.80))


def test_a_gain_is_said_in_labels_of_the_base():
    lines = worth_lines([*BASE, *probes_of("dana", (0.60, 0.70, 0.75, 0.85))])
    assert lines[0] == (
        "On tickets, with 200 labels, adapting is worth about 83 more: the base model needs about 280 to score as high."
    )
    assert lines[1].startswith(
        "On tickets, 200 more labels than these 400 would bring the adapted model +0."
    )
    assert len(lines) == 2


def test_more_than_was_measured_is_said_as_such():
    lines = worth_lines([*BASE, *probes_of("dana", (0.82, 0.84, 0.86, 0.88))])
    assert lines[0] == (
        "On tickets, with 200 labels, adapting is worth more than the 200 more that were measured."
    )


def test_the_largest_number_of_labels_that_tells_is_taken():
    lines = worth_lines([*BASE, *probes_of("dana", (0.55, 0.65, 0.82, 0.85))])
    assert lines[0].startswith("On tickets, with 100 labels, adapting is worth about 41 more")


def test_a_loss_is_worth_no_labels():
    lines = worth_lines([*BASE, *probes_of("dana", (0.45, 0.55, 0.65, 0.75))])
    assert [line for line in lines if "worth" in line] == []


def test_few_labels_are_not_extrapolated():
    few = worth_lines([*BASE[:2], *probes_of("dana", (0.52, 0.65))])
    assert not [line for line in few if "would bring" in line]


@pytest.mark.parametrize(
    "probes",
    [
        [],
        BASE,
        probes_of("dana", (0.6, 0.7, 0.75, 0.85)),
        [
            *probes_of("base", (0.5, 0.6, 0.7, 0.8), "pearson"),
            *probes_of("dana", (0.6, 0.7, 0.8, 0.9), "pearson"),
        ],
        [
            *probes_of("base", (0.5,), method=NEIGHBOURS),
            *probes_of("dana", (0.6,), method=NEIGHBOURS),
        ],
    ],
    ids=["nothing", "base alone", "no base", "a correlation", "neighbours"],
)
def test_where_probes_do_not_tell_nothing_is_worth_labels(probes):
    assert [line for line in worth_lines(probes) if "worth" in line] == []


@pytest.mark.parametrize(("count", "rounded"), [(3.4, 3), (83.2, 83), (126, 130), (1_849, 1_800)])
def test_labels_are_rounded_to_two_digits(count, rounded):
    assert round_labels(count) == rounded
