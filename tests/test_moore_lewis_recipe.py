"""The study of recipes/papers/moore_lewis on made-up books: its curves, its cuts, and what it refuses."""

import csv
import gzip
import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

SCRIPT = Path(__file__).parent.parent / "recipes" / "papers" / "moore_lewis" / "jane_eyre.py"
TOPICS = """
the governess crossed a cold hall and heard her master laugh behind the door of an attic
a sailor climbed the mast while grey waves broke over the deck and gulls cried above him
"""
MANSION, HARBOUR = (line.split() for line in TOPICS.strip().splitlines())


@pytest.fixture(scope="module")
def study():
    spec = importlib.util.spec_from_file_location("jane_eyre", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules["jane_eyre"] = module  # where dataclasses look for it
    spec.loader.exec_module(module)
    return module


def chains(words, count, seed):
    """Sentences in which most words have the same two or three words after them."""
    random = np.random.default_rng(seed)
    lines = []
    for _ in range(count):
        position, picked = int(random.integers(len(words))), []
        for _ in range(14):
            picked.append(words[position])
            position = (position + int(random.choice([1, 2, 5], p=[0.5, 0.3, 0.2]))) % len(words)
        lines.append(" ".join(picked).capitalize() + ".")
    return lines


def write(path, sentences):
    paragraphs = [" ".join(sentences[start : start + 5]) for start in range(0, len(sentences), 5)]
    with gzip.open(path, "wt", encoding="utf-8") as stream:
        stream.write("\n\n".join(paragraphs))


@pytest.fixture(scope="module")
def novels(tmp_path_factory):
    folder = tmp_path_factory.mktemp("novels")
    write(folder / "x-Jane_Eyre.txt.gz", chains(MANSION, 300, 0))
    write(folder / "a.txt.gz", chains(HARBOUR, 900, 1) + chains(MANSION, 60, 2))
    write(folder / "b.txt.gz", chains(MANSION, 60, 3) + chains(HARBOUR, 900, 4))
    return folder


def test_the_selected_curve_lies_under_the_random_one_and_they_meet(study, novels, tmp_path, capsys):
    study.main([str(novels), "--out", str(tmp_path)])
    with (tmp_path / "perplexities.csv").open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    curves = {
        name: [row for row in rows if row["ranking"] == name] for name in dict.fromkeys(r["ranking"] for r in rows)
    }
    assert list(curves) == ["cross_entropy", "perplexity", "random"]
    for name in ("cross_entropy", "perplexity"):
        assert [row["sentences"] for row in curves[name]] == [row["sentences"] for row in curves["random"]]
        pairs = [
            (float(one["perplexity"]), float(other["perplexity"]))
            for one, other in zip(curves[name], curves["random"], strict=True)
        ]
        assert len(pairs) == 10
        assert all(selected < random for selected, random in pairs[:-1])
        assert pairs[-1][0] == pairs[-1][1]
    assert capsys.readouterr().out.count("lies under that of random sentences") == 2
    assert {path.name for path in tmp_path.iterdir()} == {"perplexities.csv", "perplexities.png", "differences.png"}


def test_tenths_are_disjoint_and_the_task_may_be_added(study):
    task, pool = chains(MANSION, 60, 0), chains(HARBOUR, 100, 1) + chains(MANSION, 10, 2)
    made = study.Study.of_texts(task, chains(MANSION, 20, 3), pool)
    order = np.arange(len(pool))[::-1]
    whole, tenths = made.curve("x", order), made.curve("x", order, disjoint=True)
    assert [cut.sentences for cut in whole] == list(range(11, 111, 11))
    assert [cut.sentences for cut in tenths] == [11] * 10
    assert sum(cut.words for cut in tenths) == whole[-1].words
    assert tenths[0].perplexity == whole[0].perplexity < tenths[-1].perplexity
    assert made.curve("x", order, plus_task=True)[-1].perplexity < whole[-1].perplexity
