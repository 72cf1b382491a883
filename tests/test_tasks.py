"""The shipped cards against the tables of the paper, and against the real data where it is at hand."""

from dataclasses import replace
from pathlib import Path

import pytest

from dana.core.errors import DataError
from dana.tasks.card import SPLITS, load_card
from dana.tasks.examples import overlap, read_splits
from dana.tasks.finder import card_names
from dana.tasks.settings import Preset

# DANA Table 3 and section 4: train, dev, test, number of labels, metric. Two numbers: both are in print.
PAPER = {
    "chemprot": (4169, 2427, 3469, 13, "micro_f1"),
    "rct20k": (180040, 30212, 30135, 5, "micro_f1"),
    "hyperpartisan": ([515, 516], [64, 65], 65, 2, "macro_f1"),
    "agnews": (115000, 5000, 7600, 4, "macro_f1"),
    "helpfulness": (115251, 5000, 25000, 2, "macro_f1"),
    "imdb": (20000, 5000, 25000, 2, "macro_f1"),
    "acl_arc": (1688, 114, 139, 6, "macro_f1"),
    "sciie": (3219, 455, 974, 7, "macro_f1"),
    "sst2": (67349, 872, [872, 1821], 2, "accuracy"),
}
EXTRAS = {"csabstruct", "rct_sample"}
# Rows by split of the files under DANA_DATA/genres, and labels.
GENRES = {
    "genre_mix": (5454, 906, 1360, 10),
    "brown": (353, 55, 92, 15),
    "gum": (198, 29, 36, 23),
    "ewt": (744, 123, 185, 5),
}
UNSEEN = {"acl_arc_unseen": "acl_arc", "csabstruct_unseen": "csabstruct"}
SAMPLED = {"agnews": {"train", "dev"}}  # splits of which only a sample can be had
TASKS = Path(__file__).parent.parent / "tasks"


def test_the_nine_tasks_of_the_paper_two_extras_two_without_leaks_and_four_of_genres_are_there():
    assert set(card_names()) == set(PAPER) | EXTRAS | set(UNSEEN) | set(GENRES)


@pytest.mark.parametrize("name", GENRES)
def test_the_data_of_genres_fits_its_card(dana_data, name, caplog):
    card = load_card(name)
    *counts, labels = GENRES[name]
    assert ([card.splits[split] for split in SPLITS], len(card.labels)) == (counts, labels)
    assert (card.kind, card.metric) == ("single_label", "macro_f1")
    assert "genre" in card.tags
    splits = read_splits(card)
    assert not caplog.messages
    every = [example for split in splits.values() for example in split]
    assert len({example.label for example in every}) == labels
    ids = [{example.id for example in split} for split in splits.values()]
    assert sum(map(len, ids)) == len(set.union(*ids)), "no id is in two splits"


@pytest.mark.parametrize(("name", "leaking"), UNSEEN.items())
def test_a_card_without_leaks_differs_in_nothing_else(name, leaking):
    card, other = load_card(name), load_card(leaking)
    assert card.unseen_test
    assert not other.unseen_test
    same = {"name": leaking, "title": other.title, "aliases": other.aliases, "origins": other.origins}
    assert replace(card, unseen_test=False, **same) == other


def test_no_test_text_is_left_that_another_split_holds(dana_data):
    for name, leaking in UNSEEN.items():
        splits, all_splits = read_splits(load_card(name)), read_splits(load_card(leaking))
        assert overlap(splits) == {"test_in_train": 0, "test_in_dev": 0}
        assert [splits[split] for split in ("train", "dev")] == [all_splits[split] for split in ("train", "dev")]
        seen = {example.text for split in ("train", "dev") for example in all_splits[split]}
        assert splits["test"] == [example for example in all_splits["test"] if example.text not in seen]
        assert 0 < len(splits["test"]) < len(all_splits["test"])


@pytest.mark.parametrize("name", sorted(PAPER))
def test_a_card_says_what_the_paper_says(name):
    card = load_card(name)
    *counts, labels, metric = PAPER[name]
    assert [card.splits[split] for split in SPLITS] == counts
    assert (len(card.labels), card.metric, card.direction) == (labels, metric, "higher")


@pytest.mark.parametrize("name", sorted(set(PAPER) | EXTRAS))
def test_a_card_is_complete(name):
    card = load_card(name)
    assert card.name == name
    assert card.notes
    assert ("Not in the DANA paper" in card.notes) == (name in EXTRAS)
    assert "http" in card.citation or "doi:" in card.citation
    assert set(card.splits) == set(SPLITS)
    assert {"paper", "default", "quick"} <= set(card.presets)
    lengths = {"max_tokens": card.preset("paper").max_tokens}
    expected = {
        "epochs": 5,
        "learning_rate": 3e-5,
        "batch_size": 8,
        "warmup": 0.1,
        "seeds": 8,
        "evaluate": "last",
    }
    assert card.preset("paper") == Preset(**expected, **lengths)  # D-12


def test_the_readme_names_every_card():
    text = (TASKS / "README.md").read_text(encoding="utf-8")
    assert [name for name in card_names() if name not in text] == []


@pytest.mark.parametrize("name", sorted(set(PAPER) | EXTRAS))
def test_the_real_data_fits_the_card(dana_data, name, caplog):
    card = load_card(name)
    try:
        card.files(None, SPLITS)
    except DataError:
        pytest.skip(f"no {name} data under DANA_DATA")
    splits = read_splits(card)
    for split in set(SPLITS) - SAMPLED.get(name, set()):
        accepted = card.splits[split] if isinstance(card.splits[split], list) else [card.splits[split]]
        assert len(splits[split]) in accepted
    assert len(caplog.messages) == len(SAMPLED.get(name, set()))
    assert {example.label for example in splits["train"]} == set(range(len(card.labels)))  # none is made up
    for split in splits.values():
        assert len({example.id for example in split}) == len(split)


def test_the_overlap_that_the_cards_warn_of_is_there(dana_data):
    found = {name: overlap(read_splits(load_card(name)))["test_in_train"] for name in ("acl_arc", "csabstruct")}
    assert found == {"acl_arc": 52, "csabstruct": 172}
    for name, count in found.items():
        assert f"{count} of the" in load_card(name).notes
