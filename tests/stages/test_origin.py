"""A component of another version is another one, for the fingerprints of all that it decides; edits change none."""

import importlib
import linecache
import sys
from importlib.metadata import EntryPoint

import pytest
from two_topics import SELECTION, write_scores
from versions import classes_of

from dana.core import registry
from dana.core.errors import ArtifactError
from dana.core.registry import DETECTORS, ENCODERS, Registry, is_importable, origin_of
from dana.detectors.components import ComponentDistance
from dana.detectors.neighbours import KNearestNeighbours
from dana.detectors.pyod import Convention, as_detector
from dana.encoders.base import encoder_identity
from dana.encoders.cache import create_encoder
from dana.scoring.settings import RankSettings
from dana.selectors.build import CrossFitted
from dana.stages.rank import rank_stage
from dana.train.settings import TrainSettings

REGISTRIES = [value for value in vars(registry).values() if isinstance(value, Registry)]
DETECTOR = """
from edited_plugin.helper import SIGN, VERSION
import numpy as np
class Edited:
    version = VERSION
    def fit(self, X, y=None):
        self.centre_ = X.mean(axis=0)
        return self
    def decision_function(self, X):
        return SIGN * np.linalg.norm(X - self.centre_, axis=1)
"""
ENCODER = """
from edited_plugin.helper import SIGN, VERSION
from dana.encoders.hashing import HashingEncoder
class Edited:
    version = VERSION
    def identity(self):
        return {"encoder": "edited"}
    def encode(self, texts):
        return SIGN * HashingEncoder(32).encode(texts)
"""


@pytest.fixture(autouse=True)
def _no_cached_origins():
    """Forget the origins that another test changed."""
    registry._origin_of_class.cache_clear()
    yield
    registry._origin_of_class.cache_clear()


@pytest.fixture
def edit(tmp_path, monkeypatch):
    """Write a plug-in's helper module, not the one that its entry points name, and have it imported anew."""
    package = tmp_path / "site" / "edited_plugin"
    package.mkdir(parents=True)
    for name, text in (("__init__", ""), ("detector", DETECTOR), ("encoder", ENCODER)):
        (package / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(package.parent)
    original = registry.entry_points

    def entries(group):
        return [
            *original(group=group),
            EntryPoint("edited", f"edited_plugin.{group[5:-1]}:Edited", group),
        ]

    monkeypatch.setattr(registry, "entry_points", entries)

    def write(sign, version):
        (package / "helper.py").write_text(f"SIGN, VERSION = {sign}, {version}\n")
        for name in [name for name in sys.modules if name.startswith("edited_plugin")]:
            del sys.modules[name]
        importlib.invalidate_caches()
        registry._origin_of_class.cache_clear()

    return write


def test_scores_and_a_ranking_of_an_edited_detector_are_refused_and_it_is_named(
    texts, tmp_path, edit
):
    edit("1", 1)
    task, pool, _ = write_scores(texts, tmp_path, "edited")
    write_scores(texts, tmp_path, "edited")
    arguments = (
        task,
        pool,
        SELECTION,
        RankSettings(["edited"], seeds=1),
        tmp_path / "ranking",
        0.2,
    )
    ranking = rank_stage(*arguments)
    assert rank_stage(*arguments).manifest["seconds"] == ranking.manifest["seconds"], "reused"
    edit("-1", 2)
    with pytest.raises(
        ArtifactError, match=r"selector\.detector_code\.made_by\.version: .* there, .* now"
    ):
        write_scores(texts, tmp_path, "edited")
    with pytest.raises(ArtifactError, match=r"code\.edited\.made_by\.version: "):
        rank_stage(*arguments)


def test_an_edited_encoder_reads_nothing_that_the_old_one_stored(tmp_path, edit):
    edit("1", 1)
    before = create_encoder("edited", str(tmp_path / "store"))
    one = before.encode(["some text"])
    edit("-1", 2)
    after = create_encoder("edited", str(tmp_path / "store"))
    assert (after.encode(["some text"]) == -one).all()
    assert after.identity() != before.identity()


def test_every_component_of_ours_and_what_wraps_one_states_a_version_of_its_own():
    classes = [CrossFitted, Convention, ComponentDistance]
    for one in REGISTRIES:
        present = [
            name for name, (entry, *_) in one.entries().items() if is_importable(entry.module)
        ]
        classes += [component for name in present for component in classes_of(one.load(name))]
    assert [
        component for component in classes if not isinstance(vars(component).get("version"), int)
    ] == []


def test_our_own_components_are_known_by_their_version_and_not_by_the_release(monkeypatch):
    knn, encoder = as_detector(DETECTORS.create("knn")), ENCODERS.create("hashing")
    assert origin_of(knn) == {"package": "dana", "class": "KNearestNeighbours", "version": 1}
    assert encoder_identity(encoder)["code"] == {
        "package": "dana",
        "class": "HashingEncoder",
        "version": 1,
    }
    monkeypatch.setattr(type(knn), "version", 2)
    registry._origin_of_class.cache_clear()
    assert origin_of(knn)["version"] == 2


def test_a_subclass_in_a_script_inherits_no_version_but_follows_that_of_its_base(monkeypatch):
    class Script(KNearestNeighbours):
        pass

    before = origin_of(Script)
    assert str(before["version"]).startswith("source ")
    assert before != origin_of(KNearestNeighbours)
    monkeypatch.setattr(KNearestNeighbours, "version", 2)
    registry._origin_of_class.cache_clear()
    assert origin_of(Script) != before


def test_a_class_of_no_distribution_is_known_by_its_text(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    origins = []
    for body in ("1", "1", "2"):
        (tmp_path / "nobodys_module.py").write_text(f"class Nobodys:\n    size = {body}\n")
        sys.modules.pop("nobodys_module", None)
        linecache.clearcache()
        importlib.invalidate_caches()
        registry._origin_of_class.cache_clear()
        origins.append(origin_of(importlib.import_module("nobodys_module").Nobodys))
    assert origins[0] == origins[1] != origins[2]


def test_a_plug_in_without_a_version_is_known_by_its_distribution(monkeypatch):
    from sklearn.neighbors import LocalOutlierFactor

    before = origin_of(LocalOutlierFactor())
    assert before["package"] == "scikit-learn"
    monkeypatch.setattr(registry, "version", lambda name: f"{name} 99")
    registry._origin_of_class.cache_clear()
    assert origin_of(LocalOutlierFactor()) == {**before, "version": "scikit-learn 99"}
    origin = origin_of(as_detector(DETECTORS.create("pyod:KNN")))
    while "made_by" in origin:
        origin = origin["made_by"]
    assert (origin["package"], origin["version"]) == ("pyod", "pyod 99"), "a library behind a name"


@pytest.mark.parametrize("spec", ["masked", "next_sentence"])
def test_what_is_trained_for_an_objective_of_another_version_is_something_else(spec, monkeypatch):
    settings = TrainSettings(objective=spec)
    before = settings.decisive()
    monkeypatch.setattr(type(settings.make_objective()), "version", 2)
    registry._origin_of_class.cache_clear()
    assert settings.decisive() != before
