"""``dana detectors|selectors|encoders|objectives list`` and ``check``: one command over four registries."""

from importlib.metadata import EntryPoint

import pytest

from dana.cli.main import main
from dana.core import registry

KINDS = ("detectors", "selectors", "encoders", "objectives")


@pytest.mark.parametrize(
    ("kind", "name", "says"),
    [
        ("detectors", "iforest", "Isolation forest"),
        ("selectors", "random", "uniform score"),
        ("encoders", "hashing", "hashed counts"),
        ("objectives", "masked", "masked tokens"),
    ],
)
def test_list_names_each_component_with_its_package_and_first_line(kind, name, says, capsys, monkeypatch):
    installed = registry.entry_points
    broken = EntryPoint("mine", "nowhere:Mine", f"dana.{kind}")
    monkeypatch.setattr(registry, "entry_points", lambda group: [*installed(group=group), broken])
    assert main([kind, "list"]) == 0
    rows = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert rows[name].split()[1] == "dana"
    assert says in rows[name]
    assert "missing: there is no module nowhere" in rows["mine"]


@pytest.mark.parametrize(("kind", "name"), [("detectors", "pca"), ("selectors", "random"), ("encoders", "hashing")])
def test_check_prints_a_line_a_check(kind, name, capsys):
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
    said = capsys.readouterr()
    assert "same seed same scores" in said.out
    assert "mine breaks 1 of 2 checks" in said.err


@pytest.mark.parametrize("kind", KINDS[:3])
def test_what_is_missing_or_too_much_is_said(kind, capsys):
    for words, says in ((["check"], "required: name"), (["list", "x"], "unrecognized arguments: x")):
        with pytest.raises(SystemExit) as left:
            main([kind, *words])
        assert left.value.code == 2
        assert says in capsys.readouterr().err
