"""Describe a step of an experiment: a stage function, its keyword arguments, and the steps it depends on."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, is_dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints

from dana.core.artifacts import Artifact, canonical
from dana.core.schemas import FINAL
from dana.core.settings import load
from dana.core.studies import load_object


@dataclass(frozen=True)
class Kind:
    """What the steps do whose names begin with the same word.

    Attributes:
        words: It in words.
        names: How many names follow in the name of a step, before the index of a repetition.
    """

    words: str
    names: int = 0


# By the first part of the names of steps.
KINDS = {
    "baselines": Kind("computing baselines", 1),
    "probe": Kind("probing vectors", 2),
    "texts": Kind("reading texts"),
    "base": Kind("preparing the base"),
    "rank": Kind("comparing detectors"),
    "score": Kind("scoring text", 1),
    "weigh": Kind("selecting text", 1),
    "gate": Kind("testing the base on selected text", 1),
    "pilot": Kind("trying objectives"),
    "adapt": Kind("adapting", 1),
    "loss": Kind("measuring losses", 2),
    "retrieval": Kind("searching by vectors", 1),
    "rate": Kind("finding learning rates", 2),
    "finetune": Kind("fine-tuning", 2),
    "candidate": Kind("fine-tuning in other ways", 2),
    "model": Kind("writing classifiers", 2),
    "final": Kind("choosing the model", 1),
    "encoder": Kind("keeping the adapted encoder"),
    "look": Kind("looking at the results"),
}


@dataclass(frozen=True)
class OutputOf:
    """Placeholder in the settings of a step for the path or name that another step returns.

    Attributes:
        step: Name of the other step, which runs first.
    """

    step: str


@dataclass(frozen=True)
class Step:
    """One call of a stage function.

    A stage function takes keyword arguments (JSON values, paths or settings dataclasses), makes an
    artifact with :func:`dana.core.artifacts.make` and returns it or its path. ``make`` reuses an
    artifact with the same fingerprint.

    Attributes:
        name: Distinct in the run: words of letters, digits, ``_ . -``, joined by ``/``.
        stage: ``module:function``, for example ``dana.stages.weigh:weigh_stage``.
        settings: Keyword arguments; a :class:`OutputOf` is replaced by what that step returned.
        after: Names of steps that must be finished first, beside those of :class:`OutputOf`.
        labels: Columns of the table of results that say what the step stands for, such as task and
            arm.
        is_alone: Whether one process does it alone, so that several launched processes can each do
            another such step at a time.
        stops: Whether it runs alone, after all earlier steps of the run, and leaves out the later
            ones if it returns a reason.
        concludes: Whether it begins even when the time of the run is over, because it makes
            something of what is there.
    """

    name: str
    stage: str
    settings: Mapping[str, Any]
    after: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    is_alone: bool = False
    stops: bool = False
    concludes: bool = False

    @property
    def kind(self) -> str:
        """What steps like it do, in words; else the first part of its name."""
        first = self.name.partition("/")[0]
        return KINDS[first].words if first in KINDS else first

    @property
    def words(self) -> str:
        """What it does, in words; the number of a repetition, from 1, and the seed follow."""
        first, *parts = self.name.split("/")
        if first not in KINDS:
            return self.name
        names = parts[: KINDS[first].names]
        notes = [_as_note(part) for part in self.repetition]
        text = f"{self.kind}: {', '.join(names)}" if names else self.kind
        return f"{text} ({', '.join(notes)})" if notes else text

    @property
    def repetition(self) -> list[str]:
        """The last parts of its name: the index of an adaptation or fold, and the seed, as far as it has them."""
        first, *parts = self.name.split("/")
        return parts[KINDS[first].names :] if first in KINDS else []

    @property
    def needs(self) -> tuple[str, ...]:
        """Names of the steps that it depends on."""
        return (*self.after, *_cells_in(dict(self.settings)))

    def arguments(self, outputs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings as JSON values, with each :class:`OutputOf` replaced by that step's output."""
        values: dict[str, Any] = json.loads(canonical(_resolve(dict(self.settings), outputs)))
        return values


def _as_note(part: str) -> str:
    """Return a part of the repetition of a step as a note in words."""
    if part == FINAL:
        return "all texts"
    if part.isdigit():
        return str(int(part) + 1)
    return part.replace("seed-", "seed ")


def _cells_in(value: Any) -> Iterator[str]:
    """Yield the name of the step of each placeholder in a value, in lists and mappings, too."""
    if isinstance(value, OutputOf):
        yield value.step
    elif isinstance(value, dict):
        for item in value.values():
            yield from _cells_in(item)
    elif isinstance(value, list):
        for item in value:
            yield from _cells_in(item)


def _resolve(value: Any, outputs: Mapping[str, Any]) -> Any:
    """Replace the placeholders in a value by the outputs of their steps."""
    if isinstance(value, OutputOf):
        return outputs[value.step]
    if isinstance(value, dict):
        return {key: _resolve(item, outputs) for key, item in value.items()}
    if isinstance(value, list):
        return [_resolve(item, outputs) for item in value]
    return value


def call_stage(stage: str, arguments: Mapping[str, Any]) -> tuple[str, float | None]:
    """Call a stage function with JSON values, converted to paths and settings by its annotations.

    Returns:
        Path or name of the output, empty if there is none; and the seconds that making it took,
        even if it was reused, None if unknown.

    Raises:
        PluginError: If the function does not import.
    """
    function = load_object(stage)
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
    if Path not in kinds:
        return value
    if isinstance(value, list):
        return [Path(item) for item in value]
    return Path(value) if isinstance(value, str) else value
