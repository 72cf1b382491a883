"""Read a task's labelled examples and check them against its card.

It also divides the text of a task into documents that selectors are fitted to and documents that are
held out.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from glob import has_magic
from pathlib import Path
from typing import Any

import numpy as np

from dana.core.errors import DataError, nearest, nearest_path
from dana.core.logging import get_logger
from dana.core.rng import derive_seed, document_key, generator, hash_uniform
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

WHOLE = "text"  # in place of a split's name, where one file has all folds
HELD_OUT_SHARE = 0.1  # of the documents of a task of plain text
MOST_TEST_TEXTS = 10_000  # with ``test: rest``
# Of one file with all splits: 70 %, 12 % and 18 % of the ids.
SPLIT_ENDS = {"train": 0.7, "dev": 0.82, "test": 1.0}


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
    """Read one split; warn if the card expects another number of examples.

    Of a card with ``folds``, the first fold is the test split.

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
        published = _read_all_published(card, data)
        return _few_to_train(card, published)[split]
    return _read_published(card, split, data)


def _read_all_published(card: TaskCard, data: str | None) -> dict[str, list[Example]]:
    """Read all splits as they are published."""
    return {split: _read_published(card, split, data) for split in SPLITS}


def _read_published(card: TaskCard, split: str, data: str | None) -> list[Example]:
    """Read one split as it is published."""
    examples = _read(card, split, data, needs_distinct_ids=split == "test" and not card.is_one_file)
    if card.is_one_file:  # texts with one id lie in one split, as passages of a document should
        examples = _with_distinct_ids(examples)
    sizes = card.accepted_sizes(split)
    if sizes and len(examples) not in sizes:
        numbers = " or ".join(f"{number:,}" for number in sizes)
        message = (
            "%s: %s has %d examples, but the card expects %s; "
            "scores cannot be compared with published ones"
        )
        log.warning(message, card.name, split, len(examples), numbers)
    return examples


def _read(
    card: TaskCard, split: str, data: str | None, *, needs_distinct_ids: bool
) -> list[Example]:
    """Read the examples of a split.

    With `needs_distinct_ids`, an id that comes twice is refused, because predictions are compared
    by it.
    """
    examples = []
    ids = set()
    for location, example in stream_examples(card, split, data):
        if not all(example.texts):
            raise DataError(f"{location}: {describe_empty_text(example)}")
        if needs_distinct_ids and example.id in ids:
            raise DataError(
                f"{location}: the id {example.id!r} comes twice; "
                "give every test example an id of its own"
            )
        ids.add(example.id)
        examples.append(example)
    return examples


def _few_to_train(card: TaskCard, splits: dict[str, list[Example]]) -> dict[str, list[Example]]:
    """Keep ``train`` training examples of a card.

    With ``test: rest``, the unused ones join the test split, from which texts with the wording of
    one in train or dev are left out.
    """
    published = splits["train"]
    rows = _first_rows(published, card.train, "train")
    train = [published[row] for row in rows]
    if not card.test:
        return {**splits, "train": train}
    used_rows = {*rows}
    unused = [example for row, example in enumerate(published) if row not in used_rows]
    new = _without([*splits["test"], *unused], [*train, *splits["dev"]])
    tested = [new[row] for row in _first_rows(new, MOST_TEST_TEXTS, "test")]
    return {**splits, "train": train, "test": _with_distinct_ids(tested)}


def _first_rows(examples: list[Example], size: int | None, purpose: str) -> list[int]:
    """Choose `size` rows by a hash of the ids, in their order; None chooses all."""
    order = np.argsort(_hashed_ids(examples, "few", purpose), kind="stable")
    return sorted(order[:size].tolist())


def _with_distinct_ids(examples: list[Example]) -> list[Example]:
    """Give the second example of an id the id ``ID#2``, and so on, passing over ids that are taken.

    Train and test may both count from 0, or passages of a document have its id, and predictions are
    compared by id.
    """
    by_id: dict[str, Example] = {}
    for example in examples:
        name = example.id
        number = 1
        while name in by_id:
            number += 1
            name = f"{example.id}#{number}"
        by_id[name] = replace(example, id=name)
    return [*by_id.values()]


def _hashed_ids(examples: list[Example], *purpose: str) -> np.ndarray:
    """Hash the ids of examples to numbers in [0, 1); another purpose gives other numbers."""
    keys = np.array([document_key(example.id) for example in examples], dtype=np.uint64)
    return hash_uniform(derive_seed(0, "task", *purpose), keys)


