"""The documentation against the tree: paths and commands that it names exist, the site is whole.

That its code runs is tested in ``tests/test_guide.py``.
"""

import ast
import pkgutil
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pandas as pd
import pytest

from dana.cli.main import build_parser
from tests import architecture
from tests.guide import fenced, leaves, subcommands
from tests.present import needs_studies

pytestmark = needs_studies  # the pages are about them, too

ROOT = Path(__file__).parent.parent
# docs/results/ is history: its pages stay as they were written.
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "tasks" / "README.md"]
PAGES += [path for path in sorted((ROOT / "docs").rglob("*.md")) if "results" not in path.parts]
PAGES += sorted((ROOT / "recipes").rglob("*.md"))
PATH = re.compile(
    r"(?<![\w./-])(?:dana|tests|recipes|docs|benchmarks|tasks|accelerate_configs)/[\w./*-]*\w[\w./*-]*"
)
COMMAND = re.compile(r"(?:^|&& |-m |\d[.:] )dana ([a-z]+(?:-[a-z]+)*)\b([^#|;&]*)")


def _page(path):
    return str(path.relative_to(ROOT))


def _is_there(name, page):
    """Whether a path, or a pattern, is that of a file: from the root, or from the page that names it."""
    name = name.rstrip("./")
    return any(
        folder.joinpath(name).exists() or any(folder.glob(name)) for folder in (ROOT, page.parent)
    )


@pytest.mark.parametrize("page", PAGES, ids=_page)
def test_every_path_that_is_named_exists(page):
    text = page.read_text(encoding="utf-8")
    names = {name for name in PATH.findall(text) if "NAME" not in name and "/X." not in name}
    assert not {name for name in names if not _is_there(name, page)}


