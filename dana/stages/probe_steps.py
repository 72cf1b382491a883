"""Plan the probes of a run: one step per task, arm and adaptation, and one per arm that searches for documents."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

from dana.stages.settings import RunSettings
from dana.stages.steps.step import OutputOf, Step
from dana.tasks.card import load_card

PROBE = "probe"
RETRIEVAL = "retrieval"


def base_probe_steps(
    settings: RunSettings,
    cards: Mapping[str, str],
    indices: Iterable[int],
    folds: Collection[str],
) -> Iterator[Step]:
    """Yield the steps that probe the base on each task, in all folds.

    They read the model as the recipe names it, so that they wait for neither the pool nor a head. A
    base from scratch has no name, so they wait for the step that makes it.

    Args:
        settings: Settings of the run.
        cards: Card of each task.
        indices: Folds that are tested, of the cards that have folds.
        folds: Cards that have folds.
    """
    model = settings.model or OutputOf("base")
    for task, card in cards.items():
        if not is_probed(settings, card):
            continue
        tested_folds: Iterable[int | None] = indices if card in folds else [None]
        for fold in tested_folds:
            yield probe_step(settings, task, card, "base", model, fold, fold)


def probe_steps(
    settings: RunSettings,
    cards: Mapping[str, str],
    models: Mapping[str, str],
    index: int,
    folds: Collection[str],
) -> Iterator[Step]:
    """Yield the steps that probe the model of each arm but the base, of one adaptation, on each task.

    Args:
        settings: Settings of the run.
        cards: Card of each task.
        models: Name of the step that makes each arm's model; arms that are the base are the same in
            all adaptations.
        index: Index of the adaptation.
        folds: Cards that have folds, of which the index is the one that is tested.
    """
    for task, card in cards.items():
        if not is_probed(settings, card):
            continue
        has_folds = card in folds
        for arm, maker in models.items():
            if arm == "base":  # base_probe_steps has its probes
                continue
            model = OutputOf(maker)
            if has_folds:
                yield probe_step(settings, task, card, arm, model, index, fold=index)
            elif maker != "base":
                yield probe_step(settings, task, card, arm, model, index, fold=None)
            elif index == 0:  # one probe, as this model is the same in all adaptations
                yield probe_step(settings, task, card, arm, model, index=None, fold=None)


def probe_step(
    settings: RunSettings,
    task: str,
    card: str,
    arm: str,
    model: str | OutputOf,
    index: int | None,
    fold: int | None,
) -> Step:
    """Make the step ``probe/TASK/ARM[/ADAPTATION]``.

    Args:
        settings: Settings of the run.
        task: Name of the task.
        card: Its card.
        arm: Name of the arm, or of a checkpoint.
        model: Its model, or the step that makes it.
        index: Index of the adaptation or fold; None for a model that is the same in all of them.
        fold: Fold that is tested, of a card with folds.
    """
    ending = "" if index is None else f"/{index}"
    arguments = {
        "model": model,
        "card": card,
        "settings": settings.probe,
        "out": Path(settings.out) / PROBE / task / arm / str(index or 0),
        "texts": settings.finetune.of_texts(),
        "data": settings.data,
        "fold": fold,
    }
    return Step(
        f"{PROBE}/{task}/{arm}{ending}",
        "dana.stages.probe:probe_stage",
        arguments,
        labels={"task": task, "arm": arm},
        is_alone=True,
    )


def retrieval_steps(
    settings: RunSettings, models: Mapping[str, str], held_out: Mapping[str, Path]
) -> Iterator[Step]:
    """Yield the steps that measure how well a sentence finds its document by the vectors of each model.

    Only the models of the first adaptation are measured.

    Args:
        settings: Settings of the run.
        models: Name of the step that makes each arm's model.
        held_out: Folder of held-out documents by the name of the text.
    """
    if not settings.probe.enabled or not settings.probe.documents:
        return
    for arm, maker in models.items():
        yield Step(
            f"{RETRIEVAL}/{arm}",
            "dana.stages.probe:retrieval_stage",
            {
                "model": OutputOf(maker),
                "texts": {name: str(folder) for name, folder in held_out.items()},
                "settings": settings.probe,
                "out": Path(settings.out) / RETRIEVAL / arm,
                "language": settings.selection.language,
            },
            labels={"arm": arm},
            is_alone=True,
        )


def is_probed(settings: RunSettings, card: str) -> bool:
    """Return whether a run probes a task: the recipe asks for it, and its texts have labels."""
    return settings.probe.enabled and not is_per_word(card)


def is_per_word(card: str) -> bool:
    """Return whether each word of a task has a label."""
    return load_card(card).label_kind.per_word
