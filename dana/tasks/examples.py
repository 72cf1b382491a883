"""Read a task's labelled examples and check them against its card; split its text into fit and held-out documents."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from glob import has_magic
from itertools import chain, count
from pathlib import Path
from typing import Any

import numpy as np

from dana.core.errors import DataError, nearest, nearest_path
from dana.core.logging import get_logger
from dana.core.rng import derive_seed, document_key, generator, hash_uniform, unit_keys
from dana.core.schemas import Document
from dana.core.storage import is_url
from dana.corpus.bad_records import BadRecords
from dana.corpus.documents import SKIPPING, Tally, read_documents
from dana.corpus.hub import is_hub
from dana.corpus.inputs import MISSING, Inputs, Record, field_at
from dana.corpus.readers import read_records
from dana.corpus.sources import STDIN, Source
from dana.corpus.text import document_id, normalise, wording
from dana.tasks.card import SPLITS, TaskCard, Template, find_card
from dana.tasks.finder import card_names
from dana.tasks.kinds.base import Kind, Label
from dana.tasks.kinds.values import bit_of

log = get_logger(__name__)

HELD_OUT_SHARE = 0.1
MOST_TEST_TEXTS = 10_000  # with ``test: rest``
SPLIT_ENDS = {
    "train": 0.7,
    "dev": 0.82,
    "test": 1.0,
}  # of one file with all splits: 70 %, 12 % and 18 % of the ids


@dataclass(frozen=True)
class Example:
    """One labelled text, or pair of texts.

    Attributes:
        id: The record's id, or ``split-line``.
        text: Normalised, not empty.
        label: Target as the card's kind represents it: for most kinds a class number.
        pair: The second text, normalised, not empty; None if the card has no ``text_pair``.
        words: The words of the text, if each has a label; else None.
        fold: Its fold, -1 if it only trains; None if the card has no ``folds``.
        group: Its group; empty for a text that is alone, or if the card has no ``group``.
    """

    id: str
    text: str
    label: Label
    pair: str | None = None
    words: tuple[str, ...] | None = None
    fold: int | None = None
    group: str = ""

    @property
    def texts(self) -> tuple[str, ...]:
        """The text, or both texts of a pair."""
        return (self.text,) if self.pair is None else (self.text, self.pair)


def read_split(card: TaskCard, split: str, data: str | None = None) -> list[Example]:
    """Read one split, of a card with ``folds`` the first; warn if the card expects another number of examples.

    Args:
        card: The task.
        split: ``train``, ``dev`` or ``test``.
        data: See :meth:`dana.tasks.card.TaskCard.files`.

    Raises:
        DataError: If there are no examples, or for a bad record, a missing field, an empty text or
            an unknown label; names file and line.
    """
    if card.folds is not None:
        return split_by_fold(read_folds(card, data), 0)[split]
    if card.train is not None:
        return _few_to_train(card, {split: _read_published(card, split, data) for split in SPLITS})[
            split
        ]
    return _read_published(card, split, data)


def _read_published(card: TaskCard, split: str, data: str | None) -> list[Example]:
    """Read one split as it is published."""
    examples = _read(card, split, data, has_ids=split == "test" and not card.is_one_file)
    sizes = card.accepted_sizes(split)
    if sizes and len(examples) not in sizes:
        numbers = " or ".join(f"{number:,}" for number in sizes)
        message = "%s: %s has %d examples, but the card expects %s; scores cannot be compared with published ones"
        log.warning(message, card.name, split, len(examples), numbers)
    return examples


def _read(card: TaskCard, split: str, data: str | None, has_ids: bool) -> list[Example]:
    """Read the examples of a split; with `has_ids`, refuse an id that comes twice: predictions are compared by it."""
    examples, ids = [], set()
    for location, example in stream_examples(card, split, data):
        if not all(example.texts):
            raise DataError(f"{location}: {describe_empty_text(example)}")
        if has_ids and example.id in ids:
            raise DataError(
                f"{location}: the id {example.id!r} comes twice; give every test example an id of its own"
            )
        ids.add(example.id)
        examples.append(example)
    return examples


def _few_to_train(card: TaskCard, splits: dict[str, list[Example]]) -> dict[str, list[Example]]:
    """Keep ``train`` training examples; with ``test: rest`` test the others, too, without texts of train and dev.

    The second test example of an id gets the id ``ID#2``, and so on; ids that the data has are
    passed over.
    """
    train = sorted(
        np.argsort(_ranks(splits["train"], "few", "train"), kind="stable")[: card.train].tolist()
    )
    train_examples = [splits["train"][row] for row in train]
    if not card.test:
        return {**splits, "train": train_examples}
    others = [example for row, example in enumerate(splits["train"]) if row not in {*train}]
    new = _without([*splits["test"], *others], [*train_examples, *splits["dev"]])
    rows = np.argsort(_ranks(new, "few", "test"), kind="stable")[:MOST_TEST_TEXTS]
    test: dict[
        str, Example
    ] = {}  # train and test may both count from 0; predictions are compared by id
    for example in (new[row] for row in sorted(rows.tolist())):
        names = chain([example.id], (f"{example.id}#{number}" for number in count(2)))
        name = next(name for name in names if name not in test)
        test[name] = replace(example, id=name)
    return {**splits, "train": train_examples, "test": [*test.values()]}


def _ranks(examples: list[Example], *purpose: str) -> np.ndarray:
    """Hash the ids of examples to numbers in [0, 1), others for each purpose."""
    keys = np.array([document_key(example.id) for example in examples], dtype=np.uint64)
    return hash_uniform(derive_seed(0, "task", *purpose), keys)


def read_folds(card: TaskCard, data: str | None = None) -> list[Example]:
    """Read all examples of a card with ``folds``.

    Raises:
        DataError: As :func:`read_split`; or if a fold has no text, or there is none to train on
            beside one.
    """
    examples, [file] = _read(card, "text", data, has_ids=True), card.files(data, ["text"])
    folds = {example.fold for example in examples}
    numbers = range(max(folds) + 1)  # type: ignore[type-var, operator]
    for fold in numbers or [0]:
        if fold not in folds:
            raise DataError(
                f"{file}: no text has {card.folds}={fold}; number the folds from 0 without gaps"
            )
    if folds == {0}:
        raise DataError(
            f"{file}: all texts have {card.folds}=0; give those that train -1, or make two folds or more"
        )
    return examples


def fold_count(card: TaskCard, data: str | None = None) -> int:
    """Count the folds of a card; 0 if it has no ``folds``."""
    return (
        0
        if card.folds is None
        else len({example.fold for example in read_folds(card, data)} - {-1})
    )


def split_by_fold(examples: list[Example], fold: int) -> dict[str, list[Example]]:
    """Split examples into test (a fold), dev (a tenth of the others) and train (the rest).

    Dev has every tenth of the others in the order of label and of a hash of the id: a systematic
    sample, stratified by label. Train leaves out texts that are also in dev or test, dev those that
    are in test.

    Raises:
        DataError: If there is no text to train on.
    """
    test = [example for example in examples if example.fold == fold]
    others = _without([example for example in examples if example.fold != fold], test)
    ranks = _ranks(others, "dev")
    order = sorted(range(len(others)), key=lambda row: (str(others[row].label), ranks[row]))
    rows = {*order[min(4, len(order) - 1) :: 10]}
    dev = [example for row, example in enumerate(others) if row in rows]
    train = _without([example for row, example in enumerate(others) if row not in rows], dev)
    if not train:
        raise DataError(
            f"fold {fold}: no text is left to train on beside {len(test)} to test on; add texts"
        )
    return {"train": train, "dev": dev, "test": test}


def _without(examples: list[Example], others: list[Example]) -> list[Example]:
    wordings = {tuple(map(wording, example.texts)) for example in others}
    return [example for example in examples if tuple(map(wording, example.texts)) not in wordings]


def stream_examples(
    card: TaskCard, split: str, data: str | None = None
) -> Iterator[tuple[str, Example]]:
    """Stream the examples of a split (all, of a card with ``folds``), each with file and line; a text may be empty.

    Raises:
        DataError: As :func:`read_split`, but for empty texts.
    """
    kind = card.label_kind
    sources = card.files(data, [split])
    is_empty = True
    is_divided = card.is_one_file and not card.folds
    bad = BadRecords()
    for record in read_records(sources, _inputs(card), is_table=True):
        if bad and bad.is_enough():
            break
        try:
            example = _example(card, split, kind, record)
        except ValueError as error:
            bad.add(record.location, str(error))
            continue
        has_id = record.get(card.id or "id") is not None
        if not bad and (not is_divided or _split_of(example, has_id) == split):
            is_empty = False
            yield record.location, example
    if bad:
        raise bad.error()
    if is_empty:
        raise DataError(f"{sources[0]}: has no examples{f' of {split}' if is_divided else ''}")


def _inputs(card: TaskCard) -> Inputs:
    """Say which columns the files of a card have."""
    pair = [card.text_pair] if card.text_pair else []
    return replace(card.inputs, text_field=[*card.whole_text.fields, *pair, *card.label_fields])


def _split_of(example: Example, has_id: bool) -> str:
    """Assign an example to a split by a hash of its id, or of its text if it has no id."""
    key = document_key(example.id if has_id else "\x1f".join(example.texts))
    position = float(
        hash_uniform(derive_seed(0, "task", "split"), np.array([key], dtype=np.uint64))[0]
    )
    return next(split for split, end in SPLIT_ENDS.items() if position < end)


def _example(card: TaskCard, split: str, kind: Kind, record: Record) -> Example:
    """Make the example of a record.

    Raises:
        ValueError: If the record is bad, with the problem.
    """
    if record.problem:
        raise ValueError(record.problem)
    template = card.whole_text
    texts = [*template.fields, *([card.text_pair] if card.text_pair else [])]
    names = [*texts, *card.label_fields, *([card.folds] if card.folds else [])]
    values = {name: record.get(name) for name in names}
    absent = {card.id: None} if card.id and field_at(record.fields, card.id) is MISSING else {}
    for name, value in {**values, **absent}.items():
        if value is None:
            present = ", ".join(key for key, value in record.fields.items() if value is not None)
            raise ValueError(f"no {name!r}; found {present or 'nothing'}")
    fold = _fold(card.folds, values[card.folds]) if card.folds else None
    example = make_text({name: values[name] for name in texts}, template, card.text_pair, kind)
    label = kind.read(_label_value(card, values))
    if example.words is not None and len(example.words) != kind.sizes([label])[0]:
        raise ValueError(f"{len(example.words)} words, but {kind.sizes([label])[0]} labels")
    given_id = record.get(card.id or "id")
    if given_id is None and field_at(record.fields, card.id or "id") is not MISSING:
        raise ValueError("the id is null; give one, or remove the field from all records")
    name = "" if given_id is None else normalise(str(given_id))
    group = "" if card.group is None else normalise(str(record.get(card.group) or ""))
    identifier = name or f"{split}-{record.line}"
    return replace(example, id=identifier, label=label, fold=fold, group=group)


def _label_value(card: TaskCard, values: dict[str, Any]) -> Any:
    """Return the value of the label; of several fields the vector of 0 and 1.

    Raises:
        ValueError: If one of several fields is neither 0 nor 1; names it.
    """
    if isinstance(card.label, str):
        return values[card.label]
    bits = [bit_of(values[name]) for name in card.label]
    if None in bits:
        name = card.label[bits.index(None)]
        raise ValueError(
            f"{name!r} is {values[name]!r}; of several fields of labels each is 0 or 1"
        )
    return bits


def _fold(field: str, value: Any) -> int:
    fold = int(value) if re.fullmatch(r"-?\d{1,4}", str(value)) else -2
    if fold < -1:
        raise ValueError(
            f"{field}={value!r}: must be an integer from 0, or -1 for a text that only trains"
        )
    return fold


def make_text(values: dict[str, Any], template: Template, pair: str | None, kind: Kind) -> Example:
    """Make an example, without id and label, from the text fields of a record; texts are normalised.

    Args:
        values: Values of the fields by name.
        template: Template of the text.
        pair: Field of the second text, or None.
        kind: Kind of the label, which decides what a text may be.

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
    return Example(
        "", normalise(template.fill(texts)), 0, normalise(texts[pair]) if pair else None, words
    )


