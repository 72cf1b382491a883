"""Write texts and labelled rows in memory as JSON Lines and task cards, which are then read like other files."""

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from filecmp import cmp
from glob import has_magic, iglob
from itertools import chain
from pathlib import Path
from typing import IO, Any

import yaml

from dana.core.artifacts import MANIFEST
from dana.core.config import require
from dana.core.errors import ArtifactError, ConfigError, DataError
from dana.core.files import make_parent, temp_file
from dana.core.storage import is_url
from dana.corpus.hub import is_hub
from dana.corpus.inputs import MISSING, Inputs, field_at
from dana.tasks.card import SPLITS
from dana.tasks.kinds import find_kind
from dana.tasks.kinds.values import as_list, bit_of
from dana.tasks.labels import LIST, ONE, TAGS, Shape, shape_of

Texts = (
    str | Path | Iterable[Any]
)  # a path or several; strings or mappings; pandas tables iterate otherwise
FOLDER = "inputs"  # in a run: texts that were in memory
LABEL = "label"  # field of labels that stand in several columns
CARD = "task"  # name of the card for labelled rows
OTHER_NAMES = {"dev": ("validation", "valid", "val")}


def as_sources(
    name: str,
    texts: Any,
    run: Path,
    artifact: Path | None,
    inputs: Inputs,
    skips: bool = False,
) -> list[str]:
    """Convert texts to sources: paths, globs, URLs and ``hf:`` names stay; texts in memory are written to a file.

    Args:
        name: ``task`` or ``pool``, for messages and the name of the file.
        texts: A path or several :class:`~pathlib.Path`; or an iterable of strings or of mappings
            with a field for the text: a list, a generator (read once), a ``datasets.Dataset``, a
            pandas table or column.
        run: Folder of the run; texts in memory go to ``inputs/NAME.jsonl`` in it, one line per row.
        artifact: Artifact made from the text; if it exists, the text must be the same. None takes
            any text.
        inputs: Names of the fields.
        skips: Whether values that are no text are written as null, which readers count and skip.

    Raises:
        ConfigError: If a string is no path, a list of strings holds file names, or a column is
            missing.
        DataError: If there is no row, or a text is no string; names the row, from 0.
        ArtifactError: If the run was made from other text.
    """
    if isinstance(texts, str | Path):
        return [_check_path(name, str(texts))]
    if isinstance(texts, Mapping):
        raise ConfigError(
            f"{name}: a {type(texts).__name__} of {', '.join(map(str, texts))}; give one of them"
        )
    if not isinstance(texts, Iterable):
        raise ConfigError(f"{name}={texts!r}: must be a path, or an iterable of texts")
    if isinstance(texts, Set):
        raise ConfigError(f"{name}: a set has no order, so no two runs would agree; give a list")
    rows = iter(as_rows(texts))
    first = next(rows, MISSING)
    if first is MISSING:
        raise DataError(f"{name}: holds no text")
    if isinstance(first, Path):
        return [_check_path(name, str(path)) for path in (first, *rows)]
    if isinstance(first, str) and _is_source(first):
        raise ConfigError(
            f"{name}[0]={first!r}: is the name of a file, but a list of strings is read as texts; "
            "give one string or pathlib.Path objects"
        )
    path = run / FOLDER / f"{name}.jsonl"
    with stored_text(path, artifact) as stream:
        for number, row in enumerate(chain([first], rows)):
            json.dump(
                _record(f"{name}[{number}]", row, inputs, skips),
                stream,
                ensure_ascii=False,
                default=_plain,
            )
            stream.write("\n")
    return [str(path)]


