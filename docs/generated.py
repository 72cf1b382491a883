"""MkDocs hook: fill in the generated parts of pages.

A line ``<!-- generated: NAME ARGUMENT -->`` is replaced by what the function ``NAME`` below
returns: the settings from their dataclasses, the commands from the parser, the columns of tables
from their schemas, the Python interface from ``dana.__all__``. A line ``--8<-- "FILE"`` is replaced
by a Markdown file of the tree, whose links are made to point to the pages of the site.
``tests/test_reference.py`` runs every generator.
"""

import argparse
import inspect
import os
import re
from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, get_args, get_type_hints

import dana
from dana.cli.flags import setting_doc
from dana.cli.main import build_parser
from dana.stages.settings import RunSettings
from dana.tasks.card import load_card
from dana.tasks.finder import card_names
from dana.tasks.settings import PRESETS, Preset
from dana.tasks.tables import card_rows

ROOT = Path(__file__).parent.parent
MARK = re.compile(r"^<!-- generated: (\w+) ?(\S*) -->$", re.MULTILINE)
INCLUDE = re.compile(r'^--8<-- "(.+)"$', re.MULTILINE)
LINK = re.compile(r"\]\((?!\w+:|#)([^)#\s]+)(#[^)\s]*|)\)")
OPTIONS = {"DetectorSelector": "inherited_members: true"}  # its methods stand in the base class


def on_page_markdown(markdown: str, page: Any, **_: object) -> str:
    """Fill in the generated and included parts of a page."""
    text = INCLUDE.sub(lambda match: _include(match[1], page.file.src_uri), markdown)
    return MARK.sub(lambda match: globals()[match[1]](*filter(None, [match[2]])), text)


def settings() -> str:
    """Return a table of keys for each section of the settings, with type, default and meaning."""
    return "\n".join(_section(RunSettings, ""))


def _section(cls: type, name: str) -> Iterator[str]:
    hints = get_type_hints(cls)
    parts = {
        field.name: next(
            filter(is_dataclass, (hints[field.name], *get_args(hints[field.name]))), None
        )
        for field in fields(cls)
    }
    keys = [key for key, part in parts.items() if part is None]
    if keys:
        yield f"\n## {name or 'The run'}\n\n| key | type | default | meaning |\n|---|---|---|---|"
    for key in keys:
        text, default = setting_doc(f"{name}.{key}" if name else key)
        yield f"| `{key}` | {_cell(_type(hints[key]))} | {_code(default)} | {_cell(text)} |"
    for key, part in parts.items():
        if part is not None:
            yield from _section(part, f"{name}.{key}" if name else key)


def _type(hint: Any) -> str:
    return inspect.formatannotation(hint).replace("typing.", "").replace("NoneType", "None")


