"""Plan the model at the end of a run: its choice after every kind of candidate, and the encoder of all texts.

The candidates are what the run tests anyway. Each step ``final/...`` chooses among those that are
ready and leaves the best so far in ``OUT/model``. So a run that is stopped has a model, too.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dana.core.config import require
from dana.core.errors import DanaError
from dana.core.logging import get_logger
from dana.core.schemas import FINAL
from dana.finetuning.settings import training_class
from dana.report.run import is_control
from dana.stages.arms import Arm
from dana.stages.finetune_steps import CANDIDATE, FINETUNE
from dana.stages.probe_steps import is_per_word
from dana.stages.settings import RunSettings
from dana.stages.steps.step import OutputOf, Step
from dana.tasks.card import TaskCard, load_card
from dana.tasks.examples import read_splits, subset
from dana.train.settings import UNLABELLED

log = get_logger(__name__)

# Forms of a candidate.
TFIDF = "tfidf"
VECTORS = "vectors"
FINETUNED = "finetuned"

ENCODER = "encoder"  # name of a step, and of the folder that it makes
BASE = "base"  # name of the arm that is not adapted, and of the step that makes its model
STAGE = "dana.stages.final:final_stage"
ENCODER_STAGE = "dana.stages.final:encoder_stage"


def check_final(settings: RunSettings, cards: Mapping[str, str]) -> None:
    """Refuse a run that cannot end in a model.

    Raises:
        ConfigError: If the run has no task with labels or several, each word has a label, or
            the run may stop early.
    """
    count = len(cards)
    allowed = f"false: a model is chosen for one task card, and this run has {count}"
    require(count == 1, FINAL, settings.final, allowed)
    [(task, card)] = cards.items()
    allowed = f"false: each word of {task} has a label; for these use dana finetune --save"
    require(not is_per_word(card), FINAL, settings.final, allowed)
    allowed = "false, beside seeds.stop_early: a run that stops early leaves out what comes last"
    require(not settings.seeds.stop_early, FINAL, settings.final, allowed)


@dataclass(frozen=True)
class AdaptedModel:
    """A model that an arm adapts with all labelled texts, for the choice at the end and for the encoder.

    Attributes:
        arm: Name of the arm.
        is_unlabelled: Whether the arm, with those that it continues from, reads nothing but the task's
            texts without labels.
        steps: The steps that only this model needs; the last adapts it. They are empty where an
            adaptation of the run is the same model.
    """

    arm: str
    is_unlabelled: bool = False
    steps: Sequence[Step] = ()

    @property
    def output(self) -> OutputOf:
        """The model."""
        return OutputOf(self.steps[-1].name if self.steps else f"adapt/{self.arm}")


def arms_of_models(arms: Sequence[Arm]) -> list[Arm]:
    """Return the arms whose models are candidates at the end, beside the base.

    They are ``dana``, or else the first that is no control; and ``unlabelled``.
    """
    adapted = [arm for arm in arms if arm.is_adapted and not is_control(arm.name)]
    first = sorted(adapted, key=lambda arm: arm.name != "dana")[:1]
    return first + [arm for arm in adapted if arm.name == UNLABELLED and arm not in first]


def methods_tried(settings: RunSettings, card: str, folds: int) -> list[str]:
    """Return the ways of fine-tuning that are tried beside that of the arms, without those that cannot train a task.

    Args:
        settings: Settings of the run.
        card: The task's card.
        folds: Number of folds of the task; 0 with one fixed split.
    """
    methods = [method for method in settings.candidates if method != settings.finetune.method]
    if not methods:
        return methods
    task = settings.finetune.fields_of(load_card(card))
    tried = []
    for method in methods:
        training = training_class(method)
        if not training.trains(task.label_kind):
            continue
        lacks = [training.lacks(labels) for labels in _training_labels(settings, task, folds)]
        # Where a fold lacks nothing its sentence is empty, which sorts first.
        lack_of_a_fold = max(lacks, default="")
        if lack_of_a_fold:
            log.info("candidate %s is not tried: %s", method, lack_of_a_fold)
        else:
            tried.append(method)
    return tried


def _training_labels(settings: RunSettings, task: TaskCard, folds: int) -> Iterator[list[Any]]:
    """Yield the labels of the training texts of each fold; none if they cannot be read, which a step will say."""
    tested_folds: Sequence[int | None] = range(folds) if folds else [None]
    for fold in tested_folds:
        try:
            splits = read_splits(task, settings.data, fold)
        except DanaError:
            return
        train = subset(splits["train"], settings.finetune.max_train)
        yield [example.label for example in train]


def with_final(
    steps: Sequence[Step],
    settings: RunSettings,
    cards: Mapping[str, str],
    models: Sequence[AdaptedModel],
    folds: int,
) -> Iterator[Step]:
    """Yield the steps of a run, and among them those that choose and make its model.

    A choice comes right after the last step that one kind of candidate needs. The encoder is kept as
    soon as the vectors of all adapted models are tested.

    Args:
        steps: The steps of the run.
        settings: Settings of the run.
        cards: The card of its only task, by name.
        models: The adapted models (:func:`arms_of_models`).
        folds: Number of folds that the task has; 0 with one fixed split.
    """
    [(task, card)] = cards.items()
    candidates = _candidates(steps, settings, task, models)
    kinds_of_vectors = {f"{VECTORS}-{model.arm}" for model in models} & candidates.keys()
    kinds_by_last_step: dict[str, list[str]] = {}
    for kind, candidate in candidates.items():
        _, last_output = candidate["outputs"][-1]
        kinds_by_last_step.setdefault(last_output.step, []).append(kind)
    ready: list[dict[str, Any]] = []
    missing_models = [*models]  # whose own steps are not yielded yet
    made: set[str] = set()  # names of the own steps that are
    has_encoder = not models
    # A choice waits for the one before, as each of them replaces OUT/model.
    choice_before: tuple[str, ...] = ()
    for step in steps:
        yield step
        kinds = kinds_by_last_step.get(step.name, [])
        if not kinds:
            continue
        tested = [candidates[kind] for kind in kinds]
        ready += tested
        for model in [*missing_models]:
            if any(candidate["model"] == model.output for candidate in tested):
                yield from _not_yet_made(model.steps, made)
                missing_models.remove(model)
        choice = _final_step(settings, card, kinds[-1], ready, candidates, folds, choice_before)
        choice_before = (choice.name,)
        yield choice
        kinds_ready = {candidate["kind"] for candidate in ready}
        if not (has_encoder or missing_models) and kinds_of_vectors <= kinds_ready:
            yield _encoder_step(settings, models, choice, task, folds)
            has_encoder = True
    for model in missing_models:
        yield from _not_yet_made(model.steps, made)
    if not has_encoder:
        yield _encoder_step(settings, models, None, task, folds)


def _not_yet_made(steps: Sequence[Step], made: set[str]) -> Iterator[Step]:
    """Yield the steps that are not made yet, and add their names to those that are.

    Adapted models share steps where one continues from the other.
    """
    for step in steps:
        if step.name not in made:
            made.add(step.name)
            yield step


def _candidates(
    steps: Sequence[Step],
    settings: RunSettings,
    task: str,
    models: Sequence[AdaptedModel],
) -> dict[str, dict[str, Any]]:
    """Describe the candidates that the steps of a run test, the cheapest first.

    Returns:
        The description of each by its kind; see :func:`_candidate`.
    """
    found = {}
    baselines = f"baselines/{task}"
    for step in steps:
        if step.name == baselines and TFIDF in step.settings["names"]:
            found[TFIDF] = _candidate(TFIDF, TFIDF, [step], baselines, None)
    # The first part of the kind of a candidate, its form, and the first parts of the names of its
    # steps. The first part of the kind is the form, or another method of fine-tuning than that of the
    # arms.
    families = [(VECTORS, VECTORS, f"probe/{task}")]
    families += [(method, FINETUNED, f"{CANDIDATE}/{method}") for method in settings.candidates]
    families.append((FINETUNED, FINETUNED, f"{FINETUNE}/{task}"))
    outputs = {model.arm: model.output for model in models}
    for family, form, first in families:
        for name in (BASE, *outputs):
            start = f"{first}/{name}"
            makers = [step for step in steps if _begins_with(step.name, start)]
            if not makers:
                continue
            # The probe of the base may read it as it was named, before a step prepares it.
            model = makers[0].settings["model"] if name == BASE else outputs[name]
            kind = f"{family}-{name}"
            found[kind] = _candidate(kind, form, makers, start, model)
            if name != BASE:
                found[kind]["base"] = OutputOf(BASE)
            if family != form:
                found[kind]["method"] = family
    return found


def _candidate(
    kind: str, form: str, makers: Sequence[Step], start: str, model: Any
) -> dict[str, Any]:
    """Describe a candidate.

    Args:
        kind: Its name.
        form: ``tfidf``, ``vectors`` or ``finetuned``.
        makers: The steps that test it.
        start: First parts of their names.
        model: What it is made of; None for TF-IDF.

    Returns:
        Its ``kind``, ``form`` and ``model``; ``windows`` and ``class_weight`` of the settings of its
        stage; if a step finds a learning rate, that step as ``rate``; and the ``outputs`` with its
        predictions, each with the index of its adaptation or fold. :func:`_candidates` adds the
        ``base`` of an adapted one, and the ``method`` of fine-tuning where it is not that of the arms.
    """
    arguments = makers[0].settings
    candidate: dict[str, Any] = {
        "kind": kind,
        "form": form,
        "model": model,
        "windows": arguments["settings"].windows,
        "class_weight": arguments["settings"].class_weight,
        "outputs": [[_index_of(step.name, start), OutputOf(step.name)] for step in makers],
    }
    rate = arguments.get("rate")
    if rate is not None:
        candidate["rate"] = rate
    return candidate


def _begins_with(name: str, start: str) -> bool:
    """Return whether a step's name is made of the given first parts, and perhaps of more parts."""
    return name == start or name.startswith(f"{start}/")


