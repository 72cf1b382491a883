"""Fixtures of the stages: texts of two topics and the scores made from them; a labelled task and a checkpoint."""

import json

import numpy as np
import pytest
import toy_task

from dana.finetuning.loop import run_seed
from dana.stages import finetune
from tests.stages.two_topics import CELLS, COURTS, GENERAL, PLANTED, one_document, write_scores


@pytest.fixture(scope="session")
def texts(tmp_path_factory):
    """A task's text file, and a general pool with planted documents of the task's kind."""
    folder = tmp_path_factory.mktemp("texts")
    random = np.random.default_rng(0)
    task = [one_document(CELLS, random, 3) for _ in range(60)]
    (folder / "cells.txt").write_text("\n\n".join(task), encoding="utf-8")
    kinds = random.permutation(["planted"] * PLANTED + ["court"] * GENERAL)
    records = [
        {
            "id": f"{kind}-{number}",
            "source": str(kind),
            "text": one_document(CELLS if kind == "planted" else COURTS, random, 1 + number % 9),
        }
        for number, kind in enumerate(kinds)
    ]
    pool = folder / "pool.jsonl"
    pool.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def opened(texts, tmp_path_factory):
    """The two text artifacts and the scores made from them."""
    return write_scores(texts, tmp_path_factory.mktemp("run"))


@pytest.fixture
def card(tmp_path, monkeypatch):
    monkeypatch.delenv("DANA_DATA", raising=False)
    return str(toy_task.write_task(tmp_path / "tasks"))


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory):
    return str(toy_task.write_checkpoint(tmp_path_factory.mktemp("models") / "base"))


@pytest.fixture
def ran(monkeypatch):
    """The seeds that were run, in order."""
    seeds = []

    def remember(*arguments):
        seeds.append(arguments[4])
        return run_seed(*arguments)

    monkeypatch.setattr(finetune, "run_seed", remember)
    return seeds
