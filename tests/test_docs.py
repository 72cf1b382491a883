"""The documentation against the tree: paths and commands that it names exist, the site is whole.

That its code runs is tested in ``tests/test_guide.py``.
"""

import ast
import importlib
import pkgutil
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from dana.cli.main import build_parser
from tests import architecture
from tests.guide import fenced
from tests.present import needs_studies

pytestmark = needs_studies  # the pages are about them, too

ROOT = Path(__file__).parent.parent
# docs/results/ is history: its pages stay as they were written.
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "tasks" / "README.md"]
PAGES += [path for path in sorted((ROOT / "docs").rglob("*.md")) if "results" not in path.parts]
PAGES += sorted((ROOT / "recipes").rglob("*.md"))
PATH = re.compile(r"(?<![\w./-])(?:dana|tests|recipes|docs|benchmarks|tasks|accelerate_configs)/[\w./*-]*\w[\w./*-]*")
COMMAND = re.compile(r"(?:^|&& |-m |\d[.:] )dana ([a-z]+(?:-[a-z]+)*)\b([^#|;&]*)")


def _page(path):
    return str(path.relative_to(ROOT))


def _is_there(name, page):
    """Whether a path, or a pattern, is that of a file: from the root, or from the page that names it."""
    name = name.rstrip("./")
    return any(folder.joinpath(name).exists() or any(folder.glob(name)) for folder in (ROOT, page.parent))


@pytest.mark.parametrize("page", PAGES, ids=_page)
def test_every_path_that_is_named_exists(page):
    text = page.read_text(encoding="utf-8")
    assert not {name for name in PATH.findall(text) if "NAME" not in name and not _is_there(name, page)}


def _code(page):
    """Every line of the page that is code: in backquotes, indented or fenced."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    blocks = re.findall(r"^```\w*\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    lines = [line for block in blocks for line in block.splitlines()]
    lines += re.findall(r"`([^`\n]+)`", text)
    return lines + [line.strip() for line in text.splitlines() if line.startswith("    ")]


def _commands():
    return _choices(build_parser())


def _choices(parser):
    return next((action.choices for action in parser._actions if isinstance(action.choices, dict)), {})


@pytest.mark.parametrize("page", PAGES, ids=_page)
def test_every_command_and_flag_that_is_named_exists(page):
    commands = _commands()
    for line in _code(page):
        for name, rest in COMMAND.findall(line):
            assert name in commands, f"dana {name}"
            parsers = [commands[name], *_choices(commands[name]).values()]
            known = {flag for parser in parsers for flag in parser._option_string_actions if flag.startswith("--")}
            unknown = set(re.findall(r"(?<!\S)--[a-z][\w-]*", rest)) - known
            assert not unknown, f"dana {name}: {unknown}"


@pytest.mark.parametrize("page", PAGES, ids=_page)
def test_every_dotted_name_is_a_name_of_the_package_or_an_entry_point_group(page):
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["entry-points"]
    for name in re.findall(r"`(dana(?:\.\w+)+)[`(]", page.read_text(encoding="utf-8")):
        if name not in groups:
            pkgutil.resolve_name(name)


@pytest.mark.parametrize("page", PAGES, ids=_page)
def test_every_name_that_a_block_imports_from_dana_is_there(page):
    for block in fenced(page, "python"):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom) and node.module.startswith("dana"):
                for alias in node.names:
                    pkgutil.resolve_name(f"{node.module}.{alias.name}")


def test_every_name_whose_docstring_is_shown_is_there():
    for page in PAGES:
        for name in re.findall(r"^::: ([\w.]+)", page.read_text(encoding="utf-8"), re.MULTILINE):
            module, _, attribute = name.rpartition(".")
            assert hasattr(importlib.import_module(module), attribute), f"{_page(page)}: {name}"


def test_every_page_is_in_the_site():
    listed = sorted(re.findall(r"(\S+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE))
    assert listed == sorted(path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md"))


def test_every_guarantee_is_kept_by_a_test_that_is_there():
    rows = re.findall(
        r"^\| (?!promise|-)(.+?) \| (.+?) \|$", (ROOT / "docs/guarantees.md").read_text("utf-8"), re.MULTILINE
    )
    tests = "\n".join(path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    assert len(rows) >= 20
    assert not [promise for promise, kept in rows if not re.findall(r"`test_\w+`", kept)]
    assert not [name for _, kept in rows for name in re.findall(r"`(test_\w+)`", kept) if f"def {name}(" not in tests]


def test_every_recipe_that_is_launched_is_there():
    for page in PAGES:
        for name in re.findall(
            r"(?:launch|sbatch|torchrun|python)[^`\n]* (recipes/\S+\.(?:py|sh))", page.read_text("utf-8")
        ):
            assert (ROOT / name).is_file(), f"{_page(page)}: {name}"


def test_the_table_of_rooms_is_that_of_the_imports():
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    table = re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)
    assert sorted(table) == sorted(set(architecture.graph()) - {"dana", "__main__"})


def test_the_python_of_the_readme_begins_the_page_of_the_interface():
    (shown,), page = fenced(ROOT / "README.md", "python"), fenced(ROOT / "docs" / "guide" / "python.md", "python")
    assert page[0].startswith(shown)


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "guide").glob("*.md")), ids=_page)
def test_a_page_of_the_guide_is_short(page):
    assert len(page.read_text(encoding="utf-8").split()) <= 700


def test_the_guide_has_ten_pages():
    assert len(list((ROOT / "docs" / "guide").glob("*.md"))) <= 10


def test_every_page_that_the_readme_links_to_is_there():
    links = re.findall(r"\]\(([^)#]+)", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert [link for link in links if not (ROOT / link).exists()] == []


@pytest.mark.slow
def test_the_site_is_built_strictly_and_loads_nothing_from_elsewhere(tmp_path):
    pytest.importorskip("mkdocs")
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True)
    assert loads_from_elsewhere(tmp_path) == []
    # The theme's script would fetch a library for diagrams from elsewhere.
    assert not [path for path in tmp_path.rglob("*.html") if 'class="mermaid"' in path.read_text("utf-8")]


def loads_from_elsewhere(site):
    """Fonts, scripts, styles and pictures that a built page would fetch from another host."""
    load = re.compile(r"<(?:script|img|iframe|source)\b[^>]*\bsrc=[\"']?(?:https?:)?//[^\"' >]+")
    link = re.compile(
        r"<link\b(?=[^>]*\brel=[\"']?(?:stylesheet|preconnect|preload|icon))[^>]*\bhref=[\"']?(?:https?:)?//[^>]+"
    )
    style = re.compile(r"(?:@import|url\()\s*[\"']?(?:https?:)?//[^\"')]+")
    found = [
        (path.name, match)
        for path in site.rglob("*.html")
        for kind in (load, link)
        for match in kind.findall(path.read_text("utf-8"))
    ]
    return found + [
        (path.name, match) for path in site.rglob("*.css") for match in style.findall(path.read_text("utf-8"))
    ]
