"""Each detector against its reference library, and against numbers worked out by hand; defaults of DANA's recipe."""

import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from pyod.models.knn import KNN
from pyod.models.pca import PCA as PyodPCA
from scipy.stats import spearmanr
from sklearn import ensemble, neighbors, svm
from sklearn.covariance import LedoitWolf, MinCovDet
from sklearn.decomposition import PCA
from sklearn.metrics.pairwise import cosine_similarity

from dana.core.config import read_yaml
from dana.core.errors import ConfigError, DataError
from dana.core.registry import DETECTORS
from dana.core.settings import load
from dana.detectors.centroids import CosineSimilarity
from dana.detectors.components import FittedComponentDistance, PrincipalComponents
from dana.detectors.iforest import FittedIsolationForest, IsolationForest, average_path, round_down
from dana.detectors.kernel import OneClassSVM
from dana.detectors.neighbours import KNearestNeighbours, LocalOutlierFactor
from dana.detectors.pyod import FittedConvention, pyod_detector
from dana.detectors.robust_covariance import RobustCovariance, spatial_median
from dana.stages.settings import RunSettings
from tests.detectors.clouds import cloud


def score(spec, inside, queries):
    return DETECTORS.create(spec).fit(inside, 0).score(queries).numpy()


def rebuild_error(inside, queries, variance):
    reference = PCA(n_components=variance, svd_solver="full").fit(inside)
    return np.square(queries - reference.inverse_transform(reference.transform(queries))).sum(1)


def pyod_pca(inside, queries):
    return PyodPCA().fit(inside.double().numpy()).decision_function(queries.double().numpy())


@pytest.fixture(params=["random", "low-dim"])
def clouds(request):
    """Fitted rows and queries: 24 free dimensions, or 3 free ones seen in 24."""
    if request.param == "random":
        return cloud(400, 24, 0), cloud(60, 24, 1) * 2
    mixing = cloud(3, 24, 2)
    return cloud(400, 3, 0) @ mixing, (cloud(60, 3, 1) * 2) @ mixing + 0.01 * cloud(60, 24, 3)


# A detector, the numbers of its reference library, and whether they agree to 1e-5 of the largest or
# of each.
LARGEST, EACH = True, False
REFERENCES = [
    *(
        (
            f"lof:k={k}",
            lambda rows, x, k=k: (
                -neighbors.LocalOutlierFactor(k, novelty=True).fit(rows).score_samples(x)
            ),
            EACH,
        )
        for k in (1, 5, 20)
    ),
    *(
        (f"knn:k={k}", lambda rows, x, k=k: KNN(n_neighbors=k).fit(rows).decision_function(x), EACH)
        for k in (1, 5)
    ),
    ("ocsvm", lambda rows, x: -svm.OneClassSVM(nu=0.1).fit(rows).decision_function(x), LARGEST),
    (
        "ocsvm:0.5,0.02",
        lambda rows, x: -svm.OneClassSVM(nu=0.5, gamma=0.02).fit(rows).decision_function(x),
        LARGEST,
    ),
    *(
        (f"pca:{share}", lambda rows, x, share=share: rebuild_error(rows, x, share), LARGEST)
        for share in (0.3, 0.8)
    ),
    ("robust_covariance:1.0", lambda rows, x: LedoitWolf().fit(rows).mahalanobis(x), EACH),
    ("cosine", lambda rows, x: -cosine_similarity(x, rows.mean(0)[None])[:, 0], LARGEST),
]


@pytest.mark.parametrize(
    ("spec", "reference", "of_largest"), REFERENCES, ids=[spec for spec, *_ in REFERENCES]
)
def test_scores_are_those_of_the_reference_library(clouds, spec, reference, of_largest):
    inside, queries = clouds
    truth = reference(inside.double().numpy(), queries.double().numpy())
    tolerance = {"rtol": 0, "atol": 1e-5 * abs(truth).max()} if of_largest else {"rtol": 1e-5}
    np.testing.assert_allclose(score(spec, inside, queries), truth, **tolerance)


@pytest.mark.parametrize("seed", [0, 11])
def test_iforest_is_scikit_learns_with_the_same_seed(clouds, seed):
    inside, queries = clouds
    reference = ensemble.IsolationForest(n_estimators=60, max_samples=128, random_state=seed).fit(
        inside.numpy()
    )
    scores = IsolationForest(trees=60, samples=128).fit(inside, seed).score(queries)
    np.testing.assert_allclose(scores.numpy(), -reference.score_samples(queries.numpy()), rtol=1e-9)


