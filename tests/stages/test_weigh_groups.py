"""``dana weigh --balance`` over anybody's table of groups, in a run's folder or elsewhere."""

import shutil
from pathlib import Path

import pandas as pd
import pytest

from dana.cli.main import main
from dana.core.artifacts import read_manifest

SETTINGS = ["--gamma", "1", "--budget", "90 units"]


@pytest.fixture
def run(topics, tmp_path):
    return Path(shutil.copytree(topics[2], tmp_path / "run"))


@pytest.fixture
def genres(run, tmp_path):
    """Write a table of groups: each unit's is the source of its document."""
    path = tmp_path / "genres.parquet"
    units = pd.read_parquet(run / "scores")[["doc_id", "unit", "source"]].rename(
        columns={"source": "group"}
    )
    units.astype({"group": str}).to_parquet(path)
    return path


def selected_units(run, genres):
    return (
        pd.read_parquet(run / "weights")["weight"]
        .groupby(pd.read_parquet(genres)["group"])
        .sum()
        .to_dict()
    )


def weigh(run, balance):
    return main(["weigh", str(run), *SETTINGS, "--balance", str(balance)])


@pytest.mark.parametrize("kind", ["string", "category"])
def test_the_budget_is_spread_over_the_groups_of_a_file(run, genres, kind, capsys):
    pd.read_parquet(genres).astype({"group": kind}).to_parquet(genres)
    assert weigh(run, genres) == 0
    assert selected_units(run, genres) == {"court": 45, "planted": 45}
    rows = read_manifest(run / "weights")["balance"]["groups"]
    values = [(row["name"], row["group"], row["selected_units"]) for row in rows]
    assert values == [("court", "court", 45), ("planted", "planted", 45)]
    assert "spread: 2.0 groups of the selected text" in capsys.readouterr().out
    shutil.rmtree(run / "weights")
    assert weigh(run, f"{genres}:planted=0.7,court=0.3") == 0
    assert selected_units(run, genres) == {"court": 27, "planted": 63}


def test_a_table_in_the_runs_folder_goes_by_its_name_and_another_content_is_refused(
    run, genres, capsys
):
    (run / "genres").mkdir()
    genres.rename(run / "genres" / "part-00000.parquet")
    assert weigh(run, "genres") == 0
    assert weigh(run, "genres") == 0
    pd.read_parquet(run / "genres").assign(group="one").to_parquet(
        run / "genres" / "part-00000.parquet"
    )
    assert weigh(run, "genres") == 2
    assert "groups" in capsys.readouterr().err.splitlines()[-1]


def test_other_rows_or_spans_are_refused_and_nothing_is_written(run, genres, capsys):
    units = pd.read_parquet(run / "scores")[["doc_id", "unit", "start", "end", "source"]]
    units = units.astype({"source": str}).rename(columns={"source": "group"})
    before = sorted(run.rglob("*"))
    for table, message in (
        (units[::-1], f"{genres}: its rows"),
        (units.assign(unit=units["unit"].astype("int64") + 2**40), f"{genres}: its rows"),
        (units.assign(doc_id=[[name] for name in units["doc_id"]]), f"{genres}: its rows"),
        (units.assign(end=units["end"] + 1), "make both with the same --units"),
        (units.assign(unit=units["unit"] + 0.5), "column unit is double"),
    ):
        table.to_parquet(genres)
        assert weigh(run, genres) == 2
        assert message in capsys.readouterr().err
    units.to_csv(genres)
    assert weigh(run, genres) == 2
    assert f"{genres}: not a readable Parquet file" in capsys.readouterr().err
    assert weigh(run, "nowhere") == 2
    assert f"balance='nowhere': {run / 'nowhere'}: no table of groups" in capsys.readouterr().err
    assert sorted(run.rglob("*")) == before
    units.to_parquet(genres)
    assert weigh(run, genres) == 0
