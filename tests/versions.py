"""Pins of what each version of a component computes: its parameters with their defaults, and numbers on two seeds.

``PIN_VERSIONS=1 python -m pytest -k test_a_version_computes`` pins what is new: a component, or
another version of one. It changes no pin of a version that is there: numbers that change want a new
``version`` in the class.
"""

import inspect
import json
import os
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, get_args, get_type_hints

import numpy as np
import pytest

SEEDS = (0, 1)
RELATIVE = 1e-6  # of the largest number that one spec gives on a seed
# What is trained, or six layers deep, in single precision rounds otherwise on another CPU: 1e-5 was
# seen.
TRAINED = {"classifier": 1e-5, "etm": 1e-4, "minilm": 1e-5, "perplexity_gap": 1e-5}
Numbers = Mapping[str, Any]  # a spec, and what is computed with it


def components(group: str, in_studies: bool) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Name and class (or function that makes one) of every component of ours: of the core, or of the studies."""
    for entry in sorted(entry_points(group=group), key=lambda entry: entry.name):
        ours = entry.dist is None or entry.dist.name == "dana-lm"
        if ours and entry.value.startswith("dana.studies.") == in_studies:
            yield entry.name, entry.load()


def classes_of(component: Callable[..., Any]) -> list[type]:
    """The class of a component, or those that a function makes one of."""
    if not inspect.isfunction(component):
        return [component]
    value = get_type_hints(component)["return"]
    return list(get_args(value)) or [value]


def parameters(component: Callable[..., Any]) -> dict[str, str]:
    """Each parameter with its default, as text."""
    signature = inspect.signature(component).parameters.values()
    defaults = {
        one.name: "" if one.default is one.empty else repr(one.default) for one in signature
    }
    return {
        name: default for name, default in defaults.items() if name != "context"
    }  # the run's settings


def pin_of(
    version: int, defaults: dict[str, str], compute: Callable[[int], Numbers]
) -> dict[str, Any]:
    """What a version is known by: ``numbers`` has a list a seed for each spec."""
    by_seed = [compute(seed) for seed in SEEDS]
    specs = {spec: [_ten_digits(one[spec]) for one in by_seed] for spec in by_seed[0]}
    return {"version": version, "parameters": defaults, "numbers": specs}


def _ten_digits(values: Any) -> list[float]:
    return [
        float(f"{value:.10g}") for value in np.asarray(values, dtype=np.float64).ravel().tolist()
    ]


def difference(pin: dict[str, Any] | None, now: dict[str, Any], relative: float = RELATIVE) -> str:
    """What is wrong with a component, in a line; empty if it computes what its version always did."""
    if pin is None or pin["version"] != now["version"]:
        return f"version {now['version']} is not pinned: see tests/versions.py"
    under = f"under version {now['version']}"
    if pin["parameters"] != now["parameters"]:
        return f"other parameters {under}: {pin['parameters']}, now {now['parameters']}"
    if pin["numbers"].keys() != now["numbers"].keys():
        return f"pinned are {', '.join(pin['numbers'])}, now there are {', '.join(now['numbers'])}"
    for spec, seeds in pin["numbers"].items():
        for before, after in zip(seeds, now["numbers"][spec], strict=True):
            if len(before) != len(after):
                return f"{len(after)} numbers of {spec} {under}, were {len(before)}"
            off = np.abs(np.subtract(after, before)).max() / max(np.abs(before).max(), 1e-300)
            if not off <= relative:
                return f"other numbers of {spec} {under}: by {off:.1e} of the largest"
    return ""


def check_pin(file: Path, kind: str, name: str, now: dict[str, Any]) -> None:
    """Hold a component against its pin in a file; with ``PIN_VERSIONS``, pin a version that is not there."""
    pins = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    pin = pins.get(kind, {}).get(name)
    if os.environ.get("PIN_VERSIONS") and (pin is None or pin["version"] != now["version"]):
        pins.setdefault(kind, {})[name] = pin = now
        write_pins(file, pins)
    if wrong := difference(pin, now, TRAINED.get(name, RELATIVE)):
        pytest.fail(f"{kind}: {name}: {wrong}", pytrace=False)


def write_pins(file: Path, pins: dict[str, Any]) -> None:
    """Write pins sorted by kind and name, one value a line, so that a diff shows what changed."""
    ordered = {kind: dict(sorted(pins[kind].items())) for kind in sorted(pins)}
    file.write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")


def normal(seed: int, rows: int, columns: int) -> np.ndarray:
    """Float32 normal numbers, the same with every version of numpy: of two clouds, the second row for row shifted."""
    return (
        np.random.Generator(np.random.Philox(seed))
        .standard_normal((rows, columns))
        .astype(np.float32)
    )


def sentences(words: tuple[str, ...], count: int, seed: int) -> list[str]:
    """Texts of six random words."""
    draws = np.random.Generator(np.random.Philox(seed)).random((count, 6))
    return [" ".join(words[int(draw * len(words))] for draw in row) for row in draws]


def letters(texts: list[str]) -> list[int]:
    """Texts as numbers."""
    return [ord(letter) for text in texts for letter in f"{text}\n"]
