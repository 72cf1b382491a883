"""Tables of the genre paper beside runs: averages computed again, tests over topics, amounts of synthetic text."""

from importlib import util
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

FOLDER = Path(__file__).parents[3] / "recipes" / "papers" / "genre"
# Gains over off topic in points, on every second topic one more. Off topic it is 52 at N = 30, 54 at N = 100.
GAINS = {
    "off": 0,
    "on": 20,
    "augmented": 5,
    "augmented:ratio=0.1": 1,
    "augmented:keywords=50": 3,
    "random_keywords": 2,
    "shuffled": -9,
}


@pytest.fixture(scope="module")
def tables():
    spec = util.spec_from_file_location("genre_tables", FOLDER / "tables.py")
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def paper(tables):
    return tables.read_published(FOLDER)


@pytest.fixture
def run(tmp_path):
    rows = [
        {"topic": topic, "words": "a b", "n": n, "arm": arm, "seed": seed, "score": score}
        for topic in range(4)
        for n in (30, 100)
        for arm, gain in GAINS.items()
        for seed in (0, 1)
        for score in [0.5 + 0.01 * (gain + topic + seed + n // 50 + (topic % 2 if gain else 0))]
    ]
    (tmp_path / "run" / "tables").mkdir(parents=True)
    pd.DataFrame(rows).to_csv(tmp_path / "run" / "tables" / "results.csv", index=False)
    return tmp_path / "run"


def test_averages_are_computed_again_beside_the_printed_ones(tables, paper, run):
    table = tables.table2({"ours": tables.read_run(run)}, paper).set_index(["source", "n"])
    assert table.loc[("RoBERTa-large, printed", 100), "on"] == 84.9
    assert table.loc[("RoBERTa-large, meant", 100), "on"] == 91.0
    assert table.loc[("BERT-large, printed", 30), "augmented_baseline"] == 51.1
    means = table.loc["RoBERTa-large, Table 5's means"][["on", "off", "augmented"]].round(1)
    assert means.to_numpy().tolist() == [[77.4, 51.3, 58.7], [91.0, 61.1, 65.5], [94.9, 78.1, 81.2]]
    ours = table.loc[("ours", 30)]
    assert (ours["off"], ours["on"], ours["augmented"]) == pytest.approx((52.0, 72.5, 57.5))
    assert np.isnan(ours["augmented_baseline"])
