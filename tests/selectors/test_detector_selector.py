"""Detector selector: what is fitted on what, plain lists of text, settings of the run, errors of detectors."""

from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from dana.core.errors import ConfigError, DataError, PluginError
from dana.detectors.base import BACKGROUND
from dana.detectors.centroids import CentroidDistance
from dana.detectors.neighbours import KNearestNeighbours
from dana.scoring.scoring import build_selector
from dana.scoring.settings import Selection
from dana.selectors.cascade import CascadeSelector
from dana.selectors.detector import GEOMETRY_SAMPLE, DetectorSelector

TASK = [f"cell gene {number}" for number in range(100)]
GENERAL = {
    "contamination": [f"court {number}" for number in range(10)],
    "geometry": [f"judge appeal {number}" for number in range(30)],
}


def a_selector(share=0.0, detector="knn"):
    return DetectorSelector(detector, "hashing:dims=16", "l2", general_share=share)


@pytest.mark.parametrize("task_units", [1, 29, 4000])
def test_contamination_is_a_share_of_the_task(task_units):
    assert a_selector().samples(task_units) == {"geometry": GEOMETRY_SAMPLE}
    wanted = a_selector(0.1).samples(task_units)
    assert wanted == {"contamination": max(1, task_units // 10), "geometry": GEOMETRY_SAMPLE}
    assert list(wanted) == ["contamination", "geometry"]


@pytest.mark.parametrize("share", [0.0, 0.1])
def test_the_detector_is_fitted_on_task_and_contamination(monkeypatch, share):
    seen = []
    original = KNearestNeighbours.fit
    monkeypatch.setattr(
        KNearestNeighbours, "fit", lambda self, rows, seed: seen.append(rows) or original(self, rows, seed)
    )
    selector = a_selector(share)
    fitted = selector.fit(TASK, GENERAL, 0)
    texts = TASK + (GENERAL["contamination"] if share else [])
    expected = fitted.geometry.apply(selector.settings.embed(texts))
    torch.testing.assert_close(seen[0], expected)


@pytest.mark.parametrize("share", [0.0, 0.1])
def test_a_contrastive_detector_gets_its_background(monkeypatch, share):
    seen = []
    original = CentroidDistance.fit
    monkeypatch.setattr(CentroidDistance, "fit", lambda *given: seen.append(given[1:]) or original(*given))
    selector = DetectorSelector("distance", "hashing:dims=16", "center+l2", general_share=share)
    assert selector.samples(len(TASK)) == {"background": BACKGROUND}, "no general units among the task's"
    background = GENERAL["geometry"]
    fitted = selector.fit(TASK, {**GENERAL, "background": background}, 0)
    task, general = (selector.settings.embed(texts) for texts in (TASK, background))
    kept = fitted.geometry.kept
    centred = torch.nn.functional.normalize((general - general.mean(0))[:, kept])
    torch.testing.assert_close(seen[0][2], centred)
    torch.testing.assert_close(seen[0][0], fitted.geometry.apply(task))
    with pytest.raises(DataError, match="background"):
        selector.fit(TASK, [])
    with pytest.raises(DataError, match="2 rows"):
        selector.fit(TASK[:2], background)


def test_the_share_is_part_of_the_identity():
    assert a_selector().identity() != a_selector(0.1).identity()
    selection = Selection(encoder="hashing:dims=16", general_share=0.1)
    for spec in ("detector", "cascade:encoder='hashing:dims=16',first='hashing:dims=8'"):
        assert "contamination" in build_selector(spec, "knn", selection).samples(100)
    both = CascadeSelector(encoder="hashing:dims=16", first="hashing:dims=8", general_share=0.1).identity()
    assert both["first"]["general_share"] == both["second"]["general_share"] == 0.1
    with pytest.raises(ConfigError, match="general_share=nan"):
        Selection(general_share=float("nan"))


@dataclass(frozen=True)
class _Fitted:
    scores: object

    def to(self, device):
        return self

    def score(self, embeddings):
        if isinstance(self.scores, Exception):
            raise self.scores
        return self.scores


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        (torch.tensor([1.0, float("nan"), 2.0]), "the score of unit 1 of 3 is nan"),
        (torch.zeros(3, 1), r"scores of shape \(3,\), got \(3, 1\)"),
        (np.zeros(3), "AttributeError"),
        (RuntimeError("no such thing"), "RuntimeError: no such thing"),
    ],
)
def test_a_detector_with_bad_scores_is_named(monkeypatch, scores, message):
    monkeypatch.setattr(KNearestNeighbours, "fit", lambda self, rows, seed: _Fitted(scores))
    fitted = a_selector(detector="knn:k=3").fit(TASK, GENERAL, 0)
    with pytest.raises(PluginError, match=f"detector 'knn:k=3' of dana: .*{message}"):
        fitted.score_embedded(torch.rand(3, 16))


