"""What a user has before the first command: text, a task card and a tiny checkpoint."""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import toy_task


@dataclass(frozen=True)
class Inputs:
    """A folder with a task card, general text and a checkpoint."""

    folder: Path
    card: str
    pool: str
    model: str


@pytest.fixture(scope="session")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("launch")
    pool = folder / "pool.jsonl"
    lines = [json.dumps({"id": row["id"], "text": row["text"]}) for row in toy_task.rows(240, 7)]
    pool.write_text("\n".join(lines), encoding="utf-8")
    card, model = toy_task.write_task(folder / "tasks"), toy_task.write_checkpoint(folder / "model")
    return Inputs(folder, str(card), str(pool), str(model))
