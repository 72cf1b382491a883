"""Checks of detectors: those of the core pass, each broken promise fails its check; PyOD's are fitted again by seed."""

import os
import random
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import torch

from dana.core.checks import checks_of
from dana.core.errors import ArtifactError, ConfigError, PluginError
from dana.core.registry import DETECTORS
from dana.detectors.base import OnDevice, check_classes, check_rows
from dana.detectors.centroids import FittedCentroidDistance
from dana.detectors.neighbours import KNearestNeighbours, LocalOutlierFactor
from dana.detectors.pyod import as_detector, pyod_detector, restore, save_fitted
from dana.selectors.checks import DetectorChecks, check_detector
from tests.detectors.clouds import CONTRASTIVE, ONE_CLASS

BUILT_IN = ["iforest:trees=100", "pyod:ECOD", *ONE_CLASS, *CONTRASTIVE]


def failures(candidate):
    return {result.name for result in check_detector(candidate) if not result.passed}


@pytest.mark.parametrize("spec", BUILT_IN)
def test_built_ins_pass_every_check(spec):
    results = check_detector(spec)
    assert [(result.name, result.passed) for result in results] == [
        (name, True) for name in checks_of(DetectorChecks)
    ]
    assert not any("exempt" in result.detail for result in results)


def test_built_ins_are_all_listed():
    ours = {
        name for name, claims in DETECTORS.entries().items() if claims[0].dist.name == "dana-lm"
    }
    assert {spec.partition(":")[0] for spec in BUILT_IN} == ours


@dataclass(frozen=True)
class FittedDistance(OnDevice):
    """Distance from the mean; `flaw` breaks one promise."""

    flaw: str
    centre: torch.Tensor

    def score(self, embeddings):
        if self.flaw != "accepts anything":
            check_rows(embeddings, self.centre.numel())
        distance = (embeddings.double() - self.centre).norm(dim=1)
        if self.flaw == "writes into its input":
            embeddings.zero_()
        return -distance if self.flaw == "wrong sign" else distance


@dataclass(frozen=True)
class Distance:
    flaw: str = ""
    fitted_type: ClassVar[type] = FittedDistance

    def fit(self, embeddings, seed):
        if self.flaw != "accepts anything":
            check_rows(embeddings, at_least=2)
        centre = embeddings.double().mean(0)
        if self.flaw == "mutates in fit":
            embeddings -= embeddings.mean(0)
        return FittedDistance(self.flaw, centre)


@dataclass(frozen=True)
class Contrast:
    """Distance from the task's mean minus that from the background's, with one flaw."""

    flaw: str = ""
    background: ClassVar[int] = 50
    fitted_type: ClassVar[type] = FittedCentroidDistance

    def fit(self, embeddings, seed, background):
        check_rows(embeddings, at_least=2)
        if self.flaw != "accepts any background":
            check_classes(embeddings, background)
        pool = (
            background.double().mean(0)
            if len(background)
            else torch.zeros(embeddings.shape[1]).double()
        )
        if self.flaw == "mutates the background":
            background *= 2
        target = embeddings.double().mean(0)
        return FittedCentroidDistance(
            *((pool, target) if self.flaw == "classes exchanged" else (target, pool))
        )


class MeanDistance:
    """PyOD's convention, by somebody who never heard of dana."""

    def fit(self, X):
        self.centre = X.mean(0)
        return self

    def decision_function(self, X):
        return np.linalg.norm(X - self.centre, axis=1)


class TransductiveDistance(MeanDistance):
    """Scores that depend on the batch, as ECOD's do."""

    def decision_function(self, X):
        return np.linalg.norm(X - (self.centre + X.mean(0)) / 2, axis=1)


