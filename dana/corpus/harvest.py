"""Real text that every machine with Python has: docstrings, READMEs and licences of the installed distributions.

Files are parsed, never imported. What a function's docstring is about is known for free: its distribution and
sub-package.
"""

import ast
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import Distribution, distributions
from inspect import cleandoc
from pathlib import Path, PurePosixPath

from dana.text import digest, normalise

_SKIPPED = re.compile(
    r"(^|/)(tests?|testing|_?vendor(ed)?|externals?|_pyinstaller|__pycache__|conftest\.py)(/|$|_)|(^|/)test_"
)
_PROMPT = re.compile(r"^\s*(>>>|\.\.\. ?)")
_NOISE = re.compile(r"^\s*(\.\.\s.*|[=\-~^\"'`*+#.:]{3,}|:[a-z-]+:.*|\|.*\||!?\[.*\]\(.*\)|<.*>)\s*$", re.IGNORECASE)
_ROLE = re.compile(r":[a-z:]+:`~?([^`]*)`")
LARGEST_FILE = 400_000  # bytes; larger ones are generated


@dataclass(frozen=True)
class Harvested:
    """One piece of documentation.

    Attributes:
        id: ``distribution/module:name``.
        distribution: Its distribution, lower case.
        module: Path of its file, ``/`` between parts; empty for READMEs and licences.
        kind: ``docstring``, ``readme`` or ``licence``.
        text: Cleaned.
    """

    id: str
    distribution: str
    module: str
    kind: str
    text: str


def clean(text: str, most: int) -> str:
    """Prose without code examples and markup, at most `most` characters, cut at a line's end.

    A doctest's prompt lines go, and the output lines under them up to the next blank line.
    """
    lines: list[str] = []
    in_example = False
    for line in cleandoc(text).splitlines():
        if _PROMPT.match(line):
            in_example = True
        elif not line.strip():
            in_example = False
            lines.append("")
        elif not in_example and not _NOISE.match(line):
            lines.append(_ROLE.sub(r"\1", line.replace("``", "")))
    joined = re.sub(r"\n{3,}", "\n\n", normalise("\n".join(lines)))
    if len(joined) > most:
        joined = joined[:most].rpartition("\n")[0] or joined[:most].rpartition(" ")[0]
    return joined.strip()


def docstrings(distribution: Distribution, most: int) -> Iterator[Harvested]:
    """Every docstring of a distribution, files in hash order, so that a cap takes a fair sample of them."""
    name = distribution.metadata["Name"].lower()
    files = [file for file in distribution.files or () if file.suffix == ".py" and not _SKIPPED.search(file.as_posix())]
    for file in sorted(files, key=lambda file: digest(file.as_posix())):
        for qualified, text in _file_docstrings(file, distribution):
            yield Harvested(
                f"{name}/{file.as_posix()}:{qualified}", name, file.as_posix(), "docstring", clean(text, most)
            )


def _file_docstrings(file: PurePosixPath, distribution: Distribution) -> Iterator[tuple[str, str]]:
    path = distribution.locate_file(file)
    try:
        source = Path(str(path)).read_bytes()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)  # other people's invalid escapes
            tree = ast.parse(source if len(source) <= LARGEST_FILE else b"")
    except (OSError, SyntaxError, ValueError, RecursionError):
        return  # not ours to mend
    stack: list[tuple[str, ast.AST]] = [("", tree)]
    while stack:
        prefix, node = stack.pop()
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                stack.append((f"{prefix}{child.name}.", child))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node, clean=False)
            if text:
                yield prefix.rstrip(".") or "module", text


def papers(distribution: Distribution, most: int) -> Iterator[Harvested]:
    """A distribution's README and licence."""
    name = distribution.metadata["Name"].lower()
    metadata = distribution.metadata.json
    readme = str(metadata.get("description", ""))
    yield Harvested(f"{name}/readme", name, "", "readme", clean(readme, most))
    for file in distribution.files or ():
        if re.match(r"(licen[cs]e|copying|notice)", file.name, re.IGNORECASE) and file.suffix in (
            "",
            ".txt",
            ".md",
            ".rst",
        ):
            try:
                text = Path(str(distribution.locate_file(file))).read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError):
                continue
            yield Harvested(f"{name}/{file.as_posix()}", "licences", "", "licence", clean(text, most))


def installed() -> list[Distribution]:
    """Distributions with files, one of each name, in order of name."""
    found = {dist.metadata["Name"].lower(): dist for dist in distributions() if dist.files and dist.metadata["Name"]}
    return [found[name] for name in sorted(found)]