def joined_texts(examples: Sequence[Example]) -> list[str]:
    """Return what a linear model reads of each example: its text, or both texts of a pair, one a line."""
    return ["\n".join(example.texts) for example in examples]


def describe_empty_text(example: Example) -> str:
    """Return the message for an example with an empty text."""
    return "the second text is empty" if example.text else "the text is empty"


def read_splits(
    card: TaskCard, data: str | None = None, fold: int | None = None
) -> dict[str, list[Example]]:
    """Read all three splits; with ``unseen_test``, leave out test texts that are in train or dev.

    Args:
        card: The task.
        data: See :meth:`dana.tasks.card.TaskCard.files`.
        fold: Fold that is the test split, of a card with ``folds``; None takes the first.

    Raises:
        DataError: See :func:`read_split`; or if fewer than two test texts remain.
    """
    if card.folds is not None:
        return split_by_fold(read_folds(card, data), fold or 0)
    splits = {split: _read_published(card, split, data) for split in SPLITS}
    splits = splits if card.train is None else _few_to_train(card, splits)
    if card.unseen_test:
        unseen = [
            example for example, new in zip(splits["test"], is_unseen(splits), strict=True) if new
        ]
        message = "%s: %d of %d test texts are used; the others are in train or dev"
        log.info(message, card.name, len(unseen), len(splits["test"]))
        splits["test"] = unseen
    if len(splits["test"]) < 2:
        left = "unseen_test leaves " if card.unseen_test else ""
        raise DataError(
            f"{card.name}: {left}{len(splits['test'])} test texts; a verdict needs at least 2"
        )
    return splits


