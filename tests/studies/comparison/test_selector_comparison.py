"""The page of a comparison says who wins, with the numbers of its tables."""

import pandas as pd
import pytest

from dana.report.page import to_html, to_markdown
from dana.studies.comparison.page import comparison_report

SCORES = {"random": 0.1, "near": 0.6, "nearer": 0.7, "oracle": 1.0}


def frames():
    summary, rows = [], []
    for task in ("one", "two"):
        for selector, score in SCORES.items():
            recall = {"precision_at_r": score, "low": score - 0.05, "high": score + 0.05, "chance": 0.08}
            cost = {} if selector == "oracle" else {"fit_seconds": 1.5, "seconds_per_million": 40.0}
            labels = {"task": task, "fit": 100, "selector": selector}
            summary.append({**labels, **recall, **cost})
            values = {"perplexity": 200 - 100 * score, "precision": score, "recall": score / 2, "length_ratio": 1.0}
            values |= {"precision_ceiling": 1.0, "recall_ceiling": 0.5}
            for metric, value in values.items():
                rows.append({**labels, "seed": 0, "budget": "0.05", "metric": metric, "detail": "", "value": value})
            for source, share in (("law", 1 - score), (f"{task} (planted)", score)):
                row = {"seed": 0, "budget": "0.05", "metric": "source_share", "detail": source, "value": share}
                rows.append({**labels, **row})
    return pd.DataFrame(rows), pd.DataFrame(summary)


def test_the_best_contestant_is_named_and_the_oracle_is_none():
    report = comparison_report("mine", *frames())
    assert report.verdict.startswith("nearer ")
    assert {"0.700", "near", "0.600."} <= {*report.verdict.split()}
    text = to_markdown(report)
    assert "| nearer | 0.700 | 1.50 | 40 |" in text
    assert "| two | 100 | nearer | 0.700 | 0.65 | 0.75 |" in text
    assert "recall at most 50.0 %" in text
    assert "planted task text" in to_html(report)


def test_plants_of_all_tasks_are_one_source():
    tables = {table.name: table.frame for table in comparison_report("mine", *frames()).tables}
    assert set(tables["sources"]["source"]) == {"law", "planted"}
    assert tables["sources"].set_index("source").loc["planted", "nearer"] == pytest.approx(0.7)
    assert tables["planted_recall"].set_index("selector")["fit_seconds"].isna().tolist() == [True, False, False, False]
