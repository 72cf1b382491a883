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

# What a step does, by the first part of its name; {} are the other parts.
WORDS = {
    "texts": "reading the texts",
    "rank": "comparing detectors",
}
WORDS |= {"base": "preparing the base model", "score": "scoring text for {}"}
WORDS |= {
    "weigh": "selecting text for {}",
    "gate": "testing the base on {} text",
    "adapt": "adapting on {} text",
}
WORDS |= {"pilot": "trying objectives"}
WORDS |= {"finetune": "fine-tuning {1} on {0}", "baselines": "computing the baselines of {}"}
WORDS |= {
    "rate": "finding a learning rate for {1} on {0}",
    "model": "writing the classifier of {1} on {0}",
}
WORDS |= {"candidate": "fine-tuning {1} in another way, {0}"}
WORDS |= {"probe": "probing {1} on {0}", "retrieval": "searching by the vectors of {}"}
WORDS |= {"final": "choosing the model, {} included", "encoder": "keeping the adapted encoder"}
WORDS |= {"loss": "measuring {1} on held-out {0} text", "look": "looking at the results"}


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
    def words(self) -> str:
        """What it does, in words; the number of a repetition, from 1, and the seed follow."""
        first, *parts = self.name.split("/")
        notes = []
        if parts and parts[-1].startswith("seed-"):
            notes.append(f"seed {parts.pop().removeprefix('seed-')}")
        if parts and parts[-1] == FINAL:
            parts.pop()
            notes.append("all texts")
        if parts and parts[-1].isdigit():
            notes.insert(0, str(int(parts.pop()) + 1))
        words = WORDS.get(first, "")
        if not words or words.count("{") != len(parts):
            return self.name
        number = f" ({', '.join(notes)})" if notes else ""
        return words.format(*parts) + number

    @property
    def needs(self) -> tuple[str, ...]:
        """Names of the steps that it depends on."""
        return (*self.after, *_cells_in(dict(self.settings)))

    def arguments(self, outputs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings as JSON values, with each :class:`OutputOf` replaced by that step's output."""
        values: dict[str, Any] = json.loads(canonical(_resolve(dict(self.settings), outputs)))
        return values


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
