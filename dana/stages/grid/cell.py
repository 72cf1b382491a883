"""Describe a cell of an experiment: a stage function, its keyword arguments, and the cells it depends on."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, get_args, get_type_hints

from dana.core.artifacts import Artifact, canonical
from dana.core.settings import load

# What a cell does, by the first part of its name; {} are the other parts.
WORDS = {
    "harvest": "reading the installed packages",
    "texts": "reading the texts",
    "rank": "comparing detectors",
}
WORDS |= {"base": "preparing the base model", "score": "scoring text for {}"}
WORDS |= {
    "weigh": "selecting text for {}",
    "gate": "testing the base on {} text",
    "adapt": "adapting on {} text",
}
WORDS |= {"finetune": "fine-tuning {1} on {0}", "floors": "computing the floors of {}"}
WORDS |= {"loss": "measuring {1} on held-out {0} text", "look": "looking at the results"}


@dataclass(frozen=True)
class OutputOf:
    """Placeholder in the settings of a cell for the path or name that another cell returns.

    Attributes:
        cell: Name of the other cell, which runs first.
    """

    cell: str


@dataclass(frozen=True)
class Cell:
    """One call of a stage function.

    A stage function takes keyword arguments (JSON values, paths or settings dataclasses), makes an
    artifact with :func:`dana.core.artifacts.make` and returns it or its path. ``make`` reuses an
    artifact with the same fingerprint.

    Attributes:
        name: Distinct in the grid: words of letters, digits, ``_ . -``, joined by ``/``.
        stage: ``module:function``, for example ``dana.stages.weigh:weigh_stage``.
        settings: Keyword arguments; a :class:`OutputOf` is replaced by what that cell returned.
        after: Names of cells that must be finished first, beside those of :class:`OutputOf`.
        labels: Columns of the table of results that say what the cell stands for, such as task and
            arm.
        stops: Whether it runs alone, after all earlier cells of the grid, and leaves out the later
            ones if it returns a reason.
    """

    name: str
    stage: str
    settings: Mapping[str, Any]
    after: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    stops: bool = False

    @property
    def words(self) -> str:
        """What it does, in words; the number of a repetition follows, from 1."""
        first, *rest = self.name.split("/")
        number = f" ({int(rest.pop()) + 1})" if rest and rest[-1].isdigit() else ""
        words = WORDS.get(first, "")
        return (
            words.format(*rest) + number if words and words.count("{") == len(rest) else self.name
        )

    @property
    def needs(self) -> tuple[str, ...]:
        """Names of the cells that it depends on."""
        return (
            *self.after,
            *(value.cell for value in self.settings.values() if isinstance(value, OutputOf)),
        )

    def arguments(self, outputs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings as JSON values, with each :class:`OutputOf` replaced by that cell's output."""
        items = self.settings.items()
        arguments = {
            key: outputs[value.cell] if isinstance(value, OutputOf) else value
            for key, value in items
        }
        return json.loads(canonical(arguments))


def call_stage(stage: str, arguments: Mapping[str, Any]) -> tuple[str, float | None]:
    """Call a stage function with JSON values, converted to paths and settings by its annotations.

    Returns:
        Path or name of the output, empty if there is none; and the seconds that making it took,
        even if it was reused, None if unknown.
    """
    module, _, name = stage.partition(":")
    function = getattr(import_module(module), name)
    hints = get_type_hints(function)
    values = {
        key: _convert(value, hints.get(key), f"{stage} {key}") for key, value in arguments.items()
    }
    output = function(**values)
    if isinstance(output, Artifact):
        return str(output.path), output.manifest.get("seconds")
    return str(output) if isinstance(output, str | Path) else "", None


def _convert(value: Any, annotation: Any, origin: str) -> Any:
    kinds = (annotation, *get_args(annotation))
    settings = next((kind for kind in kinds if is_dataclass(kind) and isinstance(kind, type)), None)
    if settings is not None and isinstance(value, dict):
        return load(settings, value, origin=origin)
    return Path(value) if Path in kinds and isinstance(value, str) else value