def _code(page):
    """Every line of the page that is code: in backquotes, indented or fenced."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    blocks = re.findall(r"^```\w*\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    lines = [line for block in blocks for line in block.splitlines()]
    lines += re.findall(r"`([^`\n]+)`", text)
    return lines + [line.strip() for line in text.splitlines() if line.startswith("    ")]


@pytest.mark.parametrize("page", PAGES, ids=_page)
def test_every_command_and_flag_that_is_named_exists(page):
    commands = subcommands(build_parser())
    for line in _code(page):
        for name, rest in COMMAND.findall(line):
            assert name in commands, f"dana {name}"
            flags = {
                flag
                for parser in leaves(commands[name]).values()
                for flag in parser._option_string_actions
            }
            assert set(re.findall(r"(?<!\S)--[a-z][\w-]*", rest)) <= flags, line


@pytest.mark.parametrize("page", PAGES, ids=_page)
def test_every_dotted_and_imported_name_is_a_name_of_the_package(page):
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "entry-points"
    ]
    text = page.read_text(encoding="utf-8")
    names = set(re.findall(r"`(dana(?:\.\w+)+)[`(]", text)) - groups.keys()
    names |= set(re.findall(r"^::: ([\w.]+)", text, re.MULTILINE))  # of docstrings that are shown
    nodes = [node for block in fenced(page, "python") for node in ast.walk(ast.parse(block))]
    imports = [
        node
        for node in nodes
        if isinstance(node, ast.ImportFrom) and node.module.startswith("dana")
    ]
    names |= {f"{node.module}.{alias.name}" for node in imports for alias in node.names}
    for name in names:
        pkgutil.resolve_name(name)


def test_every_page_is_in_the_site():
    pages = sorted(
        re.findall(r"(\S+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
    )
    assert pages == sorted(
        path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")
    )


def test_every_guarantee_is_kept_by_a_test_that_is_there():
    text = (ROOT / "docs/guarantees.md").read_text("utf-8")
    rows = re.findall(r"^\| (?!promise|-)(.+?) \| (.+?) \|$", text, re.MULTILINE)
    code = "\n".join(path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    tests = {promise: re.findall(r"`(test_\w+)`", names) for promise, names in rows}
    assert len(tests) >= 20
    assert all(tests.values())
    assert not [name for names in tests.values() for name in names if f"def {name}(" not in code]


def test_every_recipe_that_is_launched_is_there():
    launch = re.compile(r"(?:launch|sbatch|torchrun|python)[^`\n]* (recipes/\S+\.(?:py|sh))")
    for page in PAGES:
        for name in launch.findall(page.read_text("utf-8")):
            assert (ROOT / name).is_file(), f"{_page(page)}: {name}"


def test_the_table_of_rooms_is_that_of_the_imports():
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    table = re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)
    assert sorted(table) == sorted(set(architecture.graph()) - {"dana", "__main__"})


def test_every_page_that_the_readme_links_to_is_there():
    links = re.findall(r"\]\(([^)#]+)", (ROOT / "README.md").read_text(encoding="utf-8"))
    pages = [link for link in links if "://" not in link]
    assert [page for page in pages if not (ROOT / page).exists()] == []


def few_labels_of(size):
    """Return the macro-F1 of each classifier from MiniLM with so many labels a class, a row for each draw."""
    rows = pd.read_json(ROOT / "docs" / "results" / "few-labels.jsonl", lines=True)
    rows = rows[(rows["size"] == size) & (rows["base"] == "minilm")]
    return rows.pivot_table(index=["task", "draw"], columns="classifier", values="macro_f1")


def mean_of_tasks(draws):
    """Write the mean of each classifier over tasks, without the zero before the point."""
    means = draws.groupby("task").mean().mean()
    return {name: f"{mean:.3f}".removeprefix("0") for name, mean in means.items()}


def test_the_readme_compares_with_setfit_by_the_rows_of_the_table():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    eight = few_labels_of(8)
    means = mean_of_tasks(eight)
    ahead = (eight["contrastive"] > eight["setfit"]).sum()
    assert (
        f"macro-F1 {means['contrastive']} against {means['setfit']} with eight labels a class "
        f"(on {ahead} of {len(eight)} draws of labels)"
    ) in readme
    means = mean_of_tasks(few_labels_of(32))
    assert f"{means['contrastive']} against {means['setfit']} with 32" in readme


@pytest.mark.parametrize("size", [8, 32])
def test_the_first_table_of_few_labels_is_of_its_rows(size):
    page = (ROOT / "docs" / "results" / "few-labels.md").read_text(encoding="utf-8")
    draws = few_labels_of(size)
    means = mean_of_tasks(draws)
    names = ("tfidf", "setfit", "whole", "contrastive")
    shown = [means[name] for name in names[:-1]] + [f"**{means['contrastive']}**"]
    count = len(draws) // draws.index.get_level_values("task").nunique()
    assert f"| {size} | {count} | {' | '.join(shown)} |" in page


@pytest.mark.slow
def test_the_site_is_built_strictly_and_loads_nothing_from_elsewhere(tmp_path):
    pytest.importorskip("mkdocs")
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True)
    assert loads_from_elsewhere(tmp_path) == []
    # The theme's script would fetch a library for diagrams from elsewhere.
    assert not [
        path for path in tmp_path.rglob("*.html") if 'class="mermaid"' in path.read_text("utf-8")
    ]


def loads_from_elsewhere(site):
    """Fonts, scripts, styles and pictures that a built page would fetch from another host."""
    load = re.compile(r"<(?:script|img|iframe|source)\b[^>]*\bsrc=[\"']?(?:https?:)?//[^\"' >]+")
    link = re.compile(
        r"<link\b(?=[^>]*\brel=[\"']?(?:stylesheet|preconnect|preload|icon))[^>]*\bhref=[\"']?(?:https?:)?//[^>]+"
    )
    style = re.compile(r"(?:@import|url\()\s*[\"']?(?:https?:)?//[^\"')]+")
    kinds = [("*.html", load), ("*.html", link), ("*.css", style)]
    paths = [(path, kind) for pattern, kind in kinds for path in site.rglob(pattern)]
    return [
        (path.name, match)
        for path, kind in paths
        for match in kind.findall(path.read_text("utf-8"))
    ]
