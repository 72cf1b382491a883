"""Components by name: specs, suggestions, and a third party's package beside ours."""

import shutil
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from dana.cli.main import main
from dana.core import registry
from dana.core.errors import ConfigError, PluginError
from dana.core.registry import DETECTORS, ENCODERS, OBJECTIVES, SELECTORS, Registry, is_importable, parse_arguments
from dana.detectors.neighbours import KNearestNeighbours
from dana.encoders.hashing import HashingEncoder

PLUGIN = Path(__file__).parents[1] / "plugins" / "toy_detector"


def test_a_spec_gives_parameters_by_name_and_by_position():
    assert DETECTORS.create("knn") == KNearestNeighbours(5)
    assert DETECTORS.create("knn:k=10") == DETECTORS.create("knn:10") == KNearestNeighbours(10)
    assert DETECTORS.create("dana:knn:k=3") == KNearestNeighbours(3)
    assert DETECTORS.create("pyod:KNN,n_neighbors=3").candidate.n_neighbors == 3
    assert ENCODERS.create("hashing:dims=64,words=1") == HashingEncoder(64, 1)
    assert parse_arguments("org/name,layer=-2,rate=5e-1,fast=true,of=null", "") == (
        ["org/name"],
        {"layer": -2, "rate": 0.5, "fast": True, "of": None},
    )
    assert parse_arguments("", "") == ([], {})


@pytest.mark.parametrize(
    ("spec", "error", "names"),
    [
        ("knm", PluginError, ("'knm'", "did you mean 'knn'?", "contrastive_knn, cosine")),
        ("dana:knm", PluginError, ("'knm'",)),
        ("", PluginError, ("''",)),
        ("knn:q=1", ConfigError, ("'knn:q=1'", "'q'", "k: int = 5")),
        ("knn:k=0", ConfigError, ("k=0",)),
        ("knn:k=ten", ConfigError, ("'knn:k=ten'",)),
        ("knn:k=1,k=2", ConfigError, ("'k'",)),
        ("knn:k=1,2", ConfigError, ("'2'",)),
        ("knn:1,2", ConfigError, ("'knn:1,2'",)),
        ("knn:k=[1", ConfigError, ("'[1'", "YAML")),
        ("pyod", ConfigError, ("'pyod'", "'name'")),
    ],
)
def test_a_bad_spec_is_refused_by_name(spec, error, names):
    with pytest.raises(error) as raised:
        DETECTORS.create(spec)
    assert [name for name in names if name not in str(raised.value)] == []


def test_every_registered_name_of_ours_loads():
    for group in (DETECTORS, ENCODERS, SELECTORS, OBJECTIVES):
        for name, (entry, *_) in group.entries().items():
            if is_importable(entry.module):  # a study's may be missing
                assert callable(group.load(name, "dana"))


@pytest.mark.parametrize("value", ["a_module_that_is_not_there:X", "dana.core.registry:NotThere"])
def test_listing_imports_nothing_and_loading_names_the_plug_in(monkeypatch, value):
    monkeypatch.setattr(registry, "entry_points", lambda group: [EntryPoint("x", value, "toys")])
    assert list(Registry("toys").entries()) == ["x"]
    with pytest.raises(PluginError, match=f"'x'.*{value}"):
        Registry("toys").load("x")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A folder in which the toy package is installed."""
    folder = tmp_path_factory.mktemp("plugin")
    shutil.copytree(PLUGIN, folder / "source")  # building leaves files beside the source
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*command, "--target", str(folder / "site"), str(folder / "source")], check=True)
    return folder / "site"


@pytest.fixture
def run_dana(site, monkeypatch, capsys):
    """Run ``dana detectors`` with the toy package on the path; returns exit code, output and errors."""
    monkeypatch.syspath_prepend(site)
    return lambda *words: (main(["detectors", *words]), *capsys.readouterr())


def test_plug_ins_are_listed_beside_ours_and_a_broken_one_breaks_only_itself(run_dana):
    code, output, errors = run_dana("list")
    assert code == 0, errors
    lines = {line.split()[0]: line for line in output.splitlines()}
    assert lines["toy"].split()[1] == "toy-detector"
    assert "Distance from the mean of the task's embeddings times a factor" in lines["toy"]
    assert "One minus the cosine to the mean" in lines["toy_convention"]
    assert lines["pca"].split()[1] == "dana"
    assert "'a_package_that_is_not_there'" in lines["toy_broken"]
    assert "dana, toy-detector" in lines["knn"], "both define it"
    assert sum("broken: " in line for line in lines.values()) == 2


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        ("toy_broken", "'toy_broken' of toy-detector"),
        ("knn", "dana, toy-detector"),
        ("toy:factor=-9", "toy:factor=-9"),  # its distances are to another point
    ],
)
def test_check_names_a_broken_or_ambiguous_plug_in(run_dana, spec, named):
    code, _, errors = run_dana("check", spec)
    assert code == 2
    assert named in errors


@pytest.mark.parametrize("spec", ["toy_convention", "toy-detector:knn"])
def test_check_passes_a_plug_in_that_keeps_the_contract(run_dana, spec):
    code, output, errors = run_dana("check", spec)
    assert code == 0, output + errors
    lines = output.splitlines()
    assert len(lines) == 11
    assert all(line.startswith("ok ") for line in lines)
