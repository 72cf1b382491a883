"""Refuse settings that have no effect with the chosen weight policy; log those that the chosen selector ignores."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from dana.core.errors import ConfigError
from dana.core.logging import get_logger

if TYPE_CHECKING:
    from dana.stages.settings import RunSettings
    from dana.weighting.settings import WeighSettings

log = get_logger(__name__)

OF_RANKING = [
    f"ranking.{name}" for name in ("detectors", "seeds", "protocol", "folds", "prevalence")
] + ["weigh.beta"]
# Settings of a selector, and the component that a selector must use for the setting to have an
# effect.
USES = {f"selection.{name}": name for name in ("encoder", "geometry", "general_share")}
USES |= {"detector": "detector", "selection.store": "encoder", "selection.store_dtype": "encoder"}
# Settings of weights, when they have an effect, and the setting that decides this.
WEIGH: list[tuple[tuple[str, ...], Callable[["WeighSettings"], bool], str]] = [
    (
        ("gamma", "min_tail", "shrink", "stream", "budget"),
        lambda weigh: weigh.policy != "sigmoid",
        "policy",
    ),
    (("sharpness", "midpoint"), lambda weigh: weigh.policy != "segments", "policy"),
    (("seed",), lambda weigh: weigh.policy == "sampled" or weigh.is_auto, "policy"),
    (
        ("beta",),
        lambda weigh: (
            weigh.budget is None or (weigh.policy == "sampled" and weigh.midpoint is None)
        ),
        "budget",
    ),
    (("beta",), lambda weigh: weigh.below is None, "below"),
    (("beta",), lambda weigh: weigh.policy != "sigmoid" or weigh.midpoint is None, "midpoint"),
    (("tokenizer",), lambda weigh: weigh.effective_budget.kind == "tokens", "budget"),
]


def check_unused(command: str, flags: Mapping[str, str], settings: "RunSettings") -> None:
    """Refuse settings of this call that have no effect on weights; log, in one line, those that no score needs.

    Settings of a recipe or of the run's folder may be without effect.

    Args:
        command: ``score`` or ``weigh``; other commands check nothing.
        flags: Name that the user gave (flag or key) by the full name of the setting, for this
            call's settings.
        settings: All settings.

    Raises:
        ConfigError: Names the first setting of weights without effect, and the setting that it has
            no effect with.
    """
    if command == "score" and (rest := _of_score(flags, settings)):
        log.info("selector  %s does not use %s", settings.selector_spec, ", ".join(rest))
    for names, is_used, beside in WEIGH if command == "weigh" else ():
        for name in names:
            if f"weigh.{name}" in flags and not is_used(settings.weigh):
                value = getattr(settings.weigh, beside)
                raise ConfigError(
                    f"{flags[f'weigh.{name}']} has no effect with {beside}={value}; remove it"
                )


def _of_score(flags: Mapping[str, str], settings: "RunSettings") -> list[str]:
    """List the settings of this call that the selector does not use."""
    if not flags.keys() & {*USES, *OF_RANKING}:
        return []
    from dana.scoring.scoring import build_selector

    uses = build_selector(settings.selector_spec, settings.detector, settings.selection).uses
    is_window = settings.selection.units.startswith("window")  # which an encoder's tokenizer cuts
    keys = {
        key
        for key, part in USES.items()
        if part in uses or (is_window and key == "selection.encoder")
    }
    keys |= {*OF_RANKING} if "detector" in uses and settings.detector == "auto" else set()
    return [name for key, name in flags.items() if key in {*USES, *OF_RANKING} - keys]
