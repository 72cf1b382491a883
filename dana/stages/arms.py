"""Parse the arms of a recipe: the text that each arm is adapted on, and how it is selected."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dana.core.config import load, require
from dana.core.errors import ConfigError, suggestion
from dana.weighting.settings import WeighSettings

NAME = re.compile(r"[A-Za-z0-9][\w.-]*", re.ASCII)
KEYS = ("selector", "detector", "weigh")
BESIDE = ("-seeds", "-model")  # suffixes of the folders that fine-tuning writes beside an arm's
TEXTS = {"base": "the model as it is", "general": "all general text", "task": "the task's own text to fit on"}
ALLOWED = f"{', '.join(TEXTS)}, or a mapping with any of {', '.join(KEYS)}"
# Arms that a recipe can list by name; an empty mapping uses the selector and the weights of the run.
READY: dict[str, Any] = {
    "base": "base",
    "general": "general",
    "random": {"selector": "random"},
    "dana": {},
    "tapt": "task",
}


@dataclass(frozen=True)
class Arm:
    """One arm of a comparison; the last three fields are for selected text.

    Attributes:
        name: Name, also of its folder.
        text: ``base`` (no adaptation), ``general``, ``task`` (Gururangan et al. 2020, TAPT) or ``selected``.
        selector: Spec of the selector.
        detector: Spec of the detector; None takes the run's.
        weigh: How scores become weights.
    """

    name: str
    text: str
    selector: str = ""
    detector: str | None = None
    weigh: WeighSettings | None = None


def parse_arms(spec: Sequence[str] | Mapping[str, Any], selector: str, weigh: WeighSettings) -> tuple[Arm, ...]:
    """Parse a list of ready-made arms, or a mapping of names to values.

    Args:
        spec: ``[general, random]``, or ``{mine: {selector: cascade, weigh: {beta: 0.1}}, tapt: task}``.
        selector: Selector of the run, for arms without one.
        weigh: Weight settings of the run; an arm's ``weigh`` overrides them.

    Raises:
        ConfigError: If an arm is unknown or wrongly described; names the arm and what is allowed.
    """
    require(isinstance(spec, list | tuple | Mapping), "arms", spec, "a list of names, or a mapping")
    if not isinstance(spec, Mapping):
        for name in spec:
            require(name in READY, "arms", name, f"among {', '.join(READY)}, or be described in a mapping")
        require(len(set(spec)) == len(spec), "arms", list(spec), "distinct")
        spec = {name: READY[name] for name in spec}
    arms = tuple(_arm(name, value, selector, weigh) for name, value in spec.items())
    names = {"base", *(arm.name for arm in arms)}
    for folder in (f"{name}{suffix}" for name in names for suffix in BESIDE):
        require(folder not in names, "arms", folder, "another name: the fine-tuning of the arm before the - uses it")
    return arms


def _arm(name: str, item: Any, selector: str, weigh: WeighSettings) -> Arm:
    key = f"arms.{name}"
    fits = isinstance(name, str) and NAME.fullmatch(name) is not None
    require(fits, "arms", name, "named by letters, digits, _ . and -")
    if isinstance(item, str) and item in TEXTS:
        require(name != "base" or item == "base", key, item, "base: it is what all others are compared with")
        return Arm(name, item)
    require(isinstance(item, Mapping) and name != "base", key, item, "base" if name == "base" else ALLOWED)
    for unknown in item.keys() - set(KEYS):
        raise ConfigError(f"{key}: unknown key {unknown!r}{suggestion(str(unknown), KEYS)}")
    specs = {name: item[name] for name in ("selector", "detector") if name in item}
    for part, spec in specs.items():
        require(isinstance(spec, str) and bool(spec.strip()), f"{key}.{part}", spec, f"a {part}'s spec")
    usual = "detector" if selector == "auto" and "detector" in specs else selector
    return Arm(name, "selected", specs.get("selector", usual), specs.get("detector"), _weigh(key, item, weigh))


def _weigh(key: str, value: Mapping[str, Any], weigh: WeighSettings) -> WeighSettings:
    differing = value.get("weigh", {})
    require(isinstance(differing, Mapping), f"{key}.weigh", differing, "a mapping of settings")
    if not differing:
        return weigh
    usual = asdict(weigh)
    if {"beta", "budget", "below"} & differing.keys():  # an arm's own amount replaces the run's
        usual |= {"budget": None, "below": None}
    return load(WeighSettings, {**usual, **differing}, origin=f"{key}.weigh")
