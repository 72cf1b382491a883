"""Components by name: specs, suggestions, a third party's package beside ours, and the commands that list and check."""

import re
import shutil
import subprocess
import sys
from importlib import metadata
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from dana.cli.main import main
from dana.core import registry
from dana.core.checks import CheckResult
from dana.core.errors import ConfigError, PluginError
from dana.core.registry import DETECTORS, ENCODERS, Registry, parse_arguments
from dana.detectors.neighbours import KNearestNeighbours
from dana.encoders.hashing import HashingEncoder

REPOSITORY = Path(__file__).parents[2]
PLUGIN = REPOSITORY / "tests" / "plugins" / "toy_detector"
ROOMS = ("dana", "recipes", "tasks", "docs", "benchmarks", "tests", "accelerate_configs")


def test_a_spec_gives_parameters_by_name_and_by_position():
    assert DETECTORS.create("knn") == KNearestNeighbours(5)
    assert DETECTORS.create("knn:k=10") == DETECTORS.create("knn:10") == KNearestNeighbours(10)
    assert DETECTORS.create("dana-lm:knn:k=3") == KNearestNeighbours(3)
    assert DETECTORS.create("pyod:KNN,n_neighbors=3").candidate.n_neighbors == 3
    assert ENCODERS.create("hashing:dims=64,words=1") == HashingEncoder(64, 1)
    values = {"layer": -2, "rate": 0.5, "fast": True, "of": None}
    assert parse_arguments("org/name,layer=-2,rate=5e-1,fast=true,of=null", "") == (
        ["org/name"],
        values,
    )
    assert parse_arguments("", "") == ([], {})


BAD_SPECS = [("knm", PluginError, ("'knm'", "did you mean 'knn'?", "contrastive_knn, cosine"))]
BAD_SPECS += [("dana-lm:knm", PluginError, ("'knm'",)), ("", PluginError, ("''",))]
BAD_SPECS += [
    ("knn:q=1", ConfigError, ("'knn:q=1'", "'q'", "k: int = 5")),
    ("knn:k=0", ConfigError, ("k=0",)),
]
BAD_SPECS += [("knn:k=ten", ConfigError, ("'knn:k=ten'",)), ("knn:k=1,k=2", ConfigError, ("'k'",))]
BAD_SPECS += [("knn:k=1,2", ConfigError, ("'2'",)), ("knn:1,2", ConfigError, ("'knn:1,2'",))]
BAD_SPECS += [
    ("knn:k=[1", ConfigError, ("'[1'", "YAML")),
    ("pyod", ConfigError, ("'pyod'", "'name'")),
]


@pytest.mark.parametrize(("spec", "error", "names"), BAD_SPECS)
def test_a_bad_spec_is_refused_by_name(spec, error, names):
    with pytest.raises(error) as refusal:
        DETECTORS.create(spec)
    assert [name for name in names if name not in str(refusal.value)] == []


def test_beside_another_package_of_the_name_dana_nothing_runs(tmp_path, monkeypatch, capsys):
    for name, file, text in (
        ("dana", "RECORD", "dana/__init__.py,,\n"),
        ("x", "top_level.txt", "danaides\n"),
    ):
        (tmp_path / f"{name}-9.dist-info").mkdir()
        (tmp_path / f"{name}-9.dist-info" / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: 9\n"
        )
        (tmp_path / f"{name}-9.dist-info" / file).write_text(text)
    assert registry.other_owners() == []
    monkeypatch.syspath_prepend(tmp_path)
    assert registry.other_owners() == ["dana 9"]
    assert main(["plugins", "list", "detector"]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("dana: error: dana 9 is installed here")
    assert "pip uninstall dana, then install dana-lm again" in printed.err


def test_no_file_names_the_distribution_as_the_package():
    files = [
        *REPOSITORY.glob("*.*"),
        *(file for folder in ROOMS for file in (REPOSITORY / folder).rglob("*.*")),
    ]
    old = re.compile(
        r"""pip install[^\n]*['" ]dana(\\?\[|['" ]|$)|["']dana\\?\[|\bversion\(["']dana["']\)"""
    )
    texts = {
        file: file.read_text("utf-8")
        for file in files
        if file.suffix in (".py", ".md", ".toml", ".yaml")
    }
    assert len(texts) > 300
    assert [str(file) for file, text in texts.items() if old.search(text)] == []


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
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
    ]
    subprocess.run([*command, "--target", str(folder / "site"), str(folder / "source")], check=True)
    return folder / "site"