def read_folds(card: TaskCard, data: str | None = None) -> list[Example]:
    """Read all examples of a card with ``folds``.

    Raises:
        DataError: As :func:`read_split`; or if a fold has no text, or all texts are in one fold, so
            that none is left to train on.
    """
    examples = _read(card, WHOLE, data, needs_distinct_ids=True)
    [file] = card.files(data, [WHOLE])
    folds = {example.fold for example in examples}
    last = max(0, *folds)  # type: ignore[type-var]  # a card with folds gives each text one
    for fold in range(last + 1):  # type: ignore[operator]
        if fold not in folds:
            raise DataError(
                f"{file}: no text has {card.folds}={fold}; number the folds from 0 without gaps"
            )
    if folds == {0}:
        raise DataError(
            f"{file}: all texts have {card.folds}=0; "
            "give those that train -1, or make two folds or more"
        )
    return examples


def fold_count(card: TaskCard, data: str | None = None) -> int:
    """Count the folds of a card; 0 if it has no ``folds``."""
    if card.folds is None:
        return 0
    folds = {example.fold for example in read_folds(card, data)}
    return len(folds - {-1})


def split_by_fold(examples: list[Example], fold: int) -> dict[str, list[Example]]:
    """Split examples into test (a fold), dev (a tenth of the others) and train (the rest).

    Dev has every tenth of the others in the order of the label as text (which groups equal labels;
    numbers are not sorted by size) and of a hash of the id. So it is a systematic sample, stratified
    by label. Train leaves out texts that are also in dev or test, dev those that
    are in test.

    Raises:
        DataError: If there is no text to train on.
    """
    test = [example for example in examples if example.fold == fold]
    others = [example for example in examples if example.fold != fold]
    others = _without(others, test)
    hashes = _hashed_ids(others, "dev")
    order = sorted(range(len(others)), key=lambda row: (str(others[row].label), hashes[row]))
    first = min(4, len(order) - 1)  # from the middle of the first ten, or the last of fewer
    dev_rows = {*order[first::10]}
    dev = []
    train = []
    for row, example in enumerate(others):
        if row in dev_rows:
            dev.append(example)
        else:
            train.append(example)
    train = _without(train, dev)
    if not train:
        raise DataError(
            f"fold {fold}: no text is left to train on beside {len(test)} to test on; add texts"
        )
    return {"train": train, "dev": dev, "test": test}


def _without(examples: list[Example], others: list[Example]) -> list[Example]:
    """Leave out the examples with the wording of one of the others."""
    wordings = {_wordings(other) for other in others}
    return [example for example in examples if _wordings(example) not in wordings]


def _wordings(example: Example) -> tuple[str, ...]:
    """Return the wording of the text, or of both texts of a pair."""
    return tuple(map(wording, example.texts))


def stream_examples(
    card: TaskCard, split: str, data: str | None = None
) -> Iterator[tuple[str, Example]]:
    """Stream the examples of a split, or all of a card with ``folds``.

    Yields:
        File and line of the example, and the example; its text may be empty.

    Raises:
        DataError: As :func:`read_split`, but for empty texts.
    """
    kind = card.label_kind
    sources = card.files(data, [split])
    is_empty = True
    is_split_by_hash = card.is_one_file and not card.folds
    bad = BadRecords()
    for record in read_records(sources, _inputs(card), is_table=True):
        if bad and bad.is_enough():
            break
        try:
            example = _example(card, split, kind, record)
        except ValueError as error:
            bad.add(record.location, str(error))
            continue
        if bad:  # the rest is read only to count the bad ones
            continue
        if is_split_by_hash:
            has_id = bool(_identifier(card, record))
            if _split_of(example, has_id) != split:
                continue
        is_empty = False
        yield record.location, example
    if bad:
        raise bad.error()
    if is_empty:
        which = f" of {split}" if is_split_by_hash else ""
        raise DataError(f"{sources[0]}: has no examples{which}")


def _inputs(card: TaskCard) -> Inputs:
    """Say how the files of a card are read, and which columns they have."""
    # A first line with one of these names is taken for the header.
    return replace(card.inputs, text_field=[*_text_fields(card), *card.label_fields])


def _text_fields(card: TaskCard) -> list[str]:
    """Return the fields that make the text, or both texts of a pair."""
    fields = card.whole_text.fields
    if card.text_pair is None:
        return fields
    return [*fields, card.text_pair]


def _split_of(example: Example, has_id: bool) -> str:
    """Assign an example to a split by a hash of its id, or of its text if it has no id."""
    key = document_key(example.id if has_id else "\x1f".join(example.texts))
    seed = derive_seed(0, "task", "split")
    [position] = hash_uniform(seed, np.array([key], dtype=np.uint64))
    return next(split for split, end in SPLIT_ENDS.items() if float(position) < end)


