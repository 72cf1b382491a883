import pandas as pd
import pytest

from dana.scoring.settings import Selection
from dana.stages.settings import RunSettings
from dana.studies.comparison.settings import CompareSettings
from dana.studies.comparison.stage import run_compare
from tests.studies.comparison.toy_texts import write_texts

COMPARE = CompareSettings(
    selectors=["random", "detector:knn", "oracle"],
    fit=[40, 5000],
    seeds=2,
    plants=40,
    others=150,
    budgets=["0.1", "30 documents"],
)


def settings_for(folder, **changes):
    bread, pool = write_texts(folder)
    settings = CompareSettings(**{**vars(COMPARE), "tasks": [str(bread)], **changes})
    selection = Selection(encoder="hashing:dims=64,words=1")
    return RunSettings(out=str(folder / "out"), general=[str(pool)], compare=settings, selection=selection)


@pytest.fixture(scope="module")
def comparison(tmp_path_factory):
    settings = settings_for(tmp_path_factory.mktemp("compare"))
    path = run_compare(settings)
    return settings, path, pd.read_csv(path, dtype={"budget": str}, keep_default_na=False)


def mean_of(table, metric, selector, budget=""):
    rows = (table["metric"] == metric) & (table["selector"] == selector) & (table["budget"] == budget)
    return table["value"][rows].mean()


def test_the_table_has_a_row_for_each_seed_selector_budget_and_metric(comparison):
    table = comparison[2]
    assert list(table) == ["task", "fit", "seed", "selector", "budget", "metric", "detail", "value"]
    assert not table.duplicated(list(table)[:-1]).any()
    assert set(table["fit"]) == {40}, "5,000 texts to fit on are not there"
    assert (table.groupby(["selector", "budget", "metric", "detail"])["seed"].nunique() == 2).all()
    assert set(table["budget"]) == {"", "0.1", "30 documents"}


def test_the_detector_finds_what_chance_does_not_and_the_oracle_all(comparison):
    precision = {name: mean_of(comparison[2], "precision_at_r", name) for name in COMPARE.selectors}
    assert precision["oracle"] == 1
    assert precision["random"] < 0.4 < 0.8 < precision["detector:knn"]
    assert mean_of(comparison[2], "precision", "oracle", "30 documents") == 1
    perplexity = {name: mean_of(comparison[2], "perplexity", name, "30 documents") for name in COMPARE.selectors}
    assert perplexity["random"] > perplexity["detector:knn"]


def test_the_summary_has_intervals_over_documents_and_what_it_cost(comparison):
    rows = pd.read_csv(comparison[1].with_name("summary.csv")).set_index("selector")
    assert (rows["low"] <= rows["precision_at_r"]).all()
    assert (rows["precision_at_r"] <= rows["high"]).all()
    assert rows.loc["random", "low"] < rows.loc["random", "high"]
    assert (rows.loc[["random", "detector:knn"], "seconds_per_million"] > 0).all()
    assert rows.loc["oracle", "perplexity@30 documents"] < rows.loc["random", "perplexity@30 documents"]
    assert rows["seeds"].tolist() == [2, 2, 2]


def test_again_nothing_is_made_anew_and_the_table_has_the_same_bytes(comparison, tmp_path):
    settings, path, _ = comparison
    before = path.read_bytes()
    times = {file: file.stat().st_mtime_ns for file in path.parent.rglob("manifest.json")}
    assert run_compare(settings).read_bytes() == before
    assert {file: file.stat().st_mtime_ns for file in path.parent.rglob("manifest.json")} == times
    assert run_compare(settings_for(tmp_path)).read_bytes().replace(str(tmp_path).encode(), b"") == before.replace(
        str(path.parent.parent).encode(), b""
    )


def test_a_source_as_the_task_is_not_in_its_pool(tmp_path):
    settings = settings_for(tmp_path, tasks=["source:sea"], selectors=["random"], others=40, plants=20)
    write_texts(tmp_path, documents=160)
    table = pd.read_csv(run_compare(settings), keep_default_na=False)
    assert set(table["detail"]) - {""} == {"sea (planted)", "law", "space"}
