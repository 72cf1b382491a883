"""The time of a slow detector is extrapolated from two trials and logged before the first fit."""

import time
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from dana.detectors import cost
from dana.detectors.cost import Cost, announce, measure
from dana.scoring.ranking import comparison


def burn(seconds):
    """Use up so much processor time."""
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass


@dataclass(frozen=True)
class Fitted:
    rows: int
    per_row: float

    def score(self, embeddings):
        burn(len(embeddings) * self.per_row * self.rows)
        return torch.zeros(len(embeddings))


@dataclass(frozen=True)
class Squared:
    """Fitting grows with the square of the rows, scoring a row with their number."""

    unit: float = 0.1 / 256**2
    per_row: float = 1e-3 / 256

    def fit(self, embeddings, seed):
        burn(self.unit * len(embeddings) ** 2)
        return Fitted(len(embeddings), self.per_row)


def test_the_cost_goes_on_as_it_grew():
    found = measure(Squared(), 2560, 8)
    assert found.fit == pytest.approx(10, rel=0.5)
    assert found.row == pytest.approx(0.01, rel=0.5)


def test_built_in_detectors_are_known_to_be_quick():
    assert announce("knn", 4000, 384, 1, 1) is None
    assert announce("pyod:LODA", cost.TRIED[-1], 384, 1, 1) is None, "so few rows are fitted sooner than tried"


def test_ecod_costs_many_times_what_loda_does():
    slow, quick = (announce(name, 4000, 64, 5, 2000) for name in ("pyod:ECOD", "pyod:LODA"))
    assert slow.row > 10 * quick.row  # some hundred times on an idle machine


def test_the_ranking_says_it_before_the_first_fit(texts, tmp_path, monkeypatch, capsys):
    from dana.cli.main import main

    said = []
    monkeypatch.setattr(cost, "TRIED", (4, 8))
    monkeypatch.setattr(cost, "measure", lambda *_: Cost(fit=95.0, row=0.1))
    monkeypatch.setattr(cost.log, "warning", lambda text, *values: said.append(text % values))
    fit = comparison.over_folds

    def watched(*arguments):
        assert said, "the first fit begins unannounced"
        return fit(*arguments)

    monkeypatch.setattr(comparison, "over_folds", watched)
    line = ["rank", "--task", texts["task"], "--general", texts["general"], "--out", str(tmp_path / "run")]
    assert main([*line, "--encoder", "hashing", "--detectors", "pyod:LODA,knn", "--seeds", "1"]) == 0
    (only,) = said
    assert "pyod:LODA is slow: about 95 s a fit and 0.1 s a row to score" in only


@pytest.fixture
def texts(tmp_path):
    random, words = np.random.default_rng(0), [f"word{number}" for number in range(200)]
    paths = {}
    for name, some in (("task", words[:60]), ("general", words)):
        documents = [". ".join(" ".join(random.choice(some, 8)) for _ in range(4)) for _ in range(60)]
        paths[name] = str(tmp_path / f"{name}.txt")
        (tmp_path / f"{name}.txt").write_text("\n\n".join(documents))
    return paths
