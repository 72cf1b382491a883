"""Studies: experiments that stand on the core, found by entry points of the group ``dana.studies``.

The core names none of them. What a study brings to the command line, to recipes and to the report it says in its
:class:`Study`, as ``module:object`` strings that are loaded where they are used.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from dana.core.errors import PluginError
from dana.core.logging import get_logger
from dana.core.registry import is_present

log = get_logger(__name__)

GROUP = "dana.studies"


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
    claims = sorted({(entry.name, entry.value): entry for entry in entry_points(group=GROUP)}.items())
    names = Counter(name for (name, _), _ in claims)
    return {name: _study(entry) if names[name] == 1 else "two packages claim it" for (name, _), entry in claims}


def _study(entry: EntryPoint) -> Study | str:
    """The study of an entry point; or why there is none."""
    try:
        if not is_present(entry.module):
            return f"there is no module {entry.module}"
        study = load_object(entry.value)
    except Exception as error:  # whatever a package does while it is imported
        return _reason(error)
    if not isinstance(study, Study) or study.name != entry.name or not study.name.isidentifier():
        return f"{entry.value} is no Study of this name"
    pairs = all(isinstance(one, tuple) and len(one) == 2 for one in study.commands.values())
    return study if pairs else f"{entry.value}: each command has a line and a function's name"


def settings_of_studies(taken: Collection[str]) -> dict[str, type]:
    """The settings of each study that has some, by its name. One whose settings cannot be used is missing from then on.

    Args:
        taken: Names of sections that no study may have.
    """
    sections: dict[str, type] = {}
    for study in filter(lambda study: study.settings, studies()):
        if study.name in taken:
            _leave_out(study, f"the settings of a run have {study.name} themselves")
            continue
        try:
            sections[study.name] = load_object(study.settings)
            sections[study.name]()
        except Exception as error:
            sections.pop(study.name, None)
            _leave_out(study, _reason(error, f"{study.settings}: "))
    return sections


def _reason(error: Exception, where: str = "") -> str:
    """Why a study is missing: dana's own words, or what its code raised."""
    return str(error) if isinstance(error, PluginError) else f"{where}{type(error).__name__}: {error}"


def _leave_out(study: Study, reason: str) -> None:
    """Count a study as missing from now on."""
    _installed()[study.name] = reason
    log.warning("study     %s is left out: %s", study.name, reason)


def loaded(part: str) -> Iterator[Any]:
    """One part of every study that has it, for example ``cells``; a study whose part does not load is left out."""
    for study in studies():
        if target := getattr(study, part):
            try:
                found = load_object(target)
            except PluginError as error:
                _leave_out(study, str(error))
            else:
                yield found


def load_object(target: str) -> Any:
    """The object that ``module:object`` names.

    Raises:
        PluginError: If it does not import.
    """
    module, _, name = target.partition(":")
    try:
        return getattr(import_module(module), name)
    except Exception as error:
        raise PluginError(f"{target} does not load: {type(error).__name__}: {error}") from error
