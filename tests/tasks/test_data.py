"""Labelled examples: what is read from a record, what is refused; tables of cards and splits by hand."""

import logging
from dataclasses import replace

import pytest
import toy_kinds
import toy_pairs
import toy_task

from dana.core.artifacts import Draft
from dana.core.errors import ConfigError, DataError
from dana.core.schemas import Document
from dana.corpus.documents import Tally
from dana.finetuning.settings import FinetuneSettings
from dana.tasks.card import TaskCard, load_card
from dana.tasks.examples import Example, card_texts, overlap, read_split, read_splits
from dana.tasks.finder import card_names
from dana.tasks.hygiene import Cleaner
from dana.tasks.settings import Hygiene
from dana.tasks.tables import card_rows, card_text, label_rows, overlap_rows, pool_row, split_rows

GOOD = {"id": "a", "text": "an apple", "label": "fruit"}
LONG = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen"


@pytest.fixture
def pairs(tmp_path, monkeypatch):
    monkeypatch.delenv("DANA_DATA", raising=False)
    return load_card(str(toy_pairs.write_task(tmp_path)))


def write(card, split, *records):
    return toy_task.write_split(card.origins[0].parent / "toy", split, list(records))


def pair(premise, hypothesis):
    return {"uid": "x", "premise": premise, "hypothesis": hypothesis, "label": "bird"}


def test_examples_have_id_text_and_class_number(toy_card, pairs):
    write(toy_card, "dev", GOOD, {"text": " zinc\r\n", "label": "metal"})
    assert read_split(toy_card, "dev") == [Example("a", "an apple", 0), Example("dev-2", "zinc", 1)]
    write(pairs, "dev", pair(" a wren\r\n", "it\x00 is\t"))
    assert read_split(pairs, "dev") == [Example("x", "a wren", 2, "it is")]


def one_file_card(tmp_path, ids):
    """A card of one file that a hash of the ids divides."""
    folder = tmp_path / "one"
    rows = [
        {"id": name, "text": f"text number {row} of all", "label": ["metal", "bird"][row % 2]}
        for row, name in enumerate(ids)
    ]
    toy_task.write_split(folder / "data", "texts", rows)
    card = tmp_path / "one.yaml"
    card.write_text(
        "name: one\ntitle: One file\nversion: 1\nlabels: [metal, bird]\nmetric: accuracy\n"
        "splits: {}\ndata: {file: texts}\n"
    )
    return load_card(str(card)), str(folder / "data")


def test_each_text_of_one_file_is_in_one_split_also_where_ids_are_blank(tmp_path):
    card, data = one_file_card(tmp_path, [""] * 200)
    texts = [
        example.text
        for split in ("train", "dev", "test")
        for example in read_split(card, split, data)
    ]
    assert sorted(texts) == sorted(f"text number {row} of all" for row in range(200))


def test_texts_of_one_id_lie_in_one_split_of_one_file_under_names_of_their_own(tmp_path):
    card, data = one_file_card(tmp_path, [f"document-{row // 4}" for row in range(200)])
    examples = {split: read_split(card, split, data) for split in ("train", "dev", "test")}
    names = [example.id for part in examples.values() for example in part]
    assert len(set(names)) == len(names) == 200
    documents = [{one.id.partition("#")[0] for one in part} for part in examples.values()]
    assert not documents[0] & documents[1]
    assert not (documents[0] | documents[1]) & documents[2]


def test_fields_may_be_nested_and_named_by_the_settings(tmp_path):
    card = load_card(
        str(toy_task.write_task(tmp_path, text="meta.body", label="meta.topic", id="meta.uid"))
    )
    record = {
        "id": 1,
        "meta": {"body": "a wren", "topic": "bird", "uid": 7},
        "text": "zinc",
        "label": "metal",
    }
    write(card, "test", record, {"meta": {"body": "an owl", "topic": "bird", "uid": "8"}})
    assert read_split(card, "test") == [Example("7", "a wren", 2), Example("8", "an owl", 2)]
    for uid, reason in ((None, "the id is null"), (7, "the id '7' comes twice")):
        write(card, "test", record, {"meta": {"body": "an owl", "topic": "bird", "uid": uid}})
        with pytest.raises(DataError, match=f"test.jsonl:2: {reason}"):
            read_split(card, "test")
    write(card, "test", record)
    assert FinetuneSettings().fields_of(card) == card
    other = FinetuneSettings(text_field="text", label_field="label", id_field="id").fields_of(card)
    assert read_split(other, "test") == [Example("1", "zinc", 1)]
    template = replace(card, text="text", template="{id} {label}")
    assert FinetuneSettings(text_field="text").fields_of(template).template is None


