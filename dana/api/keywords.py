"""Arguments of a call, and what the run's folder remembers, to the settings that recipes and flags fill."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_origin, get_type_hints

from dana.api.inputs import Texts, as_sources
from dana.core.config import load, merge_sections, require
from dana.core.errors import ConfigError, suggestion
from dana.core.launch import processes
from dana.stages.remember import recalled
from dana.stages.settings import RunSettings, with_store
from dana.stages.unused import refuse_unused
from dana.tasks.finder import add_to_task_path

Folder = str | Path


def settings_of(
    function: str,
    run: Path | None,
    given: Mapping[str, Any],
    takes: Sequence[str],
    task: Texts | None = None,
    general: Texts | None = None,
) -> RunSettings:
    """Settings of a run: the defaults, over them what its folder remembers, over that the arguments of a call.

    Args:
        function: Name of the function that was called, which is that of a command.
        run: The run's folder; None for what needs none.
        given: The keyword arguments: names of keys as in a recipe, without their section; for a section within the
            section, a mapping.
        takes: The sections of :class:`~dana.stages.settings.RunSettings`, and single keys of it (``data``) or of
            others (``weigh.beta``), that the function looks at.
        task: Text of the task, if it was given; in memory, it is written into the run's folder.
        general: General text, the same.

    Raises:
        ConfigError: If a keyword is none of them or would be ignored, or its value is not allowed.
        DanaError: See :func:`dana.api.inputs.as_sources`.
    """
    places = _places(takes)
    values: dict[str, Any] = {}
    called = {}
    for name, value in given.items():
        if name not in places:
            raise ConfigError(f"dana.{function}: unknown keyword {name!r}{suggestion(name, places)}")
        *section, key, is_list = places[name]
        inner = values.setdefault(section[0], {}) if section else values
        inner[key] = _plain([value] if is_list and isinstance(value, Folder) else value)
        called[".".join((*section, key))] = name
    if run is not None:
        values = {**merge_sections(recalled(run, called), values), "out": str(run)}
    settings = with_store(load(RunSettings, values, origin=f"dana.{function}"))
    add_to_task_path(settings.task_path)
    settings = _with_texts(settings, task, general)
    refuse_unused(function, called, settings)
    return settings


def _with_texts(settings: RunSettings, task: Texts | None, general: Texts | None) -> RunSettings:
    """The settings with both texts named, those in memory by the files that hold them now."""
    run, inputs = Path(settings.out), settings.inputs
    if general is not None:
        skips = settings.on_bad_record == "skip"
        settings = replace(settings, general=as_sources("general", general, run, run / "corpus", inputs, skips))
    if task is not None:
        sources = as_sources("task", task, run, run / "task", inputs)
        if len(sources) > 1:
            raise ConfigError(f"task: {len(sources)} paths; give one: a file, glob or folder")
        settings = replace(settings, task=sources[0])
    return settings


def _places(takes: Sequence[str]) -> dict[str, tuple]:
    """Keyword to the way to its setting, and whether that is a list; of two with one name the first counts."""
    hints = get_type_hints(RunSettings)
    found: dict[str, tuple] = {}
    for place in takes:
        section, dot, key = place.partition(".")
        if not is_dataclass(hints[section]):
            found[section] = (section, get_origin(hints[section]) is list)
            continue
        types = get_type_hints(hints[section])
        for item in fields(hints[section]):
            if not dot or item.name == key:
                found.setdefault(item.name, (section, item.name, get_origin(types[item.name]) is list))
    return found


def _plain(value: Any) -> Any:
    """Paths, tuples, ranges, mappings, and numbers and arrays of numpy as YAML has them."""
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, tuple | range | list):
        return [_plain(inner) for inner in value]
    if type(value).__module__ == "numpy" and hasattr(value, "tolist"):  # of a scalar, too
        return value.tolist()
    return str(value) if isinstance(value, Path) else value


@contextmanager
def run_folder(out: Folder | None) -> Iterator[Path]:
    """The run's folder; without a name a temporary one, which is removed in the end.

    Raises:
        ConfigError: If `out` is no folder's name; or if several processes were launched, which can only share a folder
            that has a name.
    """
    if out is not None:
        require(isinstance(out, str | Path) and bool(str(out).strip()), "out", out, "a folder")
        there = next((place for place in (Path(out), *Path(out).parents) if place.exists()), None)
        require(there is None or there.is_dir(), "out", str(out), f"a folder, and {there} is a file")
        yield Path(out)
        return
    if processes() > 1:
        raise ConfigError("out=None: several processes share a run's folder; name one")
    with TemporaryDirectory(prefix="dana-") as folder:
        yield Path(folder)
