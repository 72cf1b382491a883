import json
from dataclasses import replace

import pandas as pd
import pytest

from dana.cli.main import main
from dana.core.errors import ConfigError
from dana.scoring.settings import Selection
from dana.stages.settings import RunSettings
from dana.studies.comparison.settings import CompareSettings
from dana.studies.comparison.stage import run_compare
from dana.tasks.settings import Hygiene
from tests.studies.comparison.made_up import write_texts

COMPARE = CompareSettings(
    selectors=["random", "detector:knn", "oracle"],
    fit=[40, 5000],
    seeds=2,
    plants=40,
    others=150,
    budgets=["0.1", "30 documents"],
)


def compared(folder, **differing):
    bread, pool = write_texts(folder)
    settings = CompareSettings(**{**vars(COMPARE), "tasks": [str(bread)], **differing})
    selection = Selection(encoder="hashing:dims=64,words=1")
    return RunSettings(out=str(folder / "out"), general=[str(pool)], compare=settings, selection=selection)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    settings = compared(tmp_path_factory.mktemp("compare"))
    path = run_compare(settings)
    return settings, path, pd.read_csv(path, dtype={"budget": str}, keep_default_na=False)


def mean_of(table, metric, selector, budget=""):
    rows = (table["metric"] == metric) & (table["selector"] == selector) & (table["budget"] == budget)
    return table["value"][rows].mean()


def test_the_table_has_a_row_for_each_seed_selector_budget_and_metric(made):
    table = made[2]
    assert list(table) == ["task", "fit", "seed", "selector", "budget", "metric", "detail", "value"]
    assert not table.duplicated(list(table)[:-1]).any()
    assert set(table["fit"]) == {40}, "5,000 texts to fit on are not there"
    assert (table.groupby(["selector", "budget", "metric", "detail"])["seed"].nunique() == 2).all()
    assert set(table["budget"]) == {"", "0.1", "30 documents"}


def test_the_detector_finds_what_chance_does_not_and_the_oracle_all(made):
    found = {name: mean_of(made[2], "precision_at_r", name) for name in COMPARE.selectors}
    assert found["oracle"] == 1
    assert found["random"] < 0.4 < 0.8 < found["detector:knn"]
    assert mean_of(made[2], "precision", "oracle", "30 documents") == 1
    perplexity = {name: mean_of(made[2], "perplexity", name, "30 documents") for name in COMPARE.selectors}
    assert perplexity["random"] > perplexity["detector:knn"]


def test_shares_of_sources_add_up(made):
    table = made[2]
    shares = table[table["metric"] == "source_share"].groupby(["selector", "budget", "seed"])["value"].sum()
    assert shares.to_numpy() == pytest.approx(1)


def test_the_summary_has_intervals_over_documents_and_what_it_cost(made):
    rows = pd.read_csv(made[1].with_name("summary.csv")).set_index("selector")
    assert (rows["low"] <= rows["precision_at_r"]).all()
    assert (rows["precision_at_r"] <= rows["high"]).all()
    assert rows.loc["random", "low"] < rows.loc["random", "high"]
    assert (rows.loc[["random", "detector:knn"], "seconds_per_million"] > 0).all()
    assert rows.loc["oracle", "perplexity@30 documents"] < rows.loc["random", "perplexity@30 documents"]
    assert rows["seeds"].tolist() == [2, 2, 2]


def test_the_page_shows_the_table(made):
    page = made[1].with_name("report.html").read_text()
    assert "detector:knn finds most planted task text" in page
    assert {path.stem for path in (made[1].parent / "tables").glob("*.csv")} >= {"planted_recall", "kept", "sources"}


def test_again_nothing_is_made_anew_and_the_table_has_the_same_bytes(made, tmp_path):
    settings, path, _ = made
    before = path.read_bytes()
    times = {file: file.stat().st_mtime_ns for file in path.parent.rglob("manifest.json")}
    assert run_compare(settings).read_bytes() == before
    assert {file: file.stat().st_mtime_ns for file in path.parent.rglob("manifest.json")} == times
    assert run_compare(compared(tmp_path)).read_bytes().replace(str(tmp_path).encode(), b"") == before.replace(
        str(path.parent.parent).encode(), b""
    )