@contextmanager
def stored_text(path: Path, artifact: Path | None) -> Iterator[IO[str]]:
    """Open a text file for writing that replaces `path` atomically.

    Args:
        path: The file.
        artifact: Artifact made from the file; while it exists, the content must stay the same. None
            takes any content.

    Raises:
        ArtifactError: If the content differs.
    """
    with make_parent(path.parent), make_parent(path), temp_file(path) as temporary:
        # UTF-8 cannot hold a lone surrogate; JSON can escape it.
        with temporary.open("w", encoding="utf-8", errors="backslashreplace") as stream:
            yield stream
        if (
            artifact is not None
            and path.exists()
            and (artifact / MANIFEST).is_file()
            and not cmp(path, temporary, shallow=False)
        ):
            raise ArtifactError(
                f"{artifact} was made from other text than that of this call; "
                "add remake=True to replace it, or choose another out"
            )


def _is_source(text: str) -> bool:
    """Return True for an existing file or glob, a URL or a Hub data set."""
    if "\n" in text or len(text) > 1000:
        return False
    is_remote = is_url(text) or is_hub(text)
    if is_remote and not any(map(str.isspace, text)):  # a text may begin with a URL
        return True
    try:
        # Not Path.exists, which raises for a text that is too long for a file name.
        return os.path.exists(text) or (has_magic(text) and any(iglob(text)))  # noqa: PTH110, PTH207
    except ValueError:  # no name of a file has a null character, or half a character
        return False


def _check_path(name: str, text: str) -> str:
    if "\n" in text or len(text) > 1000:
        raise ConfigError(f"{name}={text[:40]!r}…: must be a path; give texts as a list")
    return text


def as_rows(texts: Any) -> Iterable[Any]:
    """Iterate over the rows of a pandas table as mappings, or over another iterable."""
    pandas: Any = sys.modules.get("pandas")  # texts can only be a table if pandas is imported
    if pandas and isinstance(texts, pandas.DataFrame):
        columns = [str(column) for column in texts.columns]
        for name in columns:
            count = columns.count(name)
            if count > 1:
                raise ConfigError(f"the table has {count} columns {name!r}; rename or drop one")
        rows = texts.itertuples(index=False, name=None)
        return (dict(zip(columns, row, strict=True)) for row in rows)
    items: Iterable[Any] = texts
    return items


def _record(location: str, row: Any, inputs: Inputs, skips: bool) -> dict[str, Any]:
    """Convert a row to its record: text, id and source."""
    record: dict[str, Any] = {}
    text = row
    if isinstance(row, Mapping):
        fields = dict(row)
        values = [field_at(fields, name) for name in inputs.text_field]
        texts = [value for value in values if value is not MISSING]
        if not texts and len(fields) == 1 and inputs == Inputs():
            texts = list(fields.values())
        if not texts:
            text_fields = " or ".join(map(repr, inputs.text_field))
            names = ", ".join(map(str, fields))
            raise ConfigError(
                f"{location}: expected a field {text_fields}, got {names}; set text_field=NAME"
            )
        text = texts[0]
        ids = [inputs.id_field] if inputs.id_field else ["id", "doc_id"]
        for name in (*ids, "source"):
            value = field_at(fields, name)
            if not is_missing(value):
                record[name] = value
    if skips and not isinstance(text, str):
        text = None
    elif not isinstance(text, str):
        raise DataError(f"{location}: is {type(text).__name__}, not a string: {str(text)[:40]!r}")
    return {**record, inputs.text_field[0]: text}


def is_missing(value: Any) -> bool:
    """Return True for a missing field, None, NaN, NA and NaT."""
    is_nan = not isinstance(value, str) and str(value) in ("nan", "<NA>", "NaT")
    return value is MISSING or value is None or is_nan


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else str(value)


@dataclass
class _Row:
    """A labelled row that was read.

    Attributes:
        location: Split and row, for messages.
        record: Its fields; the label as it was given.
        label: Value of the label; of several columns, the list of their values.
    """

    location: str
    record: dict[str, Any]
    label: Any


