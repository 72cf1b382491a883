"""A pool of two topics, and the bytes of an artifact, for tests of studies."""

import json

import numpy as np

from tests.stages.two_topics import CELLS, COURTS, one_document


def write_pool(folder, *more):
    """``pool.jsonl``: forty documents of each of two topics, then other records."""
    random = np.random.default_rng(0)
    records = [
        {"id": f"{topic}-{number}", "source": topic, "text": one_document(vocabulary, random, 4)}
        for number in range(40)
        for topic, vocabulary in (("cells", CELLS), ("courts", COURTS))
    ]
    path = folder / "pool.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in [*records, *more]), encoding="utf-8")
    return path


def content(folder):
    """Bytes of the files of an artifact, without its manifest, which has the time."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != "manifest.json"]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}
