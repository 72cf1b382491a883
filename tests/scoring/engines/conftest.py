"""Fixtures of the engines' tests: a run whose selector scores, and its pool."""

import json

import pytest

import dana
from tests.stages.conftest import opened, texts  # noqa: F401
from tests.stages.two_topics import SELECTION


@pytest.fixture(scope="session")
def run(texts, tmp_path_factory):  # noqa: F811
    """A scored run by the command line's way."""
    out = tmp_path_factory.mktemp("engines") / "run"
    dana.score(
        str(texts / "cells.txt"),
        str(texts / "pool.jsonl"),
        out=out,
        selector="detector",
        detector="knn",
        encoder=SELECTION.encoder,
    )
    return out


@pytest.fixture(scope="session")
def records(texts):  # noqa: F811
    return [json.loads(line) for line in (texts / "pool.jsonl").read_text(encoding="utf-8").splitlines()]