def write_card(
    splits: Mapping[str, Any],
    folder: Path,
    fields: Mapping[str, Any],
    kind: str | None = None,
    metric: str | None = None,
    labels: Sequence[str] | None = None,
) -> Path:
    """Write labelled rows as a task card with its data, and return the path of the card.

    Args:
        splits: ``train``, ``dev`` (or ``validation``) and ``test``: each an iterable of mappings,
            or a pandas table.
        folder: Target folder.
        fields: Names of the fields of ``text``, ``label`` (a list, if several fields of 0 and 1 are
            labels), ``id`` and, for text pairs, ``text_pair``.
        kind: Kind of the labels: ``single_label``, ``multi_label`` (a list of labels, or text that
            holds several), ``regression`` (a number) or ``token_labels`` (a list, one per word; the
            text may be a list of words); None decides it by the labels
            (:func:`dana.tasks.labels.shape_of`).
        metric: Main metric of the task; None takes that of the kind.
        labels: Names of the places of labels that are vectors of 0 and 1.

    Raises:
        ConfigError: If kind or metric is unknown, or the labels do not tell their kind.
        DataError: If a split is missing or empty, or a row lacks a field; names split, row and the
            fields.
    """
    if kind is not None:
        _check_metric(kind, metric)
    rows = {split: _read_rows(split, splits, fields) for split in SPLITS}
    shape = _decide_shape(rows, fields, kind, labels)
    label_kind = find_kind(shape.kind)
    _check_metric(shape.kind, metric)
    found = _convert(rows, fields, shape)
    data = folder / CARD
    data.mkdir()
    for split, part in rows.items():
        with (data / f"{split}.jsonl").open(
            "w", encoding="utf-8", errors="backslashreplace"
        ) as stream:
            for row in part:
                stream.write(json.dumps(row.record, ensure_ascii=False, default=str) + "\n")
    card: dict[str, Any] = {
        "name": CARD,
        "title": "Given in memory",
        "version": 1,
        "kind": label_kind.name,
        "metric": metric or label_kind.main_metric,
    }
    if label_kind.has_labels:
        card["labels"] = [*shape.labels] or sorted(found)
    if "text_pair" in fields:
        card["text_pair"] = fields["text_pair"]
    card["splits"] = {split: len(part) for split, part in rows.items()}
    card["data"] = {"local": CARD}
    path = folder / f"{CARD}.yaml"
    path.write_text(yaml.safe_dump(card), encoding="utf-8")
    return path


def _check_metric(kind: str, metric: str | None) -> None:
    metrics = find_kind(kind).metrics
    is_known = metric is None or metric in metrics
    require(is_known, "metric", metric, f"one of {', '.join(metrics)}, for kind={kind}")


def _read_rows(split: str, splits: Mapping[str, Any], fields: Mapping[str, Any]) -> list[_Row]:
    """Read the rows of a split.

    Raises:
        DataError: If there is none, or a row lacks a field.
    """
    rows = [
        _read_row(f"{split}[{number}]", row, fields)
        for number, row in enumerate(as_rows(_split(splits, split)))
    ]
    if not rows:
        raise DataError(f"{split}: holds no example")
    return rows


def _decide_shape(
    rows: Mapping[str, list[_Row]],
    fields: Mapping[str, Any],
    kind: str | None,
    labels: Sequence[str] | None,
) -> Shape:
    """Decide what the labels of all splits are."""
    every = [row for part in rows.values() for row in part]
    name = fields["label"]
    if not isinstance(name, str):
        require(labels is None, "labels", labels, "left out: columns of labels have names")
        labels = name
    texts = [row.record[fields["text"]] for row in every]
    words = [len(text.split() if isinstance(text, str) else as_list(text) or []) for text in texts]
    where = f"labels {name!r}"
    return shape_of([row.label for row in every], where, kind, words, labels)


