"""``dana.evaluate``: checkpoints in folders and in memory on cards, as the command does it."""

import re

import pandas as pd
import pytest

import dana
from tests.toy_task import PRESET, write_checkpoint, write_task


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("evaluate")
    write_checkpoint(folder / "one")
    write_checkpoint(folder / "two", seed=1)
    write_task(folder / "cards", presets={"quick": {**PRESET, "epochs": 1, "seeds": 2}})
    return folder


def test_the_leaderboard_is_that_of_the_folder_and_finished_seeds_are_reused(folder):
    models = {"base": folder / "one", "mine": dana.load_model(folder / "two")}
    card = folder / "cards" / "toy.yaml"
    table = dana.evaluate(models, card, out=folder / "board", preset="quick")
    assert table["checkpoint"].tolist() == ["base", "mine"]
    assert (table["n"] == 2).all()
    assert table["model"].tolist() == [str(folder / "one"), "BertForMaskedLM in memory"]
    leaderboard = pd.read_csv(folder / "board" / "leaderboard.csv")
    pd.testing.assert_frame_equal(leaderboard, table, check_dtype=False)
    assert "mine" in (folder / "board" / "report.html").read_text(encoding="utf-8")
    more = dana.evaluate(
        {"base": folder / "one"}, [card], out=folder / "board", preset="quick", seeds=3
    )
    assert more["n"].tolist() == [3]


def test_a_list_is_named_by_its_last_parts_and_nothing_is_left_without_a_folder(
    folder, monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)
    models = [folder / "one", str(folder / "two")]
    table = dana.evaluate(models, [folder / "cards" / "toy.yaml"], preset="quick", seeds=1)
    assert table["checkpoint"].tolist() == ["one", "two"]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("models", "settings", "name"),
    [
        ("one", {}, "models='one'"),
        ([("model", "tokenizer")], {}, "models='tuple'"),
        ({"a b": "one"}, {}, "checkpoints='a b'"),
        ({}, {}, "checkpoints=[]"),
        (["one"], {"seds": 3}, "'seds'"),
        (["/nowhere/at/all"], {}, "/nowhere/at/all"),
    ],
)
def test_wrong_checkpoints_and_keywords_are_named(models, settings, name, folder, monkeypatch):
    monkeypatch.chdir(folder)
    with pytest.raises(dana.DanaError, match=re.escape(name)):
        dana.evaluate(models, folder / "cards" / "toy.yaml", preset="quick", **settings)
