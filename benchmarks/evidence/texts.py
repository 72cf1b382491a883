"""Prepare the tasks and the pool, so that no test text, nor its repeat, is in what is selected, piloted or trained on.

Texts are compared by their letters alone: numbers are written as @ in rct_sample, and entities of
chemprot are marked. A pool document or training text that shares a run of eight words with a test
text, or is equal to one, is left out.
"""

import gzip
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from plan import SOURCES, TARGET_TEXTS, TASKS, TEST_TEXTS, TRAIN_TEXTS, Task

from dana.core.artifacts import write_text
from dana.corpus.overlap import OverlapIndex
from dana.finetuning.probe import draw_labels, strata_of, text_keys
from dana.tasks.card import load_card
from dana.tasks.examples import Example, read_splits

RUN = 8  # words
NOT_LETTERS = re.compile(r"[^a-z]+")


def letters(text: str) -> str:
    """Reduce a text to its words of letters, in lower case."""
    return NOT_LETTERS.sub(" ", text.lower()).strip()


class TestedTexts:
    """The texts that are tested, by which repeats of them are found.

    Args:
        texts: The texts.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        self._whole = {letters(text) for text in texts}
        self._index = OverlapIndex.build({"test": sorted(self._whole)}, RUN, RUN)

    def without_repeats(self, texts: Sequence[str]) -> list[int]:
        """Return the rows of the texts that share no eight words with a tested one and equal none."""
        in_letters = [letters(text) for text in texts]
        repeats = {overlap.row for overlap in self._index.find(in_letters)}
        return [
            row
            for row, text in enumerate(in_letters)
            if row not in repeats and text not in self._whole
        ]


def group_of(task: Task, example: Example) -> str:
    """Return the document of a text where ids tell, else its letters."""
    found = re.match(task.group, example.id) if task.group else None
    return found[0] if found else letters(example.text)


def in_hash_order(examples: Iterable[Example]) -> list[Example]:
    """Return the distinct texts, in the order of a hash of their text."""
    distinct: dict[str, Example] = {}
    for example in sorted(examples, key=lambda one: one.id):
        distinct.setdefault(letters(example.text), example)
    kept = list(distinct.values())
    return [kept[row] for row in np.argsort(text_keys(kept), kind="stable")]


def divide(task: Task) -> tuple[list[Example], list[Example]]:
    """Divide the texts of a task into those whose labels are drawn and those that are tested."""
    splits = read_splits(load_card(task.name))
    if task.is_divided_again:
        every = in_hash_order(splits["train"] + splits["dev"] + splits["test"])
        train, test = every[: len(every) // 2], every[len(every) // 2 :]
    else:
        train = in_hash_order(splits["train"])
        test = in_hash_order(splits["dev"] + splits["test"])
    known_groups = {group_of(task, example) for example in train}
    test = [example for example in test if group_of(task, example) not in known_groups]
    test = test[:TEST_TEXTS]
    tested = TestedTexts(example.text for example in test)
    kept = tested.without_repeats([example.text for example in train])
    return [train[row] for row in kept[:TRAIN_TEXTS]], test


def own_documents(task: Task) -> list[str]:
    """Return all training texts of a task that repeat no test text, one document each or as ids tell.

    Sentences of a document stand in its order, one a line.
    """
    examples, test = divide(task)
    if not task.is_divided_again:  # all of them, also beyond those whose labels are drawn
        examples = read_splits(load_card(task.name))["train"]
    tested = TestedTexts(example.text for example in test)
    tested_groups = {group_of(task, example) for example in test}
    documents: dict[str, list[Example]] = {}
    for row in tested.without_repeats([example.text for example in examples]):
        group = group_of(task, examples[row])
        if group not in tested_groups:
            documents.setdefault(group, []).append(examples[row])
    for sentences in documents.values():
        sentences.sort(key=lambda example: place_of(example.id))
    return ["\n".join(one.text for one in sentences) for sentences in documents.values()]


def place_of(name: str) -> int:
    """Return the last number of an id: the place of a sentence in its document."""
    return int(re.findall(r"\d+", name)[-1])


def prepare(work: Path) -> None:
    """Write the texts of all tasks and the pool, if they are missing."""
    folders = [work / "tasks" / task.name for task in TASKS]
    for task, folder in zip(TASKS, folders, strict=True):
        prepare_task(task, folder)
    prepare_pool(folders, work / "pool.jsonl")


def prepare_task(task: Task, folder: Path) -> None:
    """Write a task's texts, its card for pilot and fine-tuning, and the texts that selection sees.

    Args:
        task: The task.
        folder: Folder for ``train.jsonl`` and ``test.jsonl``, ``target.jsonl``, and ``card.yaml``
            with ``labelled.jsonl``, which has one fold: the test texts.
    """
    if (folder / "card.yaml").is_file():
        return
    folder.mkdir(parents=True, exist_ok=True)
    card = load_card(task.name)
    train, test = divide(task)
    labels = card.label_kind.gather([example.label for example in train])
    strata = strata_of(labels, card.label_kind)
    target = [train[row] for row in draw_labels(text_keys(train), strata, TARGET_TEXTS, 0)]

    def row(example: Example) -> dict[str, str]:
        label = card.labels[int(example.label)]  # type: ignore[arg-type]
        return {
            "id": example.id,
            "text": example.text,
            "label": label,
            "group": group_of(task, example),
        }

    write_rows(folder / "train.jsonl", [row(example) for example in train])
    write_rows(folder / "test.jsonl", [row(example) for example in test])
    write_rows(folder / "target.jsonl", [{"text": example.text} for example in target])
    folds = [{**row(example), "fold": -1} for example in target]
    folds += [{**row(example), "fold": 0} for example in test]
    write_rows(folder / "labelled.jsonl", folds)
    values = {
        "name": f"{task.name}_evidence",
        "title": card.title,
        "version": 1,
        "labels": [str(label) for label in card.labels],
        "metric": "accuracy",
        "splits": {},
        "data": {"file": "labelled"},
        "folds": "fold",
        "group": "group",
    }
    write_text(folder / "card.yaml", yaml.safe_dump(values, sort_keys=False))


def prepare_pool(tasks: Sequence[Path], out: Path) -> None:
    """Write the documents of all sources that share nothing with a test text, and how many do."""
    if out.is_file():
        return
    rows_of_tasks = [read_rows(folder / "test.jsonl") for folder in tasks]
    tested = TestedTexts(row["text"] for row in chain.from_iterable(rows_of_tasks))
    dropped = {}
    kept = []
    for source in SOURCES:
        path = Path(os.environ["DANA_DATA"]) / "general" / f"{source}.jsonl.gz"
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            texts = [json.loads(line)["text"] for line in lines]
        rows = tested.without_repeats(texts)
        dropped[source] = len(texts) - len(rows)
        for row in rows:
            kept.append({"id": f"{source}-{row}", "text": texts[row], "source": source})
    write_text(out.with_suffix(".dropped.json"), json.dumps(dropped, indent=1))
    write_rows(out, kept)


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Read a file of JSON lines."""
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def write_rows(path: Path, rows: Iterable[Mapping[str, object]]) -> None:
    """Write a file of JSON lines, whole or not at all."""
    write_text(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
