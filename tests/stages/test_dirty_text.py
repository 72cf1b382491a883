"""Text is cleaned by one function, whatever door it comes in by; output is UTF-8 whatever the locale."""

import json
import os
import subprocess
import sys

import pandas as pd
import pytest
import yaml

import dana
from dana.cli.main import main
from dana.core.schemas import iterate_documents, read_table
from dana.corpus.text import normalise
from dana.selectors.base import as_units
from dana.stages.predict import NewText
from dana.stages.texts import pool_stage
from dana.tasks.card import load_card
from dana.tasks.columns import Columns
from dana.tasks.examples import read_splits
from dana.tasks.kinds import find_kind

CLEAN = "the printer shows an error on page"
DIRT = {
    "half of an emoji": "the printer \ud83dshows an error on page",
    "the other half": "the printer shows an error on page\ude00",
    "NUL": "the \x00printer shows an error on page",
    "a soft hyphen": "the prin\u00adter shows an error on page",
    "a space of no width": "the printer shows\u200b an error on page",
    "directions": "\u202bthe printer\u202c shows \u2066an error\u2069 on page\u200f",
    "a byte-order mark": "\ufeffthe printer shows an error on page",
    "a word joiner": "the print\u2060er shows an error on page",
    "an annotation": "the \ufff9printer\ufffb shows an error on page",
    "an escape": "the printer \x1bshows an error on page",
}
ROWS = [(f"{text} {number}", "ab"[number % 2]) for number, text in enumerate(DIRT.values())] * 4
ROWS = [(f"{text} of {number}", label) for number, (text, label) in enumerate(ROWS)]
WANTED = [f"{CLEAN} {number % len(DIRT)} of {number}" for number in range(len(ROWS))]


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A working directory with dirty.jsonl, a card on it, and a pool."""
    monkeypatch.chdir(tmp_path)
    lines = [json.dumps({"text": text, "label": label}) for text, label in ROWS]
    (tmp_path / "dirty.jsonl").write_text("\n".join(lines))
    pool = [{"text": f"River stone market garden {n}. Window letter {n}."} for n in range(30)]
    (tmp_path / "pool.jsonl").write_text("\n".join(map(json.dumps, pool)))
    return tmp_path


def of_init(home):
    assert main(["init", "dirty.jsonl", "--pool", "pool.jsonl", "--out", "run"]) == 0
    return pd.read_parquet(home / "run" / "texts.parquet")["text"].tolist()


def of_init_in_memory(home):
    table = pd.DataFrame({"text": pd.Series([text for text, _ in ROWS], dtype=object)})
    table["label"] = [label for _, label in ROWS]
    dana.init(table, pool="pool.jsonl", out="run")
    return pd.read_parquet(home / "run" / "texts.parquet")["text"].tolist()


def of_pool(home):
    return [one.text for one in iterate_documents(pool_stage(["dirty.jsonl"], home / "p").path)]


def of_card(home):
    folder = home / "toy"
    folder.mkdir()
    for split in ("train", "dev", "test"):
        (folder / f"{split}.jsonl").write_text((home / "dirty.jsonl").read_text())
    card = {"name": "toy", "title": "t", "version": 1, "labels": ["a", "b"], "splits": {}}
    card |= {"metric": "accuracy", "data": {"local": "toy"}}
    (home / "toy.yaml").write_text(yaml.safe_dump(card))
    return [one.text for one in read_splits(load_card(str(home / "toy.yaml")))["train"]]


def of_predict(home):
    kind = find_kind("single_label")(("a", "b"))
    return [one.text for one in NewText(["dirty.jsonl"]).examples(Columns(), kind)]


def of_python(home):
    return list(as_units([text for text, _ in ROWS], "texts").texts)


def of_texts_in_memory(home):
    texts = [text for text, _ in ROWS]
    dana.score(texts, "pool.jsonl", out=home / "scored", selector="random")
    parts = [read_table(home / "scored" / "target" / part) for part in ("fit", "held_out")]
    found = {text for part in parts for text in part["text"].to_pylist()}
    return [text for text in WANTED if text in found]


@pytest.mark.parametrize(
    "door",
    [
        of_init,
        of_init_in_memory,
        of_pool,
        of_card,
        of_predict,
        of_python,
        of_texts_in_memory,
    ],
)
def test_every_door_cleans_text_alike(door, home):
    assert door(home) == WANTED


@pytest.mark.parametrize("text", DIRT.values(), ids=DIRT)
def test_what_no_reader_sees_is_dropped(text):
    assert normalise(text) == CLEAN


@pytest.mark.parametrize(
    "text",
    ["می\u200cخواهم", "क\u094d\u200dष", "👩\u200d👩\u200d👧", "🏴\U000e0067\U000e007f", "❤\ufe0f"],
)
def test_joiners_and_tags_that_spell_a_word_or_an_emoji_stay(text):
    assert normalise(text) == text


def test_names_of_fields_and_nested_values_lose_half_characters(tmp_path):
    line = '{"te\\ud83dxt": "a court", "meta": [{"k\\udc00": "v\\ud800"}]}'
    (tmp_path / "x.jsonl").write_text(line)
    pool = pool_stage([str(tmp_path / "x.jsonl")], tmp_path / "out")
    assert [one.text for one in iterate_documents(pool.path)] == ["a court"]


def test_words_with_labels_are_cleaned_and_keep_their_places():
    kind = find_kind("token_labels")
    words = ["co\u00adurt", "\u200b", "judge"]
    assert kind.read_text(words) == ("court \ufffd judge", ("court", "\ufffd", "judge"))
    with pytest.raises(ValueError, match="empty word"):
        kind.read_text(["court", " "])


PRINTS = """
import argparse
from dana.cli.main import run_script
def run(args):
    print("café 中 😀 \\udc80")
    raise OSError("broken: ü 中")
raise SystemExit(run_script(argparse.ArgumentParser(), run, []))
"""


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "latin-1", "utf-16"])
def test_output_is_utf8_whatever_the_locale(encoding):
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    done = subprocess.run(
        [sys.executable, "-c", PRINTS], capture_output=True, env=environment, check=False
    )
    assert done.returncode == 2
    assert done.stdout.decode("utf-8") == "café 中 😀 \\udc80\n"
    assert "dana: error: broken: ü 中" in done.stderr.decode("utf-8")
    assert b"Traceback" not in done.stderr
