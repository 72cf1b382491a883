"""Plan the fine-tuning steps of a run for ``dana run`` and ``dana finetune``.

A run repeats each arm: adaptation 0, 1, ... has a selection, an adaptation and fine-tunings of its
own, so that the spread over seeds covers all three (Dodge et al. 2020; Sellam et al. 2022, The
MultiBERTs). With a card that has folds, the index is that of the fold that is tested.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dana.core.artifacts import read_manifest
from dana.core.config import require
from dana.core.schemas import FINAL, NESTED
from dana.finetuning.settings import FinetuneSettings
from dana.stages.join import seed_folder, unit_folder
from dana.stages.settings import RunSettings
from dana.stages.steps.run import Run
from dana.stages.steps.step import OutputOf, Step
from dana.stages.texts import held_out_folders
from dana.tasks.card import find_card, load_card
from dana.tasks.examples import fold_count
from dana.tasks.settings import AUTO
from dana.train.execution import Precision, refuse_precision

FINETUNE = "finetune"
CANDIDATE = "candidate"  # fine-tuned in another way than the arms that the run compares
SEED_STAGE = "dana.stages.finetune_seed:seed_stage"
RATE_STAGE = "dana.stages.finetune_seed:rate_stage"
MODEL_STAGE = "dana.stages.finetune_seed:model_stage"
ALL_TEXTS = -1  # in place of the index of an adaptation or fold: no text is left out or tested


@dataclass(frozen=True)
class TaskRun:
    """One checkpoint on one task: what its steps are made from.

    Attributes:
        model: Folder or Hub name, or the output of a step.
        card: Task card, a name or YAML file.
        settings: Preset and overrides.
        out: Folder of the joined result.
        name: Middle of the names of its steps: ``TASK/ARM``, of a candidate ``METHOD/ARM``.
        data: Folder of the card's data.
        labels: Columns of the table of results.
        first: First part of the names of its steps.
        twin: Folder of the joined result of the base, whose seeds are copied where the model turns
            out to be the base. Nothing waits for them: a seed whose twin is not there is trained.
    """

    model: str | OutputOf
    card: str
    settings: FinetuneSettings
    out: Path
    name: str
    data: str | None = None
    labels: Mapping[str, str] | None = None
    first: str = FINETUNE
    twin: Path | None = None

    def steps(
        self, index: int, seeds: Iterable[int], has_folds: bool, is_repeated: bool = True
    ) -> Iterator[Step]:
        """Yield the steps of one adaptation or fold: a learning rate if asked for, seeds, the model with ``save``.

        Args:
            index: Index of the adaptation or fold.
            seeds: Its seeds.
            has_folds: Whether the index is that of the fold that is tested.
            is_repeated: Whether there are several indices, so that names and folders have one.
        """
        shared: dict[str, Any] = {
            "model": self.model,
            "card": self.card,
            "settings": replace(self.settings, seeds=None),
            "data": self.data,
            "fold": index if has_folds else None,
        }
        name = f"{self.name}/{index}" if is_repeated else self.name
        folder = unit_folder(self.out, index)
        if _finds_rate(self.card, self.settings):
            arguments = {**shared, "out": folder / "rate"}
            yield Step(f"rate/{name}", RATE_STAGE, arguments, is_alone=True)
            shared["rate"] = OutputOf(f"rate/{name}")
        steps = []
        for seed in seeds:
            arguments = {**shared, "seed": seed, "out": seed_folder(self.out, index, seed)}
            if self.twin is not None:
                arguments["twin"] = seed_folder(self.twin, index, seed)
            step_name = f"{self.first}/{name}/seed-{seed}"
            labels = self.labels or {}
            steps.append(Step(step_name, SEED_STAGE, arguments, labels=labels, is_alone=True))
        yield from steps
        if self.settings.save:
            out = self.model_folder(index, has_folds or is_repeated)
            parts = [OutputOf(step.name) for step in steps]
            arguments = {**shared, "seeds": parts, "out": out}
            yield Step(f"model/{name}", MODEL_STAGE, arguments, is_alone=True)

    def model_folder(self, index: int, is_repeated: bool) -> Path:
        """Return the folder of the model that ``save`` keeps: ``OUT-model``, or one beside the seeds of an index."""
        folder = unit_folder(self.out, index) if is_repeated else self.out
        return folder.with_name(f"{folder.name}-model")


def _finds_rate(card: str, settings: FinetuneSettings) -> bool:
    """Return whether the learning rate is ``auto``, by the settings or by the card's preset."""
    if settings.learning_rate is not None:
        return settings.learning_rate == AUTO
    return load_card(card).preset(settings.preset).learning_rate == AUTO


