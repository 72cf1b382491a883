"""The door for studies: found by entry point, loaded on use, and one that does not load breaks nothing else."""

import subprocess
import sys
from dataclasses import replace
from importlib.metadata import EntryPoint

import pytest

from dana.cli.main import build_parser, main
from dana.core import registry
from dana.core import studies as door
from dana.core.config import read_yaml
from dana.core.errors import PluginError
from dana.core.studies import Study, load_object, loaded, missing_studies, studies
from dana.stages.remember import remember, remembered
from dana.stages.settings import CoreSettings, RunSettings

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
    add_command(parser, "tides", lambda parsed: print("high water"), flags, text="Measure the tides.")

def cells(settings, *others):
    return []

COMMANDS = {"tides": ("Measure the tides", f"{__name__}:add")}
STUDY = Study("tides", f"{__name__}:Settings", COMMANDS, cells=f"{__name__}:cells")
NOT_ONE = "a word"
'''


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Puts entry points in the place of the installed ones, and a module ``tide_tables`` beside them."""
    (tmp_path / "tide_tables.py").write_text(MODULE)
    (tmp_path / "broken_tables.py").write_text("import a_module_that_is_not_there")
    monkeypatch.syspath_prepend(tmp_path)

    def of(*claims):
        entries = [EntryPoint(name, value, door.STUDIES.group) for name, value in claims]
        others = registry.entry_points
        ours = lambda group: entries if group == door.STUDIES.group else others(group=group)  # noqa: E731
        monkeypatch.setattr(registry, "entry_points", ours)
        door._installed.cache_clear()

    yield of
    door._installed.cache_clear()


def test_a_study_enters_by_its_entry_point_alone(install, capsys):
    install(("tides", "tide_tables:STUDY"))
    assert [study.name for study in studies()] == ["tides"]
    assert missing_studies() == {}
    assert [(study.name, part([])) for study, part in loaded("cells")] == [("tides", [])]
    assert "Measure the tides" in build_parser(["--help"]).format_help()
    assert main(["tides"]) == 0
    assert capsys.readouterr().out == "high water\n"


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("no_tables:STUDY", "'ebb' of ? does not load (no_tables:STUDY): ModuleNotFoundError"),
        ("dana.no_room.tables:STUDY", "'ebb' of ? does not load (dana.no_room.tables:STUDY): ModuleNotFoundError"),
        ("broken_tables:STUDY", "'ebb' of ? does not load (broken_tables:STUDY): ModuleNotFoundError: No module named"),
        ("tide_tables:NOWHERE", "'ebb' of ? does not load (tide_tables:NOWHERE): AttributeError"),
        ("tide_tables:NOT_ONE", "what its entry point names is no Study of this name"),
        ("tide_tables:STUDY", "what its entry point names is no Study of this name"),
    ],
)
def test_a_study_that_does_not_load_is_listed_as_missing_and_breaks_nothing(install, value, reason, capsys):
    install(("ebb", value), ("tides", "tide_tables:STUDY"))
    assert [study.name for study in studies()] == ["tides"]
    assert list(missing_studies()) == ["ebb"]
    assert missing_studies()["ebb"].startswith(reason)
    with pytest.raises(SystemExit):
        main(["--help"])
    assert f"missing study ebb: {reason}" in capsys.readouterr().out
    assert main(["tides"]) == 0


def test_a_study_whose_settings_do_not_load_is_missing(install, tmp_path):
    (tmp_path / "half_tables.py").write_text(
        "from dana.core.studies import Study\nSTUDY = Study('half', settings='half_tables:Settings')\n"
    )
    install(("half", "half_tables:STUDY"), ("tides", "tide_tables:STUDY"))
    assert [study.name for study, _ in loaded("settings")] == ["tides"]
    assert [study.name for study in studies()] == ["tides"]
    with pytest.raises(PluginError, match="study half: half_tables:Settings does not load: AttributeError"):
        CoreSettings().section("half")


def test_a_command_that_is_there_is_left_to_who_has_it(install, tmp_path, capsys):
    (tmp_path / "score_tables.py").write_text(MODULE.replace('"tides": (', '"score": ('))
    install(("tides", "score_tables:STUDY"))
    with pytest.raises(SystemExit):
        main(["--help"])
    printed = capsys.readouterr().out
    assert "missing study tides score: there is a command of this name" in printed
    assert "Measure the tides" not in printed


def test_a_name_that_two_packages_claim_is_neithers(install):
    install(("tides", "tide_tables:STUDY"), ("tides", "other_tables:STUDY"))
    assert studies() == ()
    assert missing_studies() == {"tides": "'tides' in dana.studies is claimed by ?, ?; write DISTRIBUTION:tides"}


def test_one_package_may_be_on_the_path_twice(install):
    install(("tides", "tide_tables:STUDY"), ("tides", "tide_tables:STUDY"))
    assert [study.name for study in studies()] == ["tides"]


def test_a_part_that_does_not_load_is_an_error_where_it_is_used():
    with pytest.raises(PluginError, match="no_tables:add does not load: ModuleNotFoundError"):
        load_object("no_tables:add")


def test_help_imports_no_part_of_a_study():
    code = "import sys; from dana.cli.main import main\ntry: main(['--help'])\nfinally: print(*sys.modules)"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout
    names = {name for name in printed.splitlines()[-1].split() if name.startswith("dana.studies.")}
    assert {name for name in names if name.count(".") > 2} == set()


def test_ours_have_the_names_of_their_settings():
    assert all(isinstance(study, Study) for study in studies())
    assert len({command for study in studies() for command in study.commands}) == sum(
        len(study.commands) for study in studies()
    )


FAULTS = {
    "raises": "raise RuntimeError('no water')",
    "parts": """
from dana.core.studies import Study
NO = dict.fromkeys(("cells", "sections", "settings"), "parts_tables:NO_SUCH_THING")
STUDY = Study("parts", **NO)
""",
}


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("raises", "'raises' of ? does not load (raises_tables:STUDY): RuntimeError: no water"),
        ("parts", "parts_tables:NO_SUCH_THING does not load: AttributeError"),
    ],
)
def test_a_fault_of_one_study_is_told_and_all_others_go_on(install, tmp_path, fault, reason):
    (tmp_path / f"{fault}_tables.py").write_text(FAULTS[fault])
    install((fault, f"{fault}_tables:STUDY"), ("tides", "tide_tables:STUDY"))
    build_parser(["--help"])
    for part in ("settings", "cells", "sections"):
        assert [study.name for study, _ in loaded(part)] == (["tides"] if part != "sections" else [])
    assert missing_studies()[fault].startswith(reason)
    assert [study.name for study in studies()] == ["tides"]


def test_a_package_that_raises_and_a_value_that_is_none_are_missing_studies(install, tmp_path):
    (tmp_path / "sinking").mkdir()
    (tmp_path / "sinking" / "__init__.py").write_text("raise RuntimeError('down')")
    install(("sinking", "sinking.tables:STUDY"), ("odd", "not a value"), ("my-study", "tide_tables:STUDY"))
    assert studies() == ()
    assert missing_studies()["sinking"].endswith("RuntimeError: down")
    assert set(missing_studies()) == {"sinking", "odd", "my-study"}


def test_the_command_of_a_missing_study_says_why(install, capsys):
    install(("ebb_tide", "no_tables:STUDY"))
    with pytest.raises(SystemExit):
        main(["ebb-tide"])
    assert "study ebb-tide: 'ebb_tide' of ? does not load (no_tables:STUDY)" in capsys.readouterr().err


def test_a_folder_remembers_what_a_missing_study_was_told(install, tmp_path):
    (tmp_path / "settings.yaml").write_text("ebb: {moons: 2}\nweigh: {gamma: 3}\n")
    install(("ebb", "no_tables:STUDY"))
    assert remembered(tmp_path) == {"weigh": {"gamma": 3}}
    remember(replace(RunSettings(), task="other.txt"), tmp_path)
    written = read_yaml(tmp_path / "settings.yaml")
    assert (written["ebb"], written["task"]) == ({"moons": 2}, "other.txt")
