"""Parse the arms of a recipe: the mixture of text of each, how its text is selected, and what it starts from."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from dana.core.config import merge_sections, require
from dana.core.errors import ConfigError, suggestion
from dana.core.settings import load
from dana.train.settings import UNLABELLED, AdaptSettings, check_mix
from dana.weighting.settings import WeighSettings

NAME = re.compile(r"[A-Za-z0-9][\w.+-]*", re.ASCII)
KEYS = ("mix", "after", "selector", "detector", "weigh", "adapt")
BESIDE = ("-seeds", "-model")  # suffixes of the folders that fine-tuning writes beside an arm's
TEXTS: dict[str, dict[str, float]] = {
    "base": {},
    "pool": {"pool": 1.0},
    "task": {"task": 1.0},
    UNLABELLED: {UNLABELLED: 1.0},
}
ALLOWED = f"{', '.join(TEXTS)}, or a mapping with any of {', '.join(KEYS)}"
SHARE = 0.3  # of the task's own text beside selected text; other shares were not tried
# Arms that a recipe can list by name; an empty mapping uses the selector and the weights of the
# run.
READY: dict[str, Any] = {
    "base": "base",
    "pool": "pool",
    "random": {"selector": "random"},
    "dana": {},
    "task": "task",
    UNLABELLED: UNLABELLED,
    "task+random": {"mix": {"task": SHARE, "selected": 1 - SHARE}, "selector": "random"},
    "task+dana": {"mix": {"task": SHARE, "selected": 1 - SHARE}},
}


@dataclass(frozen=True)
class Arm:
    """One arm of a comparison; selector, detector and weights are for selected text.

    Attributes:
        name: Name, also of its folder.
        mix: Shares of the predicted tokens by text: ``selected``, ``task`` (Gururangan et al. 2020:
            TAPT alone, DAPT with TAPT beside the others), ``unlabelled`` (the task's own texts
            without labels) and ``pool``; empty for the model as it is.
        after: The arm whose adapted model it starts from; empty for the base.
        adapt: Settings of the training. Its ``tokens`` and phases are of the arm alone, without
            those of ``after``.
        selector: Spec of the selector.
        detector: Spec of the detector; None takes the run's.
        weigh: How scores become weights.
    """

    name: str
    mix: Mapping[str, float] = field(default_factory=dict)
    after: str = ""
    adapt: AdaptSettings = field(default_factory=AdaptSettings)
    selector: str = ""
    detector: str | None = None
    weigh: WeighSettings | None = None

    @property
    def is_adapted(self) -> bool:
        """Whether a model is trained for the arm; else its model is the base."""
        return bool(self.mix)

    @property
    def selects(self) -> bool:
        """Whether it is adapted on selected text."""
        return "selected" in self.mix

    @property
    def reads_target(self) -> bool:
        """Whether the target text decides what it is adapted on."""
        return "selected" in self.mix or "task" in self.mix

    @property
    def is_unlabelled(self) -> bool:
        """Whether it is adapted on the task's texts without labels, and on nothing else."""
        return set(self.mix) == {UNLABELLED}


def parse_arms(
    spec: Sequence[str] | Mapping[str, Any],
    selector: str,
    weigh: WeighSettings,
    adapt: AdaptSettings,
) -> tuple[Arm, ...]:
    """Parse a list of ready-made arms, or a mapping of names to values.

    Args:
        spec: ``[pool, random]``, or ``{mine: {selector: cascade, weigh: {beta: 0.1}}, task:
            task}``.
        selector: Selector of the run, for arms without one.
        weigh: Weight settings of the run; an arm's ``weigh`` overrides them.
        adapt: Training settings of the run; an arm's ``adapt`` overrides them, and its ``tokens``
            are the whole budget of the arm: those of the arms that it comes after are taken off, of
            phases from the first on. A mixture of the arm replaces those of the run's phases.

    Raises:
        ConfigError: If an arm is unknown or wrongly described; names the arm and what is allowed.
    """
    require(isinstance(spec, list | tuple | Mapping), "arms", spec, "a list of names, or a mapping")
    if not isinstance(spec, Mapping):
        for name in spec:
            require(
                name in READY,
                "arms",
                name,
                f"among {', '.join(READY)}, or be described in a mapping",
            )
        require(len(set(spec)) == len(spec), "arms", list(spec), "distinct")
        spec = {name: READY[name] for name in spec}
    arms = {name: _arm(name, value, selector, weigh, adapt) for name, value in spec.items()}
    for folder in (f"{name}{suffix}" for name in {"base", *arms} for suffix in BESIDE):
        require(
            folder not in arms,
            "arms",
            folder,
            "another name: the fine-tuning of the arm before the - uses it",
        )
    return tuple(_rest_of_budget(arm, arms) for arm in arms.values())


