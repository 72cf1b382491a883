"""Convert the arguments of a call, and the recipe of the run's folder, to settings."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import wraps
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ParamSpec, TypeVar, cast

from dana.api.inputs import Texts, as_sources
from dana.core.config import merge_sections, require
from dana.core.errors import ConfigError, suggestion
from dana.core.launch import processes
from dana.core.logging import messages
from dana.core.settings import hints_of, section_in, takes_list
from dana.stages.recipe import read_run_recipe
from dana.stages.settings import NO_ARMS, RunSettings, load_settings

TEXTS_OF_A_CALL = ("task", "pool", "out")  # arguments of the functions beside their settings
Folder = str | Path
P = ParamSpec("P")
R = TypeVar("R")


def settings_of(
    function: str,
    run: Path | None,
    keywords: Mapping[str, Any],
    takes: Sequence[str],
    task: Texts | None = None,
    pool: Texts | None = None,
    remake: bool = False,
) -> RunSettings:
    """Build the settings of a call: its keywords override the recipe of the folder, and this the defaults.

    Args:
        function: Name of the function, which is that of a command.
        run: The run's folder, or None.
        keywords: Keyword arguments: keys of a recipe without their section; a nested section is a
            mapping.
        takes: The sections of :class:`~dana.stages.settings.RunSettings`, and single keys of it
            (``data``) or of others (``weigh.beta``), that the function uses.
        task: Text of the task; texts in memory are written to the run's folder.
        pool: Pool text, likewise.
        remake: Whether texts in memory may be others than those that the folder was made from.

    Raises:
        ConfigError: If a keyword is unknown, or its value is not allowed.
        DanaError: See :func:`dana.api.inputs.as_sources`.
    """
    settings_keys = _setting_keys(takes)
    values: dict[str, Any] = {}
    for name, value in keywords.items():
        if name not in settings_keys:
            raise ConfigError(
                f"dana.{function}: unknown keyword {name!r}{suggestion(name, [*settings_keys, *TEXTS_OF_A_CALL])}"
            )
        *section, key, is_list = settings_keys[name]
        inner = values.setdefault(section[0], {}) if section else values
        inner[key] = plain_value([value] if is_list and isinstance(value, Folder) else value)
    if run is not None:
        require("\0" not in str(run), "out", str(run), "a path")
        of_folder = read_run_recipe(run, full_names(keywords, takes))
        values = {**merge_sections(of_folder, values), "out": str(run)}
    if function == "adapt":
        values["arms"] = NO_ARMS
    settings = load_settings(values, origin=f"dana.{function}")
    return _with_texts(settings, task, pool, remake)


def full_names(keywords: Mapping[str, Any], takes: Sequence[str]) -> set[str]:
    """Return the full names of the settings that keywords fill; see :func:`settings_of`."""
    settings_keys = _setting_keys(takes)
    return {".".join(settings_keys[name][:-1]) for name in keywords}


def _with_texts(
    settings: RunSettings, task: Texts | None, pool: Texts | None, remake: bool
) -> RunSettings:
    """Add the sources of both texts to the settings; texts in memory are written to files."""
    run, inputs = Path(settings.out), settings.inputs
    if pool is not None:
        skips = settings.on_bad_record == "skip"
        artifact = None if remake else run / "pool"
        sources = as_sources("pool", pool, run, artifact, inputs, skips)
        settings = replace(settings, pool=sources)
    if task is not None:
        artifact = None if remake else run / "target"
        sources = as_sources("task", task, run, artifact, inputs)
        if len(sources) > 1:
            raise ConfigError(f"task: {len(sources)} paths; give one: a file, glob or folder")
        settings = replace(settings, task=sources[0])
    return settings


def _setting_keys(takes: Sequence[str]) -> dict[str, tuple[Any, ...]]:
    """Map each keyword to the path of its setting and whether that is a list; the first of equal names counts."""
    hints = hints_of(RunSettings)
    keys: dict[str, tuple[Any, ...]] = {}
    for name in takes:
        section, _, key = name.partition(".")
        model = section_in(hints[section])
        if model is None:
            keys[section] = (section, takes_list(hints[section]))
            continue
        for item, hint in hints_of(model).items():
            if key in ("", item):
                keys.setdefault(item, (section, item, takes_list(hint)))
    return keys


def plain_value(value: Any) -> Any:
    """Convert paths, tuples, ranges, mappings and numpy values to YAML's types."""
    if isinstance(value, Mapping):
        return {key: plain_value(inner) for key, inner in value.items()}
    if isinstance(value, tuple | range | list):
        return [plain_value(inner) for inner in value]
    if type(value).__module__ == "numpy" and hasattr(value, "tolist"):  # numpy scalars have it, too
        return value.tolist()
    return str(value) if isinstance(value, Path) else value


def with_messages(function: Callable[P, R]) -> Callable[P, R]:
    """Let a public function show the messages and progress bars of its command, or only errors with ``quiet=True``."""

    @wraps(function)
    def call(*arguments: Any, quiet: bool = False, **keywords: Any) -> R:
        with messages(quiet):
            return function(*arguments, **keywords)

    signature = inspect.signature(function)
    switch = inspect.Parameter(
        "quiet", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=bool
    )
    parameters = sorted(
        [*signature.parameters.values(), switch], key=lambda parameter: parameter.kind
    )
    call.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return cast(Callable[P, R], call)


@contextmanager
def run_folder(out: Folder | None) -> Iterator[Path]:
    """Yield the run's folder; None uses a temporary folder that is removed afterwards.

    Raises:
        ConfigError: If `out` is no folder, or is None though several processes were launched.
    """
    if out is not None:
        require(isinstance(out, str | Path) and bool(str(out).strip()), "out", out, "a folder")
        parent = next((path for path in (Path(out), *Path(out).parents) if path.exists()), None)
        require(
            parent is None or parent.is_dir(), "out", str(out), f"a folder, but {parent} is a file"
        )
        yield Path(out)
        return
    if processes() > 1:
        raise ConfigError("out=None: several processes need one folder; give out")
    with TemporaryDirectory(prefix="dana-") as folder:
        yield Path(folder)
