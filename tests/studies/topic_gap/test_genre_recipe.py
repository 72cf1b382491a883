"""Table 2 of the genre paper beside a run: printed averages, those of its Table 5, and ours."""

from importlib import util
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

FOLDER = Path(__file__).parents[3] / "recipes" / "papers" / "genre"


def test_averages_are_computed_again_beside_the_printed_ones(tmp_path):
    spec = util.spec_from_file_location("genre_tables", FOLDER / "tables.py")
    tables = util.module_from_spec(spec)
    spec.loader.exec_module(tables)
    rows = [
        {"topic": topic, "words": "a b", "n": 30, "arm": arm, "seed": seed, "score": mean + 0.01 * (topic + seed)}
        for topic in range(4)
        for arm, mean in (("off", 0.5), ("on", 0.7), ("augmented", 0.55))
        for seed in (0, 1)
    ]
    (tmp_path / "tables").mkdir()
    pd.DataFrame(rows).to_csv(tmp_path / "tables" / "results.csv", index=False)
    table = tables.table2({"ours": tables.read_run(tmp_path)}, tables.read_published(FOLDER)).set_index(["source", "n"])
    assert table.loc[("RoBERTa-large, printed", 100), "on"] == 84.9
    assert table.loc[("RoBERTa-large, meant", 100), "on"] == 91.0
    means = table.loc["RoBERTa-large, Table 5's means"][["on", "off", "augmented"]].round(1)
    assert means.to_numpy().tolist() == [[77.4, 51.3, 58.7], [91.0, 61.1, 65.5], [94.9, 78.1, 81.2]]
    ours = table.loc[("ours", 30)]
    assert (ours["off"], ours["on"], ours["augmented"]) == pytest.approx((52.0, 72.0, 57.0))
    assert np.isnan(ours["augmented_baseline"])
