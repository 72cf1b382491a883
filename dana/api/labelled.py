"""Labelled rows in memory to a task card and its splits on disk, which fine-tuning then reads like any card."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from dana.api.inputs import as_rows, is_missing
from dana.core.config import require
from dana.core.errors import DataError
from dana.corpus.records import MISSING, field_at
from dana.tasks.card import SPLITS
from dana.tasks.metrics import METRICS

NAME = "task"
OTHER_NAMES = {"dev": ("validation", "valid", "val")}


def write_card(splits: Mapping[str, Any], folder: Path, metric: str, fields: Mapping[str, str | None]) -> Path:
    """Write a card and its data; returns the card's path.

    Args:
        splits: ``train``, ``dev`` (or ``validation``) and ``test``: each an iterable of mappings, or a pandas table.
        folder: Where.
        metric: What the task is judged by.
        fields: The fields that hold ``text``, ``label`` and ``id``, where they are not so called.

    Raises:
        ConfigError: If the metric is unknown.
        DataError: If a split is missing or empty, or a row lacks a field; names split, row and what is there.
    """
    require(metric in METRICS, "metric", metric, f"one of {', '.join(METRICS)}")
    wanted = {name: fields[name] or name for name in ("text", "label")}
    labels: set[str] = set()
    counts: dict[str, int] = {}
    data = folder / NAME
    data.mkdir()
    for split in SPLITS:
        rows = _split(splits, split)
        with (data / f"{split}.jsonl").open("w", encoding="utf-8", errors="backslashreplace") as stream:
            for number, row in enumerate(as_rows(rows)):
                record = _labelled(f"{split}[{number}]", row, wanted, fields["id"] or "id")
                labels.add(record[wanted["label"]])
                counts[split] = number + 1
                stream.write(json.dumps(record, ensure_ascii=False) + "\n")
        if split not in counts:
            raise DataError(f"{split}: is empty; there is no example in it")
    card = {"name": NAME, "title": "Given in memory", "version": 1, "labels": sorted(labels), "metric": metric}
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


def _labelled(place: str, row: Any, wanted: Mapping[str, str], id_field: str) -> dict[str, str]:
    if not isinstance(row, Mapping):
        raise DataError(f"{place}: is {type(row).__name__}, not a mapping with a text and a label")
    record = {}
    for what, name in wanted.items():
        value = field_at(dict(row), name)
        if value is MISSING or value is None:
            raise DataError(f"{place}: no {name!r}, but {', '.join(map(str, row))}; say {what}_field=NAME")
        if is_missing(value):
            raise DataError(f"{place}: {name!r} is {value}; leave out rows without a {what}")
        if what == "text" and not isinstance(value, str):
            raise DataError(f"{place}: {name!r} is {type(value).__name__}, not a string")
        record[name] = str(value)
    given = field_at(dict(row), id_field)
    return record if is_missing(given) else {**record, id_field: str(given)}
