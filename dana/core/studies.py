"""Studies: experiments that stand on the core, found by entry points of the group ``dana.studies``.

The core names none of them. What a study brings to the command line, to recipes and to the report it says in its
:class:`Study`, as ``module:object`` strings that are loaded where they are used.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import EntryPoint
from pkgutil import resolve_name
from typing import Any

from dana.core.errors import PluginError
from dana.core.logging import get_logger
from dana.core.registry import Registry

log = get_logger(__name__)

STUDIES = Registry("dana.studies")


@dataclass(frozen=True)
class Study:
    """What one study brings. What has code is named by ``module:object`` strings.

    Attributes:
        name: Of the study: of its entry point, and of its section of the settings.
        settings: Dataclass of that section of :class:`dana.stages.settings.RunSettings`.
        commands: Name of each command to its line in ``dana --help`` and the function that adds it to the parser.
        cells: Function that yields the cells which the study adds to ``dana run``, see :mod:`dana.stages.run`.
        sections: Function that gives the sections which the study adds to a report, see :mod:`dana.report.sections`.
        groups: Kinds of artifact that the study writes and ``dana weigh --balance`` takes, to the column that names the
            group of each unit.
    """

    name: str
    settings: str = ""
    commands: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    cells: str = ""
    sections: str = ""
    groups: Mapping[str, str] = field(default_factory=dict)


def studies() -> tuple[Study, ...]:
    """The installed studies in the order of their names, without those of :func:`missing_studies`."""
    return tuple(found for found in _installed().values() if isinstance(found, Study))


def missing_studies() -> dict[str, str]:
    """Each study that an entry point tells of and that does not load, with the reason: nothing else fails of it."""
    return {name: found for name, found in _installed().items() if isinstance(found, str)}


@cache
def _installed() -> dict[str, Study | str]:
    """Name of each entry point, sorted, to its study, or to why there is none."""
    entries = STUDIES.entries()
    return {name: _study(name, entries) for name in entries}


def _study(name: str, entries: dict[str, list[EntryPoint]]) -> Study | str:
    try:
        study: Any = STUDIES.load(name, entries=entries)
    except PluginError as error:
        return str(error)
    is_one = isinstance(study, Study) and study.name == name and name.isidentifier()
    return study if is_one else "what its entry point names is no Study of this name"


def loaded(part: str) -> Iterator[tuple[Study, Any]]:
    """The studies that have some part, for example ``cells``, each with it; one whose part does not load is left out.

    It counts as missing from then on.
    """
    for study in studies():
        if target := getattr(study, part):
            try:
                yield study, load_object(target)
            except PluginError as error:
                _installed()[study.name] = str(error)
                log.warning("study     %s is left out: %s", study.name, error)


def load_object(target: str) -> Any:
    """The object that ``module:object`` names.

    Raises:
        PluginError: If it does not import.
    """
    try:
        return resolve_name(target)
    except Exception as error:
        raise PluginError(f"{target} does not load: {type(error).__name__}: {error}") from error
