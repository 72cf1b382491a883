"""Flags: what --help says of a setting is what its dataclass says, and no heavy package is imported to say it."""

import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from dana.cli.main import build_parser
from dana.core.settings import find_setting, range_of
from dana.stages.recipe import leaves as settings_leaves
from dana.stages.settings import RunSettings
from tests.guide import leaves

PARSERS = leaves(build_parser())
FLAGS = [
    (name, flag, setting)
    for name, one in PARSERS.items()
    for setting, flag in one._defaults.get("flags", {}).items()
]


DEFAULTS = dict(settings_leaves(RunSettings()))


def test_every_setting_has_help_and_its_default():
    for key, default in DEFAULTS.items():
        setting = find_setting(RunSettings, key)
        assert setting.help, f"{key} has no string below its field"
        assert setting.default is None or setting.default == default, key


@pytest.mark.parametrize(("command", "flag", "setting"), FLAGS)
def test_every_flag_fills_a_setting_and_shows_its_default(command, flag, setting):
    folders = {"quickstart": "runs/quickstart"}  # of --out
    default = folders[command] if setting == "out" and command in folders else DEFAULTS[setting]
    text = " ".join(PARSERS[command].format_help().split())
    line = text.rpartition(f" {flag} ")[2].partition(" --")[0]
    assert range_of(find_setting(RunSettings, setting).hint) in line
    if default not in (None, "", []):
        value = json.dumps(default).strip('"') if isinstance(default, bool | str) else default
        assert f"default: {value[0] if isinstance(value, list) else value}" in line


@pytest.mark.parametrize("command", PARSERS)
def test_an_example_in_a_help_text_is_one_command(command):
    for line in PARSERS[command].description.splitlines():
        if line.startswith("  "):
            assert " dana " not in line.strip()


HELP = """import sys; from dana.cli.main import main
for command in sys.argv[1:]:
    try: main([*command.split(), "--help"])
    except SystemExit: pass
print(*sys.modules)"""


def test_help_of_all_commands_needs_no_settings():
    command = [sys.executable, "-c", HELP, ""]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert not {"pydantic", "torch", "numpy"} & set(out.splitlines()[-1].split())


def test_help_of_a_command_imports_nothing_heavy():
    command = [sys.executable, "-c", HELP, *PARSERS]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert out.count("usage: dana") == len(PARSERS)
    assert not {"torch", "transformers", "numpy", "sklearn", "pyarrow"} & set(
        out.splitlines()[-1].split()
    )


def test_python_m_dana_is_the_command_dana():
    command = str(
        Path(sys.executable).with_name("dana")
    )  # of this environment, which may not be on the path
    for program in ([command], [sys.executable, "-m", "dana"]):
        out = subprocess.run(
            [*program, "--version"], capture_output=True, text=True, check=True
        ).stdout
        assert out == f"dana {version('dana-lm')}\n"
