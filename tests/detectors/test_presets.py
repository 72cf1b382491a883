"""The defaults of DANA's recipe are those of the libraries it leaves them to."""

from pathlib import Path

import yaml

from dana.core.config import load, read_yaml
from dana.core.registry import DETECTORS
from dana.detectors.iforest import IsolationForest
from dana.detectors.kernel import OneClassSVM
from dana.detectors.neighbours import KNearestNeighbours, LocalOutlierFactor
from dana.detectors.pyod import pyod_detector
from dana.detectors.robust_covariance import RobustCovariance
from dana.stages.settings import RunSettings

PAPER = Path(__file__).parents[2] / "recipes" / "papers" / "dana" / "table4.yaml"
# The paper gives no parameters; isolation forest on the vectors as they are.
PAPER_FOREST = IsolationForest(trees=100, samples=256)
PAPER_DETECTORS = [
    *(RobustCovariance(), KNearestNeighbours(k=5), pyod_detector("PCA"), OneClassSVM(nu=0.1, gamma=None)),
    *(LocalOutlierFactor(k=20), PAPER_FOREST),
]


def test_the_papers_recipe_names_detectors_with_library_defaults():
    recipe = yaml.safe_load(PAPER.read_text(encoding="utf-8"))
    assert [DETECTORS.create(spec) for spec in recipe["ranking"]["detectors"]] == PAPER_DETECTORS
    assert DETECTORS.create(recipe["detector"]) == PAPER_FOREST
    assert recipe["selection"]["geometry"] == "none"


def test_the_papers_recipe_is_read_with_the_papers_settings():
    settings = load(RunSettings, read_yaml(PAPER), ["task=chemprot", "general=[pool]"], origin="table4")
    assert (settings.selection.units, settings.selection.general_share) == ("window:256", 0.1)
    assert (settings.ranking.protocol, settings.ranking.prevalence) == ("paper", 0.5)
    weigh = settings.weigh
    assert (weigh.policy, weigh.beta, weigh.gamma, weigh.min_tail) == ("segments", 0.2, 15, 15)
    assert (weigh.stream, weigh.shrink) == (True, False)
    assert (settings.adapt.steps, settings.adapt.batch_size, settings.adapt.learning_rate) == (50_000, 256, 1e-4)
    by_name = {arm.name: arm.selector for arm in settings.described_arms}
    assert by_name["lm"] == "moore_lewis:background=task"
    assert by_name["dana"] == "detector"
