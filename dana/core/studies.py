"""Studies: experiments that stand on the core, found by entry points of the group ``dana.studies``.

The core names none of them. What a study brings to the command line, to recipes and to the report it says in its
:class:`Study`, as ``module:object`` strings that are loaded where they are used.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from dana.core.errors import PluginError
from dana.core.registry import is_present

GROUP = "dana.studies"


@dataclass(frozen=True)
class Study:
    """What one study brings. All but names and help lines are ``module:object`` strings.

    Attributes:
        name: Of the study, and of its section of the settings.
        settings: Dataclass of that section of :class:`dana.stages.settings.RunSettings`.
        commands: Name of each command to its line in ``dana --help`` and the function that adds it to the parser.
        cells: Function that yields the cells which the study adds to ``dana run``, see :mod:`dana.stages.run`.
        sections: Function that gives the sections which the study adds to a report, see :mod:`dana.report.sections`.
        tables: Mapping of kinds of artifact that the study writes to :class:`StudyTable`.
        unused: Mapping of commands to rules of :mod:`dana.stages.unused`.
    """

    name: str
    settings: str = ""
    commands: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    cells: str = ""
    sections: str = ""
    tables: str = ""
    unused: str = ""


@dataclass(frozen=True)
class StudyTable:
    """A kind of artifact that a study writes.

    Attributes:
        setting_of: Gives the setting behind a key of the manifest's ``depends_on``, by its section and the rest; None
            behind what another step made. Where there is no such function, both values are shown.
        group: Column that names the group of each unit, for ``dana weigh --balance``; empty if it has none.
    """

    setting_of: Callable[[str, str], str | None] | None = None
    group: str = ""


@cache
def studies() -> tuple[Study, ...]:
    """The installed studies in the order of their names, without the missing ones.

    Raises:
        PluginError: If one does not import; names its entry point.
    """
    present = [entry for entry in _entries() if entry.name not in missing_studies()]
    return tuple(load_object(entry.value) for entry in present)


@cache
def missing_studies() -> tuple[str, ...]:
    """Names of studies that entry points tell of, but whose own module is absent."""
    return tuple(entry.name for entry in _entries() if not is_present(entry.module))


def loaded(part: str) -> Iterator[Any]:
    """One part of every study that has it, for example ``cells``, loaded.

    Raises:
        PluginError: If one does not import.
    """
    for study in studies():
        if target := getattr(study, part):
            yield load_object(target)


def study_table(kind: str) -> StudyTable | None:
    """What a study says of a kind of artifact; None if no study writes it."""
    return next((tables[kind] for tables in loaded("tables") if kind in tables), None)


def _entries() -> list[Any]:
    return sorted({entry.name: entry for entry in entry_points(group=GROUP)}.values(), key=lambda entry: entry.name)


def load_object(target: str) -> Any:
    """The object that ``module:object`` names.

    Raises:
        PluginError: If it does not import.
    """
    module, _, name = target.partition(":")
    try:
        return getattr(import_module(module), name)
    except Exception as error:
        raise PluginError(f"study: {target} does not load: {type(error).__name__}: {error}") from error
