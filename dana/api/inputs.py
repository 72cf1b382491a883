"""Write text and labelled rows that are in memory as JSON Lines and task cards, which are then read like any file."""

import json
import os
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from filecmp import cmp
from glob import has_magic, iglob
from itertools import chain
from pathlib import Path
from typing import IO, Any

import yaml

from dana.core.artifacts import MANIFEST
from dana.core.config import require
from dana.core.errors import ArtifactError, ConfigError, DataError
from dana.core.files import temp_file
from dana.core.storage import is_url
from dana.corpus.hub import is_hub
from dana.corpus.inputs import MISSING, Inputs, field_at
from dana.tasks.card import SPLITS
from dana.tasks.kinds import DEFAULT, find_kind
from dana.tasks.kinds.base import Kind

Texts = str | Path | Iterable[Any]  # a path or several; strings or mappings; pandas tables iterate otherwise
FOLDER = "inputs"  # of a run: text that was given in memory
CARD = "task"  # name of the card of labelled rows
OTHER_NAMES = {"dev": ("validation", "valid", "val")}


def as_sources(name: str, texts: Any, run: Path, made: Path, inputs: Inputs, skips: bool = False) -> list[str]:
    """Files, folders, globs, URLs and ``hf:`` names as they are; text in memory as the name of the file it is in now.

    Args:
        name: ``task`` or ``general``: what messages call it, and the file.
        texts: A path or several :class:`~pathlib.Path`; or an iterable of strings or of mappings with a field for the
            text: a list, a generator (read once), a ``datasets.Dataset``, a pandas table or column.
        run: Folder of the run; text in memory goes to ``inputs/NAME.jsonl`` in it, a line a row.
        made: Artifact that was made of the text, if it is there: then the text must be the same.
        inputs: Which fields hold what.
        skips: Whether what is no text is written all the same, as null, for the readers to count and leave out.

    Raises:
        ConfigError: If a string is no path, a list of strings names files, or a column is missing; names the others.
        DataError: If there is no row, or the text of a row is no string; names the row from 0.
        ArtifactError: If the run was made from other text.
    """
    if isinstance(texts, str | Path):
        return [_place(name, str(texts))]
    if isinstance(texts, Mapping):
        raise ConfigError(f"{name}: a {type(texts).__name__} of {', '.join(map(str, texts))}; give one of these")
    if not isinstance(texts, Iterable):
        raise ConfigError(f"{name}={texts!r}: must be a path, or an iterable of texts")
    rows = iter(as_rows(texts))
    first = next(rows, MISSING)
    if first is MISSING:
        raise DataError(f"{name}: is empty; there is no text in it")
    if isinstance(first, Path):
        return [_place(name, str(path)) for path in (first, *rows)]
    if isinstance(first, str) and _is_place(first):
        raise ConfigError(
            f"{name}[0]={first!r}: is the name of a file, and a list of strings is text; "
            "give one string, or pathlib.Path objects"
        )
    path = run / FOLDER / f"{name}.jsonl"
    with stored_text(path, made) as stream:
        for number, row in enumerate(chain([first], rows)):
            json.dump(_record(f"{name}[{number}]", row, inputs, skips), stream, ensure_ascii=False, default=_plain)
            stream.write("\n")
    return [str(path)]


@contextmanager
def stored_text(path: Path, made: Path) -> Iterator[IO[str]]:
    """A text file to be written, which takes its place when it is whole; one that is there stays if it is equal.

    Args:
        path: The file.
        made: Artifact that was made of it; while that is there, the file may not change.

    Raises:
        ArtifactError: If it would change all the same.
    """
    fresh = [folder for folder in (path.parent, path.parent.parent) if not folder.exists()]
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with temp_file(path) as temporary:
            # A lone surrogate, which UTF-8 has not, becomes the escape that JSON has for it.
            with temporary.open("w", encoding="utf-8", errors="backslashreplace") as stream:
                yield stream
            if path.exists() and (made / MANIFEST).is_file() and not cmp(path, temporary, shallow=False):
                raise ArtifactError(
                    f"{made} was made from {path}, and other text is given now; choose another out, or remove it"
                )
    finally:
        for folder in fresh:
            with suppress(OSError):  # something is in it
                folder.rmdir()


def _is_place(text: str) -> bool:
    """Whether a string names files that are there, a URL, or a Hub data set."""
    if "\n" in text or len(text) > 1000:
        return False
    # Not Path.exists: a text may be no valid name at all, too long a one, say.
    there = os.path.exists(text) or (has_magic(text) and any(iglob(text)))  # noqa: PTH110, PTH207
    return is_url(text) or is_hub(text) or there


def _place(name: str, text: str) -> str:
    if "\n" in text or len(text) > 1000:
        raise ConfigError(f"{name}={text[:40]!r}…: is text, and a string must be a path; give a list of texts")
    return text


def as_rows(texts: Any) -> Iterable[Any]:
    """The rows of a pandas table as mappings; anything else as it iterates."""
    pandas: Any = sys.modules.get("pandas")  # a table cannot be here before its package is
    if pandas and isinstance(texts, pandas.DataFrame):
        columns = [str(column) for column in texts.columns]
        if twice := [name for name in columns if columns.count(name) > 1]:
            raise ConfigError(f"the table has {columns.count(twice[0])} columns {twice[0]!r}; rename or drop one")
        return (dict(zip(columns, row, strict=True)) for row in texts.itertuples(index=False, name=None))
    return texts


