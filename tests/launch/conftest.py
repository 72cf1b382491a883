"""What a user has before the first command: text, a task card and a tiny checkpoint."""

import json
from types import SimpleNamespace

import pytest

from tests import toy_task


@pytest.fixture(scope="session")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("launch")
    pool = folder / "pool.jsonl"
    lines = [json.dumps({"id": row["id"], "text": row["text"]}) for row in toy_task.rows(240, 7)]
    pool.write_text("\n".join(lines), encoding="utf-8")
    card, model = toy_task.write_task(folder / "tasks"), toy_task.write_checkpoint(folder / "model")
    return SimpleNamespace(folder=folder, card=str(card), pool=str(pool), model=str(model))