@pytest.mark.slow
def test_two_jobs_make_the_bytes_of_one(made, tmp_path):
    settings, path, _ = made
    assert run_compare(replace(settings, out=str(tmp_path / "out"), jobs=2)).read_bytes() == path.read_bytes()


def test_a_source_as_the_task_is_not_in_its_pool(tmp_path):
    settings = compared(tmp_path, tasks=["source:sea"], selectors=["random"], others=40, plants=20)
    write_texts(tmp_path, documents=160)
    table = pd.read_csv(run_compare(settings), keep_default_na=False)
    assert set(table["detail"]) - {""} == {"sea (planted)", "law", "space"}


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--task", "source:see"], "source 'see': the general text has none of this name; did you mean 'sea'?"),
        (["--task", "nowhere.txt"], "task 'nowhere.txt': is neither a file nor a task card"),
        (["--task", "{bread}", "--selectors", "detector"], "selectors='detector': name its detector"),
        (["--task", "{bread}", "--selectors", "randon"], "did you mean 'random'?"),
        (["--task", "{bread}", "--selectors", "oracle"], "selectors=['oracle']: must be one besides oracle"),
        (["--task", "{bread}", "--budgets", "7 pages"], "budgets='7 pages': must be"),
        (["--task", "{bread}", "--others", "9000"], "180 general documents cannot give 9,000 pieces"),
        (["--general", "{pool}"], "tasks=[]: must be at least one"),
    ],
)
def test_what_cannot_be_compared_is_said_in_one_line(tmp_path, capsys, flags, said):
    bread, pool = write_texts(tmp_path)
    given = [flag.format(bread=bread, pool=pool) for flag in flags]
    general = [] if "--general" in given else ["--general", str(pool)]
    common = ["--encoder", "hashing", "--fit", "40", "--seeds", "1", "--out", str(tmp_path / "out")]
    assert main(["compare", *given, *general, *common]) == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("dana: error")]
    assert said in line


def test_a_folder_whose_pool_was_sampled_is_refused_before_any_work(tmp_path):
    sampled = replace(compared(tmp_path), hygiene=Hygiene(sample=0.5))
    with pytest.raises(ConfigError, match=r"hygiene=.*: must be left out: the pool is compared as it is; --out names"):
        run_compare(sampled)
    assert not (tmp_path / "out").exists()


def test_a_task_smaller_than_every_size_is_refused_before_anything_is_fitted(tmp_path, capsys):
    bread, pool = write_texts(tmp_path)
    out = tmp_path / "out"
    given = ["--task", str(bread), "--general", str(pool), "--encoder", "hashing", "--others", "40", "--out", str(out)]
    assert main(["compare", *given, "--fit", "200", "500", "--selectors", "random"]) == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("dana: error")]
    texts = len(pd.read_parquet(next(out.glob("*bread.txt")) / "texts" / "fit"))
    assert f"fit=[200, 500]: task {bread} has {texts} texts to fit on; give a size up to {texts}" in line
    assert not {"comparison.csv", "summary.csv", "report.html"} & {path.name for path in out.iterdir()}
    assert not list(out.glob("*bread.txt/*-0"))


def test_a_dry_run_lists_the_cells_and_makes_nothing(tmp_path, capsys):
    bread, pool = write_texts(tmp_path)
    given = ["--task", str(bread), "--general", str(pool), "--encoder", "hashing", "--out", str(tmp_path / "out")]
    assert main(["compare", *given, "--dry-run"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["missing"] * 3
    assert not (tmp_path / "out").exists()


def test_plants_are_in_no_text_that_is_fitted_on(made):
    folder = next(made[1].parent.glob("*bread.txt"))
    plants, held_out, fit = (
        set(pd.read_parquet(folder / "texts" / part)["text"]) for part in ("plants", "held_out", "fit")
    )
    assert not plants & fit
    assert not held_out & (plants | fit)
    pool = pd.read_parquet(folder / "pool")
    assert set(pool["text"][pool["source"].str.endswith("(planted)")]) == plants
    notes = json.loads((folder / "texts" / "__dana__" / "manifest.json").read_text())["surface"]
    assert notes == {"lower": False}
