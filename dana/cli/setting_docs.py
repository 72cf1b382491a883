"""Description and default of every setting, read from the source of its dataclass, so that ``--help`` imports none.

Importing the settings imports numpy and pyarrow, half a second. Their classes are plain: fields with literal defaults,
and a docstring with an ``Attributes`` section, from which a line of ``--help`` is made.
"""

import ast
import re
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import dana

ROOT = ("dana.stages.settings", "RunSettings")


@dataclass(frozen=True)
class SettingDoc:
    """What the source says of a setting.

    Attributes:
        text: Its description in plain text, in one line.
        default: Its default value; None also where it is computed.
        kind: Module and class of its value, where that is a dataclass of dana.
    """

    text: str
    default: Any
    kind: tuple[str, str] | None


def setting_doc(key: str) -> SettingDoc:
    """Description and default of a setting.

    Args:
        key: Its full name, for example ``adapt.execution.layout``.

    Raises:
        KeyError: If there is none of this name.
    """
    *sections, name = key.split(".")
    at = ROOT
    for section in sections:
        found = _fields(*at)[section].kind
        if found is None:
            raise KeyError(key)
        at = found
    return _fields(*at)[name]


@cache
def _fields(module: str, name: str) -> dict[str, SettingDoc]:
    """The fields of a dataclass, its bases' first."""
    tree = _tree(module)
    (node,) = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name]
    found: dict[str, SettingDoc] = {}
    for base in node.bases:
        origin = _origin(module, ast.unparse(base))
        found |= _fields(*origin) if origin else {}
    texts = _attributes(ast.get_docstring(node) or "")
    for item in node.body:
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
            kind = _origin(module, ast.unparse(item.annotation).partition(" |")[0])
            text = found[item.target.id].text if item.target.id in found else ""  # of the base, with another default
            found[item.target.id] = SettingDoc(text, _value(module, item.value), kind)
    return {key: replace(doc, text=texts.get(key, doc.text)) for key, doc in found.items()}


@cache
def _tree(module: str) -> ast.Module:
    path = Path(dana.__file__).parent.parent.joinpath(*module.split("."))
    return ast.parse(path.with_suffix(".py").read_text(encoding="utf-8"))


def _origin(module: str, name: str) -> tuple[str, str] | None:
    """Where a class of dana that a module names is defined; None for any other type."""
    for node in _tree(module).body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            return module, name
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dana."):
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return str(node.module), alias.name
    return None


def _value(module: str, node: ast.expr | None) -> Any:
    """The value of a literal, of a constant of the same module or of ``field(default_factory=lambda: ...)``."""
    if isinstance(node, ast.Call):
        made_by = [word.value for word in node.keywords if word.arg == "default_factory"]
        node = made_by[0].body if made_by and isinstance(made_by[0], ast.Lambda) else None
        if isinstance(node, ast.Call) and len(node.args) == 1:  # list(CONSTANT)
            node = node.args[0]
    if isinstance(node, ast.Name):
        constants = [item for item in _tree(module).body if isinstance(item, ast.Assign)]
        node = next((item.value for item in constants if ast.unparse(item.targets[0]) == node.id), None)
    try:
        value = ast.literal_eval(node) if node is not None else None
    except ValueError:
        return None
    return list(value) if isinstance(value, tuple) else value


def _attributes(docstring: str) -> dict[str, str]:
    """Name to text of a docstring's ``Attributes`` section, without markup."""
    section = docstring.partition("Attributes:\n")[2].partition("\n\n")[0]
    entries = re.split(r"^    (\w+): ", section, flags=re.MULTILINE)[1:]
    return {name: _plain(text) for name, text in zip(entries[::2], entries[1::2], strict=True)}


def _plain(text: str) -> str:
    """Without the markup of docstrings: ``code`` and :roles:."""
    text = re.sub(r":\w+:`~?([^`]+)`", r"\1", " ".join(text.split()))
    return text.replace("``", "").rstrip(".")
