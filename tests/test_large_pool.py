"""The page on a large pool: its commands on a slice of some thousand documents, from packed files to a model."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import zstandard

from dana.core.artifacts import read_manifest
from dana.core.schemas import iterate_documents, read_table
from tests.guide import ROOT
from tests.stages.two_topics import CELLS, COURTS, one_document

pytest.importorskip(
    "datatrove", reason="datatrove is not installed: pip install 'dana-lm[datatrove]'"
)
pytestmark = pytest.mark.slow

PAGE = ROOT / "docs" / "guide" / "large-pool.md"
FILES = 4
EACH = 600  # documents of a file, of which every eighth is like the task
HERE = {  # what stands for the page's bucket, cores and GPUs
    "s3://bucket/": "bucket/",
    "tickets/card.yaml": "notes.txt",
    "python recipes/": f"{shlex.quote(sys.executable)} {ROOT / 'recipes'}/",
    "torchrun": f"{shlex.quote(sys.executable)} -m torch.distributed.run",
    "--nproc_per_node 8": "--nproc_per_node 2",
    "--tasks 64": "--tasks 4 --workers 2",
    "--tokens 1000000000": "--tokens 2000 --batch-size 8 --max-tokens 32",
    "dana ": f"{shlex.quote(sys.executable)} -m dana ",
}


def page_commands() -> list[str]:
    """The commands of the page's console blocks, at the size of the slice."""
    blocks = re.findall(r"```console\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    commands = "".join(blocks).replace("\\\n", " ").splitlines()
    small = []
    for command in commands:
        text = command.replace("-m dana adapt", "-m dana.__main__ adapt")
        for large, here in HERE.items():
            text = text.replace(large, here)
        small.append(text)
    return small


def write_slice(folder: Path) -> None:
    random = np.random.default_rng(0)
    notes = [one_document(CELLS, random, 3) for _ in range(120)]
    (folder / "notes.txt").write_text("\n".join(notes), encoding="utf-8")
    pool = folder / "bucket" / "pool"
    pool.mkdir(parents=True)
    for file in range(FILES):
        lines = []
        for row in range(EACH):
            topic = COURTS if row % 8 else CELLS
            record = {
                "url": f"{file}-{row}-{'court' if row % 8 else 'cell'}",
                "content": one_document(topic, random, 1 + row % 9),
            }
            lines.append(json.dumps(record) + "\n")
        content = zstandard.compress("".join(lines).encode())
        (pool / f"{file:05d}.jsonl.zst").write_bytes(content)


def test_the_commands_of_the_page_lead_from_packed_files_to_a_model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_slice(tmp_path)
    for command in page_commands():
        done = subprocess.run(shlex.split(command), capture_output=True, text=True)
        assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}"

    best = tmp_path / "runs" / "best"
    selected = [document.doc_id for document in iterate_documents(best / "pool")]
    assert 0.05 * FILES * EACH < len(selected) < 0.2 * FILES * EACH, "about a tenth is stored"
    of_task = [doc_id for doc_id in selected if doc_id.endswith("-cell")]
    assert len(of_task) > 0.9 * len(selected)
    (tokens,) = (best / "tokens").iterdir()
    assert [row["doc_id"] for row in read_table(tokens).to_pylist()] == selected
    assert read_manifest(best / "adapted")["counts"]["tokens_seen"] > 0
    assert not list((tmp_path / "bucket" / "scored" / "scored").rglob(".*"))
