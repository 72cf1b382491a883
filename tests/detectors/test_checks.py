"""Checks of detectors: the built-in ones pass, and each broken promise fails the check that names it."""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import pytest
import torch

from dana.core.errors import ArtifactError, ConfigError, PluginError
from dana.core.registry import DETECTORS
from dana.detectors.base import check_classes, check_rows
from dana.detectors.centroids import FittedCentroidDistance
from dana.detectors.neighbours import FittedKNearestNeighbours, KNearestNeighbours, LocalOutlierFactor
from dana.detectors.pyod import as_detector, pyod_detector, restore, save_fitted
from dana.selectors.checks import CheckResult, DetectorChecks, check_detector, checks_of

BUILT_IN = ["iforest:trees=100", "lof", "ocsvm", "knn", "pca", "robust_covariance", "cosine", "pyod:ECOD"]
BUILT_IN += ["distance", "lda", "density_ratio", "contrastive_knn", "svm"]


def _failed(candidate):
    return {result.name for result in check_detector(candidate) if not result.passed}


@pytest.mark.parametrize("spec", BUILT_IN)
def test_built_ins_pass_every_check(spec):
    results = check_detector(spec)
    assert [str(result) for result in results if not result.passed] == []
    assert [result.name for result in results] == checks_of(DetectorChecks)
    assert not any("exempt" in result.detail for result in results)


def test_the_parameter_list_above_names_every_built_in():
    assert {spec.partition(":")[0] for spec in BUILT_IN} == {
        name for name, claims in DETECTORS.entries().items() if claims[0].dist.name == "dana"
    }


@dataclass(frozen=True)
class FittedDistance:
    """Distance from the mean; `flaw` breaks one promise."""

    flaw: str
    centre: torch.Tensor
    log: list = field(default_factory=list, compare=False, metadata={"saved": False})

    def score(self, embeddings):
        """What is promised, but for the flaw."""
        if self.flaw != "accepts anything":
            check_rows(embeddings, self.centre.numel())
        distance = (embeddings.double() - self.centre).norm(dim=1)
        if self.flaw == "wrong sign":
            return -distance
        if self.flaw == "batch-dependent":
            return distance - distance.mean() if len(distance) else distance
        if self.flaw == "writes into its input":
            embeddings.zero_()
        if self.flaw == "counts its calls":
            self.log.append(1)
            return distance + len(self.log)
        return distance.float() if self.flaw == "float32" else distance

    def to(self, device):
        """Where it is."""
        return self


@dataclass(frozen=True)
class Distance:
    """A detector with one flaw."""

    flaw: str = ""
    fitted_type: ClassVar[type] = FittedDistance

    def fit(self, embeddings, seed):
        """The mean."""
        if self.flaw != "accepts anything":
            check_rows(embeddings, at_least=2)
        centre = embeddings.double().mean(0)
        if self.flaw == "global state":
            centre = centre + torch.from_numpy(np.random.default_rng().normal(size=len(centre)))
        if self.flaw == "mutates in fit":
            embeddings -= embeddings.mean(0)
        return FittedDistance(self.flaw, centre)


@pytest.mark.parametrize(
    ("flaw", "caught_by"),
    [
        ("wrong sign", "task_text_scores_lower"),
        ("batch-dependent", "order_and_batch_do_not_matter"),
        ("writes into its input", "calling_and_fitting_change_nothing"),
        ("mutates in fit", "calling_and_fitting_change_nothing"),
        ("counts its calls", "calling_and_fitting_change_nothing"),
        ("global state", "same_seed_same_scores"),
        ("float32", "results_are_finite_and_of_their_type"),
        ("accepts anything", "bad_rows_are_refused_by_name"),
    ],
)
def test_a_flaw_is_caught_by_its_check(flaw, caught_by):
    assert caught_by in _failed(Distance(flaw))


def test_the_same_detector_without_a_flaw_passes():
    assert _failed(Distance()) == set()


@dataclass(frozen=True)
class Contrast:
    """Distance from the task's mean minus that from the background's, with one flaw."""

    flaw: str = ""
    background: ClassVar[int] = 50
    fitted_type: ClassVar[type] = FittedCentroidDistance

    def fit(self, embeddings, seed, background):
        """The two means."""
        check_rows(embeddings, at_least=2)
        if self.flaw != "accepts any background":
            check_classes(embeddings, background)
        general = background.double().mean(0) if len(background) else torch.zeros(embeddings.shape[1]).double()
        if self.flaw == "mutates the background":
            background *= 2
        task = embeddings.double().mean(0)
        if self.flaw == "classes exchanged":
            return FittedCentroidDistance(general, task)
        return FittedCentroidDistance(task, general)


