"""Tables about cards and splits, against values by hand."""

import pytest
import toy_task
import yaml

from dana.core.errors import ConfigError
from dana.core.schemas import Document
from dana.tasks.card import TaskCard, load_card
from dana.tasks.examples import Example
from dana.tasks.finder import card_names
from dana.tasks.tables import card_rows, card_text, corpus_row, label_rows, overlap_rows, split_rows

WORDS = [f"w{at}" for at in range(20)]


@pytest.mark.parametrize("name", card_names())
def test_the_text_of_a_card_is_the_card(name, tmp_path):
    card = load_card(name)
    (tmp_path / "again.yaml").write_text(card_text(card, None), encoding="utf-8")
    again = TaskCard.read(tmp_path / "again.yaml")
    assert [key for key in vars(card) if getattr(card, key) != getattr(again, key)] == ["origins"]


def test_files_are_comments_above_the_card_and_presets_are_complete(toy_card):
    text = card_text(toy_card, None)
    folder, lines = toy_card.origins[0].parent, text.splitlines()
    assert lines[:2] == [f"# file: {folder / 'toy.yaml'}", f"# train: {folder / 'toy' / 'train.jsonl'}"]
    presets = yaml.safe_load(text)["presets"]
    assert set(presets) == {"paper", "default", "quick"}
    assert (presets["default"]["batch_size"], presets["quick"]["epochs"]) == (16, 6)


def test_cards_are_rows_with_expected_sizes_and_availability_filtered_by_tag(tmp_path, monkeypatch):
    monkeypatch.delenv("DANA_DATA", raising=False)
    splits = {"splits": {"train": 120, "test": [60, 1061]}, "tags": ["law", "topic"]}
    local = load_card(str(toy_task.write_task(tmp_path, **splits)))
    [row] = card_rows([local], None)
    values = {"name": "toy", "kind": "single_label", "metric": "macro_f1", "labels": 3, "train": "120", "dev": "-"}
    values |= {"test": "60 or 1,061", "data": "here", "tags": "law, topic", "title": "What is it about?"}
    assert row == values
    hub = load_card(str(toy_task.write_task(tmp_path, data={"hub": "org/name"}, name="remote")))
    gone = load_card(str(toy_task.write_task(tmp_path, data={"local": "gone"})))
    (tmp_path / "toy" / "dev.jsonl").unlink()
    (tmp_path / "toy" / "test.jsonl").unlink()
    assert [row["data"] for row in card_rows([local, hub, gone], None)] == ["no dev, test", "hub", "missing"]
    assert [row["name"] for row in card_rows([local, hub], None, "law")] == ["toy"]
    with pytest.raises(ConfigError, match=r"--tag 'lawn'.*did you mean 'law'"):
        card_rows([local, hub], None, "lawn")


def test_split_and_label_rows_by_hand(toy_card):
    train = [Example(str(at), "one two", label, "three") for at, label in enumerate([0, 1, 2, 0])]
    lengths = [1, 2, 3, *[4] * 16, 90]
    dev = [Example(str(at), " ".join(["w"] * length), 1) for at, length in enumerate(lengths)]
    dev[0] = Example("0", "", 1)
    first, second = (list(row.values()) for row in split_rows(toy_card, {"train": train, "dev": dev}))
    assert first == ["train", 4, "120", 0, 3, 3, ""]
    assert second == ["dev", 20, "30", 1, 4, 4, "fruit, bird"]
    rows = label_rows(toy_card, {"train": train, "test": dev[:1]})
    train_rows = [("train", "fruit", 2, 0.5), ("train", "metal", 1, 0.25), ("train", "bird", 1, 0.25)]
    test_rows = [("test", "fruit", 0, 0.0), ("test", "metal", 1, 1.0), ("test", "bird", 0, 0.0)]
    assert [tuple(row.values()) for row in rows] == train_rows + test_rows


def split(name, *texts):
    """Examples of texts, or of tuples (text, label, second text)."""
    rows = [text if isinstance(text, tuple) else (text, 0) for text in texts]
    return [Example(f"{name}{at}", *row) for at, row in enumerate(rows)]


def matches(train, dev, test):
    rows = overlap_rows({"train": train, "dev": dev, "test": test})
    assert len(rows) == 3 * 2 + 3 * 2
    return {(row["split"], row["within"], row["kind"]): (row["examples"], row["of"], row["ids"]) for row in rows}


def test_repeats_and_contradictions_within_and_between_splits():
    train = split("t", "a", "b", "a", ("a", 1), "c", "b")
    rows = matches(train, split("d", "x"), split("e", "y"))
    assert rows["train", "train", "exact"] == (3, 6, "t2 = t0, t3 = t0, t5 = t1")
    assert rows["train", "train", "contradicting"] == (3, 6, "t0 = t3, t2 = t3, t3 = t0")
    assert rows["dev", "dev", "exact"] == (0, 1, "")
    train = split("t", "p q r s", ("x y z", 1), "x y z", "other")
    rows = matches(train, split("d", "x y z", "own"), split("e", "own", "p q r s", "x y z"))
    assert rows["dev", "train", "contradicting"] == (1, 2, "d0 = t1")
    assert rows["test", "train", "exact"] == (2, 3, "e1 = t0, e2 = t1")
    assert rows["test", "train", "contradicting"] == (1, 3, "e2 = t1")
    assert rows["test", "dev", "exact"] == (2, 3, "e0 = d1, e2 = d0")
    same = [str(at) for at in range(5)]
    rows = matches(split("t", *same), split("d", "x"), split("e", *same))
    assert rows["test", "train", "exact"] == (5, 5, "e0 = t0, e1 = t1, e2 = t2"), "at most three ids"


def test_pairs_match_if_both_texts_do():
    test = split("e", ("a", 1, "b"), ("a", 0, "b more"), ("b", 0, "a"))
    rows = matches(split("t", ("a", 0, "b")), split("d", ("x", 0, "y")), test)
    pairs = {key: ids for key, (_, _, ids) in rows.items() if ids}
    assert pairs == dict.fromkeys([("test", "train", "exact"), ("test", "train", "contradicting")], "e0 = t0")


def test_a_corpus_is_searched_for_each_text_of_the_test_split():
    text = " ".join(WORDS)
    test = split("e", "something else", text, f"Before it. {text.upper()}!", ("a", 0, text))
    short = " ".join(WORDS[:12]) + " and so on"  # neither 13 words nor a sentence
    texts = {"p": "nothing", "short": short, "q": f"more and {text}", "r": text}
    row = corpus_row(test, (Document(doc_id, "s", text) for doc_id, text in texts.items()))
    counts = {"examples": 3, "of": 4, "share": 3 / 4, "documents": 2, "of_documents": 4}
    assert row == {"split": "test", **counts, "ids": "e1 = q, e2 = q, e3 = q"}


def test_more_test_texts_than_sixteen_bits_count():
    test = [Example(str(at), f"number {at} {' '.join(WORDS)}", 0) for at in range(33_000)]
    assert corpus_row(test, [Document("p", "s", f"it says number 32999 {' '.join(WORDS)}")])["examples"] == 33_000
