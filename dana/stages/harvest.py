"""The quickstart's data: a labelled task and a general corpus from the documentation that is already here.

The task is to tell which sub-package of scipy a docstring is from. The general corpus is everybody else's text, plus
*planted* scipy documents that nothing is ever fitted on, so that the recall of a selection is a number.
"""

import gzip
import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from dana.artifacts import Artifact, Draft, make
from dana.config import require
from dana.corpus.harvest import Harvested, docstrings, installed, papers
from dana.errors import DataError
from dana.rng import derive_seed
from dana.text import digest

TARGET = "scipy"
PLANTED = f"{TARGET} (planted)"
MOST_LABELS = 8
SHARE_OF_ONE_SOURCE = 0.12
MOST_LICENCES = 100
SPLITS = {"train": 0.5, "dev": 0.12, "test": 0.24, "planted": 0.14}


@dataclass(frozen=True)
class HarvestSettings:
    """How much is taken.

    Attributes:
        general_documents: At most so many, planted ones not counted.
        task_documents: At most so many of scipy, planted ones counted.
        min_characters: Shorter texts are left out.
        max_characters: Longer ones are cut.
        seed: Decides what is taken and which split it is in.
    """

    general_documents: int = 2500
    task_documents: int = 1100
    min_characters: int = 200
    max_characters: int = 1500
    seed: int = 0

    def __post_init__(self) -> None:
        require(self.general_documents >= 50, "general_documents", self.general_documents, "at least 50")
        require(self.task_documents >= 80, "task_documents", self.task_documents, "at least 80")
        require(
            0 < self.min_characters < self.max_characters,
            "min_characters",
            self.min_characters,
            "below max_characters",
        )


def harvest_stage(folder: Path, settings: HarvestSettings) -> Artifact:
    """Write ``general.jsonl.gz``, ``task/{train,dev,test}.jsonl.gz`` and ``card.yaml``.

    Raises:
        DataError: If scipy's docstrings cannot be read (an installation without sources).
    """
    present = installed()
    versions = {dist.metadata["Name"].lower(): dist.version for dist in present}

    def write(draft: Draft) -> None:
        target = [dist for dist in present if dist.metadata["Name"].lower() == TARGET]
        task, labels = _task(docstrings(target[0], settings.max_characters) if target else (), settings)
        rows: dict[str, list[dict[str, str]]] = {split: [] for split in SPLITS}
        for split, label, item in task:
            rows[split].append({"id": item.id, "text": item.text, "label": label})
        general = _general(present, settings, {digest(item.text[:150]) for _, _, item in task})
        planted = [{"id": row["id"], "text": row["text"], "source": PLANTED} for row in rows.pop("planted")]
        everything = sorted(general + planted, key=lambda row: digest(row["id"]))
        _write_lines(draft.path / "general.jsonl.gz", everything)
        for split, lines in rows.items():
            _write_lines(draft.path / "task" / f"{split}.jsonl.gz", lines)
        counts = {split: len(lines) for split, lines in rows.items()}
        (draft.path / "card.yaml").write_text(_card(labels, counts), encoding="utf-8")
        draft.counts.update({"general": len(general), "planted": len(planted), **counts})
        draft.counts["labels"] = {label: sum(row["label"] == label for row in rows["train"]) for label in labels}

    return make(folder, "harvest", {"settings": asdict(settings), "distributions": versions}, write)


def _task(items: Iterable[Harvested], settings: HarvestSettings) -> tuple[list[tuple[str, str, Harvested]], list[str]]:
    """(split, label, document) of the target's largest sub-packages.

    Splits go by document, within each label in hash order: by module they would follow the sub-packages' few
    large files and leave labels out. Near-duplicates (equal first 150 characters: one docstring under several names)
    are dropped before, so none straddles two splits.
    """
    by_label: dict[str, list[Harvested]] = defaultdict(list)
    for item in _distinct(items, settings.min_characters):
        parts = item.module.split("/")
        if len(parts) > 2 and not parts[1].startswith("_"):
            by_label[parts[1]].append(item)
    sizes = Counter({label: len(found) for label, found in by_label.items()})
    labels = sorted(label for label, _ in sizes.most_common(MOST_LABELS) if sizes[label] >= 30)
    if len(labels) < 2:
        raise DataError(f"the installed {TARGET} has too few docstrings to make a task of ({dict(sizes)})")
    per_label = settings.task_documents // len(labels)
    task = []
    for label in labels:
        found = sorted(by_label[label], key=lambda item: derive_seed(settings.seed, "harvest", item.id))[:per_label]
        for place, item in enumerate(found):
            task.append((_split(place / len(found)), label, item))
    return task, labels


def _split(quantile: float) -> str:
    for split, share in SPLITS.items():
        if quantile < share:
            return split
        quantile -= share
    return "planted"


def _general(present: list[Any], settings: HarvestSettings, taken: set[bytes]) -> list[dict[str, str]]:
    """Everybody else's text, no source more than its share."""
    most = int(SHARE_OF_ONE_SOURCE * settings.general_documents)
    by_source: dict[str, list[Harvested]] = defaultdict(list)
    for dist in present:
        name = dist.metadata["Name"].lower()
        if name == TARGET:
            continue
        for item in papers(dist, settings.max_characters):
            by_source[item.distribution].append(item)
        for count, item in enumerate(_distinct(docstrings(dist, settings.max_characters), settings.min_characters)):
            if count == most:
                break
            by_source[name].append(item)
    chosen: list[Harvested] = []
    for source, items in by_source.items():
        chosen += items[: MOST_LICENCES if source == "licences" else most]
    chosen = [item for item in _distinct(chosen, settings.min_characters) if digest(item.text[:150]) not in taken]
    chosen.sort(key=lambda item: derive_seed(settings.seed, "harvest", item.id))
    return [
        {"id": item.id, "text": item.text, "source": item.distribution} for item in chosen[: settings.general_documents]
    ]


def _distinct(items: Iterable[Harvested], min_characters: int) -> Iterable[Harvested]:
    """Long enough, and with a beginning not seen before."""
    seen: set[bytes] = set()
    for item in items:
        beginning = digest(item.text[:150])
        if len(item.text) >= min_characters and beginning not in seen:
            seen.add(beginning)
            yield item


def _write_lines(path: Path, rows: list[dict[str, str]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as raw, gzip.GzipFile(fileobj=raw, mode="wb", filename="", mtime=0) as stream:
        for row in rows:
            stream.write((json.dumps(row, ensure_ascii=False) + "\n").encode())


def _card(labels: list[str], counts: dict[str, int]) -> str:
    quick = {
        "epochs": 8,
        "learning_rate": 5e-4,
        "batch_size": 16,
        "warmup": 0.1,
        "seeds": 5,
        "max_tokens": 96,
    }
    card = {
        "name": "scipy_docs",
        "title": "Which sub-package of scipy is a docstring from?",
        "version": 1,
        "data": {"local": "task"},
        "labels": labels,
        "metric": "macro_f1",
        "direction": "higher",
        "splits": counts,
        "presets": {"default": quick, "quick": quick},
        "notes": "Harvested from the installed scipy; texts may name their own module.",
        "citation": "Virtanen et al. 2020, Nature Methods 17 (SciPy)",
    }
    return yaml.safe_dump(card, sort_keys=False, allow_unicode=True)
