"""A task's data: labelled examples, checked against its card; its text as documents to fit on and to hold out."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from glob import has_magic
from pathlib import Path
from typing import Any

import numpy as np

from dana.core.errors import DataError, nearest, nearest_path
from dana.core.logging import get_logger
from dana.core.rng import derive_seed, document_key, generator, hash_uniform, unit_keys
from dana.core.schemas import Document
from dana.core.storage import is_url
from dana.corpus.documents import SKIPPING, Tally, read_documents
from dana.corpus.hub import is_hub
from dana.corpus.inputs import MISSING, Inputs, Record, field_at
from dana.corpus.readers import read_records
from dana.corpus.sources import Source
from dana.corpus.text import document_id, normalise
from dana.tasks.card import SPLITS, TaskCard, Template, find_card
from dana.tasks.finder import card_names
from dana.tasks.kinds.base import Answer, Kind

log = get_logger(__name__)

HELD_OUT_SHARE = 0.1
SPLIT_ENDS = {"train": 0.7, "dev": 0.82, "test": 1.0}  # of one file with all splits: 70 %, 12 % and 18 % of the ids


@dataclass(frozen=True)
class Example:
    """One labelled text, or pair of texts.

    Attributes:
        id: Given, or ``split-line``.
        text: Normalised, never empty.
        label: What the card's kind makes of the target: mostly a position in the card's labels.
        pair: The second text, normalised, never empty; None where the card names none.
        words: The text's words, where each has a label; None else.
    """

    id: str
    text: str
    label: Answer
    pair: str | None = None
    words: tuple[str, ...] | None = None

    @property
    def texts(self) -> tuple[str, ...]:
        """The text, and the second where there is one."""
        return (self.text,) if self.pair is None else (self.text, self.pair)


def read_split(card: TaskCard, split: str, data: str | None = None) -> list[Example]:
    """Read one split. A number of examples that the card does not expect is a warning.

    Args:
        card: The task.
        split: ``train``, ``dev`` or ``test``.
        data: See :meth:`dana.tasks.card.TaskCard.files`.

    Raises:
        DataError: If there are no examples; or naming file and line of a bad record, a missing field, an
            empty text or a label that is not the card's.
    """
    examples = []
    for place, example in read_labelled(card, split, data):
        if not all(example.texts):
            raise DataError(f"{place}: {empty_text(example)}")
        examples.append(example)
    accepted = card.expected(split)
    if accepted and len(examples) not in accepted:
        numbers = " or ".join(f"{number:,}" for number in accepted)
        log.warning(
            "%s: %s has %d examples where the card expects %s, so scores do not compare with published ones",
            card.name,
            split,
            len(examples),
            numbers,
        )
    return examples


def read_labelled(card: TaskCard, split: str, data: str | None = None) -> Iterator[tuple[str, Example]]:
    """Stream the examples of a split, each with its file and line; a text may be empty.

    Raises:
        DataError: As :func:`read_split`, but for empty texts.
    """
    kind, sources, found = card.target, card.files(data, [split]), False
    for record in read_records(sources):
        example = _example(card, split, kind, record)
        if not card.is_one_file or _split_of(example, has_id=record.get(card.id or "id") is not None) == split:
            found = True
            yield record.location, example
    if not found:
        raise DataError(f"{sources[0]}: holds no examples{f' of {split}' if card.is_one_file else ''}")


def _split_of(example: Example, has_id: bool) -> str:
    """Where one file holds all splits, the split that a hash of an example's id, or else of its text, puts it in."""
    key = document_key(example.id if has_id else "\x1f".join(example.texts))
    place = float(hash_uniform(derive_seed(0, "task", "split"), np.array([key], dtype=np.uint64))[0])
    return next(split for split, end in SPLIT_ENDS.items() if place < end)


def _example(card: TaskCard, split: str, kind: Kind, record: Record) -> Example:
    if record.problem:
        raise DataError(f"{record.location}: {record.problem}")
    whole = card.whole_text
    texts = [*whole.fields, *([card.text_pair] if card.text_pair else [])]
    found = {name: record.get(name) for name in (*texts, card.label)}
    absent = {card.id: None} if card.id and field_at(record.fields, card.id) is MISSING else {}
    for name, value in {**found, **absent}.items():
        if value is None:
            held = ", ".join(key for key, value in record.fields.items() if value is not None)
            raise DataError(f"{record.location}: no {name!r}; found {held or 'nothing'}")
    try:
        made = make_text({name: found[name] for name in texts}, whole, card.text_pair, kind)
        label = kind.read(found[card.label])
        if made.words is not None and len(made.words) != kind.sizes([label])[0]:
            raise ValueError(f"{len(made.words)} words, but {kind.sizes([label])[0]} labels")
    except ValueError as error:
        raise DataError(f"{record.location}: {error}") from error
    given = record.get(card.id or "id")
    return replace(made, id=f"{split}-{record.line}" if given is None else str(given), label=label)