def test_average_path_and_one_cut_by_hand():
    # c(2) = 2 H(1) - 2 * 1/2 = 1; c(5) = 2 (ln 4 + gamma) - 8/5; c(256) of Liu et al. is 10.244
    assert average_path(np.array([0, 1, 2])).tolist() == [0.0, 0.0, 1.0]
    assert average_path(np.array([5]))[0] == pytest.approx(2 * (math.log(4) + 0.5772156649) - 1.6)
    assert average_path(np.array([256]))[0] == pytest.approx(10.244, abs=1e-3)
    # Two rows, one tree: every query is isolated after one cut, and c(2) = 1, so s = 2^(-1/1)
    forest = IsolationForest(trees=1, samples=2).fit(torch.tensor([[0.0], [1.0]]), 0)
    assert forest.score(torch.tensor([[-5.0], [9.0]])).tolist() == [0.5, 0.5]


def test_a_rounded_threshold_splits_like_the_exact_one():
    below, above = np.float32(0.1), np.nextafter(np.float32(0.1), np.float32(1))
    between = (
        float(below) + 3 * float(above)
    ) / 4  # its nearest float32 is `above`, which must still go right
    assert np.float32(between) == above
    assert round_down(np.array([between, float(below), -between])).tolist() == [
        below,
        below,
        -above,
    ]


def test_trees_by_hand():
    # Two trees in one list: a cut at 1 with leaves at depths 1 and 3; and a single leaf, which is
    # its own child.
    tensors = {
        "feature": torch.zeros(4, dtype=torch.int64),
        "threshold": torch.tensor([1.0, torch.inf, torch.inf, torch.inf]),
        "left": torch.tensor([1, 1, 2, 3]),
        "path": torch.tensor([0.0, 1.0, 3.0, 2.0], dtype=torch.float64),
    }

    def scores(roots, queries):
        forest = FittedIsolationForest(
            depth=1, normaliser=2.0, dims=1, roots=torch.tensor(roots), **tensors
        )
        return forest.score(torch.tensor(queries)[:, None]).tolist()

    largest = torch.finfo(torch.float32).max  # at the threshold: left
    assert scores([0], [0.5, 1.0, 1.5, largest]) == pytest.approx(
        [2**-0.5, 2**-0.5, 2**-1.5, 2**-1.5]
    )
    # mean paths (1 + 2) / 2 and (3 + 2) / 2, over c(n) = 2
    assert scores([0, 3], [0.5, 1.5]) == pytest.approx([2 ** (-1.5 / 2), 2 ** (-2.5 / 2)])


def test_lof_by_hand():
    # Rows 0, 1, 3; k = 1. k-distances 1, 1, 2; densities 1/max(1, 1) = 1, 1 and 1/max(2, 1) = 1/2.
    model = LocalOutlierFactor(k=1).fit(torch.tensor([[0.0], [1.0], [3.0]]), 0)
    np.testing.assert_allclose(model.k_distance.numpy(), [1, 1, 2])
    np.testing.assert_allclose(model.density.numpy(), [1, 1, 0.5], rtol=1e-9)
    # -4: nearest is 0, reachability 4, own density 1/4: LOF 4. 7: nearest is 3, reachability 4: LOF
    # 0.5 * 4.
    np.testing.assert_allclose(
        model.score(torch.tensor([[-4.0], [7.0]])).numpy(), [4, 2], rtol=1e-9
    )


def test_lof_with_duplicates_is_finite():
    inside = torch.cat([torch.zeros(30, 4), torch.ones(30, 4), cloud(60, 4, 5)])
    queries = torch.cat([torch.zeros(1, 4), cloud(20, 4, 6) + 3])
    model = LocalOutlierFactor(20).fit(inside, 0)
    assert torch.isfinite(model.density).all()
    assert model.density[:60].min() == pytest.approx(
        1e10
    )  # 1 / TINY: thirty copies are at distance 0
    reference = neighbors.LocalOutlierFactor(20, novelty=True).fit(inside.double().numpy())
    np.testing.assert_allclose(
        model.score(queries), -reference.score_samples(queries.double().numpy()), rtol=1e-5
    )


def test_knn_by_hand():
    rows = torch.tensor([[0.0, 0.0], [3.0, 4.0], [6.0, 8.0]])
    assert score("knn:k=2", rows, torch.zeros(1, 2)).tolist() == [5.0]


