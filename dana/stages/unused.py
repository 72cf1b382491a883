"""Refuse settings that were given and that the chosen selector, or policy of weights, would ignore."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from dana.core.errors import ConfigError

if TYPE_CHECKING:
    from dana.stages.settings import RunSettings
    from dana.weighting.settings import WeighSettings

OF_RANKING = [f"ranking.{name}" for name in ("detectors", "seeds", "protocol", "folds", "prevalence")] + ["weigh.beta"]
# Of a selector: each setting, and what a selector that looks at it uses.
USES = {f"selection.{name}": name for name in ("encoder", "geometry", "general_share")}
USES |= {"detector": "detector", "selection.store": "encoder", "selection.store_dtype": "encoder"}
# Of the weights: settings, whether they are looked at, and beside which setting they are not.
WEIGH: list[tuple[tuple[str, ...], Callable[["WeighSettings"], bool], str]] = [
    (("gamma", "min_tail", "shrink", "stream", "budget"), lambda weigh: weigh.policy != "sigmoid", "policy"),
    (("sharpness", "midpoint"), lambda weigh: weigh.policy != "segments", "policy"),
    (("seed",), lambda weigh: weigh.policy == "sampled", "policy"),
    (("beta",), lambda weigh: weigh.budget is None, "budget"),
    (("beta",), lambda weigh: weigh.below is None, "below"),
    (("beta",), lambda weigh: weigh.policy != "sigmoid" or weigh.midpoint is None, "midpoint"),
    (("tokenizer",), lambda weigh: weigh.effective_budget.kind == "tokens", "budget"),
]


def refuse_unused(command: str, given: Mapping[str, str], settings: "RunSettings") -> None:
    """Refuse what ``score`` or ``weigh`` would ignore. What a recipe or the folder's memory says may be ignored.

    Args:
        command: Of dana.
        given: Full name of each setting that was given now, to how it was called.
        settings: All settings, whoever gave them.

    Raises:
        ConfigError: Naming the first that would be ignored, and what it does not go with.
    """
    if command == "score" and given.keys() & {*USES, *OF_RANKING}:
        _of_score(given, settings)
    for names, is_used, beside in WEIGH if command == "weigh" else ():
        for name in names:
            if f"weigh.{name}" in given and not is_used(settings.weigh):
                value = getattr(settings.weigh, beside)
                raise ConfigError(f"{given[f'weigh.{name}']} is not looked at with {beside}={value}")


def _of_score(given: Mapping[str, str], settings: "RunSettings") -> None:
    from dana.scoring.scoring import build_selector

    uses = build_selector(settings.selector_spec, settings.detector, settings.selection).uses
    is_window = settings.selection.units.startswith("window")  # which an encoder's tokenizer cuts
    for key, part in USES.items():
        if key in given and part not in uses and not (is_window and key == "selection.encoder"):
            raise ConfigError(f"{given[key]} is not looked at with selector={settings.selector_spec}")
    for key in OF_RANKING:
        if key in given and not ("detector" in uses and settings.detector == "auto"):
            spec = f"selector={settings.selector_spec} detector={settings.detector}"
            raise ConfigError(f"{given[key]} is not looked at with {spec}: no ranking chooses the detector")
