"""Studies are found by entry point and loaded when used; one that does not load breaks nothing else."""

from dataclasses import replace
from importlib.metadata import EntryPoint

import pytest

from dana.cli.main import build_parser, main
from dana.core import registry
from dana.core import studies as door
from dana.core.config import read_yaml
from dana.core.errors import PluginError
from dana.core.studies import load_object, load_parts, missing_studies, studies
from dana.stages.recipe import read_run_recipe, write_recipe
from dana.stages.settings import RunSettings

MODULE = '''
from dataclasses import dataclass
from dana.cli.flags import Flag, add_command
from dana.core.studies import Study

@dataclass(frozen=True)
class Settings:
    """Of the tides.

    Attributes:
        moons: How many moons pull.
    """

    moons: int = 1

def add(parser):
    flags = [Flag("--moons", "tides.moons")]
    add_command(parser, "tides", lambda args: print("high water"), flags)

def steps(settings, *others):
    return []

COMMANDS = {"tides": ("Measure the tides", f"{__name__}:add")}
STUDY = Study("tides", f"{__name__}:Settings", COMMANDS, steps=f"{__name__}:steps")
NOT_ONE = "a word"
'''
MODULES = {
    "tide_tables": MODULE,
    "spring_tables": MODULE.replace('Study("tides"', 'Study("spring"'),
    "sinking_tables": "raise RuntimeError('no water')",
    "broken_tables": "import a_module_that_is_not_there",
    "half_tables": """
from dana.core.studies import Study

STUDY = Study("half", **dict.fromkeys(("steps", "sections", "settings"), "half_tables:NOWHERE"))
""",
}


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Replace the installed studies."""
    for name, code in MODULES.items():
        (tmp_path / f"{name}.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)

    def of(*claims):
        entries = [EntryPoint(name, value, door.STUDIES.group) for name, value in claims]
        others = registry.entry_points
        ours = lambda group: entries if group == door.STUDIES.group else others(group=group)  # noqa: E731
        monkeypatch.setattr(registry, "entry_points", ours)
        door._entries.cache_clear()

    yield of
    door._entries.cache_clear()


def test_a_study_enters_by_its_entry_point_alone(install, capsys):
    install(("tides", "tide_tables:STUDY"))
    assert [study.name for study in studies()] == ["tides"]
    assert missing_studies() == {}
    assert [(study.name, part([])) for study, part in load_parts("steps")] == [("tides", [])]
    assert "experiments: tides" in " ".join(build_parser(["--help"]).format_help().split())
    assert main(["studies", "tides"]) == 0
    assert capsys.readouterr().out == "high water\n"


UNLOADABLE = [
    ("no_tables:STUDY", "ModuleNotFoundError"),
    ("dana.no_room.tables:STUDY", "ModuleNotFoundError"),
]
UNLOADABLE += [("broken_tables:STUDY", "a_module_that_is_not_there")]
UNLOADABLE += [
    ("sinking_tables:STUDY", "RuntimeError: no water"),
    ("tide_tables:NOWHERE", "AttributeError"),
]
UNLOADABLE += [
    ("tide_tables:NOT_ONE", "Study"),
    ("tide_tables:STUDY", "Study"),
    ("not a value", "not a value"),
]


@pytest.mark.parametrize(("value", "words"), UNLOADABLE)
def test_a_study_that_does_not_load_is_listed_as_missing_and_breaks_nothing(
    install, value, words, capsys
):
    install(("ebb_tide", value), ("tides", "tide_tables:STUDY"))
    assert [study.name for study in studies()] == ["tides"]
    assert list(missing_studies()) == ["ebb_tide"]
    reason = missing_studies()["ebb_tide"]
    assert words in reason
    with pytest.raises(SystemExit):
        main(["--help"])
    assert f"missing study ebb_tide: {reason}" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["studies", "ebb-tide"])
    assert reason in capsys.readouterr().err
    assert main(["studies", "tides"]) == 0


def test_a_study_with_a_part_that_does_not_load_is_missing_from_then_on(install):
    install(("half", "half_tables:STUDY"), ("tides", "tide_tables:STUDY"))
    build_parser(["--help"])
    for part, names in (("settings", ["tides"]), ("steps", ["tides"]), ("sections", [])):
        assert [study.name for study, _ in load_parts(part)] == names
    assert "half_tables:NOWHERE" in missing_studies()["half"]
    assert [study.name for study in studies()] == ["tides"]
    with pytest.raises(PluginError, match="half_tables:NOWHERE"):
        RunSettings().section("half")
    with pytest.raises(PluginError, match="no_tables:add"):
        load_object("no_tables:add")


def test_a_command_of_another_study_is_not_replaced(install):
    install(("spring", "spring_tables:STUDY"), ("tides", "tide_tables:STUDY"))
    assert "missing study tides tides: another" in " ".join(
        build_parser(["--help"]).format_help().split()
    )


def test_a_name_of_two_packages_is_ambiguous_and_of_one_on_the_path_twice_is_not(install):
    install(("tides", "tide_tables:STUDY"), ("tides", "other_tables:STUDY"))
    assert studies() == ()
    assert "DISTRIBUTION:tides" in missing_studies()["tides"]
    install(("tides", "tide_tables:STUDY"), ("tides", "tide_tables:STUDY"))
    assert [study.name for study in studies()] == ["tides"]


def test_a_recipe_keeps_the_settings_of_a_missing_study(install, tmp_path):
    write_recipe(RunSettings(), tmp_path)
    with (tmp_path / "recipe.yaml").open("a") as recipe:
        recipe.write("ebb: {moons: 2}\nweigh: {gamma: 3}\n")
    install(("ebb", "no_tables:STUDY"))
    assert read_run_recipe(tmp_path)["weigh"] == {"gamma": 3}
    write_recipe(replace(RunSettings(), task="other.txt"), tmp_path)
    content = read_yaml(tmp_path / "recipe.yaml")
    assert (content["ebb"], content["task"]) == ({"moons": 2}, "other.txt")
