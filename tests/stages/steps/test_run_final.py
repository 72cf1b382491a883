"""``dana run`` that ends in a model: what it chooses from, what it is fitted to, and that stopping leaves one."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from dana.core.artifacts import read_json, read_manifest
from dana.core.errors import ConfigError
from dana.core.schemas import iterate_documents
from dana.core.settings import load
from dana.finetuning.result_card import result_lines
from dana.finetuning.result_model import Description, open_result
from dana.stages import final
from dana.stages.join import join_run
from dana.stages.report import report_stage
from dana.stages.run import plan_run
from dana.stages.settings import RunSettings
from dana.stages.steps.runner import execute
from dana.tasks.card import load_card
from dana.tasks.examples import read_folds
from tests.stages.steps.test_run import SETTINGS
from tests.toy_task import SIGNS, rows, write_checkpoint, write_folds, write_split, write_task

FOLDS = 2
KINDS = ["tfidf", "vectors-base", "vectors-dana", "finetuned-base", "finetuned-dana"]


def write_pool(folder):
    write_split(folder, "pool", [{"id": row["id"], "text": row["text"]} for row in rows(150, 9)])
    model = write_checkpoint(folder / "checkpoint")
    return {"pool": [str(folder / "pool.jsonl")], "model": str(model)}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    return {"task": str(write_folds(folder, count=60, folds=FOLDS)), **write_pool(folder)}


def recipe(inputs, out, **settings):
    values = {**SETTINGS, "selector": "lexical", "arms": ["random", "dana"], "final": True}
    values |= {"seeds": {"finetunings": 1}, "baselines": ["majority", "tfidf"]}
    values |= {"probe": {"enabled": True, "sizes": [10], "draws": 2, "documents": 0}}
    return load(RunSettings, {**inputs, **values, "out": str(out), **settings})


@pytest.fixture(scope="module")
def run(inputs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "run"
    execute(plan_run(recipe(inputs, folder)))
    join_run(folder)
    report_stage(folder)
    return folder


def test_x(run):
    import os
    print(os.listdir(run), os.listdir(run/"final"), os.listdir(run/"model"))
    print((run/"model/README.md").read_text())
    print((run/"encoder/README.md").read_text())
    for kind in KINDS: print(read_json(run/f"final/choice-{kind}"/"choice.json"))
    print("\n".join(result_lines(run)))
