"""Labelled texts to augment: a task card's splits or one file in, texts with the names of their labels out."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from dana.core.artifacts import fingerprint
from dana.core.errors import ConfigError, DataError
from dana.corpus.readers import read_records
from dana.corpus.text import normalise
from dana.studies.augmentation.synthetic import LabelledText
from dana.tasks.card import TaskCard
from dana.tasks.examples import read_splits
from dana.tasks.kinds import DEFAULT

FIELDS = ("id", "text", "label")


@dataclass(frozen=True)
class LabelledData:
    """Texts to augment, and those that are kept away from it.

    Attributes:
        splits: Texts by split: ``train``, and of a card ``dev`` and ``test``.
        fields: What the task card calls id, text and label.
    """

    splits: Mapping[str, Sequence[LabelledText]]
    fields: tuple[str, str, str] = FIELDS

    @property
    def train(self) -> Sequence[LabelledText]:
        """The texts to augment."""
        return self.splits["train"]

    @property
    def test(self) -> Sequence[LabelledText]:
        """Texts that no keyword may be from."""
        return self.splits.get("test", ())

    @property
    def fingerprint(self) -> str:
        """Hex digest of all texts, and of what the card calls their fields."""
        return fingerprint([self.fields, {split: [asdict(row) for row in rows] for split, rows in self.splits.items()}])


def read_card_texts(card: TaskCard, data: str | None = None) -> LabelledData:
    """The labelled texts of a task card.

    Args:
        card: Of texts with one label each.
        data: See :meth:`dana.tasks.card.TaskCard.files`.

    Raises:
        ConfigError: If the card is of pairs of texts, or of another kind of target.
        DataError: If a split is missing or bad, or a label has no training text.
    """
    if card.kind != DEFAULT or card.text_pair or card.template:
        found = f"kind {card.kind}" if card.kind != DEFAULT else "text_pair" if card.text_pair else "template"
        raise ConfigError(f"task {card.name}: {found}: synthetic texts are of one field and one label")
    splits = {
        split: [LabelledText(example.id, example.text, card.labels[int(str(example.label))]) for example in examples]
        for split, examples in read_splits(card, data).items()
    }
    _check_labels(splits["train"], card.labels, f"task {card.name}")
    return LabelledData(splits, (card.id or "id", card.text, card.label))


def read_labelled_file(path: Path) -> LabelledData:
    """The labelled texts of one file with the fields ``text`` and ``label``; ``id``, or else the line, names a text.

    Raises:
        DataError: Naming file and line of a bad record, a missing field or an empty text; if there are fewer than two
            labels.
    """
    rows = []
    for record in read_records([str(path)]):
        text, label = record.get("text"), record.get("label")
        problem = record.problem
        if not problem and (not isinstance(text, str) or not normalise(text)):
            problem = f"no text in the field 'text'; found {', '.join(record.fields) or 'nothing'}"
        if not problem and (label is None or not str(label).strip() or label != label):  # NaN: an empty cell of a table
            problem = f"no label in the field 'label'; found {', '.join(record.fields) or 'nothing'}"
        if not problem and isinstance(label, list | dict):
            problem = f"label {label!r} is {type(label).__name__}, not one label"
        if problem:
            raise DataError(f"{record.place}: {problem}")
        given = record.get("id")
        rows.append(LabelledText(f"train-{record.line}" if given is None else str(given), normalise(text), str(label)))
    found = sorted({row.label for row in rows})
    if len(found) < 2:
        raise DataError(f"{path}: has {len(found)} label{'' if len(found) == 1 else 's'}; a task needs two or more")
    _check_labels(rows, found, str(path))
    return LabelledData({"train": rows})


def _check_labels(rows: Sequence[LabelledText], labels: Sequence[str], where: str) -> None:
    """Refuse a label without text, and names that synthetic texts will get.

    Raises:
        DataError: Naming the label or the text.
    """
    counts = Counter(row.label for row in rows)
    for label in labels:
        if not counts[label]:
            raise DataError(
                f"{where}: label {label!r} has no training text; a generator of it has nothing to learn from"
            )
    augmented = next((row.id for row in rows if row.id.startswith("synthetic-")), None)
    if augmented is not None:
        raise DataError(f"{where}: {augmented!r} is the id of a synthetic text; give the texts as they were before")
