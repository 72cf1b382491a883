"""Define the settings of a fine-tuning: a preset of the task card, and values that override it."""

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from dana.core.config import require
from dana.tasks.settings import Preset

if TYPE_CHECKING:
    from dana.tasks.card import TaskCard


@dataclass(frozen=True)
class FinetuneSettings:
    """A preset of the task card, and values that override it.

    Attributes:
        preset: ``paper``, ``default`` or ``quick``; a card may have others.
        epochs: Overrides the preset.
        learning_rate: Overrides the preset.
        batch_size: Overrides the preset.
        warmup: Overrides the preset.
        seeds: Overrides the preset: the number of seeds, from 0, or a list of seeds.
        evaluate: Overrides the preset: ``last`` or ``best``.
        max_tokens: Overrides the preset.
        pooling: Overrides the preset: ``cls`` or ``mean``.
        max_train: Use so many training examples, the same for every model and seed.
        text_field: Overrides the card's field, or template, of the text.
        label_field: Overrides the card's field of the label.
        id_field: Overrides the card's field of the example's id.
        save: Save the model of the seed with the best development score, in ``OUT-model``.
    """

    preset: str = "default"
    epochs: int | None = None
    learning_rate: float | None = None
    batch_size: int | None = None
    warmup: float | None = None
    seeds: int | list[int] | None = None
    evaluate: str | None = None
    max_tokens: int | None = None
    pooling: str | None = None
    max_train: int | None = None
    text_field: str | None = None
    label_field: str | None = None
    id_field: str | None = None
    save: bool = False

    def __post_init__(self) -> None:
        require(self.max_train is None or self.max_train >= 1, "max_train", self.max_train, "at least 1")
        replace(Preset(), **self._overrides())

    def resolve(self, card: "TaskCard") -> Preset:
        """Return the card's preset with the overrides.

        Raises:
            ConfigError: If the card has no such preset.
        """
        return replace(card.preset(self.preset), **self._overrides())

    def fields_of(self, card: "TaskCard") -> "TaskCard":
        """Return the card with the overridden names of fields."""
        text, label, name = self.text_field or card.text, self.label_field or card.label, self.id_field or card.id
        template = None if self.text_field else card.template
        return replace(card, text=text, template=template, label=label, id=name)

    def _overrides(self) -> dict[str, Any]:
        names = (item.name for item in fields(Preset))
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}
