"""The hint how an optional part is installed names packages of the index."""

import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from dana.core import extras
from dana.core.extras import install_command
from dana.core.registry import DISTRIBUTION

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
NAMED = ("offline", "decoder", "adapter", "dedup", "s3", "gcs", "datatrove", "translation")


@pytest.mark.parametrize("extra", NAMED)
def test_the_command_installs_the_packages_of_the_extra(extra):
    words = install_command(extra).split(" ", 2)
    assert words[:2] == ["pip", "install"]
    packages = [Requirement(package) for package in words[2].replace("'", "").split(" ")]
    expected = [Requirement(one) for one in PROJECT["optional-dependencies"][extra]]
    assert {one.name: one.specifier for one in packages} == {
        one.name: one.specifier for one in expected
    }
    assert DISTRIBUTION not in words[2], "which is not on the index"


def test_without_metadata_the_extra_is_named(monkeypatch):
    def missing(name):
        raise extras.PackageNotFoundError(name)

    monkeypatch.setattr(extras, "requires", missing)
    assert install_command("s3") == "pip install 'dana-lm[s3]'"


def test_an_extra_that_names_another_has_its_packages():
    command = install_command("ray")
    assert "'datatrove" in command
    assert "'ray[default]" in command
    assert DISTRIBUTION not in command
