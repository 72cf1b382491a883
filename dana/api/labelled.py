"""Labelled rows in memory to a task card and its splits on disk, which fine-tuning then reads like any card."""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from dana.api.inputs import as_rows, is_missing
from dana.core.config import require
from dana.core.errors import DataError
from dana.corpus.records import MISSING, field_at
from dana.tasks.card import SPLITS
from dana.tasks.kinds import DEFAULT, find_kind
from dana.tasks.kinds.base import Kind

NAME = "task"
OTHER_NAMES = {"dev": ("validation", "valid", "val")}


@dataclass(frozen=True)
class Labelling:
    """What labelled rows are.

    Attributes:
        kind: What a label is: ``single_label``, ``multi_label`` (a list of labels), ``regression`` (a number) or
            ``token_labels`` (a list, one a word; the text may be a list of words).
        metric: What the task is judged by, one of the kind's; None takes its main one.
        text: Field of the text.
        label: Field of the label.
        id: Field that names a row.
        text_pair: Field of the second text, where the label is of two.
    """

    kind: str = DEFAULT
    metric: str | None = None
    text: str = "text"
    label: str = "label"
    id: str = "id"
    text_pair: str | None = None


def write_card(splits: Mapping[str, Any], folder: Path, labelling: Labelling) -> Path:
    """Write a card and its data; returns the card's path.

    Args:
        splits: ``train``, ``dev`` (or ``validation``) and ``test``: each an iterable of mappings, or a pandas table.
        folder: Where.
        labelling: What the rows are.

    Raises:
        ConfigError: If kind or metric is unknown.
        DataError: If a split is missing or empty, or a row lacks a field; names split, row and what is there.
    """
    kind = find_kind(labelling.kind)
    metric = labelling.metric or kind.main_metric
    require(metric in kind.metrics, "metric", metric, f"one of {', '.join(kind.metrics)}")
    labels: set[str] = set()
    counts: dict[str, int] = {}
    data = folder / NAME
    data.mkdir()
    for split in SPLITS:
        rows = _split(splits, split)
        with (data / f"{split}.jsonl").open("w", encoding="utf-8", errors="backslashreplace") as stream:
            for number, row in enumerate(as_rows(rows)):
                record, named = _labelled(f"{split}[{number}]", row, labelling, kind)
                labels.update(named)
                counts[split] = number + 1
                stream.write(json.dumps(record, ensure_ascii=False, default=str) + "\n")
        if split not in counts:
            raise DataError(f"{split}: is empty; there is no example in it")
    card = {"name": NAME, "title": "Given in memory", "version": 1, "kind": kind.name, "metric": metric}
    card |= {"labels": sorted(labels)} if kind.labelled else {}
    card |= {"text_pair": labelling.text_pair} if labelling.text_pair else {}
    path = folder / f"{NAME}.yaml"
    path.write_text(yaml.safe_dump({**card, "splits": counts, "data": {"local": NAME}}), encoding="utf-8")
    return path


def _split(splits: Mapping[str, Any], name: str) -> Any:
    for called in (name, *OTHER_NAMES.get(name, ())):
        if called in splits:
            if not isinstance(splits[called], Iterable):
                raise DataError(f"{called}: is {type(splits[called]).__name__}, not rows with a text and a label")
            return splits[called]
    raise DataError(f"task: no split {name!r}, but {', '.join(map(str, splits))}; it needs train, dev and test")


def _labelled(place: str, row: Any, labelling: Labelling, kind: type[Kind]) -> tuple[dict[str, Any], Collection[str]]:
    """What is written of a row, and the labels that it names."""
    if not isinstance(row, Mapping):
        raise DataError(f"{place}: is {type(row).__name__}, not a mapping with a text and a label")
    record: dict[str, Any] = {}
    named: Collection[str] = ()
    wanted = {"text": labelling.text, "label": labelling.label, "text_pair": labelling.text_pair}
    for what, name in wanted.items():
        if name is None:
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
    given = field_at(dict(row), labelling.id)
    return (record if is_missing(given) else {**record, labelling.id: str(given)}), named
