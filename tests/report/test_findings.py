import pandas as pd

from dana.report import findings
from dana.report.analysis import analyse
from dana.report.collect import Ranking, collect
from dana.report.tables import ranking_table


def said(run) -> str:
    return findings.verdict(analyse(collect(run)))


def test_a_clear_gain_is_claimed_and_collapsed_runs_are_named(whole_run):
    text = said(whole_run)
    assert text.startswith("On toy, adaptation helped")
    assert "chosen text beat random text (5 seeds)" in text
    assert "Beware: 1 of 20 fine-tuned models collapsed" in text


def test_a_loss_is_said_plainly(tmp_path, write):
    write["results"](tmp_path, arms={"base": 0.8, "random": 0.8, "dana": 0.5})
    assert "adaptation hurt; chosen text did worse than random text" in said(tmp_path)


def test_no_difference_is_undecided_and_not_a_claim(tmp_path, write):
    write["results"](tmp_path, arms={"base": 0.7, "random": 0.7, "dana": 0.7}, seeds=3)
    text = said(tmp_path)
    assert "whether adaptation helped is undecided" in text
    assert "adaptation helped;" not in text


def test_an_arm_with_a_collapsed_seed_supports_no_claim(tmp_path, write):
    write["results"](tmp_path, arms={"base": 0.5, "random": 0.6, "dana": 0.8}, collapsed="base")
    assert "whether adaptation helped is undecided; chosen text beat random text" in said(tmp_path)


def test_two_tasks_get_a_verdict_each(tmp_path, write):
    write["results"](tmp_path, task="first")
    write["results"](tmp_path, task="second", arms={"base": 0.8, "dana": 0.5})
    text = said(tmp_path)
    assert text.index("On first, adaptation helped") < text.index("On second, adaptation hurt")


def test_a_run_without_results_says_as_much_as_it_knows(tmp_path, write):
    write["ranking"](tmp_path)
    assert said(tmp_path) == "knn ranks best for this task."
    write["selection"](tmp_path)
    assert said(tmp_path).startswith("20.0\N{NO-BREAK SPACE}% of 960 units was kept")


def test_weights_between_0_and_1_are_not_called_kept_units(whole_run):
    run = collect(whole_run)
    assert "960 units was kept" in findings.selection(analyse(run))
    run.selected.units["weight"] = 0.3
    assert "960 units, counted by weight, was kept" in findings.selection(analyse(run))


def ranked(second_f1: float, stability: float | None) -> str:
    rows = [
        {"name": name, "f1_mean": f1, "f1_std": 0.01, "auroc_mean": 0.9, "stability": stability}
        for name, f1 in [("first", 0.9), ("second", second_f1)]
    ]
    return findings.ranking(ranking_table(Ranking(pd.DataFrame(rows), "first", {})))


def test_a_close_second_and_an_unstable_first_are_named():
    assert "either would do" in ranked(0.895, 1.0)
    assert "either would do" not in ranked(0.8, 1.0)
    assert "each would choose other text" in ranked(0.8, 0.18)
    assert "each would choose other text" not in ranked(0.8, 0.9)
    assert "each would choose other text" not in ranked(0.8, None)