def _index_of(name: str, start: str) -> int:
    """Return the index of the adaptation or fold in a step's name; 0 where it has none."""
    parts = name.removeprefix(start).strip("/").split("/")
    return int(parts[0]) if parts[0].isdigit() else 0


def _final_step(
    settings: RunSettings,
    card: str,
    kind: str,
    ready: Sequence[dict[str, Any]],
    all_candidates: Mapping[str, Any],
    folds: int,
    after: tuple[str, ...],
) -> Step:
    """Make the step that chooses among the candidates that were tested so far.

    Args:
        settings: Settings of the run.
        card: The task's card.
        kind: Kind of the newest of them, which names the step.
        ready: The candidates that were tested so far.
        all_candidates: All of them by kind, in their order.
        folds: Number of folds of the task.
        after: Name of the choice before, if there is one.
    """
    order = list(all_candidates)
    candidates = sorted(ready, key=lambda candidate: order.index(candidate["kind"]))
    arguments = {
        "card": card,
        "candidates": candidates,
        "waiting": len(all_candidates) - len(candidates),
        "settings": replace(settings.finetune, save=False, trackers=[]),
        "max_tokens": settings.probe.max_tokens,
        "out": Path(settings.out),
        "name": kind,
        "base": base_name(settings),
        "data": settings.data,
        "folds": folds,
    }
    return Step(f"{FINAL}/{kind}", STAGE, arguments, after, is_alone=True, concludes=True)


def base_name(settings: RunSettings) -> str:
    """Return what the base of a run is called."""
    return settings.model or f"a {settings.size} model from scratch"


def _encoder_step(
    settings: RunSettings,
    models: Sequence[AdaptedModel],
    choice: Step | None,
    task: str,
    folds: int,
) -> Step:
    """Make the step that publishes an adapted model as ``OUT/encoder``.

    Args:
        settings: Settings of the run.
        models: The adapted models, of which it takes the one whose vectors had the best score.
        choice: The step of a choice, which has these scores if there are several models; None where
            the run tests no candidate.
        task: Name of the task.
        folds: Number of folds of the task.
    """
    scores = None
    if choice is not None and len(models) > 1:
        scores = OutputOf(choice.name)
    described = [
        {"arm": model.arm, "model": model.output, "is_unlabelled": model.is_unlabelled}
        for model in models
    ]
    arguments = {
        "models": described,
        "choice": scores,
        "base": OutputOf(BASE),
        "out": Path(settings.out) / ENCODER,
        "max_tokens": settings.probe.max_tokens,
        "task_name": task,
        "base_name": base_name(settings),
        "folds": folds,
    }
    return Step(ENCODER, ENCODER_STAGE, arguments, is_alone=True, concludes=True)