def _convert(rows: Mapping[str, list[_Row]], fields: Mapping[str, Any], shape: Shape) -> set[str]:
    """Bring texts and labels of all rows into the form of their kind; return the names of the labels.

    Raises:
        DataError: If one has another form; names it.
    """
    kind = find_kind(shape.kind)
    names: set[str] = set()
    types: dict[str, str] = {}
    label_field = LABEL if not isinstance(fields["label"], str) else fields["label"]
    for row in (row for part in rows.values() for row in part):
        for what in ("text", "text_pair"):
            if what in fields:
                name = fields[what]
                _explain(row, name, kind.read_text, row.record[name])
        label = _explain(row, label_field, shape.read, row.label)
        if kind.has_labels:
            own_names = [label] if isinstance(label, str) else label
            names.update(own_names)
            if own_names and shape.form in (ONE, LIST, TAGS):
                _check_types(row.location, row.label, types)
        # A set has no order: as JSON writes it, two calls would differ.
        is_list = isinstance(label, list) and isinstance(row.label, list | tuple)
        is_as_given = shape.form in (ONE, TAGS) or (shape.form == LIST and is_list)
        row.record[label_field] = row.label if is_as_given else label
    return names


def _explain(row: _Row, name: str, read: Callable[[Any], Any], value: Any) -> Any:
    """Read a value; name row and field if it cannot be read."""
    try:
        return read(value)
    except ValueError as error:
        raise DataError(f"{row.location}: {name!r} {error}") from error


def _split(splits: Mapping[str, Any], name: str) -> Any:
    names = [split for split in (name, *OTHER_NAMES.get(name, ())) if split in splits]
    if len(names) != 1:
        problem = f"{' and '.join(names)} are one" if names else f"no {name!r}"
        raise DataError(
            f"task: expected train, dev and test, got {', '.join(map(str, splits))}: {problem}"
        )
    rows = splits[names[0]]
    if not isinstance(rows, Iterable):
        raise DataError(f"{names[0]}: is {type(rows).__name__}, not rows with a text and a label")
    return rows


def _check_types(location: str, label: Any, types: dict[str, str]) -> None:
    """Refuse labels of several types: 1, "1" and True are different labels, or the same, and nobody knows.

    Args:
        location: Split and row, for the message.
        label: A label, or a list of labels.
        types: Each type with the first row that has it; updated.
    """
    for value in label if isinstance(label, list | tuple) else [label]:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        types.setdefault("a number" if is_number else type(value).__name__, location)
    if len(types) > 1:
        (first, row), (other, other_row) = list(types.items())[:2]
        raise DataError(
            f"{other_row}: a label is {other}, but {first} in {row}; convert all labels to one type"
        )


def _read_row(location: str, row: Any, fields: Mapping[str, Any]) -> _Row:
    """Read the fields of a row.

    Raises:
        DataError: If it is no mapping, or a field is missing.
    """
    if not isinstance(row, Mapping):
        raise DataError(
            f"{location}: is {type(row).__name__}, not a mapping with a text and a label"
        )
    record = {
        name: _value(location, row, what, name)
        for what, name in fields.items()
        if what not in ("id", "label")
    }
    label_field = fields["label"]
    if isinstance(label_field, str):
        label = _value(location, row, "label", label_field)
        record[label_field] = label
    else:
        label = [_bit(location, row, name) for name in label_field]
    name = fields["id"]
    row_id = field_at(dict(row), name)
    if row_id is not MISSING:
        if is_missing(row_id):
            raise DataError(
                f"{location}: {name!r} is {row_id}; give every row an id, or drop the field"
            )
        record[name] = str(row_id)
    return _Row(location, record, label)


def _value(location: str, row: Mapping[str, Any], what: str, name: str) -> Any:
    """Return a field of a row as Python has it.

    Raises:
        DataError: If it is missing.
    """
    value = field_at(dict(row), name)
    if value is MISSING:
        raise DataError(
            f"{location}: expected {name!r}, got {', '.join(map(str, row))}; set {what}_field=NAME"
        )
    if is_missing(value):
        raise DataError(f"{location}: {name!r} is {value}; remove rows without a {what}")
    return value.tolist() if hasattr(value, "tolist") else value


def _bit(location: str, row: Mapping[str, Any], name: str) -> int:
    """Return the value of one of several columns of labels.

    Raises:
        DataError: If it is neither 0 nor 1.
    """
    value = _value(location, row, "label", name)
    bit = bit_of(value)
    if bit is None:
        raise DataError(
            f"{location}: {name!r} is {value!r}; of several columns of labels each is 0 or 1"
        )
    return bit
