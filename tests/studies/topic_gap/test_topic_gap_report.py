"""What topic costs: means, tests over topics, Holm; on the paper's table and by hand; the page's first words."""

from importlib import util
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import ttest_rel, wilcoxon

from dana.report.page import to_markdown
from dana.studies.topic_gap.page import gap_frame, gap_report, gap_summary, paired_test

FOLDER = Path(__file__).parents[3] / "recipes" / "papers" / "genre"


@pytest.fixture(scope="module")
def recipe():
    spec = util.spec_from_file_location("genre_tables", FOLDER / "tables.py")
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def table5(recipe):
    """Table 5 of the paper as results of one seed, in percent."""
    return recipe.paper_results(recipe.read_published(FOLDER)).query("arm != 'augmented_baseline'")


def test_averages_are_recomputed_beside_the_printed_ones(recipe, table5, tmp_path):
    gap = gap_frame(table5)
    assert len(gap) == 75
    np.testing.assert_allclose(gap["gap"], gap["on"] - gap["off"])
    rows = [
        {
            "topic": topic,
            "words": "a b",
            "n": 30,
            "arm": arm,
            "seed": seed,
            "score": mean + 0.01 * (topic + seed),
        }
        for topic in range(4)
        for arm, mean in (("off", 0.5), ("on", 0.7), ("augmented", 0.55))
        for seed in (0, 1)
    ]
    (tmp_path / "tables").mkdir()
    pd.DataFrame(rows).to_csv(tmp_path / "tables" / "results.csv", index=False)
    table = recipe.table2(
        {"ours": recipe.read_run(tmp_path)}, recipe.read_published(FOLDER)
    ).set_index(["source", "n"])
    assert table.loc[("RoBERTa-large, printed", 100), "on"] == 84.9
    assert table.loc[("RoBERTa-large, meant", 100), "on"] == 91.0
    means = table.loc["RoBERTa-large, Table 5's means"][["on", "off", "augmented"]].round(1)
    assert means.to_numpy().tolist() == [[77.4, 51.3, 58.7], [91.0, 61.1, 65.5], [94.9, 78.1, 81.2]]
    ours = table.loc[("ours", 30)]
    assert (ours["off"], ours["on"], ours["augmented"]) == pytest.approx((52.0, 72.0, 57.0))
    assert np.isnan(ours["augmented_baseline"])


def test_the_tests_over_the_papers_topics(table5):
    summary = gap_summary(table5).set_index(["n", "arm"])
    p_values = [summary.loc[(n, "augmented"), "p_t"] for n in (30, 100, 1000)]
    assert [round(p, 4) for p in p_values[:2]] == [0.0003, 0.0001]
    assert round(p_values[2], 3) == 0.015, "and not below 0.01"
    assert round(summary.loc[(1000, "augmented"), "p_wilcoxon"], 3) == 0.037
    assert [summary.loc[(n, "augmented"), "lower"] for n in (30, 100, 1000)] == [3, 5, 8]
    for n in (30, 100, 1000):
        scores = table5[table5["n"] == n].pivot(index="topic", columns="arm", values="score")
        for arm in ("on", "augmented"):
            row = summary.loc[(n, arm)]
            assert row["p_t"] == pytest.approx(ttest_rel(scores[arm], scores["off"]).pvalue)
            assert row["p_wilcoxon"] == pytest.approx(
                wilcoxon((scores[arm] - scores["off"]).round(6)).pvalue
            )
            interval = ttest_rel(scores[arm], scores["off"]).confidence_interval()
            assert (row["low"], row["high"]) == pytest.approx(tuple(interval))
            assert row["topics"] == 25
    assert summary["p_t_holm"].max() == pytest.approx(summary["p_t"].max()), (
        "the largest of six is not multiplied"
    )
    assert summary["p_t_holm"].min() == pytest.approx(6 * summary["p_t"].min())


def test_hedges_g_by_hand():
    test = paired_test(np.array([1.0, 2.0, 3.0]))
    assert test["hedges_g"] == pytest.approx(2.0 * (1 - 3 / 7))
    assert (test["difference"], test["std"]) == (2.0, 1.0)
    assert paired_test(-np.array([1.0, 2.0, 3.0]))["hedges_g"] == pytest.approx(-test["hedges_g"])
    assert np.isnan(paired_test(np.array([1.0, 2.0]))["hedges_g"]), "the correction would be 0"


def test_few_topics_and_no_differences():
    one = paired_test(np.array([0.2]))
    assert one["difference"] == pytest.approx(0.2)
    assert np.isnan([one["low"], one["p_t"], one["p_wilcoxon"], one["hedges_g"]]).all()
    none = paired_test(np.zeros(4))
    assert (none["difference"], none["p_t"], none["p_wilcoxon"]) == (0, 1, 1)
    same = paired_test(np.array([0.3, 0.1 + 0.2]))
    assert np.isnan(same["p_t"])
    assert same["p_wilcoxon"] == 0.5


def results(scores, seeds=(0, 1)):
    """Scores by arm, a list over topics each; the second seed has a tenth more."""
    return pd.DataFrame(
        {"topic": topic, "words": f"w{topic} a b c d e f", "n": 30, "arm": arm, "seed": seed, "collapsed": False,
         "score": score + 0.1 * seed, "train": 60, "dev": 20, "test": 20}
        for arm, values in scores.items() for topic, score in enumerate(values) for seed in seeds
    )  # fmt: skip


def test_a_score_is_the_mean_over_seeds():
    gap = gap_frame(results({"on": [0.8, 0.7], "off": [0.5, 0.6]}))
    assert gap.columns.tolist() == ["topic", "words", "n", "on", "off", "gap"]
    np.testing.assert_allclose(gap[["on", "off", "gap"]], [[0.85, 0.55, 0.3], [0.75, 0.65, 0.1]])
    tie = gap_summary(results({"on": [0.5, 0.4], "off": [0.5, 0.6]}))
    assert tie["lower"].item() == 1, "a tie is not lower"


def page(frame):
    words = {topic: f"w{topic} a b c d e f" for topic in range(9)}
    counts = {"in": 100, "kept": 90, "dropped": {"short": 10}}
    return gap_report(
        "genres", "runs/my_model", frame, counts, {7: "n=30: label 'x': no"}, words, labels=5
    )


def test_the_page_begins_with_what_is_lost():
    frame = results({"on": [0.8, 0.7, 0.9, 0.8, 0.8, 0.8], "off": [0.5, 0.5, 0.5, 0.6, 0.5, 0.55]})
    report, row = page(frame), gap_summary(frame).iloc[0]
    assert {"my_model", "+27.5", f"{100 * row['low']:+.1f}", f"{row['p_t_holm']:.1e}"} <= {
        *report.verdict.split(" ")
    }
    assert "off topic, which has 0.575 (random labels: 0.200) (" in report.verdict
    text = to_markdown(report).replace("\\", "")
    assert "| 30 | 2 | w2 a b c d e f | 0.950 | 0.550 | +0.400 |" in text
    assert "90 of 100 documents" in text
    assert "Topic 7 (w7 a b c d e f) is left out, n=30: label 'x': no." in text


@pytest.mark.parametrize(("topics", "seeds"), [(5, 2), (6, 1), (3, 1)])
def test_few_topics_or_one_seed_give_no_p(topics, seeds):
    scores = {"on": [0.8, 0.9, 0.85, 0.8, 0.9, 0.8][:topics], "off": [0.5] * topics}
    verdict = page(results(scores, range(seeds))).verdict
    assert "p =" not in verdict
    assert f"no p, as it takes 6 topics and 2 seeds: {topics} and {seeds})" in verdict
