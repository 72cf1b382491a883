"""``include`` in a card: what wins, what is merged, what is refused."""

from pathlib import Path

import pytest
import toy_task
import yaml

from dana.core.errors import ConfigError
from dana.tasks.card import TaskCard, load_card
from dana.tasks.tables import card_text


def write(path, **values):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(values), encoding="utf-8")
    return path


def test_keys_of_the_including_card_win_and_three_mappings_are_merged_by_their_first_keys(tmp_path):
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


def test_data_is_looked_for_beside_the_card_then_beside_what_it_includes(tmp_path):
    base = toy_task.write_task(tmp_path / "base")
    path = write(tmp_path / "own" / "mine.yaml", include="../base/toy.yaml", name="mine")
    card = TaskCard.read(path)
    assert [file.resolve() for file in card.origins] == [path, base]
    assert card.files(None, ["dev"]) == [str(path.parent / ".." / "base" / "toy" / "dev.jsonl")]
    toy_task.write_split(tmp_path / "own" / "toy", "dev", [])
    assert card.files(None, ["dev"]) == [str(tmp_path / "own" / "toy" / "dev.jsonl")]


def test_a_shipped_card_is_included_by_name_and_its_names_are_not_taken_over(tmp_path):
    path = write(tmp_path / "mine.yaml", include="citation_intent", name="mine", metric="micro_f1")
    card = load_card(str(path))
    assert (card.name, card.aliases, card.metric) == ("mine", [], "micro_f1")
    assert card.labels == load_card("acl_arc").labels
    lines = card_text(card, None).splitlines()
    assert lines[:2] == [f"# file: {path}", f"# includes: {card.origins[1]}"]
    assert not [line for line in lines if line.startswith("include:")]
    write(path, include="citation_intent")
    with pytest.raises(ConfigError, match=r"mine\.yaml with .*acl_arc\.yaml: the key 'name' is missing"):
        load_card(str(path))


def chain(folder, length):
    """So many cards that each include the next; the last one is whole."""
    for at in range(length):
        write(folder / f"c{at}.yaml", include=f"c{at + 1}.yaml", name=f"c{at}", title=f"c{at}")
    toy_task.write_task(folder).rename(folder / f"c{length}.yaml")
    return folder / "c0.yaml"


def test_the_nearest_of_nested_cards_wins(tmp_path):
    card = TaskCard.read(chain(tmp_path, 5))
    assert card.title == "c0"
    assert len(card.origins) == 6


def test_a_circle_names_both_files(tmp_path, monkeypatch):
    write(tmp_path / "a.yaml", include="b.yaml", name="a")
    write(tmp_path / "b.yaml", include="sub/../a.yaml", name="b")
    (tmp_path / "sub").mkdir()
    with pytest.raises(ConfigError, match=r"b\.yaml: include: circular, .*a\.yaml includes this file"):
        TaskCard.read(tmp_path / "a.yaml")
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "self.yaml", include="self.yaml")
    with pytest.raises(ConfigError, match=r"self\.yaml: include: circular, self\.yaml includes this file"):
        TaskCard.read(Path("self.yaml"))


@pytest.mark.parametrize(
    ("include", "says"),
    [
        ("bse.yaml", r"mine\.yaml: include='bse\.yaml': .*bse\.yaml: no such file; did you mean '.*base\.yaml'\?"),
        ("chemprott", r"mine\.yaml: include='chemprott': no task card has this name; did you mean 'chemprot'\?"),
        (["base.yaml"], r"mine\.yaml: include=\['base\.yaml'\]: must be a card's name or a YAML file"),
        (None, r"mine\.yaml: include=None: must be a card's name or a YAML file"),
    ],
)
def test_what_cannot_be_included_is_named_with_the_file_that_asks(tmp_path, include, says):
    toy_task.write_task(tmp_path).rename(tmp_path / "base.yaml")
    with pytest.raises(ConfigError, match=says):
        TaskCard.read(write(tmp_path / "mine.yaml", include=include, name="mine"))


def test_a_bad_key_of_an_included_card_is_told_with_both_files(tmp_path):
    toy_task.write_task(tmp_path, metrik="accuracy").rename(tmp_path / "base.yaml")
    path = write(tmp_path / "mine.yaml", include="base.yaml", name="mine")
    with pytest.raises(ConfigError, match=r"mine\.yaml with .*base\.yaml: unknown key 'metrik'; did you mean 'metric'"):
        TaskCard.read(path)