def test_ocsvm_keeps_digits_that_cancel():
    # Rows of length 1 in many dimensions all score close to 0, far below the sums whose difference
    # a score is.
    inside, queries = (torch.nn.functional.normalize(cloud(n, 384, n), dim=1) for n in (1500, 200))
    truth = -svm.OneClassSVM(nu=0.1).fit(inside.numpy()).decision_function(queries.numpy())
    model = OneClassSVM().fit(inside, 0)
    assert abs(truth).max() < model.offset / 100
    np.testing.assert_allclose(
        model.score(queries).numpy(), truth, rtol=0, atol=1e-5 * abs(truth).max()
    )
    assert model.score(torch.full((1, 384), 1e9)).item() == model.offset


def test_pca_by_hand():
    rows = torch.tensor(
        [[2.0, 1.0], [-2.0, 1.0], [0.0, 1.5], [0.0, 0.5]]
    )  # mean (0, 1), first axis leads
    model = PrincipalComponents(0.5).fit(rows, 0)
    assert model.directions.shape == (2, 1)
    assert model.score(torch.tensor([[7.0, 1.0], [0.0, 4.0]])).tolist() == pytest.approx(
        [0.0, 9.0], abs=1e-9
    )


@pytest.mark.parametrize("rows", [400, 15], ids=["more rows than dims", "fewer"])
@pytest.mark.parametrize("offset", [0.0, 50.0])
def test_component_distance_is_pyods_pca(rows, offset):
    inside, queries = cloud(rows, 24, 0) + offset, cloud(60, 24, 1) * 2 + offset
    np.testing.assert_allclose(
        score("pyod:PCA", inside, queries), pyod_pca(inside, queries), rtol=1e-5
    )
    assert pyod_detector("PCA").fitted_type is FittedComponentDistance
    assert pyod_detector("PCA", n_components=2).fitted_type is FittedConvention


def test_component_distance_of_dead_dimensions_is_pyods():
    # MiniLM has three: a constant and rounding noise, which standardising blows up to unit
    # variance.
    inside, queries = cloud(400, 24, 0), cloud(60, 24, 1)
    for rows in (inside, queries):
        rows[:, 3] = 0.0625 + 1e-8 * rows[:, 3]
        rows[:, 7] *= 1e-33
        rows[:, 9] = 0.5
    np.testing.assert_allclose(
        score("pyod:PCA", inside, queries), pyod_pca(inside, queries), rtol=1e-5
    )
    tiny = cloud(50, 4, 0) * 1e-33
    assert np.isfinite(score("pyod:PCA", tiny, torch.ones(1, 4))).all(), "out of float32's range"


def test_component_distance_by_hand():
    # Standardised rows are (±1, ±1) with axes (1, 1)/√2 and (1, -1)/√2 and shares 3/4 and 1/4 of
    # the variance; from the mean, each tip is at distance 1: 1/(3/4) + 1/(1/4).
    inside = torch.tensor([[1.0, 1.0], [-1.0, -1.0]]).repeat(3, 1)
    inside = torch.cat([inside, torch.tensor([[1.0, -1.0], [-1.0, 1.0]])])
    assert score("pyod:pca", inside, torch.zeros(1, 2)).item() == pytest.approx(4 / 3 + 4, rel=1e-6)


def test_cosine_to_a_mean_without_direction_is_zero():
    assert CosineSimilarity().fit(cloud(9, 24, 0), 0).score(torch.zeros(1, 24)).item() == 0
    row = cloud(1, 24, 1)
    assert CosineSimilarity().fit(torch.cat([row, -row]), 0).score(cloud(9, 24, 2)).abs().max() == 0


@pytest.mark.parametrize("spec", ["knn", "lof", "ocsvm"])
def test_distances_keep_digits_far_from_the_origin(spec):
    # 1/128 steps, so that moving the cloud by 4,096 rounds nothing: the scores must not move
    # either.
    inside, queries = ((cloud(n, 24, n) * 128).round() / 128 for n in (300, 60))
    near, far = score(spec, inside, queries), score(spec, inside + 4096, queries + 4096)
    np.testing.assert_allclose(far, near, rtol=1e-5, atol=1e-5 * abs(near).max())


