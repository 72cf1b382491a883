"""What a stranger finds around the code is true: versions agree, workflows call what is there, links lead somewhere."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
FORMS = [*sorted((ROOT / ".github").rglob("*.yml")), ROOT / ".pre-commit-config.yaml"]


def test_the_citation_has_the_version_of_the_package():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == PROJECT["version"]


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.name)
def test_workflows_and_forms_are_yaml(path):
    assert isinstance(yaml.safe_load(path.read_text(encoding="utf-8")), dict)


def test_workflows_call_targets_of_make():
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    called = set(re.findall(r"make ([a-z-]+)", workflow))
    assert called == {"lint", "docs", "test", "test-slow", "test-core", "coverage"}
    assert called <= targets


def test_a_release_puts_its_site_where_the_site_looks_for_others():
    workflow = (ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8")
    assert "mike deploy --push" in workflow
    site = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert "version: {provider: mike}" in site


def test_workflows_try_the_versions_of_python_that_the_package_names():
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))
    tried = workflow["jobs"]["test"]["strategy"]["matrix"]["python"]
    named = [line.rsplit(" ", 1)[1] for line in PROJECT["classifiers"] if ":: 3." in line]
    assert set(named) <= set(tried)
    assert tried[0] == PROJECT["requires-python"].removeprefix(">=")


@pytest.mark.parametrize("name", ["llms.txt", "SECURITY.md"])
def test_links_lead_to_files(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)#]+)", text)
    assert all((ROOT / link).exists() for link in links)


def test_the_image_copies_what_the_package_is_built_from():
    lines = (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines()
    sources = [name for line in lines if line.startswith("COPY") for name in line.split()[1:-1]]
    assert all((ROOT / name).exists() for name in sources)
    assert {"dana", "recipes", "tasks", "accelerate_configs", "setup.py"} <= set(sources)
    torch = next(line for line in PROJECT["dependencies"] if line.startswith("torch"))
    assert f'"{torch}"' in (ROOT / "Dockerfile").read_text(encoding="utf-8")
