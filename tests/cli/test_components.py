"""``dana detectors|selectors|encoders|objectives list`` and ``check``: one command over four registries."""

from importlib.metadata import EntryPoint

import pytest

from dana.cli.main import main
from dana.core import registry

KINDS = ("detectors", "selectors", "encoders", "objectives")
EXAMPLES = {"detectors": ["iforest"], "selectors": ["random"], "encoders": ["hashing"], "objectives": ["masked"]}


@pytest.mark.parametrize("kind", KINDS)
def test_list_names_each_component_with_its_package_and_first_line(kind, capsys, monkeypatch):
    installed = registry.entry_points
    broken = EntryPoint("mine", "nowhere:Mine", f"dana.{kind}")
    monkeypatch.setattr(registry, "entry_points", lambda group: [*installed(group=group), broken])
    assert main([kind, "list"]) == 0
    rows = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    for name in EXAMPLES[kind]:
        component = registry.Registry(f"dana.{kind}").load(name)
        assert rows[name].split()[1] == "dana"
        assert rows[name].endswith(component.__doc__.strip().splitlines()[0])
    assert "nowhere" in rows["mine"]


@pytest.mark.parametrize(("kind", "name"), [("detectors", "pca"), ("selectors", "random"), ("encoders", "hashing")])
def test_check_prints_one_line_per_check(kind, name, capsys):
    assert main([kind, "check", name]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) >= 5
    assert all(line.startswith("ok ") for line in lines)


@pytest.mark.parametrize("kind", KINDS[:3])
def test_a_failed_check_is_named_and_the_exit_code_says_so(kind, capsys, monkeypatch):
    from dana.selectors.checks import CheckResult

    results = [CheckResult("scores are finite", True), CheckResult("same seed same scores", False, "they differ")]
    monkeypatch.setattr(f"dana.selectors.checks.check_{kind.removesuffix('s')}", lambda name: results)
    assert main([kind, "check", "mine"]) == 2
    output = capsys.readouterr()
    assert "same seed same scores" in output.out
    assert "mine" in output.err
