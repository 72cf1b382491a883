"""Fixtures of the engines' tests: a run whose selector scores, and its pool."""

import json

import pytest

import dana
from tests.stages.two_topics import SELECTION


@pytest.fixture(scope="session")
def run(texts, tmp_path_factory):
    out = tmp_path_factory.mktemp("engines") / "run"
    settings = {"selector": "detector", "detector": "knn", "encoder": SELECTION.encoder}
    dana.score(str(texts / "cells.txt"), str(texts / "pool.jsonl"), out=out, **settings)
    return out


@pytest.fixture(scope="session")
def records(texts):
    return [
        json.loads(line) for line in (texts / "pool.jsonl").read_text(encoding="utf-8").splitlines()
    ]
