"""The quickstart's data: a labelled task and a general corpus from the documentation that is already here.

The task is to tell which sub-package of scipy a docstring is from. The general corpus is everybody else's text, plus
*planted* scipy documents that nothing is ever fitted on, so that the recall of a selection is a number.

A text may name its own sub-package ("scipy.stats", "stats"): the label is a topic with hints in it, not a riddle.
Lines that only name a module are dropped.
"""

import gzip
import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from importlib.metadata import Distribution
from itertools import islice
from pathlib import Path

import yaml

from dana.artifacts import Artifact, Draft, make
from dana.config import require
from dana.corpus.harvest import Harvested, distinct, docstrings, installed, papers, without_near_duplicates
from dana.errors import DataError
from dana.rng import derive_seed
from dana.text import digest

TARGET = "scipy"
PLANTED = f"{TARGET} (planted)"
NOT_TEXT = "dana"  # changes while it is worked on, its version does not
METHOD = 2  # raised when the same settings take other text
MOST_LABELS = 8
FEWEST_IN_LABEL = 40
NEAR_DUPLICATE = 0.4
READ_SHARES = (0.04, 0.12)  # of general_documents, from one source; the second only if the first is not enough
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

    general_documents: int = 1800
    task_documents: int = 1100
    min_characters: int = 200
    max_characters: int = 1200
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

    General rows hold id, text and source (the distribution, ``licences``, or ``scipy (planted)``), task rows id,
    text and label. Same installation and settings, same bytes.

    Args:
        folder: The artifact's.
        settings: How much is taken.

    Raises:
        ArtifactError: If the folder holds the outcome of other settings or another installation.
        DataError: If scipy's docstrings cannot be read (an installation without sources).
    """
    present = {name: distribution for name, distribution in installed().items() if name != NOT_TEXT}
    versions = {name: distribution.version for name, distribution in present.items()}

    def write(draft: Draft) -> None:
        seen: set[bytes] = set()
        task, labels = _task(present, settings, seen)
        rows: dict[str, list[dict[str, str]]] = {split: [] for split in SPLITS}
        for split, label, item in task:
            rows[split].append({"id": item.id, "text": item.text, "label": label})
        general = _general(present, settings, seen)
        planted = [{"id": row["id"], "text": row["text"], "source": PLANTED} for row in rows.pop("planted")]
        _write_lines(draft.path / "general.jsonl.gz", sorted(general + planted, key=lambda row: digest(row["id"])))
        for split, lines in rows.items():
            _write_lines(draft.path / "task" / f"{split}.jsonl.gz", sorted(lines, key=lambda row: digest(row["id"])))
        counts = {split: len(lines) for split, lines in rows.items()}
        (draft.path / "card.yaml").write_text(_card(labels, counts), encoding="utf-8")
        draft.counts.update({"general": len(general), "planted": len(planted), **counts})
        draft.counts["labels"] = {label: sum(row["label"] == label for row in rows["train"]) for label in labels}

    depends_on = {"settings": asdict(settings), "distributions": versions, "method": METHOD}
    return make(folder, "harvest", depends_on, write)


def _order(seed: int, items: Iterable[Harvested]) -> list[Harvested]:
    return sorted(items, key=lambda item: derive_seed(seed, "harvest", item.id))


def _task(
    present: dict[str, Distribution], settings: HarvestSettings, seen: set[bytes]
) -> tuple[list[tuple[str, str, Harvested]], list[str]]:
    """(split, label, document) of the target's largest sub-packages.

    Splits go by document, within each label in hash order: by module file they would follow the few large files of a
    sub-package (with scipy 1.17 that leaves signal without dev and spatial without planted). What it would guard
    against, near-copies on both sides of a split, is dropped instead.
    """
    target = docstrings(TARGET, present[TARGET], settings.max_characters) if TARGET in present else ()
    read = _order(settings.seed, distinct(target, settings.min_characters, seen))
    by_label: dict[str, list[Harvested]] = defaultdict(list)
    for item in without_near_duplicates(read, NEAR_DUPLICATE):
        parts = item.module.split("/")
        if len(parts) > 2 and not parts[1].startswith("_"):
            by_label[parts[1]].append(item)
    sizes = Counter({label: len(by_label[label]) for label in sorted(by_label)})
    labels = sorted(label for label, size in sizes.most_common(MOST_LABELS) if size >= FEWEST_IN_LABEL)
    if len(labels) < 2:
        raise DataError(
            f"the installed {TARGET} gives {dict(sizes)} documents by sub-package; "
            f"a task needs two of them with at least {FEWEST_IN_LABEL}"
        )
    task = []
    for label in labels:
        found = by_label[label][: settings.task_documents // len(labels)]
        task += [(_split(place / len(found)), label, item) for place, item in enumerate(found)]
    return task, labels


def _split(quantile: float) -> str:
    for split, share in SPLITS.items():
        if quantile < share:
            return split
        quantile -= share
    return "planted"


def _general(present: dict[str, Distribution], settings: HarvestSettings, seen: set[bytes]) -> list[dict[str, str]]:
    """Everybody else's text, no source more than its share; files are read only as far as they are needed."""
    pools: dict[str, list[Harvested]] = defaultdict(list)
    unread = {}
    for name, distribution in present.items():
        if name == TARGET:
            continue
        for item in distinct(papers(name, distribution, settings.max_characters), settings.min_characters, seen):
            pools[item.distribution].append(item)
        found = docstrings(name, distribution, settings.max_characters)
        unread[name] = distinct(found, settings.min_characters, seen)
    licences = min(MOST_LICENCES, int(READ_SHARES[-1] * settings.general_documents))
    pools["licences"] = _order(settings.seed, pools["licences"])[:licences]
    for share in READ_SHARES:
        most = int(share * settings.general_documents)
        for name, stream in unread.items():
            pools[name].extend(islice(stream, max(0, most - len(pools[name]))))
        if sum(map(len, pools.values())) >= settings.general_documents:
            break
    chosen = _order(settings.seed, (item for pool in pools.values() for item in pool))
    return [
        {"id": item.id, "text": item.text, "source": item.distribution} for item in chosen[: settings.general_documents]
    ]


def _write_lines(path: Path, rows: list[dict[str, str]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as raw, gzip.GzipFile(fileobj=raw, mode="wb", filename="", mtime=0) as stream:
        for row in rows:
            stream.write((json.dumps(row, ensure_ascii=False) + "\n").encode())


def _card(labels: list[str], counts: dict[str, int]) -> str:
    common = {"warmup": 0.1, "evaluate": "last"}
    paper = {"epochs": 5, "learning_rate": 3e-5, "batch_size": 8, **common, "seeds": 8}
    default = {**paper, "batch_size": 16, "seeds": 5}
    # For a base from scratch, which has more to learn and fewer parameters to learn it with.
    quick = {"epochs": 6, "learning_rate": 7e-4, "batch_size": 16, **common, "seeds": 5, "max_tokens": 64}
    card = {
        "name": "scipy_docs",
        "title": "Which sub-package of scipy is a docstring from?",
        "version": 1,
        "notes": "Harvested from the installed scipy (BSD-3-Clause); texts may name their own module.",
        "data": {"local": "task"},
        "text": "text",
        "label": "label",
        "labels": labels,
        "splits": counts,
        "metric": "macro_f1",
        "direction": "higher",
        "presets": {"paper": paper, "default": default, "quick": quick},
        "citation": "Virtanen et al. 2020, Nature Methods 17 (SciPy)",
    }
    return yaml.safe_dump(card, sort_keys=False, allow_unicode=True)
