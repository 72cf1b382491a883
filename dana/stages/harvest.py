"""Make a labelled task, its card and a pool from the installed Python distributions.

The task is to tell which sub-package of scipy a docstring is from. The pool is that of all
other distributions, plus *planted* scipy documents that nothing is fitted on, so that the recall of
a selection can be measured.

A text may name its own sub-package ("scipy.stats", "stats"), which hints at its label. Lines that
only name a module are dropped.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from importlib.metadata import Distribution
from itertools import islice
from pathlib import Path
from typing import Any

import yaml

from dana.core.artifacts import Artifact, Draft, make
from dana.core.errors import DataError
from dana.core.files import text_digest, write_gzip_lines
from dana.core.registry import DISTRIBUTION
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

CARD_NAME = "scipy_docs"
TARGET = "scipy"
PLANTED = f"{TARGET} (planted)"
METHOD = 3  # incremented when the same settings select other text
MOST_LABELS = 8
FEWEST_IN_LABEL = 40
NEAR_DUPLICATE = 0.4
READ_SHARES = (
    0.04,
    0.12,
)  # largest share of one source in pool_documents; the second if the first is too small
MOST_LICENCES = 100
QUICK: dict[str, Any] = {
    "epochs": 6,
    "learning_rate": 7e-4,
    "seeds": 5,
    "max_tokens": 64,
    "pooling": "mean",
}
SPLITS = {"train": 0.42, "dev": 0.1, "test": 0.34, "planted": 0.14}
Rows = list[dict[str, str]]


def harvest_stage(folder: Path, settings: HarvestSettings) -> Artifact:
    """Write ``pool.jsonl.gz``, ``task/{train,dev,test}.jsonl.gz`` and ``card.yaml``.

    Pool rows hold id, text and source (the distribution, ``licences``, or ``scipy (planted)``),
    task rows id, text and label. Same installation and settings, same bytes.

    Args:
        folder: Folder of the artifact.
        settings: Amounts of text.

    Raises:
        ArtifactError: If the folder holds a harvest with other settings or of another installation.
        DataError: If scipy's docstrings cannot be read (an installation without sources).
    """
    present = list_distributions()
    present.pop(DISTRIBUTION, None)  # its text changes during development, its version does not
    versions = {name: distribution.version for name, distribution in present.items()}

    def write(draft: Draft) -> None:
        digests: set[bytes] = set()
        task, labels = _task(present, settings, digests)
        planted_rows = [
            {"id": row["id"], "text": row["text"], "source": PLANTED} for row in task.pop("planted")
        ]
        pool = _pool_text(present, settings, digests)
        _write_lines(draft.path / "pool.jsonl.gz", pool + planted_rows)
        for split, rows in task.items():
            _write_lines(draft.path / "task" / f"{split}.jsonl.gz", rows)
        counts = {split: len(rows) for split, rows in task.items()}
        (draft.path / "card.yaml").write_text(_card(labels, counts), encoding="utf-8")
        draft.counts.update({"pool": len(pool), "planted": len(planted_rows), **counts})
        draft.counts["labels"] = {
            label: sum(row["label"] == label for row in task["train"]) for label in labels
        }

    depends_on = {"settings": asdict(settings), "distributions": versions, "method": METHOD}
    return make(folder, "harvest", depends_on, write)


def _write_lines(path: Path, rows: Rows) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_gzip_lines(path, sorted(rows, key=lambda row: text_digest(row["id"])))


def _shuffle(seed: int, items: Iterable[PackageText]) -> list[PackageText]:
    return sorted(items, key=lambda item: derive_seed(seed, "harvest", item.id))


def _task(
    present: Mapping[str, Distribution], settings: HarvestSettings, digests: set[bytes]
) -> tuple[dict[str, Rows], list[str]]:
    """Collect documents of scipy's largest sub-packages; return the rows of each split and the labels.

    Documents of a label are split in hash order. Splits by module file would be uneven, because
    some sub-packages have few large files (with scipy 1.17, signal has no dev and spatial no
    planted text). Near duplicates are dropped: they could be on both sides of a split.
    """
    target = (
        iterate_docstrings(TARGET, present[TARGET], settings.max_characters)
        if TARGET in present
        else ()
    )
    read = _shuffle(settings.seed, drop_repeats(target, settings.min_characters, digests))
    by_label: dict[str, list[PackageText]] = defaultdict(list)
    for item in drop_near_duplicates(read, NEAR_DUPLICATE):
        parts = item.module.split("/")
        if len(parts) > 2 and not parts[1].startswith("_"):
            by_label[parts[1]].append(item)
    sizes = Counter({label: len(by_label[label]) for label in sorted(by_label)})
    labels = sorted(
        label for label, size in sizes.most_common(MOST_LABELS) if size >= FEWEST_IN_LABEL
    )
    if len(labels) < 2:
        raise DataError(
            f"the installed {TARGET} gives {dict(sizes)} documents by sub-package; "
            f"a task needs two of them with at least {FEWEST_IN_LABEL}"
        )
    task: dict[str, Rows] = {split: [] for split in SPLITS}
    for label in labels:
        items = by_label[label][: settings.task_documents // len(labels)]
        for index, item in enumerate(items):
            task[_split(index / len(items))].append(
                {"id": item.id, "text": item.text, "label": label}
            )
    return task, labels


def _split(quantile: float) -> str:
    for split, share in SPLITS.items():
        if quantile < share:
            return split
        quantile -= share
    return "planted"


def _pool_text(
    present: Mapping[str, Distribution], settings: HarvestSettings, digests: set[bytes]
) -> Rows:
    """Collect documents of all other distributions, each up to its share; files are read only as needed."""
    pools: dict[str, list[PackageText]] = defaultdict(list)
    unread = {}
    for name, distribution in present.items():
        if name != TARGET:
            texts = iterate_package_texts(name, distribution, settings.max_characters)
            for item in drop_repeats(texts, settings.min_characters, digests):
                pools[item.distribution].append(item)
            texts = iterate_docstrings(name, distribution, settings.max_characters)
            unread[name] = drop_repeats(texts, settings.min_characters, digests)
    count = settings.pool_documents
    licences = min(MOST_LICENCES, int(READ_SHARES[-1] * count))
    pools["licences"] = _shuffle(settings.seed, pools["licences"])[:licences]
    for share in READ_SHARES:
        for name, stream in unread.items():
            pools[name].extend(islice(stream, max(0, int(share * count) - len(pools[name]))))
        if sum(map(len, pools.values())) >= count:
            break
    sample = _shuffle(settings.seed, (item for pool in pools.values() for item in pool))[:count]
    return [{"id": item.id, "text": item.text, "source": item.distribution} for item in sample]


def _card(labels: list[str], counts: dict[str, int]) -> str:
    """Write the task card as YAML; the quick preset suits a base from scratch, which needs a higher learning rate."""
    notes = "Harvested from the installed scipy (BSD-3-Clause); texts may name their own module."
    card = {
        "name": CARD_NAME,
        "title": "Which sub-package of scipy is a docstring from?",
        "version": 1,
        "notes": notes,
    }
    card |= {"data": {"local": "task"}, "labels": labels, "splits": counts, "metric": "macro_f1"}
    card["presets"] = {"default": {"evaluate": "last", "seeds": 5}, "quick": QUICK}
    card["citation"] = "Virtanen et al. 2020, Nature Methods 17 (SciPy)"
    return yaml.safe_dump(card, sort_keys=False, allow_unicode=True)