def _example(card: TaskCard, split: str, kind: Kind, record: Record) -> Example:
    """Make the example of a record.

    Raises:
        ValueError: If the record is bad, with the problem.
    """
    if record.problem:
        raise ValueError(record.problem)
    text_fields = _text_fields(card)
    values = _required_values(card, text_fields, record)
    fold = _fold(card.folds, values[card.folds]) if card.folds else None
    texts = {name: values[name] for name in text_fields}
    example = make_example(texts, card.whole_text, card.text_pair, kind)
    label = kind.read(_label_value(card, values))
    if example.words is not None:
        [label_count] = kind.sizes([label])
        if len(example.words) != label_count:
            raise ValueError(f"{len(example.words)} words, but {label_count} labels")
    identifier = _identifier(card, record) or f"{split}-{record.line}"
    group = ""
    if card.group is not None:
        group = normalise(str(record.get(card.group) or ""))
    return replace(example, id=identifier, label=label, fold=fold, group=group)


def _required_values(card: TaskCard, text_fields: list[str], record: Record) -> dict[str, Any]:
    """Return the values of the fields that every record must have, by name.

    Raises:
        ValueError: If one is absent or null, or the field of the id is absent.
    """
    names = [*text_fields, *card.label_fields]
    if card.folds:
        names.append(card.folds)
    values = {name: record.get(name) for name in names}
    missing = [name for name, value in values.items() if value is None]
    if card.id and field_at(record.fields, card.id) is MISSING:
        missing.append(card.id)
    if missing:
        present = [name for name, value in record.fields.items() if value is not None]
        raise ValueError(f"no {missing[0]!r}; found {', '.join(present) or 'nothing'}")
    return values


def _identifier(card: TaskCard, record: Record) -> str:
    """Return the id of a record, normalised; empty if it has none.

    Raises:
        ValueError: If the id is null.
    """
    field = card.id or "id"
    value = record.get(field)
    if value is not None:
        return normalise(str(value))
    if field_at(record.fields, field) is not MISSING:
        raise ValueError("the id is null; give one, or remove the field from all records")
    return ""


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
    """Read the number of a fold.

    Raises:
        ValueError: If it is no integer of up to four digits, or below -1.
    """
    is_integer = re.fullmatch(r"-?\d{1,4}", str(value)) is not None
    if not is_integer or int(value) < -1:
        raise ValueError(
            f"{field}={value!r}: must be an integer from 0, or -1 for a text that only trains"
        )
    return int(value)


def make_example(
    values: dict[str, Any], template: Template, pair: str | None, kind: Kind
) -> Example:
    """Make an example from the text fields of a record; the caller gives it its id and label.

    Texts are normalised.

    Args:
        values: Values of the fields by name.
        template: Template of the text.
        pair: Field of the second text, or None.
        kind: Kind of the label, which decides what a text may be.

    Raises:
        ValueError: If a value is not a text; names the field.
    """
    texts: dict[str, str] = {}
    words = None  # where they have labels, the text is a single field (TokenLabels.check_card)
    for name, value in values.items():
        try:
            texts[name], words = kind.read_text(value)
        except ValueError as error:
            raise ValueError(f"{name!r} {error}") from error
    text = normalise(template.fill(texts))
    second_text = normalise(texts[pair]) if pair else None
    return Example(id="", text=text, label=0, pair=second_text, words=words)


def joined_texts(examples: Sequence[Example]) -> list[str]:
    """Return what a linear model reads of each example.

    It is the text, or both texts of a pair, one a line.
    """
    return ["\n".join(example.texts) for example in examples]


def describe_empty_text(example: Example) -> str:
    """Return the message for an example with an empty text."""
    return "the second text is empty" if example.text else "the text is empty"


def read_splits(
    card: TaskCard, data: str | None = None, fold: int | None = None
) -> dict[str, list[Example]]:
    """Read all three splits.

    Without ``folds``: with ``unseen_test``, test texts that are in train or dev are left out.

    Args:
        card: The task.
        data: See :meth:`dana.tasks.card.TaskCard.files`.
        fold: Fold that is the test split, of a card with ``folds``; None takes the first.

    Raises:
        DataError: See :func:`read_split`; without ``folds``, also if fewer than two test texts
            remain.
    """
    if card.folds is not None:
        return split_by_fold(read_folds(card, data), fold or 0)
    splits = _read_all_published(card, data)
    if card.train is not None:
        splits = _few_to_train(card, splits)
    if card.unseen_test:
        pairs = zip(splits["test"], is_unseen(splits), strict=True)
        unseen = [example for example, is_new in pairs if is_new]
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
    """Count the test examples whose text (both texts of a pair) is also in train or dev.

    Returns:
        ``test_in_train`` and ``test_in_dev``; ``seen``, in either; ``unseen``, in neither.
    """
    test = splits["test"]
    unseen = int(is_unseen(splits).sum())
    return {
        "test_in_train": len(shared_texts(test, splits["train"])),
        "test_in_dev": len(shared_texts(test, splits["dev"])),
        "seen": len(test) - unseen,
        "unseen": unseen,
    }


