"""Define the settings of a fine-tuning, a preset of the task card and values that override it, and of the probe."""

from dataclasses import asdict, field, fields, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from dana.core.config import require
from dana.core.errors import SettingError
from dana.core.settings import (
    Bool,
    Count,
    CountOrZero,
    Int,
    OneOf,
    Positive,
    Rate,
    load,
    settings_model,
)
from dana.core.studies import load_object
from dana.tasks.settings import AUTO, BALANCED, EVALUATE, POOLINGS, Preset, Seeds

if TYPE_CHECKING:
    from dana.finetuning.loop import SeedTraining
    from dana.tasks.card import TaskCard


WINDOWS = ("mean",)
OF_TEXTS = ("max_train", "text_field", "label_field", "id_field", "class_weight")
OF_LENGTH = ("max_tokens", "windows")
WHOLE = "whole"
METHODS = {  # of fine-tuning; another is a subclass of SeedTraining and a line here
    WHOLE: "dana.finetuning.loop:SeedTraining",
    "contrastive": "dana.finetuning.contrastive:ContrastiveTraining",
}
BASE_WIDTH, BASE_RATE = 768, 3e-5  # of BERT-base, whose first token is trained (Devlin et al. 2019)
MOST_RATE = 1e-3
NO_WEIGHT = "none"
CLASS_WEIGHTS = (BALANCED, NO_WEIGHT)


def training_class(method: str) -> "type[SeedTraining]":
    """Return the class that trains a seed by one of :data:`METHODS`."""
    found: type[SeedTraining] = load_object(METHODS[method])
    return found


def rate_of_width(width: int) -> float:
    """Compute a learning rate from the width of a checkpoint's hidden states (docs/results/adaptation.md)."""
    return min(MOST_RATE, BASE_RATE * (BASE_WIDTH / width) ** 3)


def checkpoint_entry(config: Any) -> dict[str, Any]:
    """Return the hyper-parameters of a checkpoint: the entry ``dana`` of its configuration, else by its width."""
    width, entry = config.hidden_size, getattr(config, "dana", {})
    require(
        isinstance(entry, dict),
        "config.json of the checkpoint: dana",
        entry,
        "a mapping of hyper-parameters",
    )
    values = {
        "learning_rate": rate_of_width(width),
        "pooling": "mean" if width < BASE_WIDTH else "cls",
        **entry,
    }
    require(
        values["learning_rate"] != AUTO,
        "config.json of the checkpoint: dana.learning_rate",
        AUTO,
        "a number",
    )
    return values


def chosen_weight(override: str | None, own: str | None) -> str | None:
    """Return the class weight of a card, or what a setting says instead; ``none`` is None."""
    if override is None:
        return own
    return None if override == NO_WEIGHT else override


