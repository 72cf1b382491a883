"""The quickstart's text: installed Python distributions to a labelled task, its card and general text; what next.

The task is to tell which sub-package of scipy a docstring is from. The general text is that of all other distributions,
plus *planted* scipy documents that nothing is ever fitted on, so that the recall of a selection can be measured.

A text may name its own sub-package ("scipy.stats", "stats"), which is a hint to its label. Lines that only name a
module are dropped.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from importlib.metadata import Distribution
from itertools import islice
from pathlib import Path

import yaml

from dana.core.artifacts import Artifact, Draft, make
from dana.core.errors import DataError
from dana.core.files import text_digest, write_gzip_lines
from dana.core.rng import derive_seed
from dana.corpus.harvest import (
    PackageText,
    drop_near_duplicates,
    drop_repeats,
    iterate_docstrings,
    iterate_package_texts,
    list_distributions,
)
from dana.tasks.settings import HarvestSettings

RECIPE = "quickstart"
CARD_NAME = "scipy_docs"
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
OWN_TEXT = """
next, on your own text (JSONL, Parquet, CSV, plain text; files, globs or folders)
  dana score --task YOUR_TEXT.jsonl --general YOUR_POOL/ --out runs/mine
  dana weigh runs/mine
  dana adapt runs/mine --model bert-base-uncased --steps 1000"""
Rows = list[dict[str, str]]


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
    present = {name: distribution for name, distribution in list_distributions().items() if name != NOT_TEXT}
    versions = {name: distribution.version for name, distribution in present.items()}

    def write(draft: Draft) -> None:
        seen: set[bytes] = set()
        task, labels = _task(present, settings, seen)
        planted = [{"id": row["id"], "text": row["text"], "source": PLANTED} for row in task.pop("planted")]
        general = _general(present, settings, seen)
        _write_lines(draft.path / "general.jsonl.gz", general + planted)
        for split, rows in task.items():
            _write_lines(draft.path / "task" / f"{split}.jsonl.gz", rows)
        counts = {split: len(rows) for split, rows in task.items()}
        (draft.path / "card.yaml").write_text(_card(labels, counts), encoding="utf-8")
        draft.counts.update({"general": len(general), "planted": len(planted), **counts})
        draft.counts["labels"] = {label: sum(row["label"] == label for row in task["train"]) for label in labels}

    depends_on = {"settings": asdict(settings), "distributions": versions, "method": METHOD}
    return make(folder, "harvest", depends_on, write)


def _write_lines(path: Path, rows: Rows) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_gzip_lines(path, sorted(rows, key=lambda row: text_digest(row["id"])))


def _ordered(seed: int, items: Iterable[PackageText]) -> list[PackageText]:
    return sorted(items, key=lambda item: derive_seed(seed, "harvest", item.id))


def _task(
    present: Mapping[str, Distribution], settings: HarvestSettings, seen: set[bytes]
) -> tuple[dict[str, Rows], list[str]]:
    """Documents of scipy's largest sub-packages: rows of each split, and the labels.

    Splits go by document, within each label in hash order: by module file they would follow the few large files of a
    sub-package (with scipy 1.17 that leaves signal without dev and spatial without planted). Near copies,
    which would be on both sides of a split, are dropped.
    """
    target = iterate_docstrings(TARGET, present[TARGET], settings.max_characters) if TARGET in present else ()
    read = _ordered(settings.seed, drop_repeats(target, settings.min_characters, seen))
    by_label: dict[str, list[PackageText]] = defaultdict(list)
    for item in drop_near_duplicates(read, NEAR_DUPLICATE):
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
    task: dict[str, Rows] = {split: [] for split in SPLITS}
    for label in labels:
        items = by_label[label][: settings.task_documents // len(labels)]
        for place, item in enumerate(items):
            task[_split(place / len(items))].append({"id": item.id, "text": item.text, "label": label})
    return task, labels


def _split(quantile: float) -> str:
    for split, share in SPLITS.items():
        if quantile < share:
            return split
        quantile -= share
    return "planted"


def _general(present: Mapping[str, Distribution], settings: HarvestSettings, seen: set[bytes]) -> Rows:
    """Documents of all other distributions, none more than its share; files are read only as far as they are needed."""
    pools: dict[str, list[PackageText]] = defaultdict(list)
    unread = {}
    for name, distribution in present.items():
        if name != TARGET:
            texts = iterate_package_texts(name, distribution, settings.max_characters)
            for item in drop_repeats(texts, settings.min_characters, seen):
                pools[item.distribution].append(item)
            texts = iterate_docstrings(name, distribution, settings.max_characters)
            unread[name] = drop_repeats(texts, settings.min_characters, seen)
    wanted = settings.general_documents
    licences = min(MOST_LICENCES, int(READ_SHARES[-1] * wanted))
    pools["licences"] = _ordered(settings.seed, pools["licences"])[:licences]
    for share in READ_SHARES:
        for name, stream in unread.items():
            pools[name].extend(islice(stream, max(0, int(share * wanted) - len(pools[name]))))
        if sum(map(len, pools.values())) >= wanted:
            break
    chosen = _ordered(settings.seed, (item for pool in pools.values() for item in pool))[:wanted]
    return [{"id": item.id, "text": item.text, "source": item.distribution} for item in chosen]


def _card(labels: list[str], counts: dict[str, int]) -> str:
    """The task card of the harvested task, as YAML. Its quick preset suits a base from scratch, which learns more."""
    quick = {"epochs": 6, "learning_rate": 7e-4, "seeds": 5, "max_tokens": 64, "pooling": "mean"}
    card = {
        "name": CARD_NAME,
        "title": "Which sub-package of scipy is a docstring from?",
        "version": 1,
        "notes": "Harvested from the installed scipy (BSD-3-Clause); texts may name their own module.",
        "data": {"local": "task"},
        "labels": labels,
        "splits": counts,
        "metric": "macro_f1",
        "presets": {"default": {"evaluate": "last", "seeds": 5}, "quick": quick},
        "citation": "Virtanen et al. 2020, Nature Methods 17 (SciPy)",
    }
    return yaml.safe_dump(card, sort_keys=False, allow_unicode=True)