def is_unseen(splits: dict[str, list[Example]]) -> np.ndarray:
    """Return, for each test example, whether its text is neither in train nor in dev."""
    seen_texts = _training_texts(splits)
    return np.array([example.texts not in seen_texts for example in splits["test"]], dtype=bool)


def _training_texts(splits: dict[str, list[Example]]) -> set[tuple[str, ...]]:
    """Return the texts (both texts of a pair) of train and dev.

    They are compared as they are, as published overlaps are counted; :func:`_without` compares
    wordings.
    """
    return {example.texts for example in (*splits["train"], *splits["dev"])}


def shared_texts(
    examples: list[Example], others: list[Example]
) -> list[tuple[Example, list[Example]]]:
    """Match examples with the others of the same text (both texts of a pair).

    Examples without a match are left out.
    """
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
    """Return whether the name of a task may name text.

    That is an existing file or folder, a pattern, a URL, a Hub data set or ``-``.
    """
    return task == STDIN or is_url(task) or is_hub(task) or Path(task).exists() or has_magic(task)


def find_task(task: str) -> TaskCard | None:
    """Find the card that `task` names; None if it names text.

    Raises:
        DataError: If it names neither a card nor text.
    """
    card = find_card(task)
    if card is None and not is_text(task):
        names = card_names()
        hints = [nearest(task, names), nearest_path(task)]
        if "." in task:  # rather a file than a card
            hints.reverse()
        hint = hints[0] or hints[1] or "."  # a hint is empty, or "; did you mean ...?"
        raise DataError(
            f"task {task!r}: is neither a file nor a task card{hint} Cards: {', '.join(names)}."
        )
    return card


def card_texts(
    card: TaskCard, data: str | None, fold: int | None = None
) -> tuple[list[Document], list[Document]]:
    """Read distinct training texts of a card to fit on, and other development texts to hold out.

    Each text of a pair is a document. Of a card with ``folds`` or ``test: rest``, no text has the
    wording of one in the test split, and no text to fit on that of one in dev.

    Args:
        card: The task.
        data: Folder of its data, if not under ``DANA_DATA``.
        fold: See :func:`read_splits`.
    """
    if card.is_divided:
        splits = read_splits(card, data, fold)
    else:
        splits = {split: read_split(card, split, data) for split in ("train", "dev")}
    fit = _distinct_texts(splits["train"])
    held_out = _distinct_texts(splits["dev"])
    if card.is_divided:
        # The texts of a pair may be in several examples, also in those of several splits.
        test = _wordings_of_all(splits["test"])
        test_and_dev = test | _wordings_of_all(splits["dev"])
        fit = [text for text in fit if wording(text) not in test_and_dev]
        held_out = [text for text in held_out if wording(text) not in test]
    fit_texts = {*fit}
    held_out = [text for text in held_out if text not in fit_texts]
    return _documents(card, fit), _documents(card, held_out)


def _documents(card: TaskCard, texts: list[str]) -> list[Document]:
    """Make the documents of texts of a task."""
    return [Document(document_id(card.name, text), card.name, text) for text in texts]


def _wordings_of_all(examples: list[Example]) -> set[str]:
    """Return the wordings of all texts, those of a pair one by one."""
    return {wording(text) for example in examples for text in example.texts}


def _distinct_texts(examples: list[Example]) -> list[str]:
    """Return the texts of examples, each once, in their order."""
    texts = [text for example in examples for text in example.texts]
    return list(dict.fromkeys(texts))


def plain_texts(
    sources: list[Source], inputs: Inputs, seed: int, tally: Tally
) -> tuple[list[Document], list[Document]]:
    """Split documents of plain text by a hash of their id.

    Nine tenths are to fit on, and a tenth is held out.

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
        # read_documents advises --on-bad-record, which a task does not take.
        raise DataError(
            str(error).replace(SKIPPING, " (records of the task are never skipped)")
        ) from error
    seed_of_draw = derive_seed(seed, "task", "held_out")
    keys = [document_key(document.doc_id) for document in documents]
    hashes = hash_uniform(seed_of_draw, np.array(keys, dtype=np.uint64)).tolist()
    # At least one document is held out, however few there are.
    share = max(HELD_OUT_SHARE, min(hashes, default=0.0))
    fit = []
    held_out = []
    for document, value in zip(documents, hashes, strict=True):
        if value <= share:
            held_out.append(document)
        else:
            fit.append(document)
    return fit, held_out