def _code(value: object) -> str:
    if value is MISSING:
        return "required"
    if value is None or value in ("", [], {}):
        return ""
    return f"`{_cell(str(value).lower() if isinstance(value, bool) else str(value))}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("[", "\\[")


def commands() -> str:
    """Return every command with its description and a table of its flags."""
    return "\n".join(_command("dana", build_parser()))


def _command(name: str, parser: argparse.ArgumentParser) -> Iterator[str]:
    inner = next((action for action in parser._actions if isinstance(action.choices, dict)), None)
    if name != "dana":
        yield f"\n## {name}\n\n{_prose(parser.description or '')}\n"
    rows = [action for action in parser._actions if action is not inner and action.dest != "help"]
    if rows:
        yield "| flag | meaning |\n|---|---|"
    formatter = parser._get_formatter()
    for action in rows:
        flags = " ".join(action.option_strings) or action.metavar or action.dest
        names = action.metavar or action.dest.upper()
        values = names if isinstance(names, str) else " ".join(names)
        value = "" if action.nargs == 0 or not action.option_strings else f" {values}"
        yield f"| `{flags}{value}` | {_cell(' '.join(formatter._expand_help(action).split())) if action.help else ''} |"
    if name == "dana" and inner is not None:
        yield "\n| command | what it does |\n|---|---|"
        for item in inner._choices_actions:
            yield f"| [`dana {item.dest}`](#dana-{item.dest}) | {_cell(item.help or '')} |"
    for child, own in (inner.choices if inner else {}).items():
        yield from _command(f"{name} {child}", own)


def _prose(text: str) -> str:
    """Return a help text as Markdown: paragraphs as they are, indented or aligned lines as code."""
    blocks = [block for block in text.strip().split("\n\n") if block.strip()]
    return "\n\n".join(
        f"```text\n{block}\n```"
        if re.search(r"^ ", block, re.MULTILINE)
        else block.replace("<", "&lt;")
        for block in blocks
    )


def columns(schema: str) -> str:
    """Return a table of a Parquet schema's columns, whose meanings are comments of its module and of the core's.

    Args:
        schema: Full name of the schema, for example ``dana.core.schemas.SCORES``.

    Raises:
        KeyError: If no comment says what a column holds.
    """
    module, _, name = schema.rpartition(".")
    meanings = _meanings("dana.core.schemas") | _meanings(module)
    rows = ["| column | type | meaning |", "|---|---|---|"]
    for field in getattr(import_module(module), name):
        rows.append(f"| `{field.name}` | {field.type} | {_cell(meanings[field.name])} |")
    return "\n".join(rows)


def _meanings(module: str) -> dict[str, str]:
    """Read comments such as ``# start, end: character span`` at the margin of a module's code."""
    source = inspect.getsource(import_module(module))
    blocks = re.findall(r"(?:^#.*\n)+", source, re.MULTILINE)
    meanings = {}
    for block in blocks:
        text = re.sub(r"\s*\n#", "", block).strip("# \n")
        entries = re.split(r"(?:^|\s\s|(?<=\.)\s)((?:\w+, )*\w+): ", text)[1:]
        for columns, meaning in zip(entries[::2], entries[1::2], strict=True):
            meanings.update(dict.fromkeys(columns.split(", "), meaning.rstrip(". ")))
    return meanings


def names() -> str:
    """Return the public names of `dana` with the first sentence of their docstrings."""
    rows = [
        f"| [`dana.{name}`](#{name.lower()}) | {_cell(_summary(name))} |" for name in dana.__all__
    ]
    return "\n".join(["| name | what it does |", "|---|---|", *rows])


def _summary(name: str) -> str:
    text = (inspect.getdoc(getattr(dana, name)) or "").partition("\n\n")[0]
    return re.sub(r":\w+:`~?([^`]+)`", r"`\1`", " ".join(text.split()))


def interface() -> str:
    """Return a heading and the docstring of every public name of `dana`."""
    entries = ["## Reference\n"]
    for name in dana.__all__:
        options = ", ".join(filter(None, ["show_root_heading: false", OPTIONS.get(name, "")]))
        home = getattr(dana, name).__module__
        entries.append(f"### {name}\n\n::: {home}.{name}\n    options: {{{options}}}\n")
    return "\n".join(entries)


def cards() -> str:
    """Return a table of the shipped task cards, and one of the presets that all of them have."""
    columns = ["name", "title", "metric", "labels", "train", "dev", "test", "tags"]
    table = card_rows(map(load_card, card_names()), None)
    rows = ["## Shipped cards\n", f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    rows += [f"| {' | '.join(_cell(str(row[column])) for column in columns)} |" for row in table]
    keys = [field.name for field in fields(Preset)]
    rows += ["\n## Presets\n", f"| preset | {' | '.join(keys)} |", "|---" * (len(keys) + 1) + "|"]
    rows += [
        f"| `{name}` | {' | '.join(str(getattr(preset, key)) for key in keys)} |"
        for name, preset in PRESETS.items()
    ]
    return "\n".join(rows)


def _include(name: str, page: str) -> str:
    """Return a Markdown file of the tree with its relative links as seen from a page of the site."""
    source = ROOT / name
    copies = {
        os.path.normpath(ROOT / match[1]): path
        for path in (ROOT / "docs").rglob("*.md")
        for match in INCLUDE.finditer(path.read_text(encoding="utf-8"))
    }

    def link(match: re.Match[str]) -> str:
        path = os.path.normpath(source.parent / match[1])
        return (
            f"]({os.path.relpath(copies.get(path, path), (ROOT / 'docs' / page).parent)}{match[2]})"
        )

    return LINK.sub(link, source.read_text(encoding="utf-8"))
