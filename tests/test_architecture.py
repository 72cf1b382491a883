"""The layers of docs/architecture.md, read from the imports; and the size limits that keep files readable."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "dana"
FILES = sorted(path for path in PACKAGE.rglob("*.py") if "metrics" not in path.parent.parent.name)

# First match wins; a module may import its own layer only where the last column allows it.
LAYERS = [
    (0, ("errors", "rng", "logging", "config", "mapped", "schemas", "artifacts", "registry", "resources", "tensors")),
    (1, ("text", "units", "overlap", "geometry", "ranking", "weights", "mlm")),
    (2, ("corpus", "encoders", "detectors", "selectors")),
    (3, ("train", "finetune")),
    (4, ("studies", "report")),
    (5, ("stages",)),
    (6, ("cli", "commands", "__main__", "__init__")),
]
LAYER = {name: level for level, names in LAYERS for name in names}
# L2 holds what is fitted; only selectors compose the others. Fine-tuning borrows the trainer's optimizer and launch.
SIBLINGS = {2: {"selectors": {"encoders", "detectors"}}, 3: {"finetune": {"train"}}}


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


def test_every_file_belongs_to_a_layer():
    assert len(FILES) > 30
    assert {_name(path) for path in FILES} <= set(LAYER)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_down_only(path):
    own = _name(path)
    for other in _imports(path) - {own}:
        assert LAYER[other] <= LAYER[own], f"{path} imports dana.{other}, which is above it"
        if LAYER[other] == LAYER[own] and LAYER[own] in SIBLINGS:
            allowed = SIBLINGS[LAYER[own]].get(own, set())
            assert other in allowed, f"{path} imports its sibling dana.{other}"


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


def test_help_imports_nothing_heavy():
    heavy = "('torch', 'transformers', 'numpy', 'sklearn')"
    code = f"import sys, dana.cli; dana.cli.build_parser(); print([m for m in {heavy} if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