def test_unseen_test_leaves_out_texts_of_other_splits(toy_card):
    names = "owl", "wren", "crow", "rook"
    owl, wren, crow, rook = (
        {"id": name, "text": f" {name}\r\n", "label": "bird"} for name in names
    )
    for split, records in {"train": [owl], "dev": [wren], "test": [owl, wren, crow, rook]}.items():
        write(toy_card, split, *records)
    assert [example.id for example in read_splits(toy_card)["test"]] == [*names]
    unseen = replace(toy_card, unseen_test=True)
    assert [example.id for example in read_splits(unseen)["test"]] == ["crow", "rook"]
    assert [example.id for example in read_split(unseen, "test")] == [*names]  # as distributed
    write(toy_card, "train", owl, crow)
    with pytest.raises(DataError, match="toy: unseen_test leaves 1 test texts"):
        read_splits(unseen)
    write(toy_card, "test", owl)
    with pytest.raises(DataError, match="toy: 1 test texts; a verdict needs at least 2"):
        read_splits(toy_card)


@pytest.mark.parametrize(
    ("kind", "bad", "problem"),
    [
        ("single_label", {"text": "a cat", "label": "cat"}, "label 'cat' "),
        ("single_label", {"text": " \n", "label": "bird"}, "the text is empty"),
        ("single_label", {"text": None, "label": "bird"}, "no 'text'; found label"),
        ("single_label", {"text": "an owl", "label": None}, "no 'label'; found text"),
        ("single_label", {"text": 3, "label": "bird"}, "'text' is int"),
        ("single_label", [1], "expected a JSON object"),
        (
            "pairs",
            {**pair("a", "b"), "hypothesis": None},
            "no 'hypothesis'; found uid, premise, label",
        ),
        ("pairs", {**pair("a", "b"), "hypothesis": 7}, "'hypothesis' is int"),
        ("pairs", {**pair("a", "b"), "hypothesis": " \n"}, "the second text is empty"),
        ("pairs", {**pair("a", "b"), "premise": " \n"}, "the text is empty"),
        ("multi_label", {"text": "x", "label": "cat"}, "label 'cat' is str"),
        ("regression", {"text": "x", "label": "warm"}, "label 'warm'"),
        ("token_labels", {"tokens": ["a", "b"], "tags": ["O"]}, "2 words, but 1 labels"),
        ("token_labels", {"tokens": ["a", " "], "tags": ["O", "O"]}, "'tokens' has an empty word"),
        ("token_labels", {"tokens": {"a": 1}, "tags": ["O"]}, "'tokens' is dict"),
        ("token_labels", {"tokens": ["a", 3], "tags": ["O", "O"]}, "'tokens' is list"),
        ("token_labels", {"tokens": [], "tags": []}, "the text is empty"),
    ],
)
def test_a_bad_record_is_refused_by_file_and_line(tmp_path, kind, bad, problem):
    write_task = {"single_label": toy_task.write_task, "pairs": toy_pairs.write_task}.get(kind)
    path = write_task(tmp_path) if write_task else toy_kinds.write_task(tmp_path, kind)
    split = toy_task.write_split(
        tmp_path / "toy", "dev", [GOOD, bad] if kind == "single_label" else [bad]
    )
    line = 2 if kind == "single_label" else 1
    with pytest.raises(DataError) as error:
        read_split(load_card(str(path)), "dev")
    assert str(error.value).startswith(f"{split}:{line}: {problem}")


def test_an_unexpected_number_of_examples_is_a_warning_and_none_an_error(toy_card, caplog):
    caplog.set_level(logging.WARNING, "dana")
    read_splits(toy_card)
    read_split(replace(toy_card, splits={"dev": [29, 30]}), "dev")
    assert not caplog.messages
    path = write(toy_card, "dev", GOOD)
    read_split(toy_card, "dev")
    [message] = caplog.messages
    assert message.startswith("toy: dev has 1 examples, but the card expects 30")
    path.write_text("\n\n")
    with pytest.raises(DataError, match=r"dev\.jsonl: has no examples"):
        read_split(toy_card, "dev")


