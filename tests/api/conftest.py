"""Texts of two topics in memory, and settings that need no download."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import dana
from tests.stages.two_topics import CELLS, COURTS, one_document

FAST = {"encoder": "hashing:dims=64,words=1", "detectors": ["knn", "pca"]}


def launch(script: str, *arguments: object) -> None:
    """Run a script of this folder in two processes."""
    torchrun = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc_per_node",
        "2",
    ]
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    words = [Path(__file__).with_name(script), *arguments]
    subprocess.run([*torchrun, *words], check=True, env=environment, timeout=280)


@pytest.fixture(scope="session")
def task_texts() -> list[str]:
    random = np.random.default_rng(0)
    return [one_document(CELLS, random, 3) for _ in range(60)]


@pytest.fixture(scope="session")
def pool_texts() -> list[str]:
    """An eighth of them is about cells, as the task is."""
    random = np.random.default_rng(1)
    return [
        one_document(CELLS if number % 8 == 0 else COURTS, random, 1 + number % 9)
        for number in range(120)
    ]


@pytest.fixture(scope="session")
def pieces(tiny_tokenizer, tmp_path_factory):
    """A BERT of two layers of 32 whose tokenizer has pieces for any word."""
    from transformers import BertConfig, BertForMaskedLM

    from dana.core.rng import torch_seed

    folder = tmp_path_factory.mktemp("pieces")
    tiny_tokenizer.save_pretrained(folder)
    shape = {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 64,
    }
    config = BertConfig(vocab_size=len(tiny_tokenizer), max_position_embeddings=64, **shape)
    with torch_seed(0):
        BertForMaskedLM(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def weights_run(task_texts, pool_texts, tmp_path_factory):
    """A run's folder with weights, and the table of them."""
    out = tmp_path_factory.mktemp("run")
    dana.score(task_texts, pool_texts, out=out, detector="knn", encoder=FAST["encoder"])
    return out, dana.weigh(out, policy="sigmoid", beta=0.3)
