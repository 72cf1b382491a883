"""Tables and page of the translation study: paired bootstraps, correlations, what is compared with what."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import pearsonr

from dana.report.page import to_markdown
from dana.studies.translation.page import (
    correlation_table,
    matrix_table,
    paired_bootstrap,
    table_of_choices,
    translation_report,
)

REFERENCES = [f"the {colour} {thing} number {n} is here" for n in range(15) for colour in ("red", "old")
              for thing in ("tree", "house")]  # fmt: skip
SIGNATURES = {"bleu": "nrefs:1|tok:13a", "chrf": "nrefs:1|nc:6"}


def output(share):
    """Translations whose first share is right."""
    right = round(share * len(REFERENCES))
    texts = [*REFERENCES[:right], *(f"a wrong one {row}" for row in range(len(REFERENCES) - right))]
    return pd.DataFrame({"reference": REFERENCES, "translation": texts})


def result(translator, test, share, selector="", target=None):
    from dana.studies.translation.translator import corpus_measures

    table = output(share)
    row = {
        "translator": translator,
        "target": target or translator,
        "selector": selector,
        "test": test,
    }
    row |= {"pairs": len(table), "tokens": 1000, "loss": 5 - share, "output": table}
    row |= (
        {"precision": share, "recall": 0.5, "precision_ceiling": 1.0, "recall_ceiling": 0.6}
        if selector
        else {}
    )
    return row | corpus_measures(table["translation"].tolist(), REFERENCES)


RESULTS = pd.DataFrame(
    [
        result("it", "it", 0.9),
        result("it", "law", 0.3),
        result("it", "medical", 0.2),
        result("law", "it", 0.2),
        result("law", "law", 0.8),
        result("law", "medical", 0.4),
        result("all", "it", 0.9),
        result("all", "law", 0.5),
        result("all", "medical", 0.5),
        result("it-oracle", "it", 0.8, "oracle", "it"),
        result("it-random", "it", 0.4, "random", "it"),
        result("it-oracle", "law", 0.1, "oracle", "it"),
        result("it-random", "law", 0.1, "random", "it"),
    ]
)
COSINES = pd.DataFrame([[1.0, 0.25], [0.25, 1.0]], index=["it", "law"], columns=["it", "law"])


def test_systems_are_compared_on_the_same_draws_and_equal_ones_are_equal():
    texts = {
        name: output(share)["translation"].tolist()
        for name, share in (("a", 0.8), ("b", 0.8), ("c", 0.5))
    }
    first = paired_bootstrap(texts, REFERENCES)
    pd.testing.assert_frame_equal(first, paired_bootstrap(texts, REFERENCES))
    assert np.isnan(first.loc[0, "p"])
    assert first.loc[1, "p"] == 1
    assert first.loc[2, "p"] < 0.01
    assert (first["low"] < first["high"]).all()
    assert first.loc[2, "high"] < first.loc[0, "low"]


def test_each_test_set_is_compared_with_its_own_translator_or_with_that_of_all():
    matrix = matrix_table(RESULTS).set_index(["translator", "test"])
    assert len(matrix) == 9
    assert matrix.loc[("law", "it"), "against"] == "it"
    assert set(matrix.xs("medical", level="test")["against"]) == {"all"}
    assert matrix.loc[("all", "it"), "p"] == 1, "as good as the domain's own"
    tested = matrix["p"].dropna()
    assert len(tested) == 6
    assert (matrix["p_holm"].dropna() >= tested).all()
    assert matrix.loc[("law", "it"), "p_holm"] == pytest.approx(min(1, 5 * tested.min()), rel=2)
    assert (matrix["low"] <= matrix["bleu"]).all()


def test_choices_are_tested_on_their_target_against_random_text():
    choices = table_of_choices(RESULTS)
    assert choices["selector"].tolist() == ["random", "oracle"]
    assert set(choices["against"]) == {"random"}
    assert choices.loc[1, "p"] < 0.01
    assert choices.loc[1, "precision"] == 0.8
    assert table_of_choices(RESULTS[RESULTS["selector"] == ""]).empty
    alone = table_of_choices(RESULTS[RESULTS["selector"] == "oracle"]).loc[0]
    assert alone["low"] < alone["bleu"] < alone["high"], "an arm alone has its interval"
    assert np.isnan(alone["p"])
    assert np.isnan(alone["p_holm"])


def test_correlations_have_the_diagonal_or_not():
    names = ["a", "b", "c", "d"]
    generator = np.random.default_rng(0)
    half = generator.uniform(0, 0.9, (4, 4))
    cosines = pd.DataFrame(
        np.where(np.eye(4) > 0, 1, (half + half.T) / 2), index=names, columns=names
    )
    rows = [
        {
            "translator": one,
            "test": other,
            "bleu": 30 * cosines.loc[one, other] ** 3 + generator.normal(),
        }
        for one in names
        for other in names
    ]
    matrix = pd.DataFrame([*rows, {"translator": "all", "test": "a", "bleu": 99.0}])
    table = correlation_table(matrix, cosines).set_index(["kind", "pairs"])
    assert table["n"].tolist() == [16, 16, 12, 12]
    off = [row for row in rows if row["translator"] != row["test"]]
    for pairs, some in (("all", rows), ("without the diagonal", off)):
        values = [(cosines.loc[row["translator"], row["test"]], row["bleu"]) for row in some]
        assert table.loc[("pearson", pairs), "r"] == pytest.approx(
            pearsonr(*zip(*values, strict=True))[0]
        )
    assert (table["low"] < table["r"]).all()
    assert (table["r"] < table["high"]).all()
    flat = correlation_table(matrix.assign(bleu=1.0), cosines)
    assert flat[["r", "low", "high"]].isna().all(axis=None), "nothing to correlate"


def test_the_page_has_the_signatures_the_matrix_and_the_choices():
    audit = pd.DataFrame([{"domain": "it", "split": "train", "read": 9, "kept": 8, "repeated": 1, "held_out": 0,
                           "long": 0, "source_words": 40, "target_words": 44, "oov": None}])  # fmt: skip
    report = translation_report(
        "mt", matrix_table(RESULTS), table_of_choices(RESULTS), COSINES, audit, SIGNATURES
    )
    text = to_markdown(report)
    assert text.startswith("# mt\n\n**On 2 of 2 test sets the domain's own translator")
    assert "- bleu: nrefs:1\\|tok:13a" in text
    assert [table.name for table in report.tables] == [
        "matrix",
        "correlations",
        "cosines",
        "choices",
        "audit",
    ]
    assert [figure.name for figure in report.figures] == ["matrix", "figure4"]
    assert "own" in report.figures[1].svg
    assert report.figures[0].svg == report.figures[0].svg
    assert "Spearman without the diagonal" in text
    assert "oracle: " in text
    without = translation_report(
        "mt", matrix_table(RESULTS), pd.DataFrame(), COSINES, audit, SIGNATURES
    )
    assert "selection trains" not in to_markdown(without)
