"""Fixtures of the stages: texts of two topics and their scores; a labelled task and a checkpoint; trained models."""

import json

import numpy as np
import pytest
import toy_task
from transformers import AutoModel, AutoTokenizer

from dana.encoders.hashing import HashingEncoder
from dana.finetuning.loop import run_seed
from dana.stages import finetune_seed
from dana.stages.base import SMALLEST
from dana.stages.training import pretrain_stage
from tests.conftest import write_documents
from tests.stages.tiny_training import MODULES, PRETRAIN, adapt
from tests.stages.two_topics import CELLS, COURTS, PLANTED, POOL, one_document, write_scores


@pytest.fixture(autouse=True)
def smallest_base(monkeypatch):
    """``dana init`` takes the smallest model, whatever is installed."""
    monkeypatch.setattr("dana.stages.init.choose_base", lambda: (SMALLEST, {SMALLEST: 1.0}))


@pytest.fixture(scope="session")
def texts(tmp_path_factory):
    """Write a task's text file, and a pool with planted documents of the task's kind."""
    folder = tmp_path_factory.mktemp("texts")
    random = np.random.default_rng(0)
    task = [one_document(CELLS, random, 3) for _ in range(60)]
    (folder / "cells.txt").write_text("\n\n".join(task), encoding="utf-8")
    kinds = random.permutation(["planted"] * PLANTED + ["court"] * POOL)
    vocabulary, records = {"planted": CELLS, "court": COURTS}, []
    for number, kind in enumerate(map(str, kinds)):
        text = one_document(vocabulary[kind], random, 1 + number % 9)
        records.append({"id": f"{kind}-{number}", "source": kind, "text": text})
    pool = folder / "pool.jsonl"
    pool.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def opened(texts, tmp_path_factory):
    """Make the two text artifacts and their scores: task, pool, and the folder of all."""
    return write_scores(texts, tmp_path_factory.mktemp("run"))


topics = opened  # other folders import it by its old name


@pytest.fixture
def encoder_texts(monkeypatch):
    """List every text that the hashing encoder is asked for."""
    texts = []
    encode = HashingEncoder.encode
    monkeypatch.setattr(
        HashingEncoder, "encode", lambda self, more: texts.extend(more) or encode(self, more)
    )
    return texts


@pytest.fixture
def card(tmp_path, monkeypatch):
    monkeypatch.delenv("DANA_DATA", raising=False)
    return str(toy_task.write_task(tmp_path / "tasks"))


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory):
    return str(toy_task.write_checkpoint(tmp_path_factory.mktemp("models") / "base"))


@pytest.fixture
def ran(monkeypatch):
    """List the seeds that are run, in order."""
    seeds = []

    def remember(*arguments):
        seeds.append(arguments[4])
        return run_seed(*arguments)

    monkeypatch.setattr(finetune_seed, "run_seed", remember)
    return seeds


@pytest.fixture(scope="session")
def inputs(tmp_path_factory, repository_texts):
    """Write a pool, held-out texts of a task, and those of the pool."""
    folder = tmp_path_factory.mktemp("inputs")
    names = {
        "pool": repository_texts[20:],
        "task": repository_texts[:10],
        "held_out": repository_texts[10:20],
    }
    return [write_documents(folder / name, texts) for name, texts in names.items()]


@pytest.fixture(scope="session")
def base(inputs, tmp_path_factory):
    """Pretrain a small model on the pool."""
    return pretrain_stage(
        "tiny", *inputs, PRETRAIN, tmp_path_factory.mktemp("pretrained") / "base"
    ).path


@pytest.fixture(scope="session")
def sentence_base(base, tmp_path_factory):
    """The small model as a sentence encoder: no head for masked tokens, a pooler, vectors of length 1."""
    folder = tmp_path_factory.mktemp("sentence-base")
    AutoModel.from_pretrained(base).save_pretrained(folder)
    AutoTokenizer.from_pretrained(base).save_pretrained(folder)
    (folder / "modules.json").write_text(json.dumps(MODULES))
    (folder / "1_Pooling").mkdir()
    (folder / "2_Normalize").mkdir()
    pooling = {"pooling_mode": "cls", "embedding_dimension": 128}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    return folder


@pytest.fixture(scope="session")
def adapted_to(base, inputs, tmp_path_factory):
    """Adapt the small model on the whole pool, once for each settings."""
    artifacts = {}

    def artifact_of(settings):
        if repr(settings) not in artifacts:
            artifacts[repr(settings)] = adapt(
                base, inputs, tmp_path_factory.mktemp("adapt") / "out", settings
            )
        return artifacts[repr(settings)]

    return artifact_of
