"""Write the generated parts of docs/reference: ``python docs/generated.py``, and commit what changed.

A page has them between the lines ``<!-- generated: NAME ARGUMENT -->`` and ``<!-- end -->``; the
function ``NAME`` below returns them: the settings from their classes, the commands from the parser,
the columns of tables from their schemas. ``tests/test_reference.py`` holds that the pages are what
the code gives.

It is also a hook of MkDocs, for what only the site shows: ``<!-- built: NAME -->``, the Python
interface from ``dana.__all__``; and, in place of a link that is marked so, the Markdown file of the
tree that it names, whose own links are made to point to the pages of the site.
"""

import argparse
import inspect
import os
import re
from collections.abc import Iterator
from dataclasses import MISSING, fields
from importlib import import_module
from pathlib import Path
from typing import Any

import dana
from dana.cli.main import build_parser
from dana.core.settings import hints_of, kind_of, range_of, section_in, setting_of
from dana.stages.settings import RunSettings
from dana.tasks.card import load_card
from dana.tasks.finder import card_names
from dana.tasks.settings import PRESETS, Preset
from dana.tasks.tables import card_rows

ROOT = Path(__file__).parent.parent
GENERATED = re.compile(
    r"^(<!-- generated: (\w+) ?(\S*) -->\n)(?:.*?)^(<!-- end -->)$", re.MULTILINE | re.DOTALL
)
BUILT = re.compile(r"^<!-- built: (\w+) -->$", re.MULTILINE)
INCLUDE = re.compile(r"^\[(.+)\]\(.+\) <!-- the site has its text here -->$", re.MULTILINE)
LINK = re.compile(r"\]\((?!\w+:|#)([^)#\s]+)(#[^)\s]*|)\)")
OPTIONS = {"DetectorSelector": "inherited_members: true"}  # its methods stand in the base class


def on_page_markdown(markdown: str, page: Any, **_: object) -> str:
    """Fill in the parts of a page that only the site shows."""
    text = INCLUDE.sub(lambda match: _include(match[1], page.file.src_uri), markdown)
    return BUILT.sub(lambda match: globals()[match[1]](), text)


def fill(markdown: str) -> str:
    """Return a page with its generated parts as the code gives them."""
    return GENERATED.sub(_part, markdown)


def _part(match: re.Match[str]) -> str:
    start, name, argument, end = match.groups()
    text = globals()[name](*filter(None, [argument]))
    return f"{start}\n{text.strip()}\n\n{end}"


def generated_pages() -> list[Path]:
    """Return the pages with generated parts."""
    pages = sorted((ROOT / "docs" / "reference").glob("*.md"))
    return [path for path in pages if GENERATED.search(path.read_text(encoding="utf-8"))]


def settings() -> str:
    """Return a table of keys for each section of the settings, with type, default and meaning."""
    return "\n".join(_section(RunSettings, ""))


def _section(model: type, name: str) -> Iterator[str]:
    keys = hints_of(model)
    sections = {key: section_in(hint) for key, hint in keys.items()}
    plain = [key for key, section in sections.items() if section is None]
    if plain:
        heading = f"## {name or 'The run'}"
        yield f"\n{heading}\n\n| key | values | default | meaning |\n|---|---|---|---|"
    for key in plain:
        setting = setting_of(model, key)
        values = _values(setting.hint)
        full_name = f"{name}.{key}" if name else key
        meaning = _cell(setting.help)
        yield f"| `{full_name}` | {_cell(values)} | {_code(setting.default)} | {meaning} |"
    for key, section in sections.items():
        if section is not None:
            yield from _section(section, f"{name}.{key}" if name else key)


def _values(hint: Any) -> str:
    kind = kind_of(hint)
    allowed = range_of(hint)
    if allowed.startswith("one of"):
        return allowed
    return f"{kind}: {allowed.removesuffix(', or null')}" if allowed else kind


def _code(value: object) -> str:
    if value is MISSING:
        return "required"
    if value is None or value in ("", [], {}):
        return ""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return f"`{text.replace('|', chr(92) + '|')}`"


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


if __name__ == "__main__":
    for path in generated_pages():
        path.write_text(fill(path.read_text(encoding="utf-8")), encoding="utf-8")
