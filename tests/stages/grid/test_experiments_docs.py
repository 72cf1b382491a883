"""The example of docs/guide/experiments.md runs as it stands."""

import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import yaml

from dana.core.config import load
from dana.stages.settings import RunSettings

PAGE = Path(__file__).parents[3] / "docs" / "guide" / "experiments.md"


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


def test_the_grid_of_the_page_runs(tmp_path):
    (code,) = blocks("python")
    (tmp_path / "curves.py").write_text(code, encoding="utf-8")
    subprocess.run([sys.executable, "curves.py"], cwd=tmp_path, check=True)
    table = pd.read_csv(tmp_path / "runs" / "curves" / "results.csv")
    assert table.groupby("cell")["value"].median().to_dict() == {"share-0.1": 0.1, "share-0.2": 0.2, "last": 1.0}


def test_the_arms_of_the_page_are_read():
    recipe, nested = (load(RunSettings, yaml.safe_load(block)) for block in blocks("yaml"))
    assert nested.nested_seeds == list(range(8))
    names = [arm.name for arm in recipe.described_arms]
    assert names == ["general", "tapt", "random", "dana", "tight", "broad", "lof", "ranked", "mine"]
