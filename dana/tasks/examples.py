"""Read a task's labelled examples and check them against its card; split its text into fit and held-out documents."""

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
        id: The record's id, or ``split-line``.
        text: Normalised, not empty.
        label: Target as the card's kind represents it: for most kinds a class number.
        pair: The second text, normalised, not empty; None if the card has no ``text_pair``.
        words: The words of the text, if each has a label; else None.
    """

    id: str
    text: str
    label: Answer
    pair: str | None = None
    words: tuple[str, ...] | None = None

    @property
    def texts(self) -> tuple[str, ...]:
        """The text, or both texts of a pair."""
        return (self.text,) if self.pair is None else (self.text, self.pair)


def read_split(card: TaskCard, split: str, data: str | None = None) -> list[Example]:
    """Read one split; warn if the card expects another number of examples.

    Args:
        card: The task.
        split: ``train``, ``dev`` or ``test``.
        data: See :meth:`dana.tasks.card.TaskCard.files`.

    Raises:
        DataError: If there are no examples, or for a bad record, a missing field, an empty text or an unknown label;
            names file and line.
    """
    examples, ids = [], set()
    for location, example in stream_examples(card, split, data):
        if not all(example.texts):
            raise DataError(f"{location}: {describe_empty_text(example)}")
        if split == "test" and not card.is_one_file and example.id in ids:  # by which predictions are compared
            raise DataError(f"{location}: the id {example.id!r} comes twice; give every test example an id of its own")
        ids.add(example.id)
        examples.append(example)
    sizes = card.accepted_sizes(split)
    if sizes and len(examples) not in sizes:
        numbers = " or ".join(f"{number:,}" for number in sizes)
        message = "%s: %s has %d examples, but the card expects %s; scores cannot be compared with published ones"
        log.warning(message, card.name, split, len(examples), numbers)
    return examples


def stream_examples(card: TaskCard, split: str, data: str | None = None) -> Iterator[tuple[str, Example]]:
    """Stream the examples of a split, each with its file and line; a text may be empty.

    Raises:
        DataError: As :func:`read_split`, but for empty texts.
    """
    kind, sources, is_empty = card.target, card.files(data, [split]), True
    for record in read_records(sources):
        example = _example(card, split, kind, record)
        if not card.is_one_file or _split_of(example, has_id=record.get(card.id or "id") is not None) == split:
            is_empty = False
            yield record.location, example
    if is_empty:
        raise DataError(f"{sources[0]}: has no examples{f' of {split}' if card.is_one_file else ''}")


def _split_of(example: Example, has_id: bool) -> str:
    """Assign an example to a split by a hash of its id, or of its text if it has no id."""
    key = document_key(example.id if has_id else "\x1f".join(example.texts))
    position = float(hash_uniform(derive_seed(0, "task", "split"), np.array([key], dtype=np.uint64))[0])
    return next(split for split, end in SPLIT_ENDS.items() if position < end)


def _example(card: TaskCard, split: str, kind: Kind, record: Record) -> Example:
    if record.problem:
        raise DataError(f"{record.location}: {record.problem}")
    template = card.whole_text
    texts = [*template.fields, *([card.text_pair] if card.text_pair else [])]
    values = {name: record.get(name) for name in (*texts, card.label)}
    absent = {card.id: None} if card.id and field_at(record.fields, card.id) is MISSING else {}
    for name, value in {**values, **absent}.items():
        if value is None:
            present = ", ".join(key for key, value in record.fields.items() if value is not None)
            raise DataError(f"{record.location}: no {name!r}; found {present or 'nothing'}")
    try:
        example = make_text({name: values[name] for name in texts}, template, card.text_pair, kind)
        label = kind.read(values[card.label])
        if example.words is not None and len(example.words) != kind.sizes([label])[0]:
            raise ValueError(f"{len(example.words)} words, but {kind.sizes([label])[0]} labels")
    except ValueError as error:
        raise DataError(f"{record.location}: {error}") from error
    identifier = record.get(card.id or "id")
    if identifier is None and field_at(record.fields, card.id or "id") is not MISSING:
        raise DataError(f"{record.location}: the id is null; give one, or remove the field from all records")
    name = "" if identifier is None else normalise(str(identifier))
    return replace(example, id=name or f"{split}-{record.line}", label=label)


def make_text(values: dict[str, Any], template: Template, pair: str | None, kind: Kind) -> Example:
    """Make an example, without id and label, from the text fields of a record; texts are normalised.

    Args:
        values: Values of the fields by name.
        template: Template of the text.
        pair: Field of the second text, or None.
        kind: Kind of the target, which decides what a text may be.

    Raises:
        ValueError: If a value is not a text; names the field.
    """
    texts: dict[str, str] = {}
    words = None
    for name, value in values.items():
        try:
            texts[name], words = kind.read_text(value)
        except ValueError as error:
            raise ValueError(f"{name!r} {error}") from error
    return Example("", normalise(template.fill(texts)), 0, normalise(texts[pair]) if pair else None, words)


def describe_empty_text(example: Example) -> str:
    """Return the message for an example with an empty text."""
    return "the second text is empty" if example.text else "the text is empty"


def read_splits(card: TaskCard, data: str | None = None) -> dict[str, list[Example]]:
    """Read all three splits; with ``unseen_test``, leave out test texts that are in train or dev.

    Raises:
        DataError: See :func:`read_split`; or if no test text remains.
    """
    splits = {split: read_split(card, split, data) for split in SPLITS}
    if not card.unseen_test:
        return splits
    unseen = [example for example, new in zip(splits["test"], is_unseen(splits), strict=True) if new]
    if not unseen:
        raise DataError(f"{card.name}: unseen_test: all {len(splits['test'])} test texts are in train or dev")
    message = "%s: %d of %d test texts are used; the others are in train or dev"
    log.info(message, card.name, len(unseen), len(splits["test"]))
    return {**splits, "test": unseen}


def overlap(splits: dict[str, list[Example]]) -> dict[str, int]:
    """Count the test examples whose text (both texts of a pair) is also in train, in dev, in either and in neither."""
    counts = {f"test_in_{split}": len(shared_texts(splits["test"], splits[split])) for split in ("train", "dev")}
    unseen = int(is_unseen(splits).sum())
    return {**counts, "seen": len(splits["test"]) - unseen, "unseen": unseen}


def is_unseen(splits: dict[str, list[Example]]) -> np.ndarray:
    """Return, for each test example, whether its text is neither in train nor in dev."""
    training_texts = {example.texts for split in ("train", "dev") for example in splits[split]}
    return np.array([example.texts not in training_texts for example in splits["test"]], dtype=bool)


def shared_texts(examples: list[Example], others: list[Example]) -> list[tuple[Example, list[Example]]]:
    """Match examples with the others of the same text (both texts of a pair); those without a match are left out."""
    by_texts: dict[tuple[str, ...], list[Example]] = {}
    for other in others:
        by_texts.setdefault(other.texts, []).append(other)
    return [(example, by_texts[example.texts]) for example in examples if example.texts in by_texts]


def subset(examples: list[Example], size: int | None) -> list[Example]:
    """Sample at most `size` examples, the same on every call, in their order; None returns all."""
    if size is None or size >= len(examples):
        return examples
    rows = generator(0, "finetune", "subset").permutation(len(examples))[:size]
    return [examples[row] for row in sorted(rows)]


def find_task(task: str) -> TaskCard | None:
    """Find the card that `task` names; None if it names text.

    Raises:
        DataError: If it names neither a card nor text.
    """
    card = find_card(task)
    if card is None and not (is_url(task) or is_hub(task) or Path(task).exists() or has_magic(task)):
        near = nearest(task, card_names()) or nearest_path(task) or "."
        raise DataError(f"task {task!r}: is neither a file nor a task card{near} Cards: {', '.join(card_names())}.")
    return card


def card_texts(card: TaskCard, data: str | None) -> tuple[list[Document], list[Document]]:
    """Read distinct training texts of a card to fit on, and other development texts to hold out.

    Each text of a pair is a document.

    Args:
        card: The task.
        data: Folder of its data, if not under ``DANA_DATA``.
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
    """Split documents of plain text, by a hash of their id, into nine tenths to fit on and a tenth to hold out.

    Args:
        sources: Files of text.
        inputs: How records become documents.
        seed: Decides which documents are held out.
        tally: Counts the records.

    Raises:
        DataError: If a record is bad.
    """
    try:
        documents = list(read_documents(sources, "fail", tally, inputs=inputs))
    except DataError as error:
        raise DataError(str(error).replace(SKIPPING, " (records of the task are never skipped)")) from error
    parts: tuple[list[Document], list[Document]] = ([], [])
    key = derive_seed(seed, "task", "held_out")
    first = np.zeros(1, dtype=np.int64)
    hashes = [float(hash_uniform(key, unit_keys(document.doc_id, first))[0]) for document in documents]
    share = max(HELD_OUT_SHARE, min(hashes, default=0.0))  # at least one document, however few there are
    for document, value in zip(documents, hashes, strict=True):
        parts[int(value <= share)].append(document)
    return parts
