"""Read YAML of plain values.

:mod:`dana.core.settings` makes settings of the values.
"""

import re
from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from dana.core.errors import ConfigError, SettingError, nearest_path

MERGE = "tag:yaml.org,2002:merge"
TEXT = "tag:yaml.org,2002:str"
NUMBER = "tag:yaml.org,2002:float"
# What YAML reads in plain words that are no text, as in yes, 010, 1e3, null, 2020-01-01 and =.
READ_INTO = {
    f"tag:yaml.org,2002:{name}"
    for name in ("bool", "int", "float", "null", "timestamp", "merge", "value")
}
EXPONENT = re.compile(r"[-+]?[0-9]+\.?[0-9]*e[-+]?[0-9]+", re.IGNORECASE)  # text in YAML 1.1
RECIPE = "recipe.yaml"  # in a run's folder


def require(condition: bool, key: str, value: Any, requirement: str) -> None:
    """Raise a SettingError unless a condition holds.

    It names the key, its value and the allowed values.
    """
    if not condition:
        raise SettingError(key, value, requirement)


def read_yaml(path: Path, words: Collection[str] = ()) -> dict[str, Any]:
    """Read a YAML file that holds a mapping.

    Args:
        path: The file.
        words: Keys of lists whose items are words as they are written: yes, 010, 1e3 and null, too.

    Raises:
        ConfigError: If the file is missing, is not YAML (names the line), or holds no mapping.
    """
    if not path.is_file():
        raise ConfigError(f"{path}: no such file{nearest_path(path)}")
    try:
        value = parse_yaml(path.read_text(encoding="utf-8"), str(path), words)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8: {error}") from error
    if not isinstance(value, dict):
        raise ConfigError(
            f"{path}: must hold a mapping of keys to values, got {type(value).__name__}"
        )
    return value


def parse_yaml(text: str, origin: str, words: Collection[str] = ()) -> Any:
    """Parse YAML of plain values.

    Args:
        text: The YAML.
        origin: Where it is from, for messages.
        words: See :func:`read_yaml`.

    Raises:
        ConfigError: Names the origin, the line where the parser knows it, and the problem.
    """
    try:
        loader = _Loader(text)  # a SafeLoader
        node = loader.get_single_node()
        if node is None:
            return None
        _keep_words(node, words)
        return loader.construct_document(node)
    except Exception as error:  # dates, numbers, depth and tags raise errors of their own
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark and "\n" in text else ""
        problem = getattr(error, "problem", None) or str(error).partition("\n")[0]
        raise ConfigError(f"{origin}{line}: not YAML: {problem}") from error


def _keep_words(node: yaml.Node, keys: Collection[str]) -> None:
    """Make plain items text in the lists of some keys of a mapping, and of those merged into it."""
    if not isinstance(node, yaml.MappingNode):
        return
    for key, value in node.value:
        if key.tag == MERGE:
            merged = value.value if isinstance(value, yaml.SequenceNode) else [value]
            for mapping in merged:
                _keep_words(mapping, keys)
        elif key.value in keys and isinstance(value, yaml.SequenceNode):
            value.value = [_as_word(item) for item in value.value]


def _as_word(item: yaml.Node) -> yaml.Node:
    """Return an item as text if it is a plain word that YAML would read as something else."""
    is_plain = isinstance(item, yaml.ScalarNode) and item.style is None
    if not is_plain or item.tag not in READ_INTO:
        return item
    return yaml.ScalarNode(TEXT, item.value, item.start_mark, item.end_mark)


class _Loader(yaml.SafeLoader):
    """Refuse a key that comes twice, of which YAML takes the last.

    ``1:30`` is read as text and ``1e-4`` as a number.
    """

    def resolve(self, kind: Any, value: Any, implicit: Any) -> Any:
        tag = str(super().resolve(kind, value, implicit))  # type: ignore[no-untyped-call]
        if tag.endswith((":int", ":float")) and ":" in value:
            return TEXT
        is_plain = kind is yaml.ScalarNode and implicit[0]
        if is_plain and tag == TEXT and EXPONENT.fullmatch(value):
            return NUMBER
        return tag

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        counts: Counter[Hashable] = Counter()
        for key_node, _ in node.value:
            if key_node.tag == MERGE:
                continue
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, Hashable):  # YAML itself refuses the others
                counts[key] += 1
        for key, count in counts.items():
            if count > 1:
                problem = f"the key {key!r} comes twice"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)
        return super().construct_mapping(node, deep)


def merge_sections(under: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Merge two mappings, section by section; values of `over` take precedence."""
    result = dict(under)
    for key, value in over.items():
        section = result.get(key)
        if isinstance(section, dict) and isinstance(value, dict):
            value = merge_sections(section, value)
        result[key] = value
    return result


def assign(target: dict[str, Any], path: Sequence[str], value: Any, override: str) -> None:
    """Assign a value in nested sections.

    Args:
        target: The outermost section.
        path: Names of the sections, and the key.
        value: The value.
        override: Text of the assignment, for messages.
    """
    for key in path[:-1]:
        if not isinstance(target.get(key) or {}, dict):
            raise ConfigError(
                f"{override!r}: {key!r} is {target[key]!r}, not a mapping of settings"
            )
        target[key] = dict(target.get(key) or {})
        target = target[key]
    target[path[-1]] = value


def flatten(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the leaves of nested objects with their dotted keys; a list is a leaf."""
    if isinstance(value, dict):
        for key, inner in value.items():
            dotted = f"{prefix}.{key}" if prefix else str(key)
            yield from flatten(inner, dotted)
    else:
        yield prefix or "all", value