@settings_model
class FinetuneSettings:
    """A preset of the task card, and values that override it."""

    preset: str = AUTO
    """auto, paper, default or quick; a card may have others. auto takes learning rate and pooling
    from the checkpoint: the entry dana of its config.json, else its width; texts with two marked
    entities are pooled at the markers. It trains for 3 epochs and at least 320 steps."""
    epochs: Count | None = None
    """Overrides the preset, also its number of steps."""
    steps: CountOrZero | None = None
    """Overrides the preset: the least number of steps; more epochs follow for it."""
    learning_rate: Positive | Literal["auto"] | None = None
    """Overrides the preset; auto finds one on a part of the training data."""
    batch_size: Count | None = None
    """Overrides the preset."""
    warmup: Rate | None = None
    """Overrides the preset."""
    seeds: Seeds | None = None
    """Overrides the preset: the number of seeds, from 0, or a list of seeds."""
    evaluate: Annotated[str, OneOf(EVALUATE)] | None = None
    """Overrides the preset: last or best."""
    max_tokens: Annotated[Int, Field(ge=3)] | None = None
    """Overrides the preset."""
    pooling: Annotated[str, OneOf(POOLINGS)] | None = None
    """Overrides the preset: cls, mean or markers."""
    method: Annotated[str, OneOf(METHODS)] = WHOLE
    """whole trains encoder and head together. contrastive draws the vectors of two texts together if
    they have the same label and apart if not, then fits a linear head: for few labels, of tasks
    whose texts have one label each."""
    windows: Annotated[str, OneOf(WINDOWS)] | None = None
    """mean reads a text longer than max_tokens in windows of so many tokens, at most 16, and averages
    what the model says of them, each weighted by its tokens. null cuts it off. The saved model labels
    in this way in dana alone."""
    max_train: Count | None = None
    """Use so many training examples, the same for every model and seed."""
    text_field: str | None = None
    """Overrides the card's field, or template, of the text."""
    label_field: str | None = None
    """Overrides the card's field of the label."""
    id_field: str | None = None
    """Overrides the card's field of the example's id."""
    class_weight: Annotated[str, OneOf(CLASS_WEIGHTS)] | None = None
    """Overrides the card's, also for the linear baselines and the probe: balanced weighs the texts of
    a class by the inverse of their number; none weighs all texts alike."""
    save: Bool = False
    """Save the model of the seed with the best development score, in OUT-model."""
    trackers: list[str] = field(default_factory=list)
    """Experiment trackers for the loss of every step and the development score of every epoch, a
    run per seed: tensorboard (in OUT-logs), wandb, or any other that Accelerate knows."""

    def __post_init__(self) -> None:
        replace(Preset(), **self._overrides())

    def of_texts(self) -> "FinetuneSettings":
        """Return the settings that say which texts are read and how classes weigh, all others by default."""
        return FinetuneSettings(**{name: getattr(self, name) for name in OF_TEXTS})

    def by_method(self, method: str) -> "FinetuneSettings":
        """Return the settings of another method: it reads the same texts, and its hyper-parameters are its own."""
        lengths = {name: getattr(self, name) for name in OF_LENGTH}
        return replace(self.of_texts(), method=method, **lengths)

    def resolve(self, card: "TaskCard", config: Any) -> Preset:
        """Return the card's preset, under ``auto`` with the values of the checkpoint, and with the overrides.

        Args:
            card: The task.
            config: Configuration of the checkpoint.

        Raises:
            ConfigError: If the card has no such preset, or the entry ``dana`` of config.json has a
                wrong key or value.
        """
        preset = card.preset(self.preset)
        if self.preset == AUTO:
            from dana.models.heads import positions_of  # loads torch

            entry = checkpoint_entry(config)
            if card.label_kind.per_word:
                entry["pooling"] = "cls"
            values = {
                **asdict(preset),
                "max_tokens": min(preset.max_tokens, positions_of(config)),
                **entry,
                **training_class(self.method).auto_preset,
            }
            preset = load(Preset, values, origin="config.json of the checkpoint: dana")
        return replace(preset, **self._overrides())

    def fields_of(self, card: "TaskCard") -> "TaskCard":
        """Return the card with the overridden names of fields."""
        text, label, name = (
            self.text_field or card.text,
            self.label_field or card.label,
            self.id_field or card.id,
        )
        template = None if self.text_field else card.template
        weight = chosen_weight(self.class_weight, card.class_weight)
        return replace(
            card, text=text, template=template, label=label, id=name, class_weight=weight
        )

    def _overrides(self) -> dict[str, Any]:
        names = (item.name for item in fields(Preset))
        overrides = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        return {"steps": 0, **overrides} if "epochs" in overrides else overrides


@settings_model
class ProbeSettings:
    """The frozen probe: a linear model on the vectors of a checkpoint that is not trained on the task."""

    enabled: Bool = False
    """Probe the base and every adapted model of a run. Off by default, so that recipes without the
    section make what they always made; dana init turns it on."""
    sizes: Annotated[list[Count], Field(min_length=1)] = field(
        default_factory=lambda: [50, 100, 200, 500]
    )
    """Numbers of labelled texts to fit to. All texts are fitted to, too; a size that the task does
    not have is left out."""
    draws: Count = 10
    """Draws of labelled texts of each size, the same for every model."""
    seed: Int = 0
    """Seed of the draws."""
    max_tokens: Annotated[Int, Field(ge=3)] = 256
    """Longer texts are truncated to so many tokens, or to the positions of the model."""
    windows: Annotated[str, OneOf(WINDOWS)] | None = None
    """mean reads a longer text in windows of max_tokens; its vector is the mean of theirs, each
    weighted by its tokens. null cuts it off."""
    class_weight: Annotated[str, OneOf(CLASS_WEIGHTS)] | None = None
    """Overrides that of fine-tuning and of the card, for the linear models of the probe alone."""
    documents: CountOrZero = 1000
    """Retrieval: a sentence of a held-out document finds the rest of it among so many; 0 leaves it
    out."""

    def __post_init__(self) -> None:
        if len(set(self.sizes)) < len(self.sizes):
            raise SettingError("sizes", self.sizes, "distinct")
