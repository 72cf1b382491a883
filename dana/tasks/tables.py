"""Make tables about tasks: one row per card, a card as YAML; sizes, labels and shared text of a task's splits.

Two examples are *exact* duplicates if their normalised texts are the same, both texts of a pair.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import yaml

from dana.core.errors import ConfigError, DataError, suggestion
from dana.core.schemas import Document
from dana.core.text_table import Value
from dana.corpus.hub import is_hub
from dana.corpus.overlap import OverlapIndex
from dana.tasks.card import SPLITS, TaskCard
from dana.tasks.examples import Example, shared_texts
from dana.tasks.hygiene import document_blocks
from dana.tasks.settings import Hygiene

PAIRS = (("dev", "train"), ("test", "train"), ("test", "dev"))
MAX_IDS = 3
MOST_CUT = 0.02  # share of test texts that may be cut before it is warned of
REMEDY = "Their labels mean nothing: try learning_rate=auto, more steps, more training texts or another checkpoint."

Match = tuple[Example, Example]
Row = dict[str, Value]


def card_rows(cards: Iterable[TaskCard], data: str | None, tag: str | None = None) -> list[Row]:
    """Make one row per card: name, kind, metric, number of labels, expected examples by split, availability, ...

    Args:
        cards: The cards.
        data: See :meth:`dana.tasks.card.TaskCard.files`.
        tag: Only cards with this tag.

    Raises:
        ConfigError: If no card has the tag; suggests the nearest.
    """
    cards = list(cards)
    tags = {name for card in cards for name in card.tags}
    if tag is not None and tag not in tags:
        raise ConfigError(f"--tag {tag!r}: no card has this tag{suggestion(tag, tags)}")
    rows: list[Row] = []
    for card in (card for card in cards if tag is None or tag in card.tags):
        row: Row = {
            "name": card.name,
            "kind": card.kind,
            "metric": card.metric,
            "labels": len(card.labels),
        }
        row |= {
            split: " or ".join(f"{n:,}" for n in card.accepted_sizes(split)) or "-"
            for split in SPLITS
        }
        rows.append(
            {
                **row,
                "data": _availability(card, data),
                "tags": ", ".join(card.tags),
                "title": card.title,
            }
        )
    return rows


def card_text(card: TaskCard, data: str | None) -> str:
    """Write a card as YAML that can be used as a card, with comments on its files and data.

    Args:
        card: The card.
        data: See :meth:`dana.tasks.card.TaskCard.files`.
    """
    main, *includes = card.origins
    lines = [f"# file: {main}", *(f"# includes: {path}" for path in includes)]
    lines += [f"# {split}: {source}" for split, source in _sources(card, data).items()]
    values = {
        name: value
        for name, value in asdict(card).items()
        if name != "origins" and value not in (None, "", [])
    }
    return (
        "\n".join(lines)
        + "\n"
        + yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=100)
    )


def _sources(card: TaskCard, data: str | None) -> dict[str, str]:
    sources = {}
    for split in SPLITS:
        try:
            [sources[split]] = card.files(data, [split])
        except DataError as error:
            sources[split] = f"missing: {error}"
    return sources


def _availability(card: TaskCard, data: str | None) -> str:
    """``here``, ``hub``, ``missing``, or which splits are missing."""
    sources = _sources(card, data)
    missing = [split for split, source in sources.items() if source.startswith("missing: ")]
    if missing:
        return "missing" if len(missing) == len(SPLITS) else f"no {', '.join(missing)}"
    return "hub" if any(is_hub(source) for source in sources.values()) else "here"


def split_rows(card: TaskCard, splits: Mapping[str, Sequence[Example]]) -> list[Row]:
    """Make one row per split: size, expected size, empty texts, words per example, absent labels.

    Words are separated by white space; those of both texts of a pair are counted.

    Args:
        card: The task's card.
        splits: Examples by split, with train.
    """
    rows: list[Row] = []
    for split, examples in splits.items():
        lengths = [sum(len(text.split()) for text in example.texts) for example in examples]
        median, percentile_95 = (
            int(np.quantile(lengths, share, method="inverted_cdf")) for share in (0.5, 0.95)
        )
        sizes, empty = (
            card.accepted_sizes(split),
            sum(not all(example.texts) for example in examples),
        )
        absent = card.label_kind.absent([example.label for example in examples])
        row: Row = {
            "split": split,
            "examples": len(examples),
            "expected": " or ".join(map(str, sizes)),
        }
        row |= {
            "empty": empty,
            "median_words": median,
            "words_95": percentile_95,
            "absent_labels": ", ".join(absent),
        }
        rows.append(row)
    return rows


def label_rows(card: TaskCard, splits: Mapping[str, Sequence[Example]]) -> list[Row]:
    """Make one row per split and label (or range of values): number of examples or words with it, and their share."""
    labels = {split: [example.label for example in examples] for split, examples in splits.items()}
    return [
        {"split": split, "label": label, "count": count, "share": count / max(1, of)}
        for split in splits
        for label, count, of in card.label_kind.counts(labels[split], labels["train"])
    ]


def overlap_rows(splits: Mapping[str, list[Example]]) -> list[Row]:
    """Make one row per split, split ``within`` which its texts are searched, and kind of match.

    Kinds: ``exact``; ``contradicting``: matches with another label. Within one split ``exact``
    counts the repetitions of earlier examples, and ``contradicting`` all examples of a text with
    several labels. ``ids`` names up to three examples, each with one match.

    Args:
        splits: Examples by split, without empty texts.
    """
    rows = []
    for split, within in (*((split, split) for split in splits), *PAIRS):
        alike = shared_texts(splits[split], splits[within])
        # within its own split an example matches itself first, unless it repeats an earlier one
        exact = [(example, others[0]) for example, others in alike if others[0] is not example]
        against = (
            (example, [other for other in others if other.label != example.label])
            for example, others in alike
        )
        contradicting = [(example, others[0]) for example, others in against if others]
        for kind, matches in {"exact": exact, "contradicting": contradicting}.items():
            key: Row = {"split": split, "within": within, "kind": kind}
            rows.append({**key, **_share(matches, len(splits[split])), "ids": _format_ids(matches)})
    return rows


def data_warnings(metrics: Mapping[str, Any]) -> list[str]:
    """Say what of a task's data makes a score mean less than it seems.

    Args:
        metrics: Content of a fine-tuning's ``metrics.json``.
    """
    overlap, labels, warnings = (
        metrics.get("split_overlap", {}),
        metrics.get("untrained_labels", []),
        [],
    )
    if count := overlap.get("seen", 0):
        text = f"Beware: {count:,} of {count + overlap['unseen']:,} test texts are also in train or dev"
        mean = overlap.get("unseen_mean")
        warnings.append(
            f"{text}." if mean is None else f"{text}; {metrics['metric']} without them: {mean:.4f}."
        )
    if labels:
        warnings.append(
            f"Beware: no training text has the label {', '.join(labels)}: it cannot be learnt."
        )
    full = metrics.get("full_texts")
    if full and full["count"] > MOST_CUT * full["of"]:
        warnings.append(
            f"Beware: {full['count']:,} of {full['of']:,} test texts have {full['max_tokens']} tokens "
            "or more, and text beyond is cut: raise max_tokens of fine-tuning, or set windows=mean."
        )
    return warnings


def collapsed_seeds(metrics: Mapping[str, Any]) -> list[int]:
    """List the seeds of ``metrics.json`` whose model collapsed on test, or does not beat the largest class on dev."""
    sign = -1 if metrics["direction"] == "lower" else 1
    gains = (sign * (row["dev_score"] - row["largest_class_dev"]) for row in metrics["seeds"])
    return [
        row["seed"]
        for row, gain in zip(metrics["seeds"], gains, strict=True)
        if row["degenerate"] or gain <= 0
    ]


def collapse_warning(metrics: Mapping[str, Any]) -> str:
    """Say of ``metrics.json`` which seeds collapsed and what to change; empty if none did."""
    if not (seeds := collapsed_seeds(metrics)):
        return ""
    row = next(row for row in metrics["seeds"] if row["seed"] == seeds[0])
    baselines = ", ".join(
        f"{row[f'largest_class_{split}']:.4f} on {split}" for split in ("dev", "test")
    )
    which = f"{len(seeds)} of {len(metrics['seeds'])} models (seed {', '.join(map(str, seeds))})"
    return (
        f"Beware: {which} do not beat the largest class ({metrics['metric']} {baselines}),"
        f" or predict nearly one label. {REMEDY}"
    )


def pool_row(examples: Sequence[Example], documents: Iterable[Document]) -> Row:
    """Count the examples that share a 13-gram, or a sentence of 8 words or more, with a pool, and its documents.

    The rule is that of :class:`dana.tasks.settings.Hygiene` with its defaults; the pool is
    streamed.

    Args:
        examples: Examples of the test split.
        documents: Documents of the pool.
    """
    rule = Hygiene()
    texts = {str(row): list(example.texts) for row, example in enumerate(examples)}
    index = OverlapIndex.build(texts, rule.ngram, rule.sentence)
    first: dict[int, Document] = {}
    read = sharing = 0
    for block in document_blocks(documents):
        overlaps = index.find([document.text for document in block])
        read, sharing = read + len(block), sharing + len({overlap.row for overlap in overlaps})
        for overlap in overlaps:
            first.setdefault(int(overlap.task), block[overlap.row])
    ids = ", ".join(f"{examples[row].id} = {first[row].doc_id}" for row in sorted(first)[:MAX_IDS])
    counts = {**_share(first, len(examples)), "documents": sharing, "of_documents": read}
    return {"split": "test", **counts, "ids": ids}


def _share(matches: Sequence[Match] | Mapping[int, Document], size: int) -> Row:
    return {"examples": len(matches), "of": size, "share": len(matches) / max(1, size)}


def _format_ids(matches: Sequence[Match]) -> str:
    return ", ".join(f"{example.id} = {other.id}" for example, other in matches[:MAX_IDS])
