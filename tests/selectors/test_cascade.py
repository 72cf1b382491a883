"""Cascade selector: which encoder scores a unit, the recall that is measured, and whose settings it takes."""

from pathlib import Path

import numpy as np
import pytest

from dana.cli.main import main
from dana.core.artifacts import read_manifest
from dana.core.errors import ConfigError
from dana.corpus.unit_stream import Units
from dana.encoders.hashing import HashingEncoder
from dana.selectors.cascade import CascadeSelector, recall_at
from dana.selectors.detector import DetectorSelector
from tests.selectors.topics import texts


@pytest.fixture
def fitted():
    selector = CascadeSelector(keep=0.3, encoder="hashing:dims=64", first="hashing:dims=16,words=1")
    general = {
        "contamination": texts("other", 10, 1),
        "geometry": texts("other", 150, 2) + texts("task", 50, 3),
        "audit": texts("other", 160, 4) + texts("task", 40, 5),
    }
    return selector, selector.fit(texts("task", 100, 0), general, 0)


def test_best_units_have_the_real_score_the_others_the_expected(fitted):
    _, both = fitted
    units = Units.of_texts(texts("task", 30, 6) + texts("other", 70, 7))
    scores, first, real = both.score(units), both.cheap.score(units), both.good.score(units)
    passed = first <= both.threshold
    assert 0 < passed.sum() < len(units)
    np.testing.assert_allclose(scores[passed], real[passed], rtol=1e-6)
    np.testing.assert_allclose(scores[~passed], np.interp(first[~passed], both.knots, both.values))
    assert scores[:30].mean() < scores[30:].mean()
    assert np.corrcoef(scores, real)[0, 1] > 0.8, "one unit for both kinds"


def test_the_real_encoder_sees_the_best_units_only(fitted, monkeypatch):
    _, both = fitted
    seen = []
    original = HashingEncoder.encode

    def watched(self, texts):
        if self.dims == 64:
            seen.extend(texts)
        return original(self, texts)

    monkeypatch.setattr(HashingEncoder, "encode", watched)
    units = Units.of_texts(texts("other", 200, 8))
    both.score(units)
    assert len(seen) == int((both.cheap.score(units) <= both.threshold).sum()) < 120


def test_recall_at_by_hand():
    scores = np.array([5.0, 1.0, 3.0, 2.0, 4.0, 9.0, 8.0, 7.0, 6.0, 10.0])
    passed = np.array([True, True, False, True, False, False, False, False, False, False])
    assert recall_at(scores, passed, 0.2) == 1.0
    assert recall_at(scores, passed, 0.3) == pytest.approx(2 / 3)
    assert recall_at(scores, passed, 0.5) == pytest.approx(3 / 5)
    assert recall_at(scores, passed, 0.01) == 1.0, "of the best one at least"


def test_a_saved_cascade_scores_equally(fitted, tmp_path):
    selector, both = fitted
    both.save(tmp_path)
    units = Units.of_texts(texts("task", 20, 11) + texts("other", 20, 12))
    again = selector.load(tmp_path)
    assert np.array_equal(again.score(units), both.score(units))
    assert again.notes == both.notes
    assert set(both.notes["audit"]["recall"]) == {"0.05", "0.1", "0.2"}


def test_a_spec_builds_a_cascade():
    from dana.scoring.scoring import build_selector
    from dana.scoring.settings import Selection

    built = build_selector("cascade:keep=0.5,first=hashing", "auto", Selection(store="somewhere"))
    assert (built.keep, built.first, built.context.store) == (0.5, "hashing", "somewhere")
    assert isinstance(build_selector("detector", "knn", Selection()), DetectorSelector)
    with pytest.raises(ConfigError, match=r"keep=1\.5"):
        CascadeSelector(keep=1.5)


@pytest.mark.slow
def test_the_run_decides_encoder_geometry_and_detector(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("task.txt").write_text("\n\n".join(f"{text}." for text in texts("task", 60, 20)))
    Path("general.txt").write_text("\n\n".join(f"{text} {row}." for row, text in enumerate(texts("other", 2300, 21))))
    named = ["--task", "task.txt", "--general", "general.txt", "--out", "run"]
    settings = ["--encoder", "hashing:dims=64", "--set", "selection.geometry=l2"]
    assert main(["rank", *named, *settings, "--detectors", "pca"]) == 0
    assert main(["score", *named, "--selector", "cascade:first=hashing"]) == 0
    depends_on = read_manifest(Path("run/scores"))["depends_on"]
    first, second = (depends_on["selector"][name] for name in ("first", "second"))
    assert [part["encoder"]["dims"] for part in (first, second)] == [512, 64]
    for part in (first, second):
        assert (part["detector"], part["geometry"]) == ("pca", "l2"), "the ranking's choice and the run's geometry"
    assert set(depends_on["selection"]) == {"units", "language", "max_task_units", "seed"}