def loss_steps(
    settings: RunSettings, arm: str, model: str | OutputOf, index: int
) -> Iterator[Step]:
    """Yield the steps ``loss/TEXT/ARM/INDEX`` that measure one adaptation of an arm on text without labels.

    Args:
        settings: Settings of the run; ``adapt`` and ``out`` are used.
        arm: Name of the arm.
        model: Folder or Hub name, or the output of a step.
        index: Index of the adaptation.
    """
    out = Path(settings.out)
    for task, texts in zip(("target", "pool"), held_out_folders(out), strict=True):
        folder = seed_folder(out / "finetune" / task / arm, index, index)
        arguments: dict[str, Any] = {
            "model": model,
            "texts": texts,
            "task": f"{task} text",
            "settings": settings.adapt,
        }
        arguments |= {"index": index, "out": folder}
        labels = {"task": task, "arm": arm}
        yield Step(
            f"loss/{task}/{arm}/{index}", "dana.stages.losses:loss_stage", arguments, labels=labels
        )


def baseline_step(settings: RunSettings, name: str, card: str, folds: int | None) -> Step:
    """Make the step ``baselines/TASK`` of the baselines of a task, tested on its first folds, or on its test texts."""
    arguments = {
        "card": card,
        "out": Path(settings.out) / "baselines" / name,
        "settings": settings.finetune.of_texts(),
    }
    arguments |= {
        "names": settings.baseline_names,
        "encoder": settings.selection.encoder,
        "data": settings.data,
    }
    return Step(
        f"baselines/{name}",
        "dana.stages.baselines:baselines_stage",
        {**arguments, "folds": folds},
    )


def count_folds(settings: RunSettings) -> dict[str, int]:
    """Count the folds of the task and of each card, by name or file; those without folds are left out.

    Raises:
        ConfigError: If two cards have different numbers of folds.
    """
    names = [settings.task, *settings.cards]
    cards = {name: card for name in names if name and (card := find_card(name))}
    counts = {name: fold_count(card, settings.data) for name, card in cards.items()}
    counts = {name: count for name, count in counts.items() if count > 1}  # one is a fixed split
    require(len({*counts.values()}) <= 1, "cards", counts, "of one number of folds")
    return counts


def cards_by_name(cards: Sequence[str]) -> dict[str, str]:
    """Map the names of tasks to their cards.

    Args:
        cards: Names or YAML files.

    Raises:
        ConfigError: If a card is unknown, or two have one name.
    """
    names = [load_card(card).name for card in cards]
    twice = [card for card, name in zip(cards, names, strict=True) if names.count(name) > 1]
    require(not twice, "cards", twice, "of different tasks; these have the same name")
    return dict(zip(names, cards, strict=True))


def refuse_mixed_precision(run: Run) -> None:
    """Refuse, before any work, a precision other than that of finished steps: results would not compare.

    Raises:
        ConfigError: Names a finished step's folder and the environment variable that sets its
            precision.
    """
    trained = (f"{FINETUNE}/", f"{CANDIDATE}/")
    states = {name: state for name, state in run.states().items() if name.startswith(trained)}
    if "done" not in states.values() or set(states.values()) == {"done"}:
        return
    now = Precision.from_accelerator().name
    for step in run.steps:
        if states.get(step.name) == "done" and step.stage == SEED_STAGE:
            folder = Path(step.settings["out"])
            before = read_manifest(folder).get("precision", now)
            refuse_precision(folder, before, now)


def with_seed(settings: RunSettings, index: int) -> RunSettings:
    """Shift the seeds of selection and adaptation for one adaptation; the first has those of the run.

    Args:
        settings: Settings of the run.
        index: Index of the adaptation.
    """
    selection = replace(settings.selection, seed=settings.selection.seed + index)
    return replace(
        settings,
        selection=selection,
        adapt=replace(settings.adapt, seed=settings.adapt.seed + index),
    )


def folder_of_adaptation(out: Path, index: int) -> Path:
    """Return the folder of an adaptation: its ``arms/`` and, if it leaves out a fold, its ``target/``.

    The first has the run's own folder; only its fine-tunings lie in ``nested/0``
    (:func:`dana.stages.join.unit_folder`).
    """
    if index == ALL_TEXTS:
        return out / FINAL
    return out / NESTED / str(index) if index else out


def check_seeds(settings: RunSettings) -> None:
    """Refuse, before any work, seeds in ``finetune``: a run has its own.

    Raises:
        ConfigError: Names the setting and what to do.
    """
    seeds = settings.finetune.seeds
    require(seeds is None, "finetune.seeds", seeds, "left out: set seeds.finetunings")


def suffix(index: int) -> str:
    """Return the suffix of the step names of one adaptation."""
    if index == ALL_TEXTS:
        return f"/{FINAL}"
    return f"/{index}" if index else ""
