"""Make tables about tasks: one row per card; sizes, labels and shared text of a task's splits.

The warnings about a task's data and about models that learnt nothing are here, too. Two examples are
*exact* duplicates if their normalised texts are the same; of pairs, if both texts are.
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

# Pairs of splits: texts of the first are searched in the second.
PAIRS = (("dev", "train"), ("test", "train"), ("test", "dev"))
MAX_IDS = 3  # examples that a row names
MOST_CUT = 0.02  # share of the test texts above which there is a warning that they are cut
REMEDY = "try learning_rate=auto, more steps, more training texts or another checkpoint"

Match = tuple[Example, Example]  # an example, and another one of the same text
Row = dict[str, Value]


def card_rows(cards: Iterable[TaskCard], data: str | None, tag: str | None = None) -> list[Row]:
    """Make one row per card.

    A row has the card's name, kind, metric, number of labels, expected numbers of examples by split,
    where its data is, tags and title.

    Args:
        cards: The cards.
        data: See :meth:`dana.tasks.card.TaskCard.files`.
        tag: Only cards with this tag have a row; None takes all.

    Raises:
        ConfigError: If no card has the tag; suggests the nearest.
    """
    cards = list(cards)
    tags = {name for card in cards for name in card.tags}
    if tag is not None and tag not in tags:
        raise ConfigError(f"--tag {tag!r}: no card has this tag{suggestion(tag, tags)}")
    return [_card_row(card, data) for card in cards if tag is None or tag in card.tags]


def _card_row(card: TaskCard, data: str | None) -> Row:
    """Make the row of a card; see :func:`card_rows`."""
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
    sources, errors = _find_sources(card, data)
    for split in SPLITS:
        if split in errors:
            lines.append(f"# {split}: missing: {errors[split]}")
        else:
            lines.append(f"# {split}: {sources[split]}")
    comments = "\n".join(lines)
    values = asdict(card)
    del values["origins"]  # not a key of a card's file
    given = {name: value for name, value in values.items() if value not in (None, "", [])}
    text = yaml.safe_dump(given, sort_keys=False, allow_unicode=True, width=100)
    return f"{comments}\n{text}"


def _find_sources(card: TaskCard, data: str | None) -> tuple[dict[str, str], dict[str, DataError]]:
    """Find the data of each split of a card.

    Returns:
        The source of each split that has data; and for each other split the error that says why it
        has none.
    """
    sources: dict[str, str] = {}
    errors: dict[str, DataError] = {}
    for split in SPLITS:
        try:
            [source] = card.files(data, [split])
        except DataError as error:
            errors[split] = error
        else:
            sources[split] = source
    return sources, errors


def _availability(card: TaskCard, data: str | None) -> str:
    """Return ``here``, ``hub`` or ``missing``; if only some splits are missing, name them after ``no``."""
    sources, errors = _find_sources(card, data)
    if not sources:
        return "missing"
    if errors:
        return f"no {', '.join(errors)}"
    if any(map(is_hub, sources.values())):
        return "hub"
    return "here"


def split_rows(card: TaskCard, splits: Mapping[str, Sequence[Example]]) -> list[Row]:
    """Make one row per split.

    A row has the number of examples and the expected one, the number of examples with an empty text,
    the median and the 95 % quantile of the words of an example, and the labels that no example has.
    Words are separated by white space; of a pair, the words of both texts are counted.

    Args:
        card: The task's card.
        splits: Examples by split, at least one in each.
    """
    rows: list[Row] = []
    for split, examples in splits.items():
        words = [_word_count(example) for example in examples]
        # Quantiles by this method are numbers of words that an example has, so whole numbers.
        median, longest = np.quantile(words, [0.5, 0.95], method="inverted_cdf")
        with_empty_text = [example for example in examples if not all(example.texts)]
        absent = card.label_kind.absent(_labels(examples))
        rows.append(
            {
                "split": split,
                "examples": len(examples),
                "expected": " or ".join(map(str, card.accepted_sizes(split))),
                "empty": len(with_empty_text),
                "median_words": int(median),
                "words_95": int(longest),
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
    """Make one row per split and label; for numbers, per split and range of values.

    A row has the number of examples with this label (of words, if each word has a label), and their
    share.

    Args:
        card: The task's card.
        splits: Examples by split; those of ``train`` decide the ranges of values.
    """
    train_labels = _labels(splits["train"])
    rows: list[Row] = []
    for split, examples in splits.items():
        counts = card.label_kind.counts(_labels(examples), train_labels)
        for label, count, all_units in counts:
            share = count / max(1, all_units)
            rows.append({"split": split, "label": label, "count": count, "share": share})
    return rows


def overlap_rows(splits: Mapping[str, list[Example]]) -> list[Row]:
    """Count the examples of each split whose text is also in a split, in the same or in another one.

    Each split is compared with itself, and each pair of :data:`PAIRS`. A comparison has two rows, by
    kind of match: ``exact`` counts the examples whose text is in the split ``within`` which it is
    searched, and ``contradicting`` those whose text has another label there. Where a split is
    compared with itself, ``exact`` counts the repetitions of earlier examples, and ``contradicting``
    all examples of a text with several labels. ``ids`` names up to three examples, each with one
    match.

    Args:
        splits: Examples by split, without empty texts; train, dev and test are among them.
    """
    rows: list[Row] = []
    comparisons = [(split, split) for split in splits]
    comparisons += PAIRS
    for split, within in comparisons:
        exact, contradicting = _find_matches(splits[split], splits[within])
        for kind, matches in {"exact": exact, "contradicting": contradicting}.items():
            rows.append(
                {
                    "split": split,
                    "within": within,
                    "kind": kind,
                    **_share(len(matches), len(splits[split])),
                    "ids": _format_ids(matches),
                }
            )
    return rows


def _find_matches(
    examples: list[Example], others: list[Example]
) -> tuple[list[Match], list[Match]]:
    """Match examples with others of the same text, of which they may be the same list.

    Returns:
        The exact and the contradicting matches (:func:`overlap_rows`), at most one of each for an
        example.
    """
    exact: list[Match] = []
    contradicting: list[Match] = []
    for example, same_text in shared_texts(examples, others):
        # In its own split the first example of a text is matched with itself, which is no
        # repetition; a later one is matched with the first.
        if same_text[0] is not example:
            exact.append((example, same_text[0]))
        other_labels = [other for other in same_text if other.label != example.label]
        if other_labels:
            contradicting.append((example, other_labels[0]))
    return exact, contradicting


def data_warnings(metrics: Mapping[str, Any]) -> list[str]:
    """Return sentences on the data of a task because of which a score means less than it seems.

    They are about test texts that are also in train or dev, labels that no training text has, and
    test texts that are cut.

    Args:
        metrics: Content of a fine-tuning's ``metrics.json``.
    """
    warnings = [_seen_warning(metrics), _untrained_warning(metrics), _cut_warning(metrics)]
    return [warning for warning in warnings if warning]


def _seen_warning(metrics: Mapping[str, Any]) -> str:
    """Return the warning that test texts are also in train or dev; empty if none are."""
    overlap = metrics.get("split_overlap", {})
    seen = overlap.get("seen", 0)
    if not seen:
        return ""
    size = seen + overlap["unseen"]
    text = f"Beware: {seen:,} of {size:,} test texts are also in train or dev"
    mean = overlap.get("unseen_mean")
    if mean is not None:
        text = f"{text}; {metrics['metric']} without them: {mean:.4f}"
    return f"{text}."


def _untrained_warning(metrics: Mapping[str, Any]) -> str:
    """Return the warning that no training text has some labels; empty if each label has one."""
    labels = metrics.get("untrained_labels", [])
    if not labels:
        return ""
    return f"Beware: no training text has the label {', '.join(labels)}: it cannot be learnt."


def _cut_warning(metrics: Mapping[str, Any]) -> str:
    """Return the warning that test texts are cut; empty if at most a share of :data:`MOST_CUT` is."""
    full = metrics.get("full_texts")
    if not full or full["count"] <= MOST_CUT * full["of"]:
        return ""
    return (
        f"Beware: {full['count']:,} of {full['of']:,} test texts have {full['max_tokens']} "
        "tokens or more, and text beyond is cut: raise max_tokens of fine-tuning, "
        "or set windows=mean."
    )


def collapsed_seeds(metrics: Mapping[str, Any]) -> list[int]:
    """List the seeds whose model collapsed.

    A model collapsed if its predictions of the test texts say nothing
    (:meth:`dana.tasks.kinds.base.Kind.is_collapsed`).

    Args:
        metrics: Content of a fine-tuning's ``metrics.json``.
    """
    return [row["seed"] for row in metrics["seeds"] if row["degenerate"]]


def collapse_warning(metrics: Mapping[str, Any]) -> str:
    """Return a warning that names the collapsed seeds and says what to change; empty if there are none.

    Args:
        metrics: Content of a fine-tuning's ``metrics.json``.
    """
    seeds = collapsed_seeds(metrics)
    if not seeds:
        return ""
    # Seeds of other folds have other baselines; those of the first collapsed seed are named.
    row = next(row for row in metrics["seeds"] if row["seed"] == seeds[0])
    baseline = row["largest_class_test"]
    names = ", ".join(map(str, seeds))
    which = f"{len(seeds)} of {len(metrics['seeds'])} models (seed {names})"
    return (
        f"Beware: {which} do not beat the largest class on the test texts "
        f"({metrics['metric']} {baseline:.4f}), or predict nearly one label. Their labels mean nothing: {REMEDY}."
    )


def pool_row(examples: Sequence[Example], documents: Iterable[Document]) -> Row:
    """Count the examples that share a 13-gram, or a sentence of 8 words or more, with a pool.

    The documents of the pool that share one are counted, too. The rule is that of
    :class:`dana.tasks.settings.Hygiene` with its defaults; the pool is streamed.

    Args:
        examples: Examples of the test split.
        documents: Documents of the pool.

    Returns:
        The row: numbers and shares as in :func:`overlap_rows`, ``documents`` that share text, of
        all documents, and under ``ids`` up to three examples, each with its first document.
    """
    rule = Hygiene()
    # The index tells tasks apart. Here each example is a task of its own, named after its number.
    texts_by_number = {str(number): list(example.texts) for number, example in enumerate(examples)}
    index = OverlapIndex.build(texts_by_number, rule.ngram, rule.sentence)
    first_documents: dict[int, Document] = {}  # the first one that shares text with each example
    all_documents = 0
    sharing_documents = 0
    for block in document_blocks(documents):
        overlaps = index.find([document.text for document in block])
        all_documents += len(block)
        sharing_rows = {overlap.row for overlap in overlaps}  # rows of the block
        sharing_documents += len(sharing_rows)
        for overlap in overlaps:
            number = int(overlap.task)
            first_documents.setdefault(number, block[overlap.row])
    pairs = []
    for number in sorted(first_documents)[:MAX_IDS]:
        pairs.append(f"{examples[number].id} = {first_documents[number].doc_id}")
    return {
        "split": "test",
        **_share(len(first_documents), len(examples)),
        "documents": sharing_documents,
        "of_documents": all_documents,
        "ids": ", ".join(pairs),
    }


def _share(count: int, size: int) -> Row:
    """Return how many examples have a match, how many there are, and the share; 0 of no examples."""
    return {"examples": count, "of": size, "share": count / max(1, size)}


def _format_ids(matches: Sequence[Match]) -> str:
    """Return the ids of the first :data:`MAX_IDS` matches as text."""
    return ", ".join(f"{example.id} = {other.id}" for example, other in matches[:MAX_IDS])
