"""Plan the pilots of a run whose arms have the objective ``auto``."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dana.core.errors import ConfigError
from dana.report.run import is_control
from dana.stages.arms import Arm
from dana.stages.finetune_steps import ALL_TEXTS, folder_of_adaptation, suffix
from dana.stages.probe_steps import is_per_word
from dana.stages.settings import RunSettings
from dana.stages.steps.step import OutputOf, Step
from dana.stages.texts import held_out_folders

PILOT = "pilot"


def pilot_steps(
    settings: RunSettings,
    arms: Sequence[Arm],
    cards: Mapping[str, str],
    index: int,
    fold: int,
    folds: Mapping[str, int],
) -> Iterator[Step]:
    """Yield the step ``pilot[/ADAPTATION]`` of an adaptation, if it has one.

    Its choice holds for all arms with the objective ``auto``: of the first adaptation or fold for
    those of all others, too, or with ``pilot: every`` for its own.

    Args:
        settings: Settings of the run, with the seeds of the adaptation.
        arms: The arms to run.
        cards: Card of each task, of which the first is piloted.
        index: Index of the adaptation.
        fold: Fold that its target text leaves out.
        folds: Number of folds of the cards that have some.

    Raises:
        ConfigError: If there are no labels to choose by.
    """
    trying = [arm for arm in arms if arm.is_adapted and arm.adapt.is_auto]
    if not trying or pilot_name(settings, index) != f"{PILOT}{suffix(index)}":
        return
    _refuse_without_labels(cards)
    yield _pilot_step(
        settings, _arm_to_read(trying), next(iter(cards.values())), index, fold, folds
    )


def pilot_name(settings: RunSettings, index: int) -> str:
    """Return the name of the step whose choice an adaptation takes."""
    has_own = settings.pilot == "every" or index == ALL_TEXTS
    return f"{PILOT}{suffix(index)}" if has_own else PILOT


def _refuse_without_labels(cards: Mapping[str, str]) -> None:
    """Refuse the objective ``auto`` where there are no labels of texts to choose by.

    Args:
        cards: Card of each task of the run.

    Raises:
        ConfigError: If there is no task, or each word of the first has a label.
    """
    remedy = "name one: masked, position or crops (docs/guide/objectives.md)"
    if not cards:
        raise ConfigError(f"objective='auto': this run has no labels to choose by; {remedy}")
    task, card = next(iter(cards.items()))
    if is_per_word(card):
        raise ConfigError(
            f"objective='auto': each word of {task} has a label, which no probe sees; {remedy}"
        )


def training_texts(settings: RunSettings, arm: Arm, index: int, fold: int) -> dict[str, Any]:
    """Return the arguments that name an arm's texts, which its pilot, its gate and its adaptation read.

    Args:
        settings: Settings of the run.
        arm: The arm.
        index: Index of the adaptation.
        fold: Fold that its target text leaves out.
    """
    out = Path(settings.out)
    target_heldout, _ = held_out_folders(folder_of_adaptation(out, fold))
    _, pool_heldout = held_out_folders(out)
    return {
        "pool": out / "pool",
        "weights": OutputOf(f"weigh/{arm.name}{suffix(index)}") if arm.selects else None,
        "target_heldout": target_heldout,
        "pool_heldout": pool_heldout,
    }


def _pilot_step(
    settings: RunSettings, arm: Arm, card: str, index: int, fold: int, folds: Mapping[str, int]
) -> Step:
    """Make the step of a pilot on the text of one arm; see :func:`pilot_steps`."""
    out = Path(settings.out)
    tested = index if card in folds else None
    if card in folds and index == ALL_TEXTS:
        tested = folds[card]  # no text has this number
    arguments = {
        **training_texts(settings, arm, index, fold),
        "model": OutputOf("base"),
        "settings": arm.adapt,
        "card": card,
        "out": folder_of_adaptation(out, index) / PILOT,
        "texts": settings.finetune.of_texts(),
        "data": settings.data,
        "fold": tested,
        "language": settings.selection.language,
    }
    return Step(
        f"{PILOT}{suffix(index)}",
        "dana.stages.pilot:pilot_stage",
        arguments,
        (f"texts{suffix(fold)}",),
    )


def _arm_to_read(arms: Sequence[Arm]) -> Arm:
    """Return the arm on whose text the objectives are tried: ``dana``, else the first that is no control."""
    return min(arms, key=lambda arm: (arm.name != "dana", is_control(arm.name), not arm.selects))
