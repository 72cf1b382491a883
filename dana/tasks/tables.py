"""Make tables about tasks: one row per card; sizes, labels and shared text of a task's splits.

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
from dana.tasks.kinds.base import Label
from dana.tasks.settings import Hygiene

PAIRS = (("dev", "train"), ("test", "train"), ("test", "dev"))
MAX_IDS = 3
MOST_CUT = 0.02  # share of test texts that may be cut before it is warned of
REMEDY = "try learning_rate=auto, more steps, more training texts or another checkpoint"

Match = tuple[Example, Example]
Row = dict[str, Value]


def card_rows(cards: Iterable[TaskCard], data: str | None, tag: str | None = None) -> list[Row]:
    """Make one row per card: name, kind, metric, number of labels, expected examples by split, ...

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
    return [_card_row(card, data) for card in cards if tag is None or tag in card.tags]


def _card_row(card: TaskCard, data: str | None) -> Row:
    """Make the row of a card."""
    row: Row = {
        "name": card.name,
        "kind": card.kind,
        "metric": card.metric,
        "labels": len(card.labels),
    }
    for split in SPLITS:
        sizes = [f"{size:,}" for size in card.accepted_sizes(split)]
        row[split] = " or ".join(sizes) or "-"
    row["data"] = _availability(card, data)
    row["tags"] = ", ".join(card.tags)
    row["title"] = card.title
    return row


def card_text(card: TaskCard, data: str | None) -> str:
    """Write a card as YAML that can be used as a card, with comments on its files and data.

    Args:
        card: The card.
        data: See :meth:`dana.tasks.card.TaskCard.files`.
    """
    main, *includes = card.origins
    lines = [f"# file: {main}"]
    lines += [f"# includes: {path}" for path in includes]
    lines += [f"# {split}: {source}" for split, source in _sources(card, data).items()]
    comments = "\n".join(lines)
    values = asdict(card)
    del values["origins"]
    values = {name: value for name, value in values.items() if value not in (None, "", [])}
    text = yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=100)
    return f"{comments}\n{text}"


def _sources(card: TaskCard, data: str | None) -> dict[str, str]:
    """Return where each split is, or why it is missing."""
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
    if len(missing) == len(SPLITS):
        return "missing"
    if missing:
        return f"no {', '.join(missing)}"
    return "hub" if any(map(is_hub, sources.values())) else "here"


def split_rows(card: TaskCard, splits: Mapping[str, Sequence[Example]]) -> list[Row]:
    """Make one row per split: size, expected size, empty texts, words per example, absent labels.

    Words are separated by white space; those of both texts of a pair are counted.

    Args:
        card: The task's card.
        splits: Examples by split, with train.
    """
    rows: list[Row] = []
    for split, examples in splits.items():
        words = [_word_count(example) for example in examples]
        absent = card.label_kind.absent(_labels(examples))
        rows.append(
            {
                "split": split,
                "examples": len(examples),
                "expected": " or ".join(map(str, card.accepted_sizes(split))),
                "empty": sum(not all(example.texts) for example in examples),
                "median_words": int(np.quantile(words, 0.5, method="inverted_cdf")),
                "words_95": int(np.quantile(words, 0.95, method="inverted_cdf")),
                "absent_labels": ", ".join(absent),
            }
        )
    return rows


def _word_count(example: Example) -> int:
    """Count the words of the text, or of both texts of a pair."""
    return sum(len(text.split()) for text in example.texts)


def _labels(examples: Sequence[Example]) -> list[Label]:
    """Return the labels of examples."""
    return [example.label for example in examples]


def label_rows(card: TaskCard, splits: Mapping[str, Sequence[Example]]) -> list[Row]:
    """Make one row per split and label, or range of values.

    It has the number of examples (or words) with this label, and their share.
    """
    train_labels = _labels(splits["train"])
    rows: list[Row] = []
    for split, examples in splits.items():
        counts = card.label_kind.counts(_labels(examples), train_labels)
        for label, count, of in counts:
            share = count / max(1, of)
            rows.append({"split": split, "label": label, "count": count, "share": share})
    return rows


def overlap_rows(splits: Mapping[str, list[Example]]) -> list[Row]:
    """Make one row per split, split ``within`` which its texts are searched, and kind of match.

    Kinds: ``exact``; ``contradicting``: matches with another label. Within one split ``exact``
    counts the repetitions of earlier examples, and ``contradicting`` all examples of a text with
    several labels. ``ids`` names up to three examples, each with one match.

    Args:
        splits: Examples by split, without empty texts.
    """
    rows: list[Row] = []
    comparisons = [(split, split) for split in splits]
    for split, within in (*comparisons, *PAIRS):
        exact: list[Match] = []
        contradicting: list[Match] = []
        for example, others in shared_texts(splits[split], splits[within]):
            # Within its own split an example matches itself first, unless it repeats an earlier
            # one.
            if others[0] is not example:
                exact.append((example, others[0]))
            against = [other for other in others if other.label != example.label]
            if against:
                contradicting.append((example, against[0]))
        for kind, matches in {"exact": exact, "contradicting": contradicting}.items():
            rows.append(
                {
                    "split": split,
                    "within": within,
                    "kind": kind,
                    **_share(matches, len(splits[split])),
                    "ids": _format_ids(matches),
                }
            )
    return rows


