"""Detectors that are told what pool text looks like: against scikit-learn and by hand; bad input."""

import numpy as np
import pytest
import torch
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import NearestNeighbors
from sklearn.svm import SVC

from dana.core.errors import DataError
from dana.core.registry import DETECTORS
from dana.detectors.base import fit_detector
from dana.detectors.centroids import CentroidDistance
from dana.detectors.linear import LinearDiscriminant
from dana.detectors.neighbours import ContrastiveNeighbours
from tests.detectors.clouds import CONTRASTIVE, cloud


@pytest.fixture(params=[(400, 300), (12, 300), (30, 7)], ids=str)
def classes(request):
    """Task rows, background rows and queries in 24 dimensions, three of them dead; also fewer rows than dimensions."""
    target, pool = request.param
    scale = torch.linspace(0.2, 3, 24)
    scale[[3, 8, 20]] = 0
    shift = torch.linspace(-1, 1, 24)
    return (
        cloud(target, 24, 0) * scale + shift,
        cloud(pool, 24, 1) * scale,
        cloud(80, 24, 2) * scale + shift / 2,
    )


def lda(shrinkage):
    return lambda rows: LinearDiscriminantAnalysis("lsqr", shrinkage=shrinkage, priors=[0.5, 0.5])


def svm(gamma):
    return lambda rows: SVC(C=2.0, gamma=gamma, class_weight="balanced")


def regression(c):
    return lambda rows: LogisticRegression(
        C=c / rows.var(0).sum(), class_weight="balanced", max_iter=1000
    )


@pytest.mark.parametrize(
    ("spec", "reference", "scale"),
    [
        *[("lda", lda("auto"), 1), ("lda:shrinkage=0.3", lda(0.3), 1)],
        *[("svm:c=2.0", svm("scale"), 1), ("svm:c=2.0,gamma=0.02", svm(0.02), 1)],
        *[("density_ratio", regression(1), 1), ("density_ratio:c=0.1", regression(0.1), 1)],
        ("density_ratio", regression(1), 50),
    ],
)
def test_scores_are_those_of_scikit_learn(classes, spec, reference, scale):
    target, pool, queries = (rows * scale for rows in classes)
    rows, is_target = (
        torch.cat([target, pool]).double().numpy(),
        np.repeat([1, 0], [len(target), len(pool)]),
    )
    truth = -reference(rows).fit(rows, is_target).decision_function(queries.double().numpy())
    scores = DETECTORS.create(spec).fit(target, 0, pool).score(queries)
    np.testing.assert_allclose(scores, truth, rtol=0, atol=1e-5 * np.abs(truth).max())


@pytest.mark.parametrize("k", [1, 5])
def test_contrastive_knn_is_scikit_learns(classes, k):
    target, pool, queries = (rows.double().numpy() for rows in classes)
    near, far = (
        NearestNeighbors(n_neighbors=k).fit(rows).kneighbors(queries)[0].mean(1)
        for rows in (target, pool)
    )
    scores = ContrastiveNeighbours(k).fit(classes[0], 0, classes[1]).score(classes[2])
    np.testing.assert_allclose(scores, near - far, rtol=0, atol=1e-5 * np.abs(near - far).max())


def test_lda_by_hand():
    # Variance 1 in both classes and both dimensions, no covariance: the log odds are (μ_general -
    # μ_task)·x + constant.
    square = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
    model = LinearDiscriminant(shrinkage=0.0).fit(square, 0, square + torch.tensor([4.0, 0.0]))
    scores = model.score(torch.tensor([[0.0, 0.0], [2.0, 5.0], [4.0, -3.0]]))
    assert scores.tolist() == pytest.approx([-8, 0, 8], abs=1e-9)


def test_contrastive_knn_by_hand():
    target, pool = torch.tensor([[0.0], [1.0], [2.0]]), torch.tensor([[10.0], [11.0]])
    queries = torch.tensor([[0.0], [10.0]])
    # k = 2: (0 + 1)/2 - (10 + 11)/2 and (8 + 9)/2 - (0 + 1)/2; k = 10 takes all three and both
    assert ContrastiveNeighbours(2).fit(target, 0, pool).score(queries).tolist() == [-10, 8]
    assert ContrastiveNeighbours(10).fit(target, 0, pool).score(queries).tolist() == [
        1 - 10.5,
        9 - 0.5,
    ]


def test_centroid_distance_by_hand():
    target = torch.tensor([[-1.0, 0.0], [1.0, 0.0], [0.0, 0.0]])
    model = CentroidDistance().fit(
        target, 0, torch.tensor([[3.0, 3.0], [3.0, 5.0]])
    )  # means (0, 0) and (3, 4)
    queries = torch.tensor([[0.0, 0.0], [3.0, 4.0], [1.5, 2.0], [3.0, 0.0]])
    assert model.score(queries).tolist() == pytest.approx([-5, 5, 0, 3 - 4])


@pytest.mark.parametrize("spec", CONTRASTIVE)
def test_classes_that_tell_nothing_are_refused_and_equal_task_rows_are_not(spec):
    detector, target, pool = DETECTORS.create(spec), torch.ones(9, 4), cloud(50, 4, 1) - 2
    for rows, background, message in (
        (pool[:2], target, "2 rows"),
        (target, torch.ones(5, 4), "rows of task and background"),
        (target, None, "background"),
    ):
        with pytest.raises(DataError, match=message):
            fit_detector(detector, rows, 0, background)
    model = detector.fit(target, 0, pool)
    assert model.score(target[:1]) < model.score(pool).min()