def _record(place: str, row: Any, inputs: Inputs, skips: bool) -> dict[str, Any]:
    """What is written of a row: the text under the first of the fields that are looked at, and what names it."""
    record, text = {}, row
    if isinstance(row, Mapping):
        named = dict(row)
        found = [value for name in inputs.text_field if (value := field_at(named, name)) is not MISSING]
        if not found and len(named) == 1 and inputs == Inputs():
            found = list(named.values())
        if not found:
            wanted, there = " or ".join(map(repr, inputs.text_field)), ", ".join(map(str, named))
            raise ConfigError(f"{place}: has no field {wanted}, but {there}; say text_field=NAME")
        text = found[0]
        kept = {inputs.id_field} if inputs.id_field else {"id", "doc_id"}
        for name in (*kept, "source"):
            value = field_at(named, name)
            if not is_missing(value):
                record[name] = value
    if skips and not isinstance(text, str):
        text = None
    elif not isinstance(text, str):
        raise DataError(f"{place}: is {type(text).__name__}, not a string: {str(text)[:40]!r}")
    return {**record, inputs.text_field[0]: text}


def is_missing(value: Any) -> bool:
    """Whether a field is not there, or holds what Python and pandas have for nothing."""
    nothing = not isinstance(value, str) and str(value) in ("nan", "<NA>", "NaT")
    return value is MISSING or value is None or nothing


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else str(value)


def write_card(
    splits: Mapping[str, Any], folder: Path, fields: Mapping[str, str], kind: str = DEFAULT, metric: str | None = None
) -> Path:
    """Write labelled rows in memory as a task card and its data; returns the card's path.

    Args:
        splits: ``train``, ``dev`` (or ``validation``) and ``test``: each an iterable of mappings, or a pandas table.
        folder: Where.
        fields: Fields of a row: of its ``text``, ``label`` and ``id``, and of the ``text_pair`` of a label of two.
        kind: What a label is: ``single_label``, ``multi_label`` (a list of labels), ``regression`` (a number) or
            ``token_labels`` (a list, one a word; the text may be a list of words).
        metric: What the task is judged by, one of the kind's; None takes its main one.

    Raises:
        ConfigError: If kind or metric is unknown.
        DataError: If a split is missing or empty, or a row lacks a field; names split, row and what is there.
    """
    target = find_kind(kind)
    metric = metric or target.main_metric
    require(metric in target.metrics, "metric", metric, f"one of {', '.join(target.metrics)}")
    labels: set[str] = set()
    counts: dict[str, int] = {}
    data = folder / CARD
    data.mkdir()
    for split in SPLITS:
        rows = _split(splits, split)
        with (data / f"{split}.jsonl").open("w", encoding="utf-8", errors="backslashreplace") as stream:
            for number, row in enumerate(as_rows(rows)):
                record, named = _labelled(f"{split}[{number}]", row, fields, target)
                labels.update(named)
                counts[split] = number + 1
                stream.write(json.dumps(record, ensure_ascii=False, default=str) + "\n")
        if split not in counts:
            raise DataError(f"{split}: is empty; there is no example in it")
    card = {"name": CARD, "title": "Given in memory", "version": 1, "kind": target.name, "metric": metric}
    card |= {"labels": sorted(labels)} if target.has_labels else {}
    card |= {"text_pair": fields["text_pair"]} if "text_pair" in fields else {}
    path = folder / f"{CARD}.yaml"
    path.write_text(yaml.safe_dump({**card, "splits": counts, "data": {"local": CARD}}), encoding="utf-8")
    return path


def _split(splits: Mapping[str, Any], name: str) -> Any:
    for called in (name, *OTHER_NAMES.get(name, ())):
        if called in splits:
            if not isinstance(splits[called], Iterable):
                raise DataError(f"{called}: is {type(splits[called]).__name__}, not rows with a text and a label")
            return splits[called]
    raise DataError(f"task: no split {name!r}, but {', '.join(map(str, splits))}; it needs train, dev and test")


def _labelled(
    place: str, row: Any, fields: Mapping[str, str], kind: type[Kind]
) -> tuple[dict[str, Any], Collection[str]]:
    """What is written of a row, and the labels that it names."""
    if not isinstance(row, Mapping):
        raise DataError(f"{place}: is {type(row).__name__}, not a mapping with a text and a label")
    record: dict[str, Any] = {}
    named: Collection[str] = ()
    for what, name in fields.items():
        if what == "id":
            continue
        value = field_at(dict(row), name)
        if value is MISSING or value is None:
            raise DataError(f"{place}: no {name!r}, but {', '.join(map(str, row))}; say {what}_field=NAME")
        if is_missing(value):
            raise DataError(f"{place}: {name!r} is {value}; leave out rows without a {what}")
        record[name] = value.tolist() if hasattr(value, "tolist") else value
        try:
            named = kind.names_in(record[name]) if what == "label" else named
            if what != "label":
                kind.read_text(record[name])
        except ValueError as error:
            raise DataError(f"{place}: {name!r} {error}") from error
    name = fields["id"]
    given = field_at(dict(row), name)
    return (record if is_missing(given) else {**record, name: str(given)}), named
