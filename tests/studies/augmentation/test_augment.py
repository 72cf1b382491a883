"""``augment`` by its command line: what is written, the switches, killed and resumed, refused and nothing left."""

import json
from collections import Counter

import pandas as pd
import pytest
import yaml

from dana.cli.main import main
from dana.core.artifacts import MANIFEST
from dana.studies.augmentation import synthetic
from dana.studies.augmentation.synthetic import read_synthetic
from dana.studies.topics.model import Topics
from tests.studies.toy_pool import content
from tests.toy_task import write_checkpoint

GENRES = {
    "report": "the {} was seen and the {} was measured twice",
    "rant": "why, oh why is the {} never a {} !",
}
ABOUT = {
    "cells": ["cell", "protein", "gene", "kinase", "receptor", "enzyme"],
    "courts": ["court", "judge", "appeal", "statute", "verdict", "counsel"],
}


def text_of(topic_name, genre, number):
    words = ABOUT[topic_name]
    return GENRES[genre].format(words[number % 6], words[(number * number + 1) % 6]) + f" {number}."


def write_lines(path, records):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return str(path)


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    """Topics of cells and of courts; a card of two genres whose training texts are about courts; a pool about both."""
    folder = tmp_path_factory.mktemp("augment")
    sizes = {"train": 10, "dev": 4, "test": 6}
    for split, count in sizes.items():
        topic_name = "cells" if split == "test" else "courts"
        records = [
            {
                "name": f"{split}{n}",
                "body": text_of(topic_name, genre, n + 50 * len(split)),
                "genre": genre,
            }
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
        {
            "id": f"{topic_name}{n}",
            "text": f"The {' '.join((ABOUT[topic_name] * 2)[n % 6 : n % 6 + 4])} of {n}.",
        }
        for topic_name in ABOUT
        for n in range(12)
    ]
    write_lines(folder / "pool.jsonl", pool)
    line = [
        "studies",
        "topics",
        "fit",
        "--pool",
        str(folder / "pool.jsonl"),
        "--out",
        str(folder / "run"),
        "--model",
        "lda",
    ]
    assert main([*line, "--k", "2", "--min-documents", "2", "--max-share", "1"]) == 0
    return folder


@pytest.fixture(scope="module")
def cells(workspace):
    """Number of the topic of cells, as text."""
    topics = Topics.load(workspace / "run" / "topic-model")
    return str(topics.beta[:, topics.words.index("kinase")].argmax())


def line(workspace, *words):
    return [
        "studies",
        "augment",
        str(workspace / "genres.yaml"),
        "--topics-of",
        str(workspace / "run"),
        *map(str, words),
    ]


@pytest.fixture(scope="module")
def on_cells(workspace, cells):
    out = workspace / "on-cells"
    flags = ["--topic", cells, "--pool", workspace / "pool.jsonl", "--keywords", 2, "--out", out]
    assert main(line(workspace, *flags)) == 0
    return out


def test_synthetic_texts_are_on_the_topic_that_the_real_ones_lack(on_cells, workspace, cells):
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
    assert not list(workspace.glob("on-cells-labels-*")), "what was kept to go on is gone"


def test_a_killed_command_goes_on_with_the_missing_labels(workspace, cells, on_cells, monkeypatch):
    out = workspace / "killed"
    flags = line(
        workspace,
        "--topic",
        cells,
        "--pool",
        workspace / "pool.jsonl",
        "--keywords",
        2,
        "--out",
        out,
    )
    original, labels = synthetic.write_texts, []

    def write(draft, label, **arguments):
        labels.append(label)
        if len(labels) == 2:
            raise KeyboardInterrupt
        original(draft, label, **arguments)

    monkeypatch.setattr(synthetic, "write_texts", write)
    assert main(flags) == 130
    assert not out.exists()
    assert main(flags) == 0
    assert labels == ["rant", "report", "report"]
    assert content(out) == content(on_cells)
    assert not list(workspace.glob("killed-labels-*"))
    manifest = json.loads((out / MANIFEST).read_text())
    assert manifest["counts"]["labels"] == {"rant": 9, "report": 10}
    assert main([*flags, "--seed", "1"]) == 2, "another seed does not mix in"


def test_what_is_refused(workspace, cells, tmp_path, capsys):
    write_checkpoint(tmp_path / "bert")
    test = json.loads((workspace / "genres" / "test.jsonl").read_text().splitlines()[0])
    same_text = write_lines(tmp_path / "text.jsonl", [{"id": "mine", "text": test["body"].upper()}])
    before = sorted(tmp_path.rglob("*"))
    for words, message in (
        (["--topic", "2", "--pool", workspace / "pool.jsonl"], "topic=2"),
        (["--topic", cells], "pool"),
        (
            ["--topic", cells, "--pool", same_text],
            f"document 'mine' is the test text '{test['name']}'",
        ),
        (["--topic", cells, "--control", "none"], "topic has no effect with control=none"),
        (
            [
                "--topic",
                cells,
                "--pool",
                workspace / "pool.jsonl",
                "--generator",
                f"t5:{tmp_path}/bert",
            ],
            "is bert",
        ),
    ):
        assert main(line(workspace, *words, "--out", tmp_path / "out")) == 2
        assert message in capsys.readouterr().err, words
        assert sorted(tmp_path.rglob("*")) == before
