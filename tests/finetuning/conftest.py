import pytest
from transformers import AutoTokenizer

from dana.tasks.card import load_card
from tests import toy_pairs, toy_task


@pytest.fixture
def toy_card(tmp_path, monkeypatch):
    monkeypatch.delenv("DANA_DATA", raising=False)
    return load_card(str(toy_task.write_task(tmp_path / "tasks")))


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory):
    return str(toy_task.write_checkpoint(tmp_path_factory.mktemp("checkpoint")))


@pytest.fixture(scope="session")
def pair_tokenizer(tmp_path_factory):
    return AutoTokenizer.from_pretrained(
        toy_pairs.write_checkpoint(tmp_path_factory.mktemp("pairs"))
    )
