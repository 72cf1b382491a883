"""Next commands, printed after one has ended: whole lines to paste; the run's folder holds all other settings."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dana.stages.settings import RunSettings


def after(*words: object, note: str = "") -> str:
    """The line that names the next command.

    Args:
        words: Of the command, without ``dana``.
        note: What else to know, behind a ``#``, so that the whole line can be pasted.
    """
    return f"next:    {shlex.join(['dana', *map(str, words)])}{f'   # {note}' if note else ''}"


def after_weigh(settings: "RunSettings", folder: Path, weights: Path) -> str:
    """Adapt with these weights."""
    base = folder / "base"
    words = ["adapt", folder, "--model", settings.model or (base if base.is_dir() else "bert-base-uncased")]
    if settings.adapt.steps is None and settings.adapt.tokens is None and settings.adapt.epochs is None:
        words += ["--steps", 1000]
    if weights != folder / "weights":
        words += ["--weights", weights, "--to", folder / f"adapted-{weights.name}"]
    return after(*words)


def after_pretrain(folder: Path, model: Path) -> str:
    """Adapt the new base; weigh first where nothing was weighed."""
    return after("adapt", folder, "--model", model) if (folder / "weights").is_dir() else after("weigh", folder)


def after_adapt(settings: "RunSettings", folder: Path, model: Path) -> str:
    """Fine-tune the adapted model, into the folder where the report looks for this arm; without a card, report."""
    from dana.tasks.card import find_card

    named = settings.cards[0] if settings.cards else settings.task
    card = find_card(named) if named else None
    if card is None:  # text without labels: which task to fine-tune on is not known
        return after("report", folder, note="or, with labelled data, dana finetune: docs/finetuning.md")
    out = folder / "finetune" / card.name / _arm(folder, model)
    return after("finetune", "--model", model, "--task-card", named, "--out", out)


def _arm(folder: Path, model: Path) -> str:
    """An arm's name, from its model's folder."""
    if model.name != "adapted":
        return model.name
    return "dana" if model.parent == folder else model.parent.name


def after_finetune(settings: "RunSettings", base: str | None, arm: Path) -> str:
    """Fine-tune what was adapted, too, if nobody did; then compare.

    Args:
        settings: Of the fine-tuning.
        base: The checkpoint that was adapted, if the run knows.
        arm: Where the outcome is: DIR/finetune/TASK/ARM.
    """
    task, run = arm.parent, arm.parent.parent.parent
    if task.parent.name != "finetune":
        return "note:    dana report DIR compares the results that lie under DIR/finetune/TASK/ARM"
    if base and not (task / "base").is_dir():
        return after("finetune", "--model", base, "--task-card", settings.cards[0], "--out", task / "base")
    return after("report", run)