def data_warnings(metrics: Mapping[str, Any]) -> list[str]:
    """Say what of a task's data makes a score mean less than it seems.

    Args:
        metrics: Content of a fine-tuning's ``metrics.json``.
    """
    warnings = []
    overlap = metrics.get("split_overlap", {})
    seen = overlap.get("seen", 0)
    if seen:
        size = seen + overlap["unseen"]
        text = f"Beware: {seen:,} of {size:,} test texts are also in train or dev"
        mean = overlap.get("unseen_mean")
        if mean is not None:
            text = f"{text}; {metrics['metric']} without them: {mean:.4f}"
        warnings.append(f"{text}.")
    labels = metrics.get("untrained_labels", [])
    if labels:
        warnings.append(
            f"Beware: no training text has the label {', '.join(labels)}: it cannot be learnt."
        )
    full = metrics.get("full_texts")
    if full and full["count"] > MOST_CUT * full["of"]:
        warnings.append(
            f"Beware: {full['count']:,} of {full['of']:,} test texts have {full['max_tokens']} "
            "tokens or more, and text beyond is cut: raise max_tokens of fine-tuning, "
            "or set windows=mean."
        )
    return warnings


def collapsed_seeds(metrics: Mapping[str, Any]) -> list[int]:
    """List the seeds of ``metrics.json`` whose model collapsed.

    It did on test, or it does not beat the largest class on dev.
    """
    sign = -1 if metrics["direction"] == "lower" else 1
    seeds = []
    for row in metrics["seeds"]:
        gain = sign * (row["dev_score"] - row["largest_class_dev"])
        if row["degenerate"] or gain <= 0:
            seeds.append(row["seed"])
    return seeds


def collapse_warning(metrics: Mapping[str, Any]) -> str:
    """Say of ``metrics.json`` which seeds collapsed and what to change; empty if none did."""
    seeds = collapsed_seeds(metrics)
    if not seeds:
        return ""
    row = next(row for row in metrics["seeds"] if row["seed"] == seeds[0])
    dev_baseline = row["largest_class_dev"]
    test_baseline = row["largest_class_test"]
    baselines = f"{dev_baseline:.4f} on dev, {test_baseline:.4f} on test"
    which = f"{len(seeds)} of {len(metrics['seeds'])} models (seed {', '.join(map(str, seeds))})"
    return (
        f"Beware: {which} do not beat the largest class ({metrics['metric']} {baselines}),"
        f" or predict nearly one label. Their labels mean nothing: {REMEDY}."
    )


def pool_row(examples: Sequence[Example], documents: Iterable[Document]) -> Row:
    """Count the examples that share a 13-gram, or a sentence of 8 words or more, with a pool.

    The documents of the pool that share one are counted, too. The rule is that of
    :class:`dana.tasks.settings.Hygiene` with its defaults; the pool is streamed.

    Args:
        examples: Examples of the test split.
        documents: Documents of the pool.
    """
    rule = Hygiene()
    texts = {str(row): list(example.texts) for row, example in enumerate(examples)}
    index = OverlapIndex.build(texts, rule.ngram, rule.sentence)
    first: dict[int, Document] = {}  # by the row of an example, the first document that shares
    read = 0
    sharing = 0
    for block in document_blocks(documents):
        overlaps = index.find([document.text for document in block])
        read += len(block)
        sharing += len({overlap.row for overlap in overlaps})
        for overlap in overlaps:
            first.setdefault(int(overlap.task), block[overlap.row])
    pairs = [f"{examples[row].id} = {first[row].doc_id}" for row in sorted(first)[:MAX_IDS]]
    return {
        "split": "test",
        **_share(first, len(examples)),
        "documents": sharing,
        "of_documents": read,
        "ids": ", ".join(pairs),
    }


def _share(matches: Sequence[Match] | Mapping[int, Document], size: int) -> Row:
    """Return the number of examples with a match, that of all, and the share."""
    return {"examples": len(matches), "of": size, "share": len(matches) / max(1, size)}


def _format_ids(matches: Sequence[Match]) -> str:
    """Write the ids of the first matches."""
    return ", ".join(f"{example.id} = {other.id}" for example, other in matches[:MAX_IDS])
