"""The layers of docs/architecture.md, read from the imports; and the size limits that keep files readable."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "dana"
FILES = sorted(path for path in PACKAGE.rglob("*.py") if "evaluation_modules" not in path.parts)

# From the ground up; a package may import those before it.
ROOMS = (
    "core",
    "corpus",
    "ngram",
    "tasks",
    "models",
    "chat",
    "encoders",
    "clusters",
    "topics",
    "augmentation",
    "topic_gap",
    "detectors",
    "selectors",
    "execution",
    "weighting",
    "scoring",
    "ranking",
    "comparison",
    "sequences",
    "objectives",
    "train",
    "checkpoints",
    "finetuning",
    "report",
    "experiments",
    "engines",
    "stages",
    "api",
    "cli",
    "__main__",
    "__init__",
)
FLOOR = {name: floor for floor, name in enumerate(ROOMS)}


def _name(path: Path) -> str:
    """Top-level name below dana/: a package, or a module's stem."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def _imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dana."):
            found.add(node.module.split(".")[1])
        elif isinstance(node, ast.Import):
            found.update(alias.name.split(".")[1] for alias in node.names if alias.name.startswith("dana."))
    return found


def test_every_file_belongs_to_a_room():
    assert len(FILES) > 30
    assert {_name(path) for path in FILES} <= set(FLOOR)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_down_only(path):
    own = _name(path)
    for other in _imports(path) - {own}:
        assert FLOOR[other] < FLOOR[own], f"{path} imports dana.{other}, which is above it"


def _file(module: str) -> Path | None:
    """File of a dotted name below dana, or None where the name is no module."""
    place = PACKAGE.parent / module.replace(".", "/")
    return next((file for file in (place.with_suffix(".py"), place / "__init__.py") if file.is_file()), None)


def _imported_files(path: Path) -> set[Path]:
    """Files of dana that a file imports, in functions and for types too."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names if alias.name.startswith("dana"))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dana"):
            names.update(
                f"{node.module}.{alias.name}" if _file(f"{node.module}.{alias.name}") else node.module
                for alias in node.names
            )
    return {file for file in map(_file, names) if file}


def circle(graph: dict[Path, set[Path]]) -> list[Path]:
    """One circle of files that import each other, or an empty list: depth-first search."""
    done: set[Path] = set()

    def visit(file: Path, walk: list[Path]) -> list[Path]:
        if file in walk:
            return [*walk[walk.index(file) :], file]
        if file in done:
            return []
        found = next(filter(None, (visit(other, [*walk, file]) for other in sorted(graph.get(file, ())))), [])
        done.add(file)
        return found

    return next(filter(None, (visit(file, []) for file in sorted(graph))), [])


def test_no_files_import_each_other_in_a_circle():
    found = circle({path: _imported_files(path) for path in FILES})
    assert not found, " -> ".join(str(path.relative_to(PACKAGE)) for path in found)


def test_a_circle_of_three_files_is_found():
    one, two, three, four = map(Path, "abcd")
    assert circle({one: {two, four}, two: {three}, three: {two}, four: set()}) == [two, three, two]
    assert circle({one: {two, three}, two: {three}, three: set()}) == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_one_idea_a_file(path):
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) < 300
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            lines = node.end_lineno - node.lineno
            assert lines < 60, f"{node.name} has {lines} lines"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_nothing_happens_on_import(path):
    """A module's top level only imports, defines and names things: no calls that act, no environment."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        acts = isinstance(node, ast.Expr) and not isinstance(node.value, ast.Constant)
        assert not acts, f"line {node.lineno} of {path} acts on import"


# What goes on while others look at it: a count, a draft, a run. All other dataclasses are parameters or outcomes.
CHANGING = {"_File", "Notices", "Tally", "_Removed", "Verified", "_Clock", "VectorFolderCheck", "Draft", "Meter"}
CHANGING |= {"CheckpointPolicy", "Prepared"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_dataclasses_are_frozen(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ClassDef) and node.name not in CHANGING:
            made = [ast.unparse(decorator) for decorator in node.decorator_list]
            kind = [decorator for decorator in made if decorator.startswith("dataclass")]
            assert kind in ([], ["dataclass(frozen=True)"]), f"{node.name}: {kind}"


def test_help_imports_nothing_heavy():
    heavy = "('torch', 'transformers', 'numpy', 'sklearn')"
    code = f"import sys, dana.cli.main; dana.cli.main.build_parser(); print([m for m in {heavy} if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


NAMED = (ast.FunctionDef, ast.ClassDef)


def _definitions(path):
    return [node for node in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(node, NAMED)]


def test_no_two_test_files_have_one_name():
    """pytest imports them by it."""
    names = [path.name for path in Path(__file__).parent.rglob("test_*.py")]
    assert sorted(set(names)) == sorted(names)


def test_no_two_public_things_have_one_name():
    """Checks are not counted: the same promise has the same name for every kind of component."""
    found = {}
    for path in FILES:
        for node in _definitions(path):
            if not node.name.startswith("_") and path.name != "checks.py":
                assert found.setdefault(node.name, path) == path, f"{node.name}: {found[node.name]} and {path}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_first_lines_are_statements_and_no_requirement_is_cited_by_its_code(path):
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"\b(A-)?D-?\d\d\b", text), "write the fact and its source"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, *NAMED)) and (said := ast.get_docstring(node)):
            assert not said.splitlines()[0].endswith("?"), said.splitlines()[0]


def test_no_three_files_are_called_checkpoint():
    assert len([path for path in FILES if path.stem.startswith("checkpoint")]) < 3
