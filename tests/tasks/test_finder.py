"""Cards by name in the folders of the task path."""

import os

import pytest
import toy_task

from dana.core.errors import ConfigError
from dana.tasks.card import load_card
from dana.tasks.finder import TASK_PATH, add_to_task_path, card_files, card_names


@pytest.fixture(autouse=True)
def own_path(monkeypatch):
    """What a test adds to the task path goes with it."""
    monkeypatch.setenv(TASK_PATH, "")


def test_a_card_in_a_folder_is_found_by_file_name_and_alias_beside_the_shipped(tmp_path):
    path = toy_task.write_task(tmp_path, name="words", aliases=["vocabulary"])
    add_to_task_path([str(tmp_path)])
    assert {card_files()[name] for name in ("toy", "words", "vocabulary")} == {path.resolve()}
    assert load_card("vocabulary").name == "words"
    assert load_card("citation_intent").name == "acl_arc"
    assert "words" in card_names()
    assert {"toy", "vocabulary"}.isdisjoint(card_names())


def test_the_environment_names_several_folders(tmp_path, monkeypatch):
    toy_task.write_task(tmp_path / "a", name="first").rename(tmp_path / "a" / "first.yml")
    toy_task.write_task(tmp_path / "b", name="second").rename(tmp_path / "b" / "second.yaml")
    monkeypatch.setenv(TASK_PATH, f"{tmp_path / 'a'}{os.pathsep}{os.pathsep}{tmp_path / 'b'}")
    assert {"first", "second", "chemprot"} < set(card_names())


def test_folders_are_added_as_absolute_paths_and_once(tmp_path, monkeypatch):
    toy_task.write_task(tmp_path / "cards")
    (tmp_path / "link").symlink_to(tmp_path / "cards")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(TASK_PATH, str(tmp_path / "link"))
    add_to_task_path(["cards", "link"])
    add_to_task_path(["cards"])
    assert os.environ[TASK_PATH].split(os.pathsep) == [str(tmp_path / "link"), str(tmp_path / "cards")]
    assert load_card("toy").name == "toy"  # the link and what it leads to are one folder


@pytest.mark.parametrize(
    ("one", "two"),
    [({"name": "x"}, {"name": "x"}), ({"name": "x"}, {"name": "y", "aliases": ["x"]})],
)
def test_a_name_that_two_files_define_is_an_error_that_names_both(tmp_path, one, two):
    first = toy_task.write_task(tmp_path / "a", **one).rename(tmp_path / "a" / "one.yaml")
    second = toy_task.write_task(tmp_path / "b", **two).rename(tmp_path / "b" / "two.yaml")
    add_to_task_path([str(tmp_path / "a"), str(tmp_path / "b")])
    with pytest.raises(ConfigError) as error:
        load_card("x")
    assert str(error.value) == f"{second}: the task 'x' is also defined by {first}; rename one of them"


def test_a_shipped_name_is_not_taken(tmp_path):
    path = toy_task.write_task(tmp_path, name="scierc")
    add_to_task_path([str(tmp_path)])
    with pytest.raises(ConfigError, match=rf"{path}: the task 'scierc' is also defined by .*sciie\.yaml"):
        card_files()


def test_files_with_an_underscore_and_other_files_are_no_cards(tmp_path):
    toy_task.write_task(tmp_path).rename(tmp_path / "_base.yaml")
    (tmp_path / "notes.txt").write_text("- no: [mapping")
    add_to_task_path([str(tmp_path)])
    assert {"_base", "notes", "toy"}.isdisjoint(card_files())


def test_a_missing_folder_suggests_the_nearest(tmp_path):
    (tmp_path / "cards").mkdir()
    add_to_task_path([str(tmp_path / "crads")])
    with pytest.raises(ConfigError, match=r"crads: no such folder of task cards .*did you mean '.*cards'\?"):
        load_card("toy")


def test_aliases_that_are_no_list_are_refused(tmp_path):
    toy_task.write_task(tmp_path, aliases="words")
    add_to_task_path([str(tmp_path)])
    with pytest.raises(ConfigError, match=r"toy\.yaml: aliases='words': must be a list of names"):
        card_files()


def test_an_unknown_name_suggests_among_all(tmp_path):
    toy_task.write_task(tmp_path, name="vocabulary")
    add_to_task_path([str(tmp_path)])
    with pytest.raises(ConfigError, match=r"unknown task 'vocabulry'; did you mean 'vocabulary'\?"):
        load_card("vocabulry")
