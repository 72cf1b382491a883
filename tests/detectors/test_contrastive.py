"""Detectors that are told what general text looks like, and cosine: against scikit-learn and by hand; bad input."""

import numpy as np
import pytest
import torch
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.metrics.pairwise import cosine_similarity
from sklearn.neighbors import NearestNeighbors
from sklearn.svm import SVC

from dana.core.errors import DataError
from dana.core.registry import DETECTORS
from dana.detectors.base import fit_detector
from dana.detectors.centroids import CentroidDistance, CosineSimilarity
from dana.detectors.kernel import SupportVectorMachine
from dana.detectors.linear import DensityRatio, LinearDiscriminant
from dana.detectors.neighbours import ContrastiveNeighbours

CONTRASTIVE = ["distance", "lda", "density_ratio", "contrastive_knn", "svm"]


def _rows(rows, dims, seed):
    return torch.randn(rows, dims, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(params=[(400, 300), (12, 300), (30, 7)], ids=str)
def classes(request):
    """Task rows, background rows and queries in 24 dimensions, three of them dead; also fewer rows than dimensions."""
    task, general = request.param
    scale = torch.linspace(0.2, 3, 24)
    scale[[3, 8, 20]] = 0
    shift = torch.linspace(-1, 1, 24)
    return _rows(task, 24, 0) * scale + shift, _rows(general, 24, 1) * scale, _rows(80, 24, 2) * scale + shift / 2


def _labelled(task, general):
    return torch.cat([task, general]).double().numpy(), np.repeat([1, 0], [len(task), len(general)])


def _close(found, expected):
    np.testing.assert_allclose(found.numpy(), expected, rtol=0, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("shrinkage", [None, 0.3])
def test_lda_is_scikit_learns(classes, shrinkage):
    task, general, queries = classes
    reference = LinearDiscriminantAnalysis("lsqr", shrinkage=shrinkage or "auto", priors=[0.5, 0.5])
    expected = -reference.fit(*_labelled(task, general)).decision_function(queries.double().numpy())
    _close(LinearDiscriminant(shrinkage).fit(task, 0, general).score(queries), expected)


@pytest.mark.parametrize("gamma", [None, 0.02])
def test_svm_is_scikit_learns(classes, gamma):
    task, general, queries = classes
    reference = SVC(C=2.0, gamma=gamma or "scale", class_weight="balanced").fit(*_labelled(task, general))
    found = SupportVectorMachine(2.0, gamma).fit(task, 0, general).score(queries)
    _close(found, -reference.decision_function(queries.double().numpy()))
    assert found.max() > 0


def test_lda_by_hand():
    # Variance 1 in both classes and both dimensions, no covariance: the log odds are (μ_general - μ_task)·x + constant.
    square = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
    fitted = LinearDiscriminant(shrinkage=0.0).fit(square, 0, square + torch.tensor([4.0, 0.0]))
    scores = fitted.score(torch.tensor([[0.0, 0.0], [2.0, 5.0], [4.0, -3.0]]))
    assert scores.tolist() == pytest.approx([-8, 0, 8], abs=1e-9)


@pytest.mark.parametrize(("c", "scale"), [(1.0, 1.0), (0.1, 1.0), (1.0, 50.0)])
def test_density_ratio_is_scikit_learns(classes, c, scale):
    task, general, queries = (rows * scale for rows in classes)
    rows, is_task = _labelled(task, general)
    reference = LogisticRegression(C=c / rows.var(0).sum(), class_weight="balanced", max_iter=1000).fit(rows, is_task)
    expected = -reference.decision_function(queries.double().numpy())
    _close(DensityRatio(c).fit(task, 0, general).score(queries), expected)


def test_density_ratio_weighs_classes_equally():
    # Mirrored classes of 20 and 2,000 rows: halfway between them neither is likelier.
    task, general = _rows(20, 3, 0) * 0.1 + 2, _rows(2000, 3, 1) * 0.1 - 2
    middle = DensityRatio().fit(task, 0, general).score(torch.zeros(1, 3)).item()
    assert abs(middle) < 0.2


@pytest.mark.parametrize("k", [1, 5])
def test_contrastive_knn_is_scikit_learns(classes, k):
    task, general, queries = (rows.double().numpy() for rows in classes)
    near, far = (NearestNeighbors(n_neighbors=k).fit(rows).kneighbors(queries)[0].mean(1) for rows in (task, general))
    found = ContrastiveNeighbours(k).fit(classes[0], 0, classes[1]).score(classes[2])
    _close(found, near - far)


def test_contrastive_knn_by_hand():
    task, general = torch.tensor([[0.0], [1.0], [2.0]]), torch.tensor([[10.0], [11.0]])
    queries = torch.tensor([[0.0], [10.0]])
    # k = 2: (0 + 1)/2 - (10 + 11)/2 and (8 + 9)/2 - (0 + 1)/2; k = 10 takes all three and both
    assert ContrastiveNeighbours(2).fit(task, 0, general).score(queries).tolist() == [-10, 8]
    assert ContrastiveNeighbours(10).fit(task, 0, general).score(queries).tolist() == [1 - 10.5, 9 - 0.5]


def test_cosine_is_scikit_learns(classes):
    task, _, queries = classes
    expected = -cosine_similarity(queries.double().numpy(), task.double().numpy().mean(0)[None])[:, 0]
    fitted = CosineSimilarity().fit(task, 0)
    np.testing.assert_allclose(fitted.score(queries).numpy(), expected, rtol=0, atol=1e-7)
    assert fitted.score(torch.zeros(1, 24)).item() == 0
    opposite = torch.stack([queries[0], -queries[0]])  # a mean of zero has no direction
    assert CosineSimilarity().fit(opposite, 0).score(queries).abs().max() == 0


def test_centroid_distance_by_hand():
    task = torch.tensor([[-1.0, 0.0], [1.0, 0.0], [0.0, 0.0]])
    fitted = CentroidDistance().fit(task, 0, torch.tensor([[3.0, 3.0], [3.0, 5.0]]))  # means (0, 0) and (3, 4)
    queries = torch.tensor([[0.0, 0.0], [3.0, 4.0], [1.5, 2.0], [3.0, 0.0]])
    assert fitted.score(queries).tolist() == pytest.approx([-5, 5, 0, 3 - 4])


@pytest.mark.parametrize("spec", CONTRASTIVE)
@pytest.mark.parametrize(
    ("task", "general", "message"),
    [
        (_rows(2, 4, 0), _rows(9, 4, 1), "2 rows"),
        (_rows(9, 4, 0), _rows(0, 4, 1), "background: 0 rows"),
        (_rows(9, 4, 0), _rows(9, 3, 1), "background: .*3 dims"),
        (_rows(9, 4, 0), torch.full((2, 4), float("nan")), "background: row 0"),
        (torch.ones(9, 4), torch.ones(5, 4), "rows of task and background"),
        (_rows(9, 4, 0), None, "background"),
    ],
    ids=["two task rows", "empty", "width", "nan", "all the same", "none"],
)
def test_bad_classes_are_refused(spec, task, general, message):
    with pytest.raises(DataError, match=message) as told:
        fit_detector(DETECTORS.create(spec), task, 0, general)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("spec", CONTRASTIVE)
def test_identical_task_rows_differ_from_background(spec):
    task, general = torch.ones(9, 4), _rows(50, 4, 1) - 2
    fitted = DETECTORS.create(spec).fit(task, 0, general)
    assert fitted.score(task[:1]) < fitted.score(general).min()
