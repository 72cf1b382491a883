"""``dana weigh --balance`` over anybody's table of groups, in a run's folder or elsewhere."""

import shutil
from pathlib import Path

import pandas as pd
import pytest

from dana.cli.main import main
from dana.core.artifacts import read_manifest

SETTINGS = ["--gamma", "1", "--budget", "90 units"]


@pytest.fixture
def run(opened, tmp_path):
    return Path(shutil.copytree(opened[2], tmp_path / "run"))


@pytest.fixture
def genres(run, tmp_path):
    """A table of groups: each unit's is the source of its document."""
    path = tmp_path / "genres.parquet"
    units = pd.read_parquet(run / "scores")[["doc_id", "unit", "source"]].rename(columns={"source": "group"})
    units["group"] = units["group"].astype(str)
    units.to_parquet(path)
    return path


def kept_by_group(run, genres):
    return pd.read_parquet(run / "weights")["weight"].groupby(pd.read_parquet(genres)["group"]).sum().to_dict()


def test_the_budget_is_spread_over_the_groups_of_a_file(run, genres, capsys):
    assert main(["weigh", str(run), *SETTINGS, "--balance", str(genres)]) == 0
    assert kept_by_group(run, genres) == {"court": 45, "planted": 45}
    about = read_manifest(run / "weights")["balance"]
    assert [(row["group"], row["name"], row["kept_units"]) for row in about["groups"]] == [
        ("court", "court", 45),
        ("planted", "planted", 45),
    ]
    assert "spread: 2.0 groups of the kept text" in capsys.readouterr().out


def test_groups_have_shares_by_their_values(run, genres):
    assert main(["weigh", str(run), *SETTINGS, "--balance", f"{genres}:planted=0.7,court=0.3"]) == 0
    assert kept_by_group(run, genres) == {"court": 27, "planted": 63}


def test_a_table_in_the_runs_folder_goes_by_its_name_and_another_content_is_refused(run, genres, capsys):
    (run / "genres").mkdir()
    pd.read_parquet(genres).to_parquet(run / "genres" / "part-00000.parquet")
    line = ["weigh", str(run), *SETTINGS, "--balance", "genres"]
    assert main(line) == 0
    assert main(line) == 0
    pd.read_parquet(genres).assign(group="one").to_parquet(run / "genres" / "part-00000.parquet")
    assert main(line) == 2
    assert "groups" in capsys.readouterr().err.splitlines()[-1]


def test_rows_in_another_order_are_refused_and_nothing_is_written(run, genres, capsys):
    pd.read_parquet(genres).iloc[::-1].to_parquet(genres)
    before = sorted(run.rglob("*"))
    assert main(["weigh", str(run), *SETTINGS, "--balance", str(genres)]) == 2
    said = f"{genres}: its rows"
    assert said in capsys.readouterr().err
    assert sorted(run.rglob("*")) == before


def test_what_is_nowhere_is_named_by_both_places(run, capsys):
    assert main(["weigh", str(run), *SETTINGS, "--balance", "nowhere"]) == 2
    assert f"balance='nowhere': {run / 'nowhere'}: no table of groups" in capsys.readouterr().err


def test_what_is_no_table_of_groups_is_refused_with_what_one_has(run, genres, tmp_path, capsys):
    groups = pd.read_parquet(genres)
    groups.to_csv(tmp_path / "groups.csv")
    groups.drop(columns="group").to_parquet(tmp_path / "two.parquet")
    groups.assign(group=None).astype({"group": "string"}).to_parquet(tmp_path / "null.parquet")
    groups.assign(group=0.5).to_parquet(tmp_path / "half.parquet")
    groups.assign(unit=groups["unit"] + 0.5).to_parquet(tmp_path / "unit.parquet")
    for name, says in (
        ("groups.csv", "doc_id, unit, group"),
        ("two.parquet", "has the columns doc_id, unit; "),
        ("null.parquet", "column group has nulls"),
        ("half.parquet", "column group is double"),
        ("unit.parquet", "column unit is double"),
    ):
        assert main(["weigh", str(run), *SETTINGS, "--balance", str(tmp_path / name)]) == 2
        error = capsys.readouterr().err
        assert str(tmp_path / name) in error
        assert says in error
    assert not (run / "weights").exists()


def test_groups_as_categories_of_pandas_are_those_of_their_text(run, genres, tmp_path):
    assert main(["weigh", str(run), *SETTINGS, "--balance", str(genres)]) == 0
    plain = kept_by_group(run, genres)
    pd.read_parquet(genres).astype({"group": "category"}).to_parquet(tmp_path / "categories.parquet")
    shutil.rmtree(run / "weights")
    assert main(["weigh", str(run), *SETTINGS, "--balance", str(tmp_path / "categories.parquet")]) == 0
    assert kept_by_group(run, genres) == plain


def test_spans_of_a_table_that_has_them_are_compared(run, genres, tmp_path, capsys):
    scores = pd.read_parquet(run / "scores")[["doc_id", "unit", "start", "end"]]
    spans = scores.assign(group=pd.read_parquet(genres)["group"].to_numpy())
    spans.to_parquet(tmp_path / "spans.parquet")
    assert main(["weigh", str(run), *SETTINGS, "--balance", str(tmp_path / "spans.parquet")]) == 0
    shutil.rmtree(run / "weights")
    spans.assign(end=spans["end"] + 1).to_parquet(tmp_path / "spans.parquet")
    assert main(["weigh", str(run), *SETTINGS, "--balance", str(tmp_path / "spans.parquet")]) == 2
    assert "make both with the same --units" in capsys.readouterr().err
