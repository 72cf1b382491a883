"""Say where the texts of a task stand in a table, by the names that its owner gave."""

from dataclasses import dataclass

from dana.tasks.card import TaskCard, Template


@dataclass(frozen=True)
class Columns:
    """Where the texts stand in a table.

    Attributes:
        text: Column of the text.
        text_pair: Column of the second text, for labels of pairs.
        template: Makes the text from several columns instead, ``{title} {body}``.
        id: Column of the id; None uses ``id`` where a table has it.
        separator: Separator of the table that was trained on, if it was delimited text. CSV is
            written with it.
        text_documents: What a text of a ``.txt`` file is, see :class:`dana.corpus.inputs.Inputs`.
        header: Whether that table had a header; without one, its columns are 1, 2 and so on.
    """

    text: str = "text"
    text_pair: str | None = None
    template: str | None = None
    id: str | None = None
    separator: str | None = None
    header: bool = True
    text_documents: str = "auto"

    @classmethod
    def of_card(cls, card: TaskCard) -> "Columns":
        """Return the columns of a task card; of one by ``dana init``, those of the user's table."""
        found = card.made_from
        return cls(
            text=found.get("columns", {}).get("text", card.text),
            text_pair=found.get("columns", {}).get("text_pair", card.text_pair),
            template=card.template,
            id=found.get("id", card.id),
            separator=found.get("separator"),
            header=found.get("header", True),
            text_documents=found.get("text_documents", "auto"),
        )

    @property
    def whole_text(self) -> Template:
        """The template that makes the text of a row, often of a single column."""
        if self.template is None:
            return Template.of_field(self.text)
        return Template.parse(self.template)

    @property
    def names(self) -> list[str]:
        """The columns that a row must have."""
        pair = [] if self.text_pair is None else [self.text_pair]
        return [*self.whole_text.fields, *pair]