def test_plug_ins_are_listed_beside_ours_and_a_broken_one_breaks_only_itself(
    site, monkeypatch, capsys
):
    monkeypatch.syspath_prepend(site)
    assert main(["plugins", "list", "detector"]) == 0
    lines = {line.split()[1]: line for line in capsys.readouterr().out.splitlines()}
    assert lines["toy"].split()[2] == "toy-detector"
    assert "Distance from the mean of the target's embeddings times a factor" in lines["toy"]
    assert lines["pca"].split()[2] == "dana-lm"
    assert "'a_package_that_is_not_there'" in lines["toy_broken"]
    assert "dana-lm, toy-detector" in lines["knn"], "both define it"
    assert sum("broken: " in line for line in lines.values()) == 2
    assert type(DETECTORS.create("toy-detector:knn")) is not KNearestNeighbours
    for spec, name in (
        ("toy_broken", "'toy_broken' of toy-detector"),
        ("knn", "dana-lm, toy-detector"),
        ("toy:factor=-9", "toy:factor=-9"),  # its distances are to another point
    ):
        assert main(["plugins", "check", "detector", spec]) == 2
        assert name in capsys.readouterr().err


def test_installed_components_are_searched_once_for_each_search_path(monkeypatch):
    groups = []
    search = metadata.entry_points
    monkeypatch.setattr(
        registry.metadata, "entry_points", lambda group: groups.append(group) or search(group=group)
    )
    monkeypatch.syspath_prepend("/nowhere")
    for _ in range(2):
        assert "masked" in Registry("dana.objectives").entries()
    assert groups == ["dana.objectives"]


KINDS = {"detector": "pca", "selector": "random", "encoder": "hashing", "objective": "masked"}
ROOM_OF_CHECKS = {**dict.fromkeys(KINDS, "selectors"), "objective": "train"}


@pytest.mark.parametrize(("kind", "name"), KINDS.items())
def test_list_names_each_component_with_its_package_and_first_line(kind, name, capsys, monkeypatch):
    ours, broken = registry.entry_points, EntryPoint("mine", "nowhere:Mine", f"dana.{kind}s")
    monkeypatch.setattr(registry, "entry_points", lambda group: [*ours(group=group), broken])
    assert main(["plugins", "list", kind]) == 0
    rows = {line.split()[1]: line for line in capsys.readouterr().out.splitlines()}
    assert rows[name].split()[2] == "dana-lm"
    assert rows[name].endswith(Registry(f"dana.{kind}s").load(name).__doc__.strip().splitlines()[0])
    assert "nowhere" in rows["mine"]


@pytest.mark.parametrize(("kind", "name"), list(KINDS.items()))
def test_check_prints_one_line_per_check_and_names_those_that_fail(kind, name, capsys, monkeypatch):
    assert main(["plugins", "check", kind, name]) == 0
    lines = capsys.readouterr().out.splitlines()
    # DeepSpeed, if it is installed, prints a line of its own when it is imported.
    lines = [line for line in lines if "real_accelerator.py" not in line]
    assert len(lines) >= 5
    assert all(line.startswith("ok ") for line in lines)
    results = [
        CheckResult("scores are finite", True),
        CheckResult("same seed same scores", False, "they differ"),
    ]
    monkeypatch.setattr(f"dana.{ROOM_OF_CHECKS[kind]}.checks.check_{kind}", lambda name: results)
    assert main(["plugins", "check", kind, "mine"]) == 2
    output = capsys.readouterr()
    assert "same seed same scores" in output.out
    assert "mine" in output.err