def test_overlap_counts_test_examples_with_the_text_or_both_texts_of_another_split():
    def splits(**texts):
        return {
            split: [Example("", text[0], 0, text[1:] or None) for text in rows]
            for split, rows in texts.items()
        }

    single = splits(train="abb", dev="c", test="bbcd")
    assert overlap(single) == {"test_in_train": 2, "test_in_dev": 1, "seen": 3, "unseen": 1}
    both = splits(train=["ab"], dev=[], test=["ac", "ba", "ab", "cb"])
    assert overlap(both) == {"test_in_train": 1, "test_in_dev": 0, "seen": 1, "unseen": 3}


@pytest.mark.parametrize("field", ["premise", "hypothesis"])
def test_each_text_of_a_pair_is_text_of_the_task_and_decontaminated(pairs, tmp_path, field):
    write(pairs, "train", pair("a wren", "a bird"), pair("a wren", "zinc"))
    write(pairs, "dev", pair("an owl", "a bird"))
    fit, held_out = card_texts(pairs, None)
    assert [document.text for document in fit] == ["a wren", "a bird", "zinc"]
    assert [document.text for document in held_out] == ["an owl"]
    write(pairs, "test", {**pair("a", "b"), field: LONG})
    documents = [Document("clean", "s", "nothing of it"), Document("held", "s", f"so {LONG} so")]
    tally = Tally()
    for document in documents:
        tally.add(document)
    (tmp_path / "draft" / "__dana__").mkdir(parents=True)
    cleaner = Cleaner(Hygiene(decontaminate=[str(pairs.origins[0])]))
    remaining = cleaner.filter_pool(documents, tally, Draft(tmp_path / "draft"))
    assert [document.doc_id for document in remaining] == ["clean"]


WORDS = [f"w{at}" for at in range(20)]


def test_the_text_of_a_card_is_the_card(tmp_path):
    for card in map(load_card, card_names()):
        (tmp_path / "again.yaml").write_text(card_text(card, None), encoding="utf-8")
        again = TaskCard.read(tmp_path / "again.yaml")
        assert [key for key in vars(card) if getattr(card, key) != getattr(again, key)] == [
            "origins"
        ]


def test_cards_are_rows_with_expected_sizes_and_availability_filtered_by_tag(tmp_path, monkeypatch):
    monkeypatch.delenv("DANA_DATA", raising=False)
    splits = {"splits": {"train": 120, "test": [60, 1061]}, "tags": ["law", "topic"]}
    local = load_card(str(toy_task.write_task(tmp_path, **splits)))
    [row] = card_rows([local], None)
    values = {
        "name": "toy",
        "kind": "single_label",
        "metric": "macro_f1",
        "labels": 3,
        "train": "120",
        "dev": "-",
    }
    values |= {
        "test": "60 or 1,061",
        "data": "here",
        "tags": "law, topic",
        "title": "What is it about?",
    }
    assert row == values
    hub = load_card(str(toy_task.write_task(tmp_path, data={"hub": "org/name"}, name="remote")))
    gone = load_card(str(toy_task.write_task(tmp_path, data={"local": "gone"})))
    (tmp_path / "toy" / "dev.jsonl").unlink()
    (tmp_path / "toy" / "test.jsonl").unlink()
    assert [row["data"] for row in card_rows([local, hub, gone], None)] == [
        "no dev, test",
        "hub",
        "missing",
    ]
    assert [row["name"] for row in card_rows([local, hub], None, "law")] == ["toy"]
    with pytest.raises(ConfigError, match=r"--tag 'lawn'.*did you mean 'law'"):
        card_rows([local, hub], None, "lawn")


def test_split_and_label_rows_by_hand(toy_card):
    train = [Example(str(at), "one two", label, "three") for at, label in enumerate([0, 1, 2, 0])]
    lengths = [1, 2, 3, *[4] * 16, 90]
    dev = [Example(str(at), " ".join(["w"] * length), 1) for at, length in enumerate(lengths)]
    dev[0] = Example("0", "", 1)
    first, second = (
        list(row.values()) for row in split_rows(toy_card, {"train": train, "dev": dev})
    )
    assert first == ["train", 4, "120", 0, 3, 3, ""]
    assert second == ["dev", 20, "30", 1, 4, 4, "fruit, bird"]
    rows = label_rows(toy_card, {"train": train, "test": dev[:1]})
    train_rows = [
        ("train", "fruit", 2, 0.5),
        ("train", "metal", 1, 0.25),
        ("train", "bird", 1, 0.25),
    ]
    test_rows = [("test", "fruit", 0, 0.0), ("test", "metal", 1, 1.0), ("test", "bird", 0, 0.0)]
    assert [tuple(row.values()) for row in rows] == train_rows + test_rows


