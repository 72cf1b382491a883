"""What ``dana run`` says before its first cell: which differences a card's seeds and test texts can decide."""

import re

import pytest

from dana.core.config import load
from dana.core.errors import ConfigError
from dana.report.run import read_cells
from dana.report.verdicts import assumed_spread, compare_arms, detectable, seeds_needed
from dana.stages.forecast import find_pilot
from dana.stages.run import forecast_run
from dana.stages.settings import RunSettings
from tests.report.conftest import write_results
from tests.toy_task import write_task

MADE = {"base": 0.60, "random": 0.61, "dana": 0.70}


def said(tmp_path, splits=300, **settings):
    card = write_task(tmp_path, splits={"train": 120, "dev": 30, "test": splits} if splits else {})
    given = {"out": str(tmp_path / "run"), "task": str(card), "arms": ["random", "dana"], "finetune": {"seeds": 8}}
    return forecast_run(load(RunSettings, {**given, **settings}))


def test_without_a_pilot_the_spread_is_assumed_and_said_to_be(tmp_path):
    shown = detectable(assumed_spread(300), 8, 2)
    assert said(tmp_path) == [
        f"toy: with 8 seeds and 300 test texts you can see differences of about ±{shown:.3f} (spread assumed, no pilot)"
        "; no number of seeds shows ±0.02, so many test texts show ±0.051 at best"
    ]


def test_a_wanted_difference_takes_a_number_of_seeds(tmp_path):
    needed = seeds_needed(assumed_spread(300), 0.06, 2)
    (line,) = said(tmp_path, detect=0.06)
    assert line.endswith(f"; ±0.06 takes {needed} seeds")
    assert said(tmp_path, detect=0.0512)[0].endswith("; ±0.0512 takes more than 1,000 seeds")


def test_too_few_seeds_decide_nothing_and_how_many_would_is_said(tmp_path):
    shown = detectable(assumed_spread(300), 7, 2)
    (line,) = said(tmp_path, finetune={"seeds": 5})
    begins = "toy: 5 seeds decide nothing, 2 questions take at least 7; with 7 seeds and 300 test texts you can see"
    assert line.startswith(f"{begins} differences of about ±{shown:.3f}")
    assert said(tmp_path, finetune={"seeds": 1}, arms=["dana"])[0].startswith(
        "toy: 1 seed decides nothing, 1 question takes at least 6; with 6 seeds"
    )


def test_every_card_counts_as_questions(tmp_path):
    other = write_task(tmp_path / "other", name="other")
    lines = said(tmp_path, finetune={"seeds": 7}, cards=[str(tmp_path / "toy.yaml"), str(other)])
    assert [line.split(":")[0] for line in lines] == ["toy", "other"]
    assert all("4 questions take at least 8" in line for line in lines)


def test_of_several_accepted_test_sets_the_smallest_counts_and_of_none_nothing_is_said(tmp_path):
    assert "and 200 test texts" in said(tmp_path, splits=[300, 200])[0]
    assert said(tmp_path, splits=None) == ["toy: its card does not say how many test texts there are"]


def test_a_run_without_arms_has_nothing_to_decide(tmp_path):
    assert said(tmp_path, arms=[]) == []


def test_a_harvest_that_is_not_made_yet_has_no_test_texts(tmp_path):
    assert said(tmp_path, harvest={}, task="", arms=["dana"]) == [
        "scipy_docs: its test texts are not counted yet; 1 question takes at least 6 seeds"
    ]


def test_earlier_seeds_are_the_pilot(tmp_path):
    """Of the run's own folder, or of another one that is named; the spread is that of the report."""
    write_results(tmp_path / "run", seeds=4, arms=MADE)
    rows = [row for row in compare_arms(read_cells(tmp_path / "run", {})) if row.asked]
    assert [row.other for row in rows] == ["base", "random"]
    mean_square = sum(row.std**2 for row in rows) / 2
    pilot = find_pilot(read_cells(tmp_path / "run", {}), "toy", tmp_path / "run")
    assert (pilot.seeds, pilot.texts) == (4, 300)
    assert pilot.spread.seeds == pytest.approx(mean_square**0.5)
    assert pilot.spread.examples == pytest.approx((sum(row.examples**2 for row in rows) / 2) ** 0.5)
    (own,) = said(tmp_path, splits=77)
    shown = detectable(pilot.spread, 8, 2)
    assert f"with 8 seeds and 300 test texts you can see differences of about ±{shown:.3f} (pilot: 4 seeds in " in own
    (tmp_path / "run").rename(tmp_path / "before")
    assert "spread assumed" in said(tmp_path)[0]
    (named,) = said(tmp_path, pilot=str(tmp_path / "before"))
    moved = own.replace(str(tmp_path / "run"), str(tmp_path / "before"))
    assert named == moved.replace("77 test texts", "300 test texts")


def test_one_seed_a_collapsed_one_or_arms_made_otherwise_are_no_pilot(tmp_path):
    write_results(tmp_path / "run", seeds=1, arms=MADE)
    assert "spread assumed" in said(tmp_path)[0]
    write_results(tmp_path / "collapsed", seeds=4, arms={"base": 0.6, "dana": 0.7}, collapsed="dana")
    assert "spread assumed" in said(tmp_path, pilot=str(tmp_path / "collapsed"))[0]
    write_results(tmp_path / "unlike", seeds=4, arms={"base": 0.6})
    write_results(tmp_path / "unlike", seeds=4, arms={"dana": 0.7}, epochs=9)
    assert "spread assumed" in said(tmp_path, pilot=str(tmp_path / "unlike"))[0]


def test_a_pilot_of_another_task_is_none_and_a_folder_without_results_is_refused(tmp_path):
    write_results(tmp_path / "elsewhere", task="else", seeds=4, arms=MADE)
    assert "spread assumed" in said(tmp_path, pilot=str(tmp_path / "elsewhere"))[0]
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="must be the folder of a run with results below finetune/"):
        said(tmp_path, pilot=str(tmp_path / "empty"))
    with pytest.raises(ConfigError, match=r"pilot='.*/elswhere': no such folder.*elsewhere"):
        said(tmp_path, pilot=str(tmp_path / "elswhere"))


def test_results_of_the_run_itself_that_cannot_be_read_stop_nothing(tmp_path, caplog):
    write_results(tmp_path / "run", seeds=2, arms=MADE)
    (tmp_path / "run" / "finetune" / "toy" / "dana" / "metrics.json").write_text("{")
    with caplog.at_level("WARNING"):
        assert "spread assumed" in said(tmp_path)[0]
    assert re.search("no pilot: .*metrics.json", caplog.text)
