"""The skill folder: its scripts answer rightly, and its commands are commands."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from dana.cli.main import build_parser

FOLDER = Path(__file__).parents[1] / "docs" / "skill"
SCRIPTS = FOLDER / "scripts"


def check(path, *names):
    command = [sys.executable, SCRIPTS / "check_table.py", path, *names]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_problems_of_a_table_are_named(tmp_path, suffix):
    texts = [f"text number {row} of a table that is long enough" for row in range(60)]
    table = pd.DataFrame({"role": ["a"] * 40 + ["b"] * 20, "sentence": texts})
    table.loc[59, "role"] = "rare"
    table.loc[58, "sentence"] = texts[0]  # which another label has
    table.loc[57, "sentence"] = ""
    table.loc[56, "sentence"] = "long " * 500
    path = tmp_path / f"table{suffix}"
    if suffix == ".csv":
        table.to_csv(path, index=False)
    elif suffix == ".jsonl":
        table.to_json(path, orient="records", lines=True)
    else:
        table.to_parquet(path)
    answer = json.loads(check(path).stdout)
    assert (answer["text"], answer["label"], answer["texts"]) == ("sentence", "role", 60)
    assert answer["labels"] == {"a": 40, "b": 19, "rare": 1}
    problems = " ".join(answer["problems"])
    assert "1 texts are empty" in problems
    assert "1 texts repeat an earlier one" in problems
    assert "1 texts have two labels" in problems
    assert "{'b': 19, 'rare': 1}" in problems
    assert "1 texts are longer" in problems


def test_columns_can_be_named_and_another_file_is_refused(tmp_path):
    path = tmp_path / "table.csv"
    pd.DataFrame({"x": ["a", "b"], "y": ["1", "2"], "z": ["p", "q"]}).to_csv(path, index=False)
    answer = json.loads(check(path, "x", "z").stdout)
    assert (answer["text"], answer["label"]) == ("x", "z")
    refused = check(tmp_path / "notes.txt")
    assert refused.returncode == 2
    assert "give a table that ends in .csv" in refused.stderr


def test_the_verdict_is_told_in_lines(monkeypatch):
    monkeypatch.syspath_prepend(SCRIPTS)
    import verdict

    row = {"a": "dana", "b": "base", "difference": 0.05, "interval": [0.01, 0.09]}
    answer = {
        "headline": "Adapted is better.",
        "arms": {"dana": {"mean": 0.7, "interval": None}},
        "probe": [
            {"arm": "base", "labels": 50, "metric": "accuracy", "mean": 0.5, "interval": [0.4, 0.6]}
        ],
        "verdicts": [{**row, "decision": "better"}],
        "probe_verdicts": [{**row, "b": "tfidf", "decision": "undecided"}],
        "label_worth": ["Worth 120 more."],
        "model": {
            "choice": "tfidf",
            "metric": "accuracy",
            "expected": 0.6,
            "low": None,
            "high": None,
        },
    }
    assert verdict.lines(answer) == [
        "Adapted is better.",
        "vectors of base, 50 labels: accuracy 0.500 (0.400 to 0.600)",
        "dana, fine-tuned: 0.700",
        "dana against base: +0.050 (0.010 to 0.090): better",
        "dana against tfidf: +0.050 (0.010 to 0.090): undecided",
        "Worth 120 more.",
        "model: tfidf; expect accuracy 0.600 on new texts",
    ]


def test_its_commands_parse():
    page = (FOLDER / "SKILL.md").read_text(encoding="utf-8")
    commands = [
        shlex.split(line, comments=True)
        for block in re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
        for line in block.splitlines()
    ]
    verbs = [words[1:] for words in commands if words[:1] == ["dana"]]
    assert len(verbs) >= 5
    for words in verbs:
        build_parser(words).parse_args(words)
    scripts = [words[1] for words in commands if words[:1] == ["python"]]
    assert [script for script in scripts if not (FOLDER.parents[1] / script).is_file()] == []
