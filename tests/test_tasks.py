"""The shipped cards against the tables of the paper, and against the real data where it is at hand."""

from dataclasses import replace

import numpy as np
import pytest

from dana.core.errors import DataError
from dana.tasks.card import SPLITS, load_card
from dana.tasks.examples import overlap, read_splits
from dana.tasks.finder import card_names
from dana.tasks.settings import Preset

# DANA Table 3 and section 4: train, dev, test, number of labels, metric. Two numbers: both are in
# print.
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
SAMPLED = {"agnews": {"train", "dev"}}  # splits of which only a sample can be had


def test_all_cards_are_listed():
    few = ("sst2", "csabstruct", "acl_arc", "agnews", "chemprot", "ewt", "rct_sample")
    others = {"acl_arc_unseen", "csabstruct_unseen", *(f"{name}_rest" for name in few)}
    assert set(card_names()) == set(PAPER) | EXTRAS | set(GENRES) | others


@pytest.mark.parametrize("name", [*sorted(PAPER), *GENRES])
def test_a_card_has_the_published_counts_and_metric(name):
    card = load_card(name)
    *counts, labels, metric = PAPER.get(name) or (*GENRES[name], "macro_f1")
    assert [card.splits[split] for split in SPLITS] == counts
    assert (len(card.labels), card.metric, card.direction) == (labels, metric, "higher")
    assert ("genre" in card.tags) == (name in GENRES)


@pytest.mark.parametrize("name", sorted(set(PAPER) | EXTRAS))
def test_a_card_is_complete(name):
    card = load_card(name)
    assert card.name == name
    assert ("Not in the DANA paper" in card.notes) == (name in EXTRAS)
    assert "http" in card.citation or "doi:" in card.citation
    assert set(card.splits) == set(SPLITS)
    assert {"paper", "default", "quick"} <= set(card.presets)
    preset = {
        "epochs": 5,
        "learning_rate": 3e-5,
        "batch_size": 8,
        "warmup": 0.1,
        "seeds": 8,
        "evaluate": "last",
    }
    assert card.preset("paper") == Preset(
        **preset, max_tokens=card.preset("paper").max_tokens
    )  # D-12


@pytest.mark.parametrize("name", sorted(set(PAPER) | EXTRAS | set(GENRES)))
def test_the_real_data_fits_the_card(dana_data, name, caplog):
    card = load_card(name)
    try:
        card.files(None, SPLITS)
    except DataError:
        pytest.skip(f"no {name} data under DANA_DATA")
    splits = read_splits(card)
    for split in set(SPLITS) - SAMPLED.get(name, set()):
        assert len(splits[split]) in np.atleast_1d(card.splits[split])
    assert len(caplog.messages) == len(SAMPLED.get(name, set()))
    complete = splits.values() if name in GENRES else [splits["train"]]
    assert {example.label for split in complete for example in split} == set(
        range(len(card.labels))
    )
    ids = [{example.id for example in split} for split in splits.values()]
    assert (
        sum(map(len, ids)) == len(set.union(*ids))
        if name in GENRES
        else sum(map(len, splits.values()))
    )


@pytest.mark.parametrize(
    ("name", "leaking", "count"),
    [("acl_arc_unseen", "acl_arc", 52), ("csabstruct_unseen", "csabstruct", 172)],
)
def test_a_card_without_leaks_leaves_out_the_test_texts_of_other_splits_and_nothing_else(
    dana_data, name, leaking, count
):
    card, other = load_card(name), load_card(leaking)
    same = {
        "name": leaking,
        "title": other.title,
        "aliases": other.aliases,
        "origins": other.origins,
    }
    assert (card.unseen_test, other.unseen_test) == (True, False)
    assert replace(card, unseen_test=False, **same) == other
    splits, all_splits = read_splits(card), read_splits(other)
    assert overlap(splits)["seen"] == 0
    assert overlap(all_splits)["test_in_train"] == count
    assert f"{count} of the" in other.notes
    assert [splits[split] for split in ("train", "dev")] == [
        all_splits[split] for split in ("train", "dev")
    ]
    texts = {example.text for split in ("train", "dev") for example in all_splits[split]}
    assert splits["test"] == [
        example for example in all_splits["test"] if example.text not in texts
    ]
    assert 0 < len(splits["test"]) < len(all_splits["test"])