def split(name, *texts):
    """Examples of texts, or of tuples (text, label, second text)."""
    rows = [text if isinstance(text, tuple) else (text, 0) for text in texts]
    return [Example(f"{name}{at}", *row) for at, row in enumerate(rows)]


def matches(train, dev, test):
    rows = overlap_rows({"train": train, "dev": dev, "test": test})
    assert len(rows) == 3 * 2 + 3 * 2
    return {
        (row["split"], row["within"], row["kind"]): (row["examples"], row["of"], row["ids"])
        for row in rows
    }


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
    assert rows["test", "train", "exact"] == (5, 5, "e0 = t0, e1 = t1, e2 = t2"), (
        "at most three ids"
    )
    # Pairs match if both texts do.
    test = split("e", ("a", 1, "b"), ("a", 0, "b more"), ("b", 0, "a"))
    rows = matches(split("t", ("a", 0, "b")), split("d", ("x", 0, "y")), test)
    pairs = {key: ids for key, (_, _, ids) in rows.items() if ids}
    assert pairs == dict.fromkeys(
        [("test", "train", "exact"), ("test", "train", "contradicting")], "e0 = t0"
    )


def test_a_pool_is_searched_for_each_text_of_the_test_split():
    text = " ".join(WORDS)
    test = split("e", "something else", text, f"Before it. {text.upper()}!", ("a", 0, text))
    short = " ".join(WORDS[:12]) + " and so on"  # neither 13 words nor a sentence
    texts = {"p": "nothing", "short": short, "q": f"more and {text}", "r": text}
    row = pool_row(test, (Document(doc_id, "s", text) for doc_id, text in texts.items()))
    counts = {"examples": 3, "of": 4, "share": 3 / 4, "documents": 2, "of_documents": 4}
    assert row == {"split": "test", **counts, "ids": "e1 = q, e2 = q, e3 = q"}
    many = [
        Example(str(at), f"number {at} {text}", 0) for at in range(33_000)
    ]  # more than sixteen bits count
    assert (
        pool_row(many, [Document("p", "s", f"it says number 32999 {text}")])["examples"] == 33_000
    )


def test_several_fields_of_0_and_1_are_the_labels_of_a_card_in_their_order(tmp_path):
    path = toy_kinds.write_task(
        tmp_path, "multi_label", labels=["b", "a"], label=["meta.is_b", "is_a"]
    )
    rows = [
        {"text": f"owl {number}", "meta": {"is_b": b}, "is_a": a}
        for number, (b, a) in enumerate([(1, 0), ("0", "1"), (True, True), (0.0, 0)])
    ]
    file = toy_task.write_split(tmp_path / "toy", "dev", rows)
    examples = read_split(load_card(str(path)), "dev")
    assert [example.label for example in examples] == [(0,), (1,), (0, 1), ()]
    for bad, words in (({"is_a": 2}, "'is_a' is 2"), ({"is_a": None}, "no 'is_a'")):
        toy_task.write_split(tmp_path / "toy", "dev", [*rows, {**rows[0], **bad}])
        with pytest.raises(DataError, match=f"{file}:5: {words}"):
            read_split(load_card(str(path)), "dev")
    for changes, words in (
        ({"label": ["is_a"]}, "2 different fields"),
        ({"label": ["is_a", "is_a"]}, "2 different fields"),
        ({"kind": "single_label", "metric": "accuracy"}, "one field for kind=single_label"),
    ):
        with pytest.raises(ConfigError, match=words):
            replace(load_card(str(path)), **changes)


def test_separated_text_in_a_table_is_several_labels_of_a_card(tmp_path):
    path = toy_kinds.write_task(tmp_path, "multi_label", labels=["sea, land", "air", "sea"])
    (tmp_path / "toy" / "dev.jsonl").unlink()
    (tmp_path / "toy" / "dev.csv").write_text(
        'text,label\nowl one,air;sea\nowl two,"sea, land"\nowl three,[]\nowl four,"0,1,1"\n'
    )
    examples = read_split(load_card(str(path)), "dev")
    assert [example.label for example in examples] == [(1, 2), (0,), (), (1, 2)]
