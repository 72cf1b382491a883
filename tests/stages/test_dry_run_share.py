"""The estimate of a scoring counts the documents that are left where the general text is sampled."""

import json

import pytest

from dana.stages.score import estimate_score
from dana.stages.settings import RunSettings
from dana.tasks.settings import Hygiene


def test_documents_and_units_are_those_of_the_sample(tmp_path):
    texts = [f"Document {number}. It has two sentences, {number} and so on." for number in range(400)]
    pool = tmp_path / "pool.jsonl"
    pool.write_text("\n".join(json.dumps({"text": text}) for text in texts), encoding="utf-8")

    def told(share):
        settings = RunSettings(str(tmp_path / "run"), "", [str(pool)], selector="random", hygiene=Hygiene(sample=share))
        rows = [line.split() for line in estimate_score(settings).splitlines()]
        return {row[0]: float(row[1].replace(",", "")) for row in rows if row[0] in ("documents", "units")}

    whole, quarter = told(None), told(0.25)
    assert whole["documents"] > 300
    for name in ("documents", "units"):
        assert quarter[name] == pytest.approx(whole[name] / 4, rel=0.02)
