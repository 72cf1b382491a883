"""``dana.evaluate``: checkpoints in folders and in memory on cards, as the command does it."""

import pandas as pd
import pytest

import dana
from tests.toy_task import PRESET, write_checkpoint, write_task


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("evaluate")
    write_checkpoint(folder / "one")
    write_checkpoint(folder / "two", seed=1)
    write_task(folder / "cards", presets={"quick": {**PRESET, "epochs": 1, "seeds": 2}})
    return folder


def test_the_leaderboard_is_that_of_the_folder_and_finished_seeds_are_reused(place):
    models = {"base": place / "one", "mine": dana.load_model(place / "two")}
    card = place / "cards" / "toy.yaml"
    table = dana.evaluate(models, card, out=place / "board", preset="quick")
    assert table["checkpoint"].tolist() == ["base", "mine"]
    assert (table["n"] == 2).all()
    assert table["model"].tolist() == [str(place / "one"), "BertForMaskedLM in memory"]
    written = pd.read_csv(place / "board" / "leaderboard.csv")
    pd.testing.assert_frame_equal(written, table, check_dtype=False)
    assert "mine" in (place / "board" / "report.html").read_text(encoding="utf-8")
    more = dana.evaluate({"base": place / "one"}, [card], out=place / "board", preset="quick", seeds=3)
    assert more["n"].tolist() == [3]


def test_a_list_is_named_by_its_last_parts_and_nothing_is_left_without_a_folder(place, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    table = dana.evaluate([place / "one", str(place / "two")], [place / "cards" / "toy.yaml"], preset="quick", seeds=1)
    assert table["checkpoint"].tolist() == ["one", "two"]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("models", "more", "says"),
    [
        ("one", {}, "models='one': must be a mapping"),
        ([("model", "tokenizer")], {}, "models='tuple': must be folders and Hub names"),
        ({"a b": "one"}, {}, "checkpoints='a b'"),
        ({}, {}, "checkpoints=\\[\\]: must be at least one"),
        (["one"], {"seds": 3}, "unknown keyword 'seds'"),
        (["/nowhere/at/all"], {}, "no such folder"),
    ],
)
def test_what_is_no_checkpoint_or_keyword_is_refused(models, more, says, place, monkeypatch):
    monkeypatch.chdir(place)
    with pytest.raises(dana.DanaError, match=says):
        dana.evaluate(models, place / "cards" / "toy.yaml", preset="quick", **more)
