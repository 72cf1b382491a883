"""Plan the pilots of a run whose arms have the objective ``auto``.

The arms that read the pool or the target text share one pilot, so that they differ in nothing but their
text. The arm of the task's texts without labels has its own, because what suits selected documents need
not suit them.
"""

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
from dana.train.settings import UNLABELLED

PILOT = "pilot"
PILOT_UNLABELLED = f"{PILOT}/{UNLABELLED}"


def pilot_steps(
    settings: RunSettings,
    arms: Sequence[Arm],
    cards: Mapping[str, str],
    index: int,
    fold: int,
    folds: Mapping[str, int],
) -> Iterator[Step]:
    """Yield the steps ``pilot[/unlabelled][/ADAPTATION]`` of an adaptation, if it has pilots of its own.

    A pilot chooses for the arms with the objective ``auto``. That of the first adaptation or fold
    chooses for the later ones, too, unless these have their own (:func:`_has_own_pilot`).

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
    undecided = [arm for arm in arms if arm.is_adapted and arm.adapt.is_auto]
    if not undecided or not _has_own_pilot(settings, index):
        return
    _refuse_without_labels(cards)
    first_card = next(iter(cards.values()))
    for is_unlabelled in (False, True):
        sharing = [arm for arm in undecided if arm.is_unlabelled == is_unlabelled]
        if sharing:
            arm = _arm_to_read(sharing)
            yield _pilot_step(settings, arm, first_card, index, fold, folds)


def pilot_name(settings: RunSettings, arm: Arm, index: int) -> str:
    """Return the name of the step whose choice an adaptation of an arm takes."""
    name = PILOT_UNLABELLED if arm.is_unlabelled else PILOT
    return f"{name}{suffix(index)}" if _has_own_pilot(settings, index) else name


def _has_own_pilot(settings: RunSettings, index: int) -> bool:
    """Return whether an adaptation does not take the choice of the first one.

    The first has a pilot, and that of all labelled texts; with ``pilot: every`` each has one.
    """
    return index in (0, ALL_TEXTS) or settings.pilot == "every"


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
    name = pilot_name(settings, arm, index)
    folder_name = PILOT_UNLABELLED.replace("/", "-") if arm.is_unlabelled else PILOT
    tested_fold = None
    if card in folds:
        no_fold = folds[card]  # the number after the last, which no text has
        tested_fold = no_fold if index == ALL_TEXTS else index
    arguments = {
        **training_texts(settings, arm, index, fold),
        "model": OutputOf("base"),
        "settings": arm.adapt,
        "card": card,
        "out": folder_of_adaptation(out, index) / folder_name,
        "texts": settings.finetune.of_texts(),
        "data": settings.data,
        "fold": tested_fold,
        "language": settings.selection.language,
    }
    return Step(
        name,
        "dana.stages.pilot:pilot_stage",
        arguments,
        after=(f"texts{suffix(fold)}",),
    )


def _arm_to_read(arms: Sequence[Arm]) -> Arm:
    """Return the arm on whose text the objectives are tried.

    It is ``dana``. Without it, one that is no control is preferred, and then one that selects text;
    of several the first.
    """
    # False sorts first.
    return min(arms, key=lambda arm: (arm.name != "dana", is_control(arm.name), not arm.selects))