def overlap(splits: dict[str, list[Example]]) -> dict[str, int]:
    """Count the test examples whose text (both texts of a pair) is also in train, in dev, in either and in neither."""
    counts = {
        f"test_in_{split}": len(shared_texts(splits["test"], splits[split]))
        for split in ("train", "dev")
    }
    unseen = int(is_unseen(splits).sum())
    return {**counts, "seen": len(splits["test"]) - unseen, "unseen": unseen}


def is_unseen(splits: dict[str, list[Example]]) -> np.ndarray:
    """Return, for each test example, whether its text is neither in train nor in dev."""
    training_texts = {example.texts for split in ("train", "dev") for example in splits[split]}
    return np.array([example.texts not in training_texts for example in splits["test"]], dtype=bool)


def shared_texts(
    examples: list[Example], others: list[Example]
) -> list[tuple[Example, list[Example]]]:
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


def is_text(task: str) -> bool:
    """Return whether a task may be text: a file or folder that is there, a pattern, a URL, a Hub data set or ``-``."""
    return task == STDIN or is_url(task) or is_hub(task) or Path(task).exists() or has_magic(task)


def find_task(task: str) -> TaskCard | None:
    """Find the card that `task` names; None if it names text.

    Raises:
        DataError: If it names neither a card nor text.
    """
    card = find_card(task)
    if card is None and not is_text(task):
        near = (
            (nearest_path(task) if "." in task else "")
            or nearest(task, card_names())
            or nearest_path(task)
            or "."
        )
        raise DataError(
            f"task {task!r}: is neither a file nor a task card{near} Cards: {', '.join(card_names())}."
        )
    return card


