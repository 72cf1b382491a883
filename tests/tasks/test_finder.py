"""Cards by name in the folders of the task path, and their includes."""

import os

import pytest
import toy_task
import yaml

from dana.core.errors import ConfigError
from dana.tasks.card import TaskCard, load_card
from dana.tasks.finder import TASK_PATH, add_to_task_path, card_files, card_names
from dana.tasks.tables import card_text


@pytest.fixture(autouse=True)
def empty_path(monkeypatch):
    """Undoes what a test adds to the task path."""
    monkeypatch.setenv(TASK_PATH, "")


def write(path, **values):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(values), encoding="utf-8")
    return path


def refusal(call, *arguments):
    with pytest.raises(ConfigError) as error:
        call(*arguments)
    return str(error.value)


def test_cards_in_folders_of_the_path_are_found_by_file_name_and_alias(tmp_path, monkeypatch):
    path = toy_task.write_task(tmp_path / "a", name="words", aliases=["vocabulary"])
    toy_task.write_task(tmp_path / "a" / "base").rename(tmp_path / "a" / "_base.yaml")
    (tmp_path / "a" / "notes.txt").write_text("- no: [mapping")
    toy_task.write_task(tmp_path / "b", name="second").rename(tmp_path / "b" / "second.yml")
    monkeypatch.setenv(TASK_PATH, f"{tmp_path / 'a'}{os.pathsep}{os.pathsep}{tmp_path / 'b'}")
    assert {card_files()[name] for name in ("toy", "words", "vocabulary")} == {path.resolve()}
    assert load_card("vocabulary").name == "words"
    assert {"words", "second", "chemprot"} < set(card_names())
    assert {"toy", "vocabulary"}.isdisjoint(card_names())
    assert {"_base", "notes"}.isdisjoint(card_files())
    assert "did you mean 'vocabulary'" in refusal(load_card, "vocabulry")


def test_folders_are_added_once_as_absolute_paths(tmp_path, monkeypatch):
    toy_task.write_task(tmp_path / "cards")
    (tmp_path / "link").symlink_to(tmp_path / "cards")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(TASK_PATH, str(tmp_path / "link"))
    add_to_task_path(["cards", "link"])
    add_to_task_path(["cards"])
    assert os.environ[TASK_PATH].split(os.pathsep) == [str(tmp_path / "link"), str(tmp_path / "cards")]
    assert load_card("toy").name == "toy"  # the link and its target are one folder


@pytest.mark.parametrize("two", [{"name": "x"}, {"name": "y", "aliases": ["x"]}])
def test_a_name_of_two_cards_is_refused_with_both_files(tmp_path, two):
    first = toy_task.write_task(tmp_path / "a", name="x").rename(tmp_path / "a" / "one.yaml")
    second = toy_task.write_task(tmp_path / "b", **two).rename(tmp_path / "b" / "two.yaml")
    add_to_task_path([str(tmp_path / "a"), str(tmp_path / "b")])
    message = refusal(load_card, "x")
    assert message.startswith(f"{second}: ")
    assert str(first) in message


def test_a_bad_path_or_card_of_the_path_is_refused(tmp_path):
    add_to_task_path([str(tmp_path)])
    path = toy_task.write_task(tmp_path, name="scierc")
    assert "sciie.yaml" in refusal(card_files), "a shipped name"
    path.write_text("aliases: words")
    assert "toy.yaml: aliases='words'" in refusal(card_files)
    (tmp_path / "cards").mkdir()
    add_to_task_path([str(tmp_path / "crads")])
    path.unlink()
    assert f"did you mean '{tmp_path / 'cards'}'" in refusal(card_files)


def test_keys_of_the_including_card_win_and_three_mappings_are_merged(tmp_path):
    base = {"presets": {"quick": {"epochs": 9, "seeds": 1}, "long": {"epochs": 50}}, "tags": ["law"], "notes": "Base."}
    toy_task.write_task(tmp_path / "base", **base)
    more = {"presets": {"quick": {"batch_size": 2}}, "splits": {"dev": 31}, "data": {"hub": "org/name"}}
    path = write(tmp_path / "mine.yaml", include="base/toy.yaml", name="mine", metric="accuracy", tags=["news"], **more)
    card = TaskCard.read(path)
    assert (card.name, card.metric, card.tags, card.notes) == ("mine", "accuracy", ["news"], "Base.")
    assert card.splits == {"train": 120, "dev": 31, "test": 60}
    assert card.data == {"local": "toy", "hub": "org/name"}
    assert card.preset("long").epochs == 50
    quick = card.preset("quick")  # a preset is one value: the base's epochs and seeds are gone
    assert (quick.epochs, quick.seeds, quick.batch_size) == (3, 3, 2)


def test_data_is_searched_beside_the_card_then_beside_the_included_file(tmp_path):
    base = toy_task.write_task(tmp_path / "base")
    path = write(tmp_path / "mine" / "mine.yaml", include="../base/toy.yaml", name="mine")
    card = TaskCard.read(path)
    assert [file.resolve() for file in card.origins] == [path, base]
    assert card.files(None, ["dev"]) == [str(path.parent / ".." / "base" / "toy" / "dev.jsonl")]
    toy_task.write_split(tmp_path / "mine" / "toy", "dev", [])
    assert card.files(None, ["dev"]) == [str(tmp_path / "mine" / "toy" / "dev.jsonl")]


def test_a_shipped_card_is_included_by_name_without_its_names(tmp_path):
    path = write(tmp_path / "mine.yaml", include="citation_intent", name="mine", metric="micro_f1")
    card = load_card(str(path))
    assert (card.name, card.aliases, card.metric) == ("mine", [], "micro_f1")
    assert card.labels == load_card("acl_arc").labels
    lines = card_text(card, None).splitlines()
    assert lines[:2] == [f"# file: {path}", f"# includes: {card.origins[1]}"]
    assert not [line for line in lines if line.startswith("include:")]
    write(tmp_path / "outer.yaml", include="mine.yaml", name="outer", title="nearest")
    assert (load_card(str(tmp_path / "outer.yaml")).title, card.title) == ("nearest", load_card("acl_arc").title)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"include": "bse.yaml", "name": "mine"}, "include='bse.yaml'"),
        ({"include": "chemprott", "name": "mine"}, "did you mean 'chemprot'"),
        ({"include": ["base.yaml"], "name": "mine"}, "include=['base.yaml']"),
        ({"include": None, "name": "mine"}, "include=None"),
        ({"include": "citation_intent"}, "acl_arc.yaml: the key 'name' is missing"),
        ({"include": "bad.yaml", "name": "mine"}, "bad.yaml: unknown key 'metrik'"),
        ({"include": "sub/../mine.yaml"}, "mine.yaml: include: circular"),
        ({"include": "loop.yaml"}, "loop.yaml: include: circular"),
    ],
)
def test_a_bad_include_is_refused_with_its_file(tmp_path, values, says):
    toy_task.write_task(tmp_path).rename(tmp_path / "base.yaml")
    toy_task.write_task(tmp_path, metrik="accuracy").rename(tmp_path / "bad.yaml")
    (tmp_path / "sub").mkdir()
    write(tmp_path / "loop.yaml", include="mine.yaml", name="loop")
    message = refusal(TaskCard.read, write(tmp_path / "mine.yaml", **values))
    assert "mine.yaml" in message
    assert says in message
