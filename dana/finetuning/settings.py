"""Settings of a fine-tuning: a card's preset and fields, and what differs from them."""

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from dana.core.config import require
from dana.tasks.settings import Preset

if TYPE_CHECKING:
    from dana.tasks.card import TaskCard


@dataclass(frozen=True)
class FinetuneSettings:
    """A card's preset, and what differs from it.

    Attributes:
        preset: ``paper``, ``default`` or ``quick``; a card may have others.
        epochs: Instead of the preset's.
        learning_rate: Instead of the preset's.
        batch_size: Instead of the preset's.
        warmup: Instead of the preset's.
        seeds: Instead of the preset's: how many, from 0; or a list of seeds.
        evaluate: Instead of the preset's: ``last`` or ``best``.
        max_tokens: Instead of the preset's.
        pooling: Instead of the preset's: ``cls`` or ``mean``.
        max_train: Use so many training examples, the same for every model and seed.
        text_field: Instead of the card's field, or template, for the text; so are the next two.
        label_field: For the label.
        id_field: For the name of an example.
        save: Keep the model of the seed with the best development score, in ``OUT-model``.
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
        replace(Preset(), **self._given())

    def resolve(self, card: "TaskCard") -> Preset:
        """The preset of a card with the given values put in.

        Raises:
            ConfigError: If the card has no such preset.
        """
        return replace(card.preset(self.preset), **self._given())

    def fields_of(self, card: "TaskCard") -> "TaskCard":
        """The card with the given names of fields put in."""
        text, label, name = self.text_field or card.text, self.label_field or card.label, self.id_field or card.id
        template = None if self.text_field else card.template
        return replace(card, text=text, template=template, label=label, id=name)

    def _given(self) -> dict[str, Any]:
        names = (item.name for item in fields(Preset))
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}