def _arm(name: str, item: Any, selector: str, weigh: WeighSettings, adapt: AdaptSettings) -> Arm:
    key = f"arms.{name}"
    fits = isinstance(name, str) and NAME.fullmatch(name) is not None
    require(fits, "arms", name, "named by letters, digits, _ . + and -")
    if isinstance(item, str) and item in TEXTS:
        require(
            name != "base" or item == "base",
            key,
            item,
            "base: it is what all others are compared with",
        )
        return Arm(name, TEXTS[item], adapt=_with_mix(adapt, TEXTS[item]))
    require(
        isinstance(item, Mapping) and name != "base",
        key,
        item,
        "base" if name == "base" else ALLOWED,
    )
    for unknown in item.keys() - set(KEYS):
        raise ConfigError(f"{key}: unknown key {unknown!r}{suggestion(str(unknown), KEYS)}")
    specs = {part: item[part] for part in ("selector", "detector", "after") if part in item}
    for part, spec in specs.items():
        require(
            isinstance(spec, str) and bool(spec.strip()),
            f"{key}.{part}",
            spec,
            f"a {part}'s spec or name",
        )
    for part in ("mix", "weigh", "adapt"):
        require(
            isinstance(item.get(part, {}), Mapping), f"{key}.{part}", item.get(part), "a mapping"
        )
    mix = item.get("mix") or adapt.mix or {"selected": 1.0}
    check_mix(f"{key}.mix", mix)
    usual = "detector" if selector == "auto" and "detector" in specs else selector
    training = item.get("adapt", {})
    for part, what in {
        "seed": "that of the run, which grows with the adaptation",
        "mix": f"{key}.mix",
    }.items():
        require(part not in training, f"{key}.adapt.{part}", training.get(part), what)
    settings = _with_mix(adapt, mix) if item.get("mix") else replace(adapt, mix=mix)
    settings = _with_differing(
        settings, training, {"steps", "tokens", "epochs", "phases"}, f"{key}.adapt"
    )
    settings = replace(settings, mix=mix)
    mix = settings.total_mix
    arm = Arm(name, mix, specs.get("after", ""), settings)
    if not arm.selects:
        for part in ("selector", "detector", "weigh"):
            require(
                part not in item,
                f"{key}.{part}",
                item.get(part),
                f"absent: mix={mix} has no selected text",
            )
        return arm
    weights = _with_differing(
        weigh, item.get("weigh", {}), {"beta", "budget", "below"}, f"{key}.weigh"
    )
    return replace(
        arm, selector=specs.get("selector", usual), detector=specs.get("detector"), weigh=weights
    )


def _with_mix(settings: AdaptSettings, mix: Mapping[str, float]) -> AdaptSettings:
    """Set one mixture for all phases."""
    return replace(
        settings, mix=dict(mix), phases=[replace(phase, mix={}) for phase in settings.phases]
    )


def _with_differing(
    settings: Any, differing: Mapping[str, Any], amounts: set[str], origin: str
) -> Any:
    """Override settings by those in which an arm differs; its own amount replaces the run's, stated in another way."""
    usual = asdict(settings)
    if any(differing.get(name) not in (None, []) for name in amounts):
        # beta is a number always; the other amounts override it
        usual = {name: value for name, value in usual.items() if name not in amounts - {"beta"}}
    return load(type(settings), merge_sections(usual, dict(differing)), origin=origin)


def _rest_of_budget(arm: Arm, arms: Mapping[str, Arm]) -> Arm:
    """Take the tokens of the arms that an arm comes after off its own, so that the totals of all arms compare."""
    if not arm.after:
        return arm
    key = f"arms.{arm.name}"
    path = {arm.name}
    before = arm
    while before.after:
        others = [name for name, other in arms.items() if other.mix and name not in path]
        what = f"another arm with text: {', '.join(others) or 'there is none'}"
        require(before.after in others, f"arms.{before.name}.after", before.after, what)
        before = arms[before.after]
        path.add(before.name)
    first = arms[arm.after].adapt.tokens
    total = arm.adapt.tokens
    for name, tokens in ((arm.after, first), (arm.name, total)):
        require(
            tokens is not None,
            f"arms.{name}.adapt.tokens",
            tokens,
            f"set, as {arm.name} comes after {arm.after}",
        )
    more = f"more than the {first:,} of {arm.after}, which count in it; give {arm.after} fewer by its own adapt"
    require(total > first, f"{key}.adapt.tokens", total, more)  # type: ignore[operator]
    remaining = arm.adapt.without_first(first)  # type: ignore[arg-type]
    return replace(arm, adapt=remaining, mix=remaining.total_mix)
