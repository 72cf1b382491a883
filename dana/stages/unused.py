"""Settings that a command would ignore although they were given: a table of which, when, and why."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dana.core.errors import DanaError
from dana.core.studies import loaded

if TYPE_CHECKING:
    from dana.stages.settings import RunSettings

NO_FIELDS = ".txt files alone, whose records have no fields"
NO_TXT = "files of other formats: it is for .txt files"


@dataclass(frozen=True)
class Rule:
    """When settings are looked at.

    Attributes:
        settings: Their full names, separated by spaces.
        used: Whether they are looked at, given all settings.
        beside: What they do not go with; ``{0}`` stands for all settings.
    """

    settings: str
    used: Callable[["RunSettings"], bool]
    beside: str


def first_unused(command: str, given: Mapping[str, str], settings: "RunSettings") -> str | None:
    """The first of the settings that were given now and would be ignored, and why; None if there is none.

    A recipe and the folder's memory hold settings for every command, so what they say may be ignored.

    Args:
        command: ``rank``, ``weigh`` …
        given: Full name of each setting that was given now, to how it was called.
        settings: All settings, whoever gave them.
    """
    for rule in _rules(command):
        ignored = [called for key, called in given.items() if key in rule.settings.split()]
        if ignored and not rule.used(settings):
            return f"{ignored[0]} is not looked at with {rule.beside.format(settings)}"
    return None


def _rules(command: str) -> list[Rule]:
    """Rules of a command of the core's or of a study's."""
    if command in RULES:
        return RULES[command]
    return next((rules[command] for rules in loaded("unused") if command in rules), [])


def _is_window(settings: "RunSettings") -> bool:
    return settings.selection.units.startswith("window")


def _has_card(settings: "RunSettings") -> bool:
    from dana.tasks.card import find_card

    return find_card(settings.task) is not None


def formats(sources: Sequence[str]) -> set[str]:
    """Suffixes of the files of some sources, ``hf:`` of data sets; empty if one is missing, which reading will say."""
    from dana.corpus.hub import HUB, is_hub
    from dana.corpus.places import expand, format_of

    try:
        files = [path for source in sources if not is_hub(source) for path in expand(source)]
    except DanaError:
        return set()
    return {format_of(path) for path in files} | {HUB for source in sources if is_hub(source)}


def _formats(settings: "RunSettings") -> set[str]:
    """Of the general text and of plain task text, where there is some."""
    task = [settings.task] if settings.task and not _has_card(settings) else []
    return formats([*settings.general, *task])


def _selector_uses(part: str) -> Callable[["RunSettings"], bool]:
    """Whether the selector looks at a setting of the selection."""

    def used(settings: "RunSettings") -> bool:
        from dana.scoring.scoring import build_selector

        return part in build_selector(settings.selector_spec, settings.detector, settings.selection).uses

    return used


def _is_ranked(settings: "RunSettings") -> bool:
    """Whether the ranking chooses the detector."""
    return settings.detector == "auto" and _selector_uses("detector")(settings)


TEXTS = [
    Rule(
        "data", lambda s: bool(s.hygiene.decontaminate) or _has_card(s), "plain text as the task: it is for task cards"
    ),
    Rule(
        "inputs.text_field inputs.id_field inputs.record_parser",
        lambda s: _formats(s) != {".txt"},
        NO_FIELDS,
    ),
    Rule(
        "inputs.text_documents",
        lambda s: ".txt" in (_formats(s) or {".txt"}),
        NO_TXT,
    ),
    Rule("hygiene.ngram hygiene.sentence", lambda s: bool(s.hygiene.decontaminate), "no --decontaminate"),
    Rule(
        "selection.language",
        lambda s: not _is_window(s) or bool(s.hygiene.decontaminate),
        "--units {0.selection.units}, which end anywhere",
    ),
    Rule("selection.store_dtype", lambda s: s.selection.store is not None, "--store none"),
]
RANK = [Rule("ranking.folds weigh.beta", lambda s: s.ranking.protocol != "paper", "ranking.protocol=paper")]
SCORE = [
    Rule("detector", _selector_uses("detector"), "--selector {0.selector_spec}"),
    Rule("selection.encoder", lambda s: _is_window(s) or _selector_uses("encoder")(s), "--selector {0.selector_spec}"),
    Rule("selection.store selection.store_dtype", _selector_uses("encoder"), "--selector {0.selector_spec}"),
    Rule("selection.geometry", _selector_uses("geometry"), "--selector {0.selector_spec}"),
    Rule("selection.general_share", _selector_uses("general_share"), "--selector {0.selector_spec}"),
    Rule(
        "ranking.detectors ranking.seeds ranking.protocol ranking.folds ranking.prevalence weigh.beta",
        _is_ranked,
        "--selector {0.selector_spec} --detector {0.detector}: no ranking chooses the detector (--selector detector)",
    ),
]
WEIGH = [
    Rule(
        "weigh.gamma weigh.min_tail weigh.shrink weigh.stream weigh.budget",
        lambda s: s.weigh.policy != "sigmoid",
        "--policy {0.weigh.policy}",
    ),
    Rule("weigh.sharpness weigh.midpoint", lambda s: s.weigh.policy != "segments", "--policy {0.weigh.policy}"),
    Rule("weigh.seed", lambda s: s.weigh.policy == "sampled", "--policy {0.weigh.policy}"),
    Rule("weigh.beta", lambda s: s.weigh.budget is None, "--budget: both say how much is kept"),
    Rule("weigh.beta", lambda s: s.weigh.below is None, "--below: both say how much is kept"),
    Rule(
        "weigh.beta",
        lambda s: s.weigh.policy != "sigmoid" or s.weigh.midpoint is None,
        "--midpoint: both place the sigmoid",
    ),
    Rule("weigh.tokenizer", lambda s: s.weigh.kept.kind == "tokens", "a budget that is not in tokens"),
]


def _training(section: str) -> list[Rule]:
    """Rules for the settings of ``adapt`` or ``pretrain``."""

    def of(settings: "RunSettings") -> Any:
        return getattr(settings, section)

    schedule = f"{section}.schedule={{0.{section}.schedule}}"
    return [
        Rule(f"{section}.batch_size", lambda s: of(s).batch_tokens is None, f"{section}.batch_tokens"),
        Rule(f"{section}.warmup", lambda s: of(s).warmup_steps is None, f"{section}.warmup_steps"),
        Rule(f"{section}.evaluations", lambda s: of(s).eval_every is None, f"{section}.eval_every"),
        Rule(f"{section}.floor", lambda s: of(s).schedule != "constant", schedule),
        Rule(f"{section}.cooldown", lambda s: of(s).schedule == "wsd", schedule),
    ]


ADAPT = _training("adapt")
PRETRAIN = [*_training("pretrain"), Rule("pretrain.replay", lambda s: False, "pretraining: its text has no weights")]
RUN = [
    Rule("task general", lambda s: s.harvest is None, "harvest, which finds both texts; give harvest=null"),
    Rule("size", lambda s: s.model is None, "model={0.model}"),
    *TEXTS[1:],
    *ADAPT,
    *PRETRAIN,
]
RULES = {
    "rank": [*TEXTS, *RANK],
    "score": [*TEXTS, *SCORE],
    "weigh": WEIGH,
    "adapt": ADAPT,
    "pretrain": PRETRAIN,
    "run": RUN,
    "quickstart": RUN,
}