def card_texts(
    card: TaskCard, data: str | None, fold: int | None = None
) -> tuple[list[Document], list[Document]]:
    """Read distinct training texts of a card to fit on, and other development texts to hold out.

    Each text of a pair is a document. Of a card with ``folds`` or ``test: rest``, none is in the
    test split, and none to fit on in dev.

    Args:
        card: The task.
        data: Folder of its data, if not under ``DANA_DATA``.
        fold: See :func:`read_splits`.
    """
    splits = (
        {}
        if card.is_divided
        else {split: read_split(card, split, data) for split in ("train", "dev")}
    )
    splits = splits or read_splits(card, data, fold)
    fit, held_out = (_distinct_texts(splits[split]) for split in ("train", "dev"))
    if card.is_divided:  # the texts of a pair may be in several examples
        test, dev = (
            {wording(text) for example in splits[split] for text in example.texts}
            for split in ("test", "dev")
        )
        held_out = {text: None for text in held_out if wording(text) not in test}
        fit = {text: None for text in fit if wording(text) not in test | dev}
    parts = fit, [text for text in held_out if text not in fit]
    documents = [
        [Document(document_id(card.name, text), card.name, text) for text in part] for part in parts
    ]
    return documents[0], documents[1]


def _distinct_texts(examples: list[Example]) -> dict[str, None]:
    return dict.fromkeys(
        filter(None, (normalise(text) for example in examples for text in example.texts))
    )


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
        raise DataError(
            str(error).replace(SKIPPING, " (records of the task are never skipped)")
        ) from error
    parts: tuple[list[Document], list[Document]] = ([], [])
    key = derive_seed(seed, "task", "held_out")
    first = np.zeros(1, dtype=np.int64)
    hashes = [
        float(hash_uniform(key, unit_keys(document.doc_id, first))[0]) for document in documents
    ]
    share = max(
        HELD_OUT_SHARE, min(hashes, default=0.0)
    )  # at least one document, however few there are
    for document, value in zip(documents, hashes, strict=True):
        parts[int(value <= share)].append(document)
    return parts