def make_text(values: dict[str, Any], template: Template, pair: str | None, kind: Kind) -> Example:
    """The texts of a record, normalised, as an example without id and label.

    Args:
        values: The fields' values by name.
        template: Makes the text of some.
        pair: Field of the second text, or None.
        kind: Says what a text is.

    Raises:
        ValueError: If a value is no text; names the field.
    """
    read: dict[str, str] = {}
    words = None
    for name, value in values.items():
        try:
            read[name], words = kind.read_text(value)
        except ValueError as error:
            raise ValueError(f"{name!r} {error}") from error
    return Example("", normalise(template.fill(read)), 0, normalise(read[pair]) if pair else None, words)


def empty_text(example: Example) -> str:
    """Which text of an example is empty, in words."""
    return "the second text is empty" if example.text else "the text is empty"


def read_splits(card: TaskCard, data: str | None = None) -> dict[str, list[Example]]:
    """All three splits, by name, as the card has them tested.

    Raises:
        DataError: As :func:`read_split`; or if no test text is left.
    """
    splits = {split: read_split(card, split, data) for split in SPLITS}
    if not card.unseen_test:
        return splits
    seen = {example.texts for split in ("train", "dev") for example in splits[split]}
    unseen = [example for example in splits["test"] if example.texts not in seen]
    if not unseen:
        raise DataError(f"{card.name}: unseen_test: all {len(splits['test'])} test texts are in train or dev")
    log.info(
        "%s: %d of %d test texts are tested, the others are in train or dev",
        card.name,
        len(unseen),
        len(splits["test"]),
    )
    return {**splits, "test": unseen}


def overlap(splits: dict[str, list[Example]]) -> dict[str, int]:
    """How many test examples have a text (of a pair: both) that is also in train, in dev: what a model may remember."""
    return {f"test_in_{split}": len(in_both(splits["test"], splits[split])) for split in ("train", "dev")}


def in_both(examples: list[Example], others: list[Example]) -> list[tuple[Example, list[Example]]]:
    """The examples whose text (of a pair: both, in their order) others have, too, each with those that have it."""
    by_texts: dict[tuple[str, ...], list[Example]] = {}
    for other in others:
        by_texts.setdefault(other.texts, []).append(other)
    return [(example, by_texts[example.texts]) for example in examples if example.texts in by_texts]


def subset(examples: list[Example], most: int | None) -> list[Example]:
    """A fixed random choice of at most so many examples, in their order; all of them if None."""
    if most is None or most >= len(examples):
        return examples
    rows = generator(0, "finetune", "subset").permutation(len(examples))[:most]
    return [examples[row] for row in sorted(rows)]


def find_task(task: str) -> TaskCard | None:
    """The card that `task` names; None if it names text.

    Raises:
        DataError: If it is neither.
    """
    card = find_card(task)
    if card is None and not (is_url(task) or is_hub(task) or Path(task).exists() or has_magic(task)):
        near = nearest(task, card_names()) or nearest_path(task) or "."
        raise DataError(f"task {task!r}: neither a file nor a task card{near} Known: {', '.join(card_names())}.")
    return card


def card_texts(card: TaskCard, data: str | None) -> tuple[list[Document], list[Document]]:
    """Distinct training texts of a card to fit on, and development texts that are not among them to hold out.

    Either text of a pair is a document.

    Args:
        card: The task.
        data: Folder of its data, where that is not under ``DANA_DATA``.
    """
    fit, held_out = _distinct_texts(card, "train", data), _distinct_texts(card, "dev", data)
    return (
        [Document(document_id(card.name, text), card.name, text) for text in fit],
        [Document(document_id(card.name, text), card.name, text) for text in held_out if text not in fit],
    )


def _distinct_texts(card: TaskCard, split: str, data: str | None) -> dict[str, None]:
    texts = (text for example in read_split(card, split, data) for text in example.texts)
    return dict.fromkeys(filter(None, map(normalise, texts)))


def plain_texts(
    sources: list[Source], inputs: Inputs, seed: int, tally: Tally
) -> tuple[list[Document], list[Document]]:
    """Documents of plain text to fit on, and a tenth of them, by a hash of their id, to hold out.

    Args:
        sources: Files.
        inputs: How records become documents.
        seed: Decides which documents are held out.
        tally: Counts the records.

    Raises:
        DataError: If a record is bad.
    """
    try:
        documents = list(read_documents(sources, "fail", tally, inputs=inputs))
    except DataError as error:
        raise DataError(str(error).replace(SKIPPING, " (text of the task is never skipped)")) from error
    parts: tuple[list[Document], list[Document]] = ([], [])
    key = derive_seed(seed, "task", "held_out")
    first = np.zeros(1, dtype=np.int64)
    places = [float(hash_uniform(key, unit_keys(document.doc_id, first))[0]) for document in documents]
    share = max(HELD_OUT_SHARE, min(places, default=0.0))  # of a handful of documents chance may hold out none
    for document, place in zip(documents, places, strict=True):
        parts[int(place <= share)].append(document)
    return parts
