"""The code of the page on the Python interface and of the page on trainers runs as it is."""

import gzip
import json
import re
from pathlib import Path

import pandas as pd
import pytest

from tests import toy_task
from tests.api.conftest import FAST

DOCS = Path(__file__).parents[2] / "docs"


def code_of(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


@pytest.fixture
def place(tmp_path, monkeypatch, task_texts, general_texts, pieces):
    """A folder with what the pages' code reads, where small stand-ins have the names of large things."""
    monkeypatch.chdir(tmp_path)
    pd.DataFrame({"text": task_texts}).to_csv("notes.csv", index=False)
    pd.DataFrame(toy_task.rows(100, 1)).to_csv("labelled.csv", index=False)
    Path("pool").mkdir()
    with gzip.open("pool/a.jsonl.gz", "wt", encoding="utf-8") as stream:
        stream.writelines(json.dumps({"text": text}) + "\n" for text in general_texts)
    Path("runs/mine").mkdir(parents=True)
    settings = {"selection": {"encoder": FAST["encoder"]}}
    Path("runs/mine/settings.yaml").write_text(json.dumps(settings), encoding="utf-8")
    card = toy_task.write_task(tmp_path / "card")
    return {
        "bert-base-uncased": str(pieces),
        '"chemprot"': f'"{card}"',
        "steps=1000": "steps=2, max_tokens=24",
        "seeds=5": "seeds=1, epochs=1, max_tokens=24",
    }


def run_page(page: str, place: dict[str, str]) -> dict:
    names: dict = {}
    for block in code_of(page):
        for large, small in place.items():
            block = block.replace(large, small)
        exec(block, names)
    return names


def test_the_code_of_the_interface_runs(place, capsys):
    names = run_page("reference/api.md", place)
    assert "task[1]: is NoneType, not a string: 'None'" in capsys.readouterr().out
    assert names["scores"]["score"].notna().all()
    assert set(names["weights"]["weight"]) != {0.0, 1.0}  # of the sigmoid, the last ones
    assert list(names["results"]["seed"]) == [0]
    assert not [
        path.name for path in Path().iterdir() if path.name not in ("card", "labelled.csv", "notes.csv", "pool", "runs")
    ]
