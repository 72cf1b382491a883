"""Find studies: experiments on top of the core.

They are registered as entry points of the group ``dana.studies``. The core names no study. A
:class:`Study` lists what it adds to the command line, to recipes and to the report, as
``module:object`` strings that are loaded when they are used.
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
    """The parts of one study; code is named by ``module:object`` strings.

    Attributes:
        name: Name of the study, its entry point and its section of the settings.
        settings: Dataclass of that section of :class:`dana.stages.settings.RunSettings`.
        commands: Maps each command to its line in ``dana --help`` and the function that adds it to
            the parser.
        steps: Function that yields the steps of the study in ``dana run`` from two
            :class:`~dana.stages.settings.RunSettings`: those of the run, and the part of them that
            reading texts uses.
        sections: Function from the run's tables (:class:`dana.report.run.RunFrames`) to a list of
            the study's sections of a report (:class:`dana.report.page.Section`).
        groups: Maps each kind of artifact that ``dana weigh --balance`` can read to its column with
            the group of each unit.
    """

    name: str
    settings: str = ""
    commands: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    steps: str = ""
    sections: str = ""
    groups: Mapping[str, str] = field(default_factory=dict)


def studies() -> tuple[Study, ...]:
    """Return the studies that load, sorted by name."""
    return tuple(study for study in _entries().values() if isinstance(study, Study))


def missing_studies() -> dict[str, str]:
    """Map each study that does not load to the reason."""
    return {name: reason for name, reason in _entries().items() if isinstance(reason, str)}


@cache
def _entries() -> dict[str, Study | str]:
    """Map each entry point, sorted by name, to its study or to the reason why it does not load."""
    entries = STUDIES.entries()
    return {name: _study(name, entries) for name in entries}


def _study(name: str, entries: dict[str, list[EntryPoint]]) -> Study | str:
    """Load a study; return the reason if it does not load."""
    try:
        study: Any = STUDIES.load(name, entries=entries)
    except PluginError as error:
        return str(error)
    if isinstance(study, Study) and study.name == name and name.isidentifier():
        return study
    return "its entry point is not a Study of this name"


def load_parts(part: str) -> Iterator[tuple[Study, Any]]:
    """Yield each study that has a part, for example ``steps``, with the loaded part.

    A study whose part does not load is skipped with a warning, and counts as missing from then on.
    """
    for study in studies():
        target = getattr(study, part)
        if not target:
            continue
        try:
            yield study, load_object(target)
        except PluginError as error:
            _entries()[study.name] = str(error)
            log.warning("study     %s is skipped: %s", study.name, error)


def load_object(target: str) -> Any:
    """Import the object that ``module:object`` names.

    Raises:
        PluginError: If it does not import.
    """
    try:
        return resolve_name(target)
    except Exception as error:
        raise PluginError(f"{target} does not load: {type(error).__name__}: {error}") from error
