"""The table of how well vectors find a document by a sentence of it."""

import json

import pandas as pd

from dana.report.probes import read_retrieval
from dana.report.tables import retrieval_table


def test_each_arm_has_a_row_for_each_text_that_was_searched(tmp_path):
    searched = {"documents": 40, "mrr_10": 0.25, "ndcg_10": 0.5}
    for arm in ("base", "dana"):
        folder = tmp_path / "retrieval" / arm
        folder.mkdir(parents=True)
        texts = {"target": None, "pool": searched}
        (folder / "retrieval.json").write_text(json.dumps({"texts": texts}))
    rows = read_retrieval(tmp_path)
    assert rows == [{"arm": arm, "text": "pool", **searched} for arm in ("base", "dana")]
    target = {"arm": "base", "text": "target", **searched}
    frame = retrieval_table(pd.DataFrame([*rows, target])).frame
    assert [*zip(frame["text"], frame["arm"], strict=True)] == [
        ("pool", "base"),
        ("pool", "dana"),
        ("target", "base"),
    ]
    assert frame["mrr_10"].tolist() == [0.25] * 3
