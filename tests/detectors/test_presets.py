"""The defaults of DANA's recipe are those of the libraries it leaves them to, its settings those of the paper."""

from pathlib import Path

from dana.core.config import load, read_yaml
from dana.core.registry import DETECTORS
from dana.detectors.iforest import IsolationForest
from dana.detectors.kernel import OneClassSVM
from dana.detectors.neighbours import KNearestNeighbours, LocalOutlierFactor
from dana.detectors.pyod import pyod_detector
from dana.detectors.robust_covariance import RobustCovariance
from dana.stages.settings import RunSettings

PAPER = Path(__file__).parents[2] / "recipes" / "papers" / "dana" / "table4.yaml"


def test_the_papers_recipe_has_the_papers_settings_and_library_defaults():
    settings = load(RunSettings, read_yaml(PAPER), ["task=chemprot", "general=[pool]"], origin="table4")
    forest = IsolationForest(trees=100, samples=256)  # on the vectors as they are
    assert [DETECTORS.create(spec) for spec in settings.ranking.detectors] == [
        *(RobustCovariance(), KNearestNeighbours(k=5), pyod_detector("PCA"), OneClassSVM(nu=0.1, gamma=None)),
        *(LocalOutlierFactor(k=20), forest),
    ]
    assert DETECTORS.create(settings.detector) == forest
    selection, weigh, adapt = settings.selection, settings.weigh, settings.adapt
    assert (selection.units, selection.general_share, selection.geometry) == ("window:256", 0.1, "none")
    assert (settings.ranking.protocol, settings.ranking.prevalence) == ("paper", 0.5)
    assert (weigh.policy, weigh.beta, weigh.gamma, weigh.min_tail) == ("segments", 0.2, 15, 15)
    assert (weigh.stream, weigh.shrink) == (True, False)
    assert (adapt.steps, adapt.batch_size, adapt.learning_rate) == (50_000, 256, 1e-4)
    selectors = {arm.name: arm.selector for arm in settings.described_arms}
    assert (selectors["lm"], selectors["dana"]) == ("moore_lewis:background=task", "detector")
