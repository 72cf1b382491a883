"""``dana augment`` by its command line: what is written, the switches, killed and resumed, refused and nothing left."""

import json
from collections import Counter

import pandas as pd
import pytest
import yaml

from dana.cli.main import main
from dana.core.artifacts import MANIFEST
from dana.studies.augmentation import synthetic
from dana.studies.augmentation.generators import FittedTransplant
from dana.studies.augmentation.synthetic import read_synthetic
from dana.studies.topics.model import Topics
from dana.tasks.card import TaskCard
from dana.tasks.examples import read_splits
from tests.toy_task import write_checkpoint

GENRES = {"report": "the {} was seen and the {} was measured twice", "rant": "why, oh why is the {} never a {} !"}
ABOUT = {
    "cells": ["cell", "protein", "gene", "kinase", "receptor", "enzyme"],
    "courts": ["court", "judge", "appeal", "statute", "verdict", "counsel"],
}


def text_of(about, genre, number):
    words = ABOUT[about]
    return GENRES[genre].format(words[number % 6], words[(number * number + 1) % 6]) + f" {number}."


def write_lines(path, records):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return str(path)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Topics of cells and of courts; a card of two genres whose training texts are about courts; a pool about both."""
    folder = tmp_path_factory.mktemp("augment")
    sizes = {"train": 10, "dev": 4, "test": 6}
    for split, count in sizes.items():
        about = "cells" if split == "test" else "courts"
        records = [
            {"name": f"{split}{n}", "body": text_of(about, genre, n + 50 * len(split)), "genre": genre}
            for n in range(count)
            for genre in ([*GENRES] if n else ["report"])
        ]
        records = [{**record, "name": f"{record['name']}-{record['genre']}"} for record in records]
        write_lines(folder / "genres" / f"{split}.jsonl", records)
    card = {
        "name": "genres", "title": "Which genre?", "version": 1, "data": {"local": "genres"}, "labels": [*GENRES],
        "metric": "macro_f1", "splits": {}, "text": "body", "label": "genre", "id": "name",
    }  # fmt: skip
    (folder / "genres.yaml").write_text(yaml.safe_dump(card))
    pool = [
        {"id": f"{about}{n}", "text": f"The {' '.join((ABOUT[about] * 2)[n % 6 : n % 6 + 4])} of {n}."}
        for about in ABOUT
        for n in range(12)
    ]
    write_lines(folder / "pool.jsonl", pool)
    line = ["topics", "fit", "--general", str(folder / "pool.jsonl"), "--out", str(folder / "run"), "--model", "lda"]
    assert main([*line, "--k", "2", "--min-documents", "2", "--max-share", "1"]) == 0
    return folder


@pytest.fixture(scope="module")
def cells(place):
    """Number of the topic of cells, as text."""
    topics = Topics.load(place / "run" / "topic-model")
    return str(topics.beta[:, topics.words.index("kinase")].argmax())


def line(place, *words):
    return ["augment", str(place / "genres.yaml"), "--topics-of", str(place / "run"), *map(str, words)]


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.fixture(scope="module")
def on_cells(place, cells):
    out = place / "on-cells"
    named = ["--topic", cells, "--general", place / "pool.jsonl", "--keywords", 2, "--out", out]
    assert main(line(place, *named)) == 0
    return out


def test_synthetic_texts_are_on_the_topic_that_the_real_ones_lack(on_cells, place, cells):
    rows = read_synthetic(on_cells)
    assert Counter(row.label for row in rows) == {"rant": 9, "report": 10}
    for row in rows:
        assert row.topic == int(cells)
        assert row.keywords_of.startswith("cells")
        assert set(row.keywords) <= set(ABOUT["cells"])
        assert set(row.keywords) & set(row.text.split())
        assert ("measured" in row.text) == (row.label == "report"), "the genre stays"
    by_label = [[row.keywords_of for row in rows if row.label == label] for label in GENRES]
    assert by_label[0][:9] == by_label[1], "every genre writes on the same documents"
    table = pd.read_json(on_cells / "synthetic.jsonl", lines=True)
    assert list(table) == [
        "id", "text", "label", "topic", "keywords", "keywords_of", "generator", "seed", "written_for",
    ]  # fmt: skip
    assert table["seed"].tolist() == [row.seed for row in rows]
    assert not list(place.glob("on-cells-labels-*")), "what was kept to go on is gone"


def test_a_card_takes_the_folder_as_its_data(on_cells, place):
    card = TaskCard.read(place / "genres.yaml")
    before, after = read_splits(card), read_splits(card, str(on_cells))
    assert after["train"][: len(before["train"])] == before["train"]
    assert (after["dev"], after["test"]) == (before["dev"], before["test"])
    added = after["train"][len(before["train"]) :]
    assert [(one.id, one.text, card.labels[one.label]) for one in added] == [
        (row.id, row.text, row.label) for row in read_synthetic(on_cells)
    ]


def test_what_is_said(place, cells, on_cells, capsys):
    named = ["--topic", cells, "--general", place / "pool.jsonl", "--keywords", 2, "--out", on_cells]
    assert main(line(place, *named)) == 0, "the same is there, and is not made again"
    said = capsys.readouterr().out.splitlines()
    assert [row.split() for row in said[1:3]] == [["rant", "9"], ["report", "10"]]
    assert said[4].startswith("19 real and 19 synthetic texts, keywords of ")


def test_controls_and_switches(place, cells):
    made = {}
    for name, words in {
        "none": ["--control", "none", "--ratio", 2],
        "random": ["--control", "random", "--keywords", 2],
        "shuffled": ["--topic", cells, "--general", place / "pool.jsonl", "--keywords", 2, "--shuffle-labels"],
        "transductive": ["--topic", cells, "--transductive", "--seed", 5],
    }.items():
        assert main(line(place, *words, "--out", place / name)) == 0
        made[name] = read_synthetic(place / name)
    real = {example["body"] for example in map(json.loads, (place / "genres" / "train.jsonl").open())}
    assert len(made["none"]) == 38
    assert {row.text for row in made["none"]} <= real
    assert all(row.keywords_of.startswith("train") and row.topic is None for row in made["random"])
    plain = read_synthetic(place / "on-cells")
    assert [row.text for row in made["shuffled"]] == [row.text for row in plain]
    assert [row.label for row in made["shuffled"]] != [row.label for row in plain]
    assert all(row.keywords_of.startswith("test") for row in made["transductive"])


def test_a_killed_command_goes_on_with_the_missing_labels(place, cells, on_cells, monkeypatch):
    out = place / "killed"
    named = line(place, "--topic", cells, "--general", place / "pool.jsonl", "--keywords", 2, "--out", out)
    original, labels = synthetic.write_texts, []

    def write(draft, label, **given):
        labels.append(label)
        if len(labels) == 2:
            raise KeyboardInterrupt
        original(draft, label, **given)

    monkeypatch.setattr(synthetic, "write_texts", write)
    assert main(named) == 130
    assert not out.exists()
    assert main(named) == 0
    assert labels == ["rant", "report", "report"]
    assert content(out) == content(on_cells)
    assert not list(place.glob("killed-labels-*"))
    manifest = json.loads((out / MANIFEST).read_text())
    assert manifest["counts"]["labels"] == {"rant": 9, "report": 10}
    assert main(["verify", str(out)]) == 0
    assert main([*named, "--seed", "1"]) == 2, "another seed does not mix in"


def refused(arguments, folder, capsys):
    """What a command that is refused says; nothing is written below the folder."""
    before = sorted(folder.rglob("*"))
    assert main([str(word) for word in arguments]) == 2
    assert sorted(folder.rglob("*")) == before
    (said,) = [one for one in capsys.readouterr().err.splitlines() if one.startswith("dana: error")]
    return said


def test_what_is_refused(place, cells, tmp_path, capsys):
    pool, out = place / "pool.jsonl", tmp_path / "out"
    write_checkpoint(tmp_path / "bert")
    topic = ["--topic", cells, "--general"]
    test = [json.loads(one) for one in (place / "genres" / "test.jsonl").open()]
    same_id = write_lines(tmp_path / "id.jsonl", [{"id": test[0]["name"], "text": "kinase enzyme"}])
    same_text = write_lines(tmp_path / "text.jsonl", [{"id": "mine", "text": test[1]["body"].upper()}])
    other = write_lines(tmp_path / "other.jsonl", [{"text": "court judge appeal"}, {"text": "nothing known"}])
    for words, said in (
        (["--topic", "2", "--general", pool], "topic=2: must be a number from 0 to 1"),
        (["--topic", "-1", "--general", pool], "topic=-1"),
        (["--general", pool], "topic=None"),
        (["--topic", cells], "general: name the keyword pool"),
        ([*topic, other], f"topic {cells}: the keyword pool has no document"),
        ([*topic, same_id], f"document '{test[0]['name']}' is the test text"),
        ([*topic, same_text], f"document 'mine' is the test text '{test[1]['name']}'"),
        (["--control", "none", "--topic", cells], "must be topic where a topic is given"),
        (["--control", "random", "--general", pool], "must be topic where a keyword pool is given"),
        ([*topic, pool, "--generator", "embeded"], "unknown generator 'embeded'; did you mean 'embedded'?"),
        ([*topic, pool, "--generator", f"t5:{tmp_path}/no"], "no such folder"),
        ([*topic, pool, "--generator", f"t5:{tmp_path}/bert"], "is a bert, not a sequence-to-sequence model"),
        ([*topic, pool, "--ratio", "0.01"], "leaves no synthetic text"),
        ([*topic, tmp_path / "nope.jsonl"], "nope.jsonl"),
    ):
        assert said in refused([*line(place, *words), "--out", out], tmp_path, capsys), words


def test_labels_and_cards_that_are_refused(place, cells, tmp_path, capsys):
    card = yaml.safe_load((place / "genres.yaml").read_text())
    where = ["--topics-of", place / "run", "--control", "none", "--out", tmp_path / "out"]
    data = ["--data", place / "genres"]
    for changes, said in (
        ({"labels": [*GENRES, "poem"]}, "task genres: label 'poem' has no training text"),
        ({"kind": "multi_label"}, "task genres: kind multi_label: synthetic texts are of one field and one label"),
        ({"text_pair": "genre"}, "task genres: text_pair"),
    ):
        (tmp_path / "card.yaml").write_text(yaml.safe_dump(card | changes))
        assert said in refused(["augment", tmp_path / "card.yaml", *data, *where], tmp_path, capsys)
    for split in ("train", "dev", "test"):
        rows = [{"name": f"synthetic-{split}-{n}", "body": "a text", "genre": genre} for n, genre in enumerate(GENRES)]
        write_lines(tmp_path / "again" / f"{split}.jsonl", rows)
    again = ["augment", place / "genres.yaml", "--data", tmp_path / "again", *where]
    assert "'synthetic-train-0' is the id of a synthetic text" in refused(again, tmp_path, capsys)


def test_a_generator_that_writes_nothing_leaves_nothing(place, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(FittedTransplant, "generate", lambda self, keywords, seeds: [""] * len(keywords))
    words = line(place, "--control", "random", "--out", tmp_path / "deep" / "out")
    assert "wrote an empty text of 'rant'" in refused(words, tmp_path, capsys)
    assert synthetic.ATTEMPTS == 3
