"""Detector selector: what is fitted on what, plain lists of text, settings of the run, errors of detectors."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from dana.core.errors import ConfigError, DataError, PluginError
from dana.detectors.base import BACKGROUND
from dana.detectors.centroids import CentroidDistance
from dana.detectors.neighbours import KNearestNeighbours
from dana.scoring.scoring import build_selector
from dana.scoring.settings import Selection
from dana.selectors.detector import GEOMETRY_SAMPLE, DetectorSelector

TARGET = [f"cell gene {number}" for number in range(100)]
POOL = {"contamination": [f"court {number}" for number in range(10)]}
POOL |= {"geometry": [f"judge appeal {number}" for number in range(30)]}


def knn(share=0.0, detector="knn"):
    return DetectorSelector(detector, "hashing:dims=16", "l2", pool_share=share)


@pytest.mark.parametrize("target_units", [1, 29, 4000])
def test_contamination_is_a_share_of_the_task(target_units):
    assert knn().samples(target_units) == {"geometry": GEOMETRY_SAMPLE}
    sizes = [("contamination", max(1, target_units // 10)), ("geometry", GEOMETRY_SAMPLE)]
    assert list(knn(0.1).samples(target_units).items()) == sizes


@pytest.fixture
def fits(monkeypatch):
    """What detectors were fitted on."""
    arguments = []
    for detector in (KNearestNeighbours, CentroidDistance):
        fit = detector.fit
        monkeypatch.setattr(
            detector, "fit", lambda self, *rows, fit=fit: arguments.append(rows) or fit(self, *rows)
        )
    return arguments


@pytest.mark.parametrize("share", [0.0, 0.1])
def test_the_detector_is_fitted_on_task_and_contamination(fits, share):
    model = knn(share).fit(TARGET, POOL, 0)
    texts = TARGET + (POOL["contamination"] if share else [])
    torch.testing.assert_close(fits[0][0], model.geometry.apply(knn().settings.embed(texts)))


@pytest.mark.parametrize("share", [0.0, 0.1])
def test_a_contrastive_detector_gets_its_background(fits, share):
    selector = DetectorSelector("distance", "hashing:dims=16", "center+l2", pool_share=share)
    assert selector.samples(len(TARGET)) == {"background": BACKGROUND}, (
        "no pool units among the task's"
    )
    background = POOL["geometry"]
    geometry = selector.fit(TARGET, {**POOL, "background": background}, 0).geometry
    target, pool = (selector.settings.embed(texts) for texts in (TARGET, background))
    torch.testing.assert_close(fits[0][0], geometry.apply(target))
    centred_rows = torch.nn.functional.normalize((pool - pool.mean(0))[:, geometry.kept])
    torch.testing.assert_close(fits[0][2], centred_rows)
    for texts, sample, message in ((TARGET, [], "background"), (TARGET[:2], background, "2 rows")):
        with pytest.raises(DataError, match=message):
            selector.fit(texts, sample)


@dataclass(frozen=True)
class Broken:
    scores: object

    def to(self, device):
        return self

    def score(self, embeddings):
        return self.scores


def raise_error(self, rows, seed):
    raise ZeroDivisionError("by zero")


@pytest.mark.parametrize(
    ("fit", "message"),
    [
        (
            lambda *_: Broken(torch.tensor([1.0, float("nan"), 2.0])),
            "the score of unit 1 of 3 is nan",
        ),
        (lambda *_: Broken(torch.zeros(3, 1)), r"scores of shape \(3,\), got \(3, 1\)"),
        (lambda *_: Broken(np.zeros(3)), "AttributeError"),
        (raise_error, "ZeroDivisionError: by zero"),
    ],
)
def test_a_detector_that_cannot_fit_or_score_is_named(monkeypatch, fit, message):
    with pytest.raises(DataError, match="3 rows"):
        knn().fit(TARGET[:3], POOL, 0)
    monkeypatch.setattr(KNearestNeighbours, "fit", fit)
    with pytest.raises(PluginError, match=f"detector 'knn:k=3' of dana: .*{message}"):
        knn(detector="knn:k=3").fit(TARGET, POOL, 0).score_embedded(torch.rand(3, 16))


def test_plain_lists_are_fitted_and_scored():
    selector = DetectorSelector("knn", encoder="hashing:dims=16")
    target = [f"cell gene protein {number % 7}" for number in range(40)]
    pool = [f"court judge {number}" for number in range(60)]
    near, far = selector.fit(iter(target), pool, seed=3).score(["cell gene", "court tort"])
    assert near < far
    by_name = selector.fit(target, {"geometry": pool[::-1]}, seed=3).score(
        ["cell gene", "court tort"]
    )
    np.testing.assert_allclose(
        by_name, [near, far], rtol=1e-5
    )  # one sample takes all that there is
    of_a_run = build_selector("detector", "knn", Selection(encoder="hashing:dims=16"))
    assert type(of_a_run) is DetectorSelector
    assert of_a_run.identity() == selector.identity()


def test_parameters_override_the_run():
    run = Selection(encoder="hashing:dims=16", geometry="l2", pool_share=0.1, store="somewhere")
    by_run, by_spec = (
        build_selector(spec, "lof", run) for spec in ("detector", "detector:knn,geometry=none")
    )
    assert by_run.uses == ("detector", "encoder", "geometry", "pool_share")
    assert (by_run.settings.detector, by_run.settings.geometry) == ("lof", "l2")
    assert by_spec.uses == ("encoder", "pool_share")
    settings = by_spec.settings
    assert (settings.detector, settings.geometry, settings.encoder) == (
        "knn",
        "none",
        "hashing:dims=16",
    )
    cascade = build_selector("cascade:keep=0.5,first='hashing:dims=8'", "lof", run)
    assert (cascade.uses, cascade.keep, cascade.context.store) == (by_run.uses, 0.5, "somewhere")
    for name, dims in (("first", 8), ("second", 16)):
        part = cascade.identity()[name]
        shares = (
            part["detector"],
            part["geometry"],
            part["pool_share"],
            part["encoder"]["dims"],
        )
        assert shares == ("lof", "l2", 0.1, dims)
    for selector in (by_run, cascade):
        assert "contamination" in selector.samples(100)
    assert (
        by_run.identity()
        != build_selector("detector", "lof", replace(run, pool_share=0.2)).identity()
    )
    with pytest.raises(ConfigError, match="pool_share=nan"):
        Selection(pool_share=float("nan"))