def test_a_detector_that_cannot_fit_is_named(monkeypatch):
    def broken(self, rows, seed):
        raise ZeroDivisionError("by zero")

    with pytest.raises(DataError, match="3 rows"):
        a_selector().fit(TASK[:3], GENERAL, 0)
    monkeypatch.setattr(KNearestNeighbours, "fit", broken)
    with pytest.raises(PluginError, match="detector 'knn' of dana: ZeroDivisionError: by zero"):
        a_selector().fit(TASK, GENERAL, 0)


def test_plain_lists_are_fitted_and_scored():
    selector = DetectorSelector("knn", encoder="hashing:dims=16")
    task = [f"cell gene protein {number % 7}" for number in range(40)]
    general = [f"court judge {number}" for number in range(60)]
    fitted = selector.fit(iter(task), general, seed=3)
    near, far = fitted.score(["cell gene", "court tort"])
    assert near < far
    named = selector.fit(task, {"geometry": general[::-1]}, seed=3).score(["cell gene", "court tort"])
    np.testing.assert_allclose(named, [near, far], rtol=1e-5)  # one sample takes all that there is
    deployed = build_selector("detector", "knn", Selection(encoder="hashing:dims=16"))
    assert type(deployed) is DetectorSelector
    assert deployed.identity() == selector.identity()


@pytest.mark.parametrize(
    ("task", "general", "message"),
    [
        (["a", 3], ["a"], r"task\[1\]"),
        (["a"] * 20, ["b", None], r"general\[1\]"),
        (["a"] * 20, [], "geometry"),
    ],
)
def test_items_that_are_not_text_are_refused(task, general, message):
    with pytest.raises(DataError, match=message):
        DetectorSelector("knn", encoder="hashing").fit(task, general)


def test_parameters_override_the_run():
    run = Selection(encoder="hashing:dims=16", geometry="l2")
    of_the_run = build_selector("detector", "lof", run)
    assert of_the_run.uses == ("detector", "encoder", "geometry", "general_share")
    assert (of_the_run.settings.detector, of_the_run.settings.geometry) == ("lof", "l2")
    own = build_selector("detector:knn,geometry=none", "lof", run)
    assert own.uses == ("encoder", "general_share")
    assert (own.settings.detector, own.settings.geometry, own.settings.encoder) == ("knn", "none", "hashing:dims=16")
    both = build_selector("cascade:first='hashing:dims=8'", "lof", run)
    assert both.uses == of_the_run.uses
    parts = [both.identity()[name] for name in ("first", "second")]
    assert {(part["detector"], part["geometry"]) for part in parts} == {("lof", "l2")}
    assert [part["encoder"]["dims"] for part in parts] == [8, 16]


def test_only_settings_in_use_are_recorded(tmp_path):
    from dana.scoring.scoring import Scoring

    def depends_on(selector, **changes):
        selection = Selection(encoder="hashing:dims=16")
        built = build_selector(selector, "knn", replace(selection, **changes))
        part = Scoring.depends_on.fget
        names = SimpleNamespace(artifact=SimpleNamespace(fingerprint="x"))
        return part(SimpleNamespace(task=names, general=names, selection=replace(selection, **changes), selector=built))

    assert depends_on("random") == depends_on("random", encoder="hashing", geometry="l2", general_share=0.1)
    assert depends_on("random") != depends_on("random", max_task_units=7)
    assert depends_on("detector") != depends_on("detector", geometry="l2")
    assert depends_on("detector:geometry=l2") == depends_on("detector:geometry=l2", geometry="none")