def test_robust_covariance_ranks_like_min_cov_det():
    mixing = cloud(5, 5, 1)
    inside = torch.cat([cloud(450, 5, 0) @ mixing, cloud(50, 5, 2) + 8])
    queries = torch.cat([cloud(200, 5, 3) @ mixing, cloud(20, 5, 4) + 8])
    reference = MinCovDet(random_state=0, support_fraction=0.75).fit(inside.double().numpy())
    scores = RobustCovariance().fit(inside, 0).score(queries)
    assert spearmanr(scores.numpy(), reference.mahalanobis(queries.double().numpy()))[0] > 0.95
    assert (
        scores[200:].min() > scores[:200].median() * 4
    )  # the outliers did not draw the bulk towards them


def test_concentration_steps_drop_outliers_that_lie_near_the_centre():
    # A long thin cloud. A tenth of outliers is off its axis by 30 of its standard deviations there,
    # but nearer to the median than its ends are: only the steps, which measure with the covariance,
    # can tell.
    clean = cloud(400, 2, 0) * torch.tensor([10.0, 0.1])
    outliers = torch.cat([cloud(40, 1, 1), torch.full((40, 1), 3.0)], dim=1)
    model = RobustCovariance().fit(torch.cat([clean, outliers]), 0)
    assert model.location[1].abs() < 0.05
    assert model.score(outliers).min() > model.score(clean).max()


def test_the_start_is_not_drawn_by_two_fifths_of_outliers():
    # The mean of all lies 2.4 from the clean centre; a start there ends in the cluster, 4.6 off.
    clean, outliers = cloud(300, 4, 0), cloud(200, 4, 1) * 0.5 + 3
    model = RobustCovariance(support=0.5).fit(torch.cat([clean, outliers]), 0)
    assert model.location.norm() < 0.35
    assert model.score(outliers).median() > model.score(clean).quantile(0.99)
    rows = torch.cat([torch.zeros(3, 2), torch.full((2, 2), 100.0)]).double()
    torch.testing.assert_close(spatial_median(rows), torch.zeros(2).double(), rtol=0, atol=1e-3)


@pytest.mark.parametrize(
    "spec",
    [
        *(
            "iforest:trees=0",
            "iforest:samples=1",
            "knn:k=0",
            "lof:k=0",
            "ocsvm:nu=0",
            "ocsvm:gamma=-1.0",
        ),
        *(
            "pca:variance=1.0",
            "robust_covariance:support=0.2",
            "lda:shrinkage=1.5",
            "density_ratio:c=0",
        ),
        *("contrastive_knn:k=0", "svm:c=0"),
    ],
)
def test_parameters_out_of_range_are_refused(spec):
    with pytest.raises(ConfigError, match=re.escape(spec.partition(":")[2])):
        DETECTORS.create(spec)


def test_too_few_rows_are_refused_or_lower_k():
    with pytest.raises(DataError, match="5 rows"):
        KNearestNeighbours(5).fit(cloud(5, 3, 0), 0)
    assert LocalOutlierFactor(k=20).fit(cloud(8, 3, 0), 0).k == 7


PAPER = Path(__file__).parents[2] / "recipes" / "papers" / "dana" / "table4.yaml"


def test_the_papers_recipe_has_the_papers_settings_and_library_defaults():
    settings = load(
        RunSettings, read_yaml(PAPER), ["task=chemprot", "pool=[pool]"], origin="table4"
    )
    forest = IsolationForest(trees=1600, samples=256)  # with 100 another seed gives another order
    assert [DETECTORS.create(spec) for spec in settings.ranking.detectors] == [
        *(
            RobustCovariance(),
            KNearestNeighbours(k=5),
            pyod_detector("PCA"),
            OneClassSVM(nu=0.1, gamma=None),
        ),
        *(LocalOutlierFactor(k=20), forest),
    ]
    assert DETECTORS.create(settings.detector) == forest
    selection, weigh, adapt = settings.selection, settings.weigh, settings.adapt
    assert (selection.units, selection.pool_share, selection.geometry) == (
        "window:256",
        0.1,
        "center+l2",
    )
    assert (settings.ranking.protocol, settings.ranking.prevalence) == ("paper", 0.5)
    assert (weigh.policy, weigh.beta, weigh.gamma, weigh.min_tail) == ("segments", 0.2, 15, 15)
    assert (weigh.stream, weigh.shrink) == (True, False)
    assert (adapt.steps, adapt.batch_size, adapt.learning_rate) == (50_000, 256, 1e-4)
    selectors = {arm.name: arm.selector for arm in settings.described_arms}
    assert (selectors["lm"], selectors["dana"]) == ("moore_lewis:background=target", "detector")
