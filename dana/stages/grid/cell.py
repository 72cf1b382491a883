"""A cell of an experiment: the name of a stage function, its keyword settings, and the cells it depends on."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, get_args, get_type_hints

from dana.core.artifacts import Artifact, canonical
from dana.core.config import load


@dataclass(frozen=True)
class Made:
    """In the settings of a cell: the path or name that another cell returns.

    Attributes:
        cell: The other cell's name; this one depends on it.
    """

    cell: str


@dataclass(frozen=True)
class Cell:
    """One call of a stage function.

    A stage function takes keyword arguments that JSON can hold, paths or settings dataclasses, makes an artifact by
    :func:`dana.core.artifacts.make` and returns it, or its path. ``make`` decides by the fingerprint of everything the
    content depends on whether what is there is reused.

    Attributes:
        name: Distinct in the grid: words of letters, digits, ``_ . -``, joined by ``/``.
        stage: ``module:function``, for example ``dana.stages.weigh:weigh_stage``.
        settings: Keyword arguments; a :class:`Made` is replaced by what that cell returned.
        after: Names of cells that must be finished first, beside those of :class:`Made`.
        labels: Columns of the table of results that say what the cell stands for, such as task and arm.
        kind: Cells of one kind take times in proportion to their `amount`; empty takes the stage.
        amount: Units of work, for the estimate of the time left.
    """

    name: str
    stage: str
    settings: Mapping[str, Any]
    after: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    kind: str = ""
    amount: float = 1.0

    @property
    def needs(self) -> tuple[str, ...]:
        """Names of the cells it depends on, each once."""
        made = [value.cell for value in self.settings.values() if isinstance(value, Made)]
        return tuple(dict.fromkeys([*self.after, *made]))

    def arguments(self, made: Mapping[str, Any]) -> dict[str, Any]:
        """The settings as plain JSON values, each :class:`Made` replaced by the entry of its cell."""
        given = {key: made[value.cell] if isinstance(value, Made) else value for key, value in self.settings.items()}
        return json.loads(canonical(given))


def call_stage(stage: str, arguments: Mapping[str, Any]) -> tuple[str, float | None]:
    """Call a stage function with plain values, which its annotations turn into paths and settings.

    Returns:
        The path or name of what it made, empty if it returns none; and the seconds that making the artifact took, even
        if it was reused, None if that is not known.
    """
    module, _, name = stage.partition(":")
    function = getattr(import_module(module), name)
    hints = get_type_hints(function)
    made = function(**{key: _typed(value, hints.get(key), f"{stage} {key}") for key, value in arguments.items()})
    if isinstance(made, Artifact):
        return str(made.path), made.manifest.get("seconds")
    return str(made) if isinstance(made, str | Path) else "", None


def _typed(value: Any, annotation: Any, origin: str) -> Any:
    kinds = (annotation, *get_args(annotation))
    settings = next((kind for kind in kinds if is_dataclass(kind) and isinstance(kind, type)), None)
    if settings is not None and isinstance(value, dict):
        return load(settings, value, origin=origin)
    return Path(value) if Path in kinds and isinstance(value, str) else value