@pytest.mark.parametrize(
    ("flaw", "caught_by"),
    [
        ("classes exchanged", "task_text_scores_lower"),
        ("accepts any background", "bad_rows_are_refused_by_name"),
        ("mutates the background", "calling_and_fitting_change_nothing"),
    ],
)
def test_a_flaw_of_a_contrastive_detector_is_caught_by_its_check(flaw, caught_by):
    assert caught_by in _failed(Contrast(flaw))


def test_a_contrastive_detector_without_a_flaw_passes():
    assert _failed(Contrast()) == set()


class CosineToMean:
    """Direction only: one minus the cosine to the mean of the fitted rows."""

    def fit(self, X):
        """Remembers the mean in itself."""
        self.centre = X.mean(0)
        return self

    def decision_function(self, X):
        """Cosine distance from it."""
        return 1 - X @ self.centre / np.maximum(np.linalg.norm(X, axis=1) * np.linalg.norm(self.centre), 1e-12)


class MeanDistance:
    """PyOD's convention, by somebody who never heard of dana."""

    def fit(self, X):
        """Remembers the mean in itself."""
        self.centre = X.mean(0)
        return self

    def decision_function(self, X):
        """Distance from it."""
        return np.linalg.norm(X - self.centre, axis=1)


class TransductiveDistance(MeanDistance):
    """Scores that depend on the batch, as ECOD's do."""

    def decision_function(self, X):
        """Distance from the mean of the training mean and the batch."""
        return np.linalg.norm(X - (self.centre + X.mean(0)) / 2, axis=1)


@pytest.mark.parametrize("cls", [CosineToMean, MeanDistance, TransductiveDistance])
def test_an_unregistered_object_of_pyods_convention_passes_and_stays_unfitted(cls):
    candidate = cls()
    assert _failed(candidate) == set()
    assert vars(candidate) == {}


def test_a_batch_dependent_object_is_scored_row_by_row():
    rows = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
    assert as_detector(TransductiveDistance()).fit(rows, 0).row_by_row
    assert not as_detector(MeanDistance()).fit(rows, 0).row_by_row


def test_an_exemption_is_shown_and_one_from_nothing_fails():
    class Exempt(Distance):
        exemptions: ClassVar = {"task_text_scores_lower": "says less is more", "no_such_check": "x"}

    results = {result.name: result for result in check_detector(Exempt("wrong sign"))}
    assert results["task_text_scores_lower"] == CheckResult("task_text_scores_lower", True, "exempt: says less is more")
    assert not results["no_such_check"].passed


def test_results_read_as_a_line():
    assert str(CheckResult("a_fact_holds", True)) == "ok      a fact holds"
    assert str(CheckResult("a_fact_holds", False, "it did not")) == "FAILED  a fact holds: it did not"


def test_a_fitted_detector_is_saved_and_read(tmp_path):
    rows = torch.randn(30, 4, generator=torch.Generator().manual_seed(0))
    fitted = KNearestNeighbours(3).fit(rows, 0)
    save_fitted(fitted, "knn:k=3", tmp_path)
    loaded = restore(KNearestNeighbours(3), tmp_path)
    assert isinstance(loaded, FittedKNearestNeighbours)
    assert loaded.k == 3
    assert torch.equal(loaded.score(rows), fitted.score(rows))


def test_files_of_another_class_or_of_nothing_are_refused(tmp_path):
    with pytest.raises(ArtifactError, match=r"detector\.json: cannot be read: .*No such file"):
        restore(LocalOutlierFactor(), tmp_path)
    save_fitted(KNearestNeighbours(1).fit(torch.eye(3), 0), "lof", tmp_path)
    with pytest.raises(ArtifactError, match="not the parameters of FittedLocalOutlierFactor"):
        restore(LocalOutlierFactor(), tmp_path)


def test_pyod_names_are_found_in_any_case_and_unknown_ones_suggested():
    assert type(pyod_detector("ecod").candidate) is type(pyod_detector("ECOD").candidate)
    with pytest.raises(PluginError, match="unknown PyOD detector 'ECODD'; did you mean 'ecod'"):
        pyod_detector("ECODD")
    with pytest.raises(ConfigError, match="unknown parameter 'neighbors'; did you mean 'n_neighbors'"):
        DETECTORS.create("pyod:KNN,neighbors=3")
