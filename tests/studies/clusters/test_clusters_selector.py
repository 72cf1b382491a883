"""Clusters selector: minus the log of the task's share of a unit's clusters, by hand, by scikit-learn, bad input."""

import math

import numpy as np
import pytest
import torch
from sklearn.mixture import GaussianMixture
from threadpoolctl import threadpool_limits

from dana.core.rng import derive_seed
from dana.corpus.text import distinct_rows
from dana.encoders.geometry import parse_geometry
from dana.selectors.base import SelectorContext
from dana.studies.clusters.model import FittedClusters
from dana.studies.clusters.selector import ClustersSelector, FittedClustersSelector
from tests.selectors.topics import WORDS, texts
from tests.studies.clusters.toy_mixtures import round_mixture

CONTEXT = SelectorContext(encoder="hashing:dims=16,words=1")
POOL = {"clusters": texts("task", 30, 1) + texts("other", 60, 2)}


def a_selector(**changes):
    return ClustersSelector(**{"k": 2, "pca": 4, "seeds": 2, **changes}, context=CONTEXT)


class Points:
    """In place of a context: a text is its own vector."""

    def embed(self, units):
        return torch.tensor([[float(text)] for text in units])


def by_hand(share, means=((-1.0,), (1.0,))):
    clusters = FittedClusters(
        parse_geometry("none").fit(torch.zeros(3, 1)), None, round_mixture(means)
    )
    selector = ClustersSelector()
    selector.__dict__["settings"] = Points()
    return FittedClustersSelector(
        selector, clusters, {"clusters": [{"task_share": part} for part in share]}
    )


def test_a_score_is_minus_the_log_of_the_task_share_of_the_responsibilities():
    selector = by_hand([0.9, 0.1])
    near = 1 / (
        1 + math.exp(-2)
    )  # responsibility of the left one at -1: densities are as e^0 to e^-2
    reference = [
        -math.log(0.5),
        -math.log(0.9 * near + 0.1 * (1 - near)),
        -math.log(0.1 * near + 0.9 * (1 - near)),
    ]
    np.testing.assert_allclose(selector.score(["0", "-1", "1"]), reference, rtol=1e-12)
    assert selector.score(["50"]) == pytest.approx(
        -math.log(0.1)
    )  # an outlier is of a cluster, too


def shares(selector):
    return [row["task_share"] for row in selector.notes["clusters"]]


def test_the_share_counts_responsibilities_and_the_smoothing_is_spread_evenly():
    selector = a_selector(smoothing=4.0).fit(texts("task", 16, 3), POOL)
    np.testing.assert_allclose(np.sort(shares(selector)), [2 / 20, 18 / 20], atol=1e-6)
    near, far = selector.score([texts("task", 1, 4)[0], texts("other", 1, 5)[0]])
    assert (near, far) == (
        pytest.approx(-math.log(18 / 20), abs=1e-6),
        pytest.approx(-math.log(2 / 20), abs=1e-5),
    )
    rows = selector.notes["clusters"]
    assert {word for row in rows for word in row["name"].split(", ")} <= {
        *WORDS["task"],
        *WORDS["other"],
    }


def test_scores_are_those_of_scikit_learns_mixture():
    target, probes = texts("task", 20, 3), texts("other", 5, 6) + texts("task", 5, 7)
    selector = a_selector(k=3, pca=0, seeds=1, covariance="diag", geometry="none").fit(
        target, POOL, seed=5
    )
    sample = [POOL["clusters"][row] for row in distinct_rows(POOL["clusters"])]
    points, of_target, of_probes = (
        CONTEXT.embed(each).double().numpy() for each in (sample, target, probes)
    )
    start = derive_seed(5, "clusters", 0) % 2**32
    with threadpool_limits(1):
        model = GaussianMixture(3, covariance_type="diag", max_iter=150, random_state=start).fit(
            points
        )
    share = (model.predict_proba(of_target).sum(0) + 1 / 3) / 21
    np.testing.assert_allclose(
        selector.score(probes), -np.log(model.predict_proba(of_probes) @ share), atol=1e-9
    )


def test_of_a_small_sample_fewer_components_are_kept():
    assert [a_selector(k=5, pca=50)._components(units) for units in (10_000, 500, 90, 5)] == [
        50,
        50,
        9,
        2,
    ]
    assert a_selector(k="auto", pca=50)._components(60) == 2  # of the 20 clusters that may come out
    assert a_selector(pca=0)._components(60) == 0
    small = a_selector(pca=7, k=9).fit(texts("task", 9, 3), POOL)  # 90 units for 9 clusters
    assert small.clusters.mixture.means_.shape == (9, 5)
    assert small.notes["components"] == 5


def test_a_repeated_unit_counts_once_in_the_mixture_and_in_the_task():
    sample_with_repeats = {
        "clusters": POOL["clusters"] + [text.upper() for text in POOL["clusters"][:1]] * 200
    }
    target = texts("task", 9, 3)
    once, often = (a_selector().fit(target, sample) for sample in (POOL, sample_with_repeats))
    np.testing.assert_array_equal(once.score(target), often.score(target))
    twice = a_selector().fit([*target, *target], POOL)
    np.testing.assert_array_equal(shares(twice), shares(once))