# Flaws of detectors alone; those that selectors share are in
# tests/selectors/test_selector_checks.py.
@pytest.mark.parametrize(
    ("candidate", "check"),
    [
        (Distance("wrong sign"), "target_text_scores_lower"),
        (Distance("writes into its input"), "calling_and_fitting_change_nothing"),
        (Distance("mutates in fit"), "calling_and_fitting_change_nothing"),
        (Distance("accepts anything"), "bad_rows_are_refused_by_name"),
        (Contrast("classes exchanged"), "target_text_scores_lower"),
        (Contrast("accepts any background"), "bad_rows_are_refused_by_name"),
        (Contrast("mutates the background"), "calling_and_fitting_change_nothing"),
    ],
    ids=str,
)
def test_a_flaw_fails_its_check(candidate, check):
    assert check in failures(candidate)


@pytest.mark.parametrize("cls", [Distance, Contrast, MeanDistance, TransductiveDistance])
def test_a_detector_without_a_flaw_passes_and_stays_unfitted(cls):
    candidate = cls()
    assert failures(candidate) == set()
    if issubclass(cls, MeanDistance):
        assert vars(candidate) == {}
        assert as_detector(candidate).fit(torch.randn(40, 3), 0).row_by_row == (
            cls is TransductiveDistance
        )


def test_an_exemption_is_shown_and_an_unknown_one_fails():
    class Exempt(Distance):
        exemptions: ClassVar = {
            "target_text_scores_lower": "says less is more",
            "no_such_check": "x",
        }

    results = {result.name: result for result in check_detector(Exempt("wrong sign"))}
    assert (
        str(results["target_text_scores_lower"])
        == "ok      target text scores lower: exempt: says less is more"
    )
    assert not results["no_such_check"].passed


def test_files_of_another_class_or_none_are_refused(tmp_path):
    with pytest.raises(ArtifactError, match=r"detector\.json"):
        restore(LocalOutlierFactor(), tmp_path)
    save_fitted(KNearestNeighbours(1).fit(torch.eye(3), 0), "lof", tmp_path)
    with pytest.raises(ArtifactError, match="FittedLocalOutlierFactor"):
        restore(LocalOutlierFactor(), tmp_path)


def test_pyod_names_ignore_case_and_are_suggested():
    assert type(pyod_detector("ecod").candidate) is type(pyod_detector("ECOD").candidate)
    with pytest.raises(PluginError, match="'ECODD'; did you mean 'ecod'"):
        pyod_detector("ECODD")
    with pytest.raises(ConfigError, match="'neighbors'; did you mean 'n_neighbors'"):
        DETECTORS.create("pyod:KNN,neighbors=3")


ROWS = torch.randn(30, 3, generator=torch.Generator().manual_seed(0))


class RandomPoint:
    """Scores are the distance from a point that is drawn while fitting."""

    def __init__(self, draw):
        self.draw = draw

    def fit(self, X):
        self.point = self.draw(X.shape[1])

    def decision_function(self, X):
        self.calls = getattr(self, "calls", 0) + 1
        return np.linalg.norm(X - self.point, axis=1) * self.calls


DRAWS = {
    "torch": lambda dims: torch.randn(dims).numpy(),
    "numpy": lambda dims: np.random.randn(dims),  # noqa: NPY002
    "python": lambda dims: np.array([random.random() for _ in range(dims)]),
}


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_a_second_fit_is_the_first_and_generators_are_restored(tmp_path, draw):
    detector = as_detector(RandomPoint(draw))
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[2]  # noqa: NPY002
    model = detector.fit(ROWS, 1)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert (random.getstate(), np.random.get_state()[2]) == before[1:]  # noqa: NPY002
    save_fitted(model, "drawn", tmp_path)
    for disturb in (lambda: torch.manual_seed(99), lambda: random.seed(99)):
        disturb()
        assert torch.equal(restore(detector, tmp_path).score(ROWS), model.score(ROWS))
    assert not torch.equal(detector.fit(ROWS, 2).score(ROWS), model.score(ROWS))


def test_a_fit_that_does_not_repeat_is_refused(tmp_path):
    detector = as_detector(RandomPoint(lambda dims: np.frombuffer(os.urandom(dims), np.uint8) / 9))
    save_fitted(detector.fit(ROWS, 3), "drawn", tmp_path)
    with pytest.raises(PluginError, match=r"RandomPoint: .*random_state"):
        restore(detector, tmp_path)
