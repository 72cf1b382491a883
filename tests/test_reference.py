"""The generated pages of docs/reference: every command, setting, public name and column stands on its page."""

import importlib.util
import re
from pathlib import Path

import pytest

import dana
from dana.cli.main import build_parser
from tests.guide import subcommands
from tests.present import needs_studies

pytestmark = needs_studies

DOCS = Path(__file__).parent.parent / "docs"


@pytest.fixture(scope="module")
def pages():
    spec = importlib.util.spec_from_file_location("generated", DOCS / "generated.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_committed_pages_are_what_the_code_gives(pages):
    names = {path.stem for path in pages.generated_pages()}
    assert names == {"commands", "files", "settings", "task-cards"}
    for path in pages.generated_pages():
        text = path.read_text(encoding="utf-8")
        assert pages.fill(text) == text, "run python docs/generated.py and commit the page"


def test_commands_lists_every_flag_of_every_command(pages):
    text = pages.commands()
    commands = subcommands(build_parser())
    assert set(commands) == set(re.findall(r"^## dana ([\w-]+)", text, re.MULTILINE))
    for name, parser in commands.items():
        section = text.partition(f"## dana {name}\n")[2]
        flags = [
            flag
            for flag in parser._option_string_actions
            if flag.startswith("--") and flag != "--help"
        ]
        assert not [flag for flag in flags if flag not in section.partition("\n## dana ")[0]], name


def test_settings_lists_every_section_with_its_defaults(pages):
    text = pages.settings()
    assert {"weigh", "adapt", "adapt.execution", "finetune"} <= set(
        re.findall(r"^## (\S+)$", text, re.MULTILINE)
    )
    assert "| `weigh.gamma` | a whole number: from 1 to 9223372036854775807 | `15` |" in text
    assert not re.findall(r"^\| .* \|  \|$", text, re.MULTILINE), "a key without a meaning"


def test_interface_shows_every_public_name(pages):
    text = pages.interface()
    assert re.findall(r"^### (\w+)$", text, re.MULTILINE) == dana.__all__
    assert all(f"[`dana.{name}`]" in pages.names() for name in dana.__all__)


def test_every_column_of_a_table_has_a_meaning(pages):
    schemas = re.findall(
        r"generated: columns (\S+) -->",
        (DOCS / "reference" / "files.md").read_text(encoding="utf-8"),
    )
    assert len(schemas) == 5
    assert all(pages.columns(schema).count("\n") > 1 for schema in schemas)


def test_every_shipped_card_and_preset_is_listed(pages):
    names = {path.stem for path in DOCS.parent.joinpath("tasks").glob("*.yaml")}
    text = pages.cards()
    assert not [name for name in names if f"| {name} |" not in text]
    assert all(f"| `{name}` |" in text for name in ("paper", "default", "quick"))


def test_every_included_page_keeps_links_that_lead_somewhere(pages):
    for page in DOCS.rglob("*.md"):
        for name in pages.INCLUDE.findall(page.read_text(encoding="utf-8")):
            text = pages._include(name, page.relative_to(DOCS).as_posix())
            links = {match[1] for match in pages.LINK.finditer(text)}
            assert not [link for link in links if not (page.parent / link).exists()], name
