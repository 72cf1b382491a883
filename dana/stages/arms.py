"""The arms of a comparison: a recipe's ``arms`` to the text each is adapted on and the settings of its weights."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dana.core.config import load, require
from dana.core.errors import ConfigError, suggestion
from dana.weighting.settings import WeighSettings

NAME = re.compile(r"[A-Za-z0-9][\w.-]*", re.ASCII)
KEYS = ("selector", "detector", "weigh")
BESIDE = ("-seeds", "-model")  # of what fine-tuning writes beside an arm's folder
TEXTS = {"base": "the model as it is", "general": "all general text", "task": "the task's own text to fit on"}
ALLOWED = f"{', '.join(TEXTS)}, or a mapping with any of {', '.join(KEYS)}"
# Arms that a recipe may list by name alone; an empty mapping is the selector and the weights of the run.
READY: dict[str, Any] = {
    "base": "base",
    "general": "general",
    "random": {"selector": "random"},
    "dana": {},
    "tapt": "task",
}


@dataclass(frozen=True)
class Arm:
    """One arm.

    Attributes:
        name: A word that names its folder.
        text: ``base`` (no adaptation), ``general``, ``task`` (Gururangan et al. 2020, TAPT) or ``selected``.
        selector: Of selected text: the selector's spec.
        detector: Of selected text: the detector's spec, or None for the run's.
        weigh: Of selected text: how scores become weights.
    """

    name: str
    text: str
    selector: str = ""
    detector: str | None = None
    weigh: WeighSettings | None = None


def parse_arms(given: Sequence[str] | Mapping[str, Any], selector: str, weigh: WeighSettings) -> tuple[Arm, ...]:
    """Read a list of ready-made arms, or a mapping of names to what each is.

    Args:
        given: ``[general, random]``, or ``{mine: {selector: cascade, weigh: {beta: 0.1}}, tapt: task}``.
        selector: The run's, for arms that name none.
        weigh: The run's; an arm's ``weigh`` says what differs.

    Raises:
        ConfigError: Naming the arm and what is allowed.
    """
    require(isinstance(given, list | tuple | Mapping), "arms", given, "a list of names, or a mapping")
    if not isinstance(given, Mapping):
        for name in given:
            require(name in READY, "arms", name, f"among {', '.join(READY)}, or be described in a mapping")
        require(len(set(given)) == len(given), "arms", list(given), "distinct")
        given = {name: READY[name] for name in given}
    arms = tuple(_arm(name, about, selector, weigh) for name, about in given.items())
    names = {"base", *(arm.name for arm in arms)}
    for taken in (f"{name}{suffix}" for name in names for suffix in BESIDE):
        require(taken not in names, "arms", taken, "another name: the fine-tuning of the arm before the - uses it")
    return arms


def _arm(name: str, about: Any, selector: str, weigh: WeighSettings) -> Arm:
    key = f"arms.{name}"
    fits = isinstance(name, str) and NAME.fullmatch(name) is not None
    require(fits, "arms", name, "named by letters, digits, _ . and -")
    if isinstance(about, str) and about in TEXTS:
        require(name != "base" or about == "base", key, about, "base: it is what all others are compared with")
        return Arm(name, about)
    require(isinstance(about, Mapping) and name != "base", key, about, "base" if name == "base" else ALLOWED)
    for unknown in about.keys() - set(KEYS):
        raise ConfigError(f"{key}: unknown key {unknown!r}{suggestion(str(unknown), KEYS)}")
    named = {name: about[name] for name in ("selector", "detector") if name in about}
    for part, value in named.items():
        require(isinstance(value, str) and bool(value.strip()), f"{key}.{part}", value, f"a {part}'s spec")
    usual = "detector" if selector == "auto" and "detector" in named else selector
    own = named.get("selector", usual)
    return Arm(name, "selected", own, named.get("detector"), _weigh(key, about, weigh))


def _weigh(key: str, about: Mapping[str, Any], weigh: WeighSettings) -> WeighSettings:
    differing = about.get("weigh", {})
    require(isinstance(differing, Mapping), f"{key}.weigh", differing, "a mapping of settings")
    if not differing:
        return weigh
    usual = asdict(weigh)
    if {"beta", "budget", "below"} & differing.keys():  # one of them says how much is kept
        usual |= {"budget": None, "below": None}
    return load(WeighSettings, {**usual, **differing}, origin=f"{key}.weigh")
