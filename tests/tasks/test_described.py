"""Cards as YAML and as rows of a table."""

import pytest
import toy_task
import yaml

from dana.core.errors import ConfigError
from dana.tasks.card import TaskCard, load_card
from dana.tasks.finder import card_names
from dana.tasks.tables import card_rows, card_text


@pytest.mark.parametrize("name", card_names())
def test_what_is_shown_is_a_card_again_with_everything_in_it(name, tmp_path):
    card = load_card(name)
    path = tmp_path / "again.yaml"
    path.write_text(card_text(card, None), encoding="utf-8")
    again = TaskCard.read(path)
    differing = [key for key in vars(card) if getattr(card, key) != getattr(again, key)]
    assert differing == ["origins"]


def test_file_and_places_stand_above(toy_card):
    lines = card_text(toy_card, None).splitlines()
    folder = toy_card.origins[0].parent
    assert lines[0] == f"# file: {folder / 'toy.yaml'}"
    assert lines[1] == f"# train: {folder / 'toy' / 'train.jsonl'}"
    assert lines[4] == "name: toy"


def test_presets_are_shown_whole(toy_card):
    values = yaml.safe_load(card_text(toy_card, None))
    assert values["presets"]["default"]["batch_size"] == 16
    assert values["presets"]["quick"]["epochs"] == 6
    assert set(values["presets"]) == {"paper", "default", "quick"}


def test_a_row_says_what_the_card_expects_and_whether_its_data_is_here(tmp_path, monkeypatch):
    monkeypatch.delenv("DANA_DATA", raising=False)
    changes = {"splits": {"train": 120, "test": [60, 1061]}, "tags": ["law", "topic"]}
    card = load_card(str(toy_task.write_task(tmp_path, **changes)))
    [row] = card_rows([card], None)
    assert row == {
        "name": "toy",
        "kind": "single_label",
        "metric": "macro_f1",
        "labels": 3,
        "train": "120",
        "dev": "-",
        "test": "60 or 1,061",
        "data": "here",
        "tags": "law, topic",
        "title": "What is it about?",
    }


def test_data_is_here_or_on_the_hub_or_missing_wholly_or_in_part(tmp_path, monkeypatch):
    monkeypatch.delenv("DANA_DATA", raising=False)
    own = load_card(str(toy_task.write_task(tmp_path)))
    hub = load_card(str(toy_task.write_task(tmp_path, data={"hub": "org/name"}, name="remote")))
    gone = load_card(str(toy_task.write_task(tmp_path, data={"local": "gone"})))
    (tmp_path / "toy" / "dev.jsonl").unlink()
    (tmp_path / "toy" / "test.jsonl").unlink()
    assert [row["data"] for row in card_rows([own, hub, gone], None)] == ["no dev, test", "hub", "missing"]


def test_a_tag_filters_and_an_unknown_one_suggests_the_nearest():
    cards = [load_card(name) for name in card_names()]
    assert [row["name"] for row in card_rows(cards, None, "sentiment")] == ["imdb", "sst2"]
    with pytest.raises(ConfigError, match=r"--tag 'sentimnt'.*did you mean 'sentiment'\? Known: "):
        card_rows(cards, None, "sentimnt")
