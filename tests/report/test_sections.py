import pandas as pd

from dana.report import sections
from dana.report.run import Candidates, read_run
from dana.report.sections import analyse
from dana.report.tables import ranking_table


def said(run) -> str:
    return sections.verdict(analyse(read_run(run)))


def test_a_clear_gain_is_claimed_and_collapsed_runs_are_named(whole_run):
    text = said(whole_run)
    assert text.startswith("On toy, dana is better than base and random (8 seeds).")
    assert "Beware: 1 of 32 fine-tuned models collapsed to (nearly) one class" in text


def test_a_loss_is_said_plainly(tmp_path, write):
    write["results"](tmp_path, arms={"base": 0.8, "random": 0.8, "dana": 0.5})
    assert "dana is worse than base and random" in said(tmp_path)


def test_no_difference_is_undecided_and_not_a_claim(tmp_path, write):
    write["results"](tmp_path, arms={"base": 0.7, "random": 0.7, "dana": 0.7}, collapsed="")
    text = said(tmp_path)
    assert "dana against base and random is undecided (p = 1 after Holm is above 0.05; the interval holds zero" in text
    assert "the interval holds zero" in sections.results_finding(analyse(read_run(tmp_path)))


def test_too_few_seeds_are_no_verdict_however_clear_the_gain(tmp_path, write):
    """Every one of five seeds gained a fifth: the sign-flip p is 0.0625, the least it can be."""
    write["results"](tmp_path, arms={"base": 0.5, "random": 0.5, "dana": 0.7}, seeds=5, collapsed="")
    text = said(tmp_path)
    assert "is undecided (5 seeds are too few for 2 questions" in text
    assert "at least 7 are needed" in text
    assert "interval holds zero" not in text


def test_many_questions_are_counted_and_stand_in_the_section(tmp_path, write):
    arms = {"base": 0.4, "random": 0.7, "auto": 0.7, "svm": 0.7, "lda": 0.7}
    write["results"](tmp_path, arms=arms, collapsed="", seeds=10)
    named = "auto than base on toy, lda than base on toy, svm than base on toy"
    assert said(tmp_path) == f"Of 6 questions on 1 task: 3 better ({named}); 3 undecided."
    lines = sections.results_finding(analyse(read_run(tmp_path))).splitlines()
    assert lines[1].startswith("auto − random on toy: +0.0000 macro-F1, 95 % interval +0.0000 to +0.0000, p = 1.0000")
    assert len(lines) == 6


def test_verdicts_on_many_tasks_are_counted(tmp_path, write):
    for task, mean in zip("abcde", (0.9, 0.5, 0.7, 0.7, 0.7), strict=True):
        write["results"](tmp_path, task, seeds=12, arms={"base": 0.7, "dana": mean}, collapsed="")
    text = said(tmp_path)
    counted = "Of 5 questions on 5 tasks: 1 better (dana than base on a); 1 worse (dana than base on b); 3 undecided."
    assert text == counted


def test_a_collapsed_seed_is_the_reason_and_not_the_interval(tmp_path, write):
    write["results"](tmp_path, arms={"base": 0.5, "random": 0.6, "dana": 0.8}, collapsed="base")
    text = said(tmp_path)
    begins = "On toy, dana is better than random (8 seeds); dana against base is undecided (1 of 16 models collapsed)."
    assert text.startswith(begins)
    section = sections.results_finding(analyse(read_run(tmp_path)))
    assert "undecided: 1 of 16 models collapsed." in section
    assert "holds zero" not in text + section


def test_arms_made_otherwise_are_no_verdict_anywhere(tmp_path, write):
    """The gain is clear, but base had fewer epochs on fewer examples."""
    write["results"](tmp_path, arms={"random": 0.6, "dana": 0.8}, collapsed="", epochs=3, max_train=1500)
    write["results"](tmp_path, arms={"base": 0.5}, collapsed="", epochs=2, max_train=1000)
    analysis = analyse(read_run(tmp_path))
    different = "epochs 3 against 2; max_train 1500 against 1000"
    text = sections.verdict(analysis)
    assert f"dana and base were not made alike ({different})" in text
    assert "dana is better than random (8 seeds)" in text
    assert f"dana − base on toy: not compared: {different}." in sections.results_finding(analysis)
    assert [found.meaning.split(": ")[-1] for found in sections.highlights(analysis)] == ["not compared", "better"]
    assert sections.highlights(analysis)[0].value == "–"


def test_several_selected_arms_are_all_asked_by_name(tmp_path, write):
    write["results"](tmp_path, arms={"base": 0.6, "random": 0.7, "bm25": 0.8, "mine": 0.5}, collapsed="", seeds=16)
    text = said(tmp_path)
    assert "bm25 is better than base and random (16 seeds)" in text
    assert "mine is worse than base and random (16 seeds)" in text
    found = sections.highlights(analyse(read_run(tmp_path)))
    assert [one.meaning.split(",")[0] for one in found] == [
        "bm25 − base", "bm25 − random", "mine − base", "mine − random",
    ]  # fmt: skip


def test_two_tasks_get_a_verdict_each(tmp_path, write):
    write["results"](tmp_path, task="first")
    write["results"](tmp_path, task="second", arms={"base": 0.8, "dana": 0.5})
    text = said(tmp_path)
    assert text.index("On first, dana is better than base") < text.index("On second, dana is worse than base")


def test_a_run_without_results_says_as_much_as_it_knows(tmp_path, write):
    write["ranking"](tmp_path)
    assert said(tmp_path) == "knn ranks best for this task."
    write["selection"](tmp_path)
    assert said(tmp_path).startswith("20.0\N{NO-BREAK SPACE}% of 960 units was kept")


def test_weights_between_0_and_1_are_not_called_kept_units(whole_run):
    run = read_run(whole_run)
    assert "960 units was kept" in sections.selection_finding(analyse(run))
    run.selected.units["weight"] = 0.3
    assert "960 units, counted by weight, was kept" in sections.selection_finding(analyse(run))


def ranked(stability: float | None, tied: bool = False, recall: bool = True) -> str:
    rows = [
        {"name": name, "f1_mean": f1, "f1_std": 0.01, "auroc_mean": 0.9, "stability": stability}
        for name, f1 in [("first", 0.9), ("second", 0.8)]
    ]
    if recall:
        shares = {"recall": 0.7, "recall_low": 0.6, "recall_high": 0.8}
        rows = [{**row, **shares, "tied": tied or row["name"] == "first"} for row in rows]
    return sections.ranking_finding(
        ranking_table(Candidates(pd.DataFrame(rows).assign(chosen=[True, False]), {"budget": 0.2}))
    )


def test_a_second_within_one_error_and_an_unstable_first_are_named():
    assert ranked(1.0).startswith("first has recall 0.700.")
    assert "Within one standard error of the best: second;" in ranked(1.0, tied=True)
    assert "Within one standard error" not in ranked(1.0)
    assert "Next is second with 0.700." in ranked(1.0)
    assert "Next is second with 0.800." in ranked(1.0, recall=False), "the paper's protocol has F1 alone"
    assert "each would choose other text" in ranked(0.18)
    assert "each would choose other text" not in ranked(0.9)
    assert "each would choose other text" not in ranked(None)
