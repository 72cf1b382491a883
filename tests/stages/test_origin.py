"""An edited component is another one, for the fingerprints of all that it decides."""

import importlib
import sys
from importlib.metadata import EntryPoint

import pytest
from two_topics import SELECTION, write_scores

from dana.core import origin, registry
from dana.core.errors import ArtifactError
from dana.core.origin import origin_of
from dana.core.registry import DETECTORS, ENCODERS
from dana.detectors.build import as_detector
from dana.encoders.base import encoder_identity
from dana.encoders.store import create_encoder
from dana.ranking.settings import RankSettings
from dana.stages.rank import rank_stage

DETECTOR = """
from edited_plugin.helper import SIGN
import numpy as np
class Edited:
    def fit(self, X, y=None):
        self.centre_ = X.mean(axis=0)
        return self
    def decision_function(self, X):
        return SIGN * np.linalg.norm(X - self.centre_, axis=1)
"""
ENCODER = """
from edited_plugin.helper import SIGN
from dana.encoders.hashing import HashingEncoder
class Edited:
    def identity(self):
        return {"encoder": "edited"}
    def encode(self, texts):
        return SIGN * HashingEncoder(32).encode(texts)
"""


@pytest.fixture
def edit(tmp_path, monkeypatch):
    """Writes a plug-in's helper module, not the one that its entry points name, and has it imported anew."""
    package = tmp_path / "site" / "edited_plugin"
    package.mkdir(parents=True)
    for name, text in (("__init__", ""), ("detector", DETECTOR), ("encoder", ENCODER)):
        (package / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(package.parent)
    original = registry.entry_points
    monkeypatch.setattr(
        registry,
        "entry_points",
        lambda group: [
            *original(group=group),
            EntryPoint("edited", f"edited_plugin.{group.split('.')[1][:-1]}:Edited", group),
        ],
    )

    def write(sign):
        (package / "helper.py").write_text(f"SIGN = {sign}\n")
        for name in [name for name in sys.modules if name.startswith("edited_plugin")]:
            del sys.modules[name]
        importlib.invalidate_caches()

    yield write
    origin._origin_of_class.cache_clear()


def test_scores_of_an_edited_detector_are_refused_and_it_is_named(texts, tmp_path, edit):
    edit("1")
    write_scores(texts, tmp_path, "edited")
    write_scores(texts, tmp_path, "edited")
    edit("-1")
    with pytest.raises(ArtifactError, match=r"selector\.detector_code\.made_by\.source: .* there, .* now"):
        write_scores(texts, tmp_path, "edited")


def test_a_ranking_of_an_edited_detector_is_refused(texts, tmp_path, edit):
    edit("1")
    task, general, _ = write_scores(texts, tmp_path)
    arguments = (task, general, SELECTION, RankSettings(["edited"], seeds=1), tmp_path / "ranking", 0.2)
    made = rank_stage(*arguments)
    assert rank_stage(*arguments).manifest["seconds"] == made.manifest["seconds"], "reused"
    edit("-1")
    with pytest.raises(ArtifactError, match=r"code\.edited\.made_by\.source: "):
        rank_stage(*arguments)


def test_an_edited_encoder_reads_nothing_that_the_old_one_stored(tmp_path, edit):
    edit("1")
    before = create_encoder("edited", str(tmp_path / "store"))
    one = before.encode(["some text"])
    before.close()
    edit("-1")
    after = create_encoder("edited", str(tmp_path / "store"))
    assert (after.encode(["some text"]) == -one).all()
    assert after.identity() != before.identity()


def test_our_own_components_are_known_by_version_and_modules():
    knn, lof = (origin_of(as_detector(DETECTORS.create(name))) for name in ("knn", "lof"))
    assert knn["package"] == lof["package"] == "dana"
    assert knn["version"]
    assert knn["source"] != lof["source"]
    assert set(encoder_identity(ENCODERS.create("hashing"))["code"]) == {"package", "source"}, "stores outlive releases"
    files = {path.name for path in origin._own_modules(type(DETECTORS.create("knn")))}
    assert {"knn.py", "base.py"} <= files, "bases and what it fits to count"


def test_a_library_behind_a_name_is_known_by_its_version():
    found = origin_of(as_detector(DETECTORS.create("pyod:KNN")))
    while "made_by" in found:
        found = found["made_by"]
    assert found["package"] == "pyod"
    assert found["version"]
