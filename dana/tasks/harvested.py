"""A labelled task and general text from the documentation of the installed Python distributions, for the quickstart.

The task is to tell which sub-package of scipy a docstring is from. The general text is that of all other distributions,
plus *planted* scipy documents that nothing is ever fitted on, so that the recall of a selection can be measured.

A text may name its own sub-package ("scipy.stats", "stats"), which is a hint to its label. Lines that only name a
module are dropped.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from importlib.metadata import Distribution
from itertools import islice

import yaml

from dana.core.errors import DataError
from dana.core.rng import derive_seed
from dana.corpus.harvest import Harvested, distinct, docstrings, package_texts, without_near_duplicates
from dana.tasks.settings import HarvestSettings

TARGET = "scipy"
CARD_NAME = "scipy_docs"
PLANTED = f"{TARGET} (planted)"
MOST_LABELS = 8
FEWEST_IN_LABEL = 40
NEAR_DUPLICATE = 0.4
READ_SHARES = (0.04, 0.12)  # of general_documents, from one source; the second only if the first is not enough
MOST_LICENCES = 100
SPLITS = {"train": 0.5, "dev": 0.12, "test": 0.24, "planted": 0.14}


def _order(seed: int, items: Iterable[Harvested]) -> list[Harvested]:
    return sorted(items, key=lambda item: derive_seed(seed, "harvest", item.id))


def harvested_task(
    present: Mapping[str, Distribution], settings: HarvestSettings, seen: set[bytes]
) -> tuple[list[tuple[str, str, Harvested]], list[str]]:
    """Documents of scipy's largest sub-packages: (split, label, document) of each, and the labels.

    Splits go by document, within each label in hash order: by module file they would follow the few large files of a
    sub-package (with scipy 1.17 that leaves signal without dev and spatial without planted). Near copies,
    which would be on both sides of a split, are dropped.
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


def harvested_general(
    present: Mapping[str, Distribution], settings: HarvestSettings, seen: set[bytes]
) -> list[dict[str, str]]:
    """Documents of all other distributions, none more than its share; files are read only as far as they are needed."""
    pools: dict[str, list[Harvested]] = defaultdict(list)
    unread = {}
    for name, distribution in present.items():
        if name == TARGET:
            continue
        for item in distinct(package_texts(name, distribution, settings.max_characters), settings.min_characters, seen):
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


def harvested_card(labels: list[str], counts: dict[str, int]) -> str:
    """The task card of the harvested task, as YAML."""
    common = {"warmup": 0.1, "evaluate": "last"}
    paper = {"epochs": 5, "learning_rate": 3e-5, "batch_size": 8, **common, "seeds": 8}
    default = {**paper, "batch_size": 16, "seeds": 5}
    # For a base from scratch, which has more to learn and fewer parameters to learn it with.
    quick = {
        "epochs": 6,
        "learning_rate": 7e-4,
        "batch_size": 16,
        **common,
        "seeds": 5,
        "max_tokens": 64,
        "pooling": "mean",
    }
    card = {
        "name": CARD_NAME,
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
