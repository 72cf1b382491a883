"""Tables about tasks: cards to rows and to YAML; a task's splits to sizes, labels and the text that they share.

Two examples are *exact* duplicates if the normalised text that a model sees is the same, of a pair both texts.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict

import numpy as np
import yaml

from dana.core.errors import ConfigError, DataError, suggestion
from dana.core.schemas import Document
from dana.core.text_table import Value
from dana.corpus.hub import is_hub
from dana.corpus.overlap import OverlapIndex
from dana.tasks.card import SPLITS, TaskCard
from dana.tasks.examples import Example, in_both
from dana.tasks.hygiene import document_blocks
from dana.tasks.settings import Hygiene

PAIRS = (("dev", "train"), ("test", "train"), ("test", "dev"))
NAMED = 3

Match = tuple[Example, Example]


def card_rows(cards: Iterable[TaskCard], data: str | None, tag: str | None = None) -> list[dict[str, Value]]:
    """A row a card: name, kind, metric, number of labels, expected examples by split, whether its data is here, ...

    Args:
        cards: Which.
        data: See :meth:`dana.tasks.card.TaskCard.files`.
        tag: Only cards with this tag.

    Raises:
        ConfigError: If no card has the tag; the nearest is suggested.
    """
    cards = list(cards)
    tags = {name for card in cards for name in card.tags}
    if tag is not None and tag not in tags:
        raise ConfigError(f"--tag {tag!r}: no card has it{suggestion(tag, tags)}")
    return [
        {
            "name": card.name,
            "kind": card.kind,
            "metric": card.metric,
            "labels": len(card.labels),
            **{split: " or ".join(f"{count:,}" for count in card.expected(split)) or "-" for split in SPLITS},
            "data": _availability(card, data),
            "tags": ", ".join(card.tags),
            "title": card.title,
        }
        for card in cards
        if tag is None or tag in card.tags
    ]


def card_text(card: TaskCard, data: str | None) -> str:
    """The whole card as YAML that can be used as a card; above it, as comments, its file and where its data is.

    Args:
        card: Which.
        data: See :meth:`dana.tasks.card.TaskCard.files`.
    """
    own, *included = card.origins
    lines = [f"# file: {own}", *(f"# includes: {path}" for path in included)]
    lines += [f"# {split}: {place}" for split, place in _places(card, data).items()]
    values = {name: value for name, value in asdict(card).items() if name != "origins" and value not in (None, "", [])}
    return "\n".join(lines) + "\n" + yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=100)


def _places(card: TaskCard, data: str | None) -> dict[str, str]:
    """The source of each split; of one that is nowhere, where it was looked for."""
    places = {}
    for split in SPLITS:
        try:
            [places[split]] = card.files(data, [split])
        except DataError as error:
            places[split] = f"missing: {error}"
    return places


def _availability(card: TaskCard, data: str | None) -> str:
    """``here``, ``hub``, ``missing``, or which splits are missing."""
    places = _places(card, data)
    missing = [split for split, place in places.items() if place.startswith("missing: ")]
    if missing:
        return "missing" if len(missing) == len(SPLITS) else f"no {', '.join(missing)}"
    return "hub" if any(is_hub(place) for place in places.values()) else "here"


def split_rows(card: TaskCard, splits: Mapping[str, Sequence[Example]]) -> list[dict[str, Value]]:
    """A row a split.

    Words are what spaces part, of a pair those of both texts.

    Args:
        card: Its labels and expected sizes.
        splits: Examples by split, train among them.
    """
    rows: list[dict[str, Value]] = []
    for split, examples in splits.items():
        lengths = [sum(len(text.split()) for text in example.texts) for example in examples]
        median, most = (int(np.quantile(lengths, share, method="inverted_cdf")) for share in (0.5, 0.95))
        rows.append(
            {
                "split": split,
                "examples": len(examples),
                "expected": " or ".join(map(str, card.expected(split))),
                "empty": sum(not all(example.texts) for example in examples),
                "median_words": median,
                "words_95": most,
                "absent_labels": ", ".join(card.target.absent([example.label for example in examples])),
            }
        )
    return rows


def label_rows(card: TaskCard, splits: Mapping[str, Sequence[Example]]) -> list[dict[str, Value]]:
    """A row a split and label, or range of values: how many examples (or words) have it, and their share."""
    labels = {split: [example.label for example in examples] for split, examples in splits.items()}
    return [
        {"split": split, "label": label, "count": count, "share": count / max(1, of)}
        for split in splits
        for label, count, of in card.target.counts(labels[split], labels["train"])
    ]


def overlap_rows(splits: Mapping[str, list[Example]]) -> list[dict[str, Value]]:
    """A row a split, a split ``within`` which its texts were looked for, and a kind of match.

    Kinds: ``exact``; ``contradicting``: those of ``exact`` that have another label there. Within one split ``exact``
    counts what repeats an earlier example, and ``contradicting`` all examples of a text with several labels.
    ``ids`` names up to three examples, each with one that it matches. Work grows with the words of all texts.

    Args:
        splits: Examples by split, no text of them empty.
    """
    rows = []
    for split, within in (*((split, split) for split in splits), *PAIRS):
        alike = in_both(splits[split], splits[within])
        # within its own split an example matches itself, and repeats what is before it
        exact = [(example, others[0]) for example, others in alike if others[0] is not example]
        against = ((example, [one for one in others if one.label != example.label]) for example, others in alike)
        contradicting = [(example, others[0]) for example, others in against if others]
        for kind, matches in {"exact": exact, "contradicting": contradicting}.items():
            about: dict[str, Value] = {"split": split, "within": within, "kind": kind}
            rows.append({**about, **_shared(matches, len(splits[split])), "ids": _named(matches)})
    return rows


def corpus_row(examples: Sequence[Example], documents: Iterable[Document]) -> dict[str, Value]:
    """How many examples share a 13-gram, or a whole sentence of 8 words or more, with how many documents.

    The rule is that of :class:`dana.tasks.settings.Hygiene` with its defaults; the corpus is streamed.

    Args:
        examples: Of the test split.
        documents: The corpus.
    """
    rule = Hygiene()
    texts = {str(at): list(example.texts) for at, example in enumerate(examples)}
    index = OverlapIndex.build(texts, rule.ngram, rule.sentence)
    first: dict[int, Document] = {}
    read = sharing = 0
    for block in document_blocks(documents):
        overlaps = index.find([document.text for document in block])
        read, sharing = read + len(block), sharing + len({overlap.row for overlap in overlaps})
        for overlap in overlaps:
            first.setdefault(int(overlap.task), block[overlap.row])
    ids = ", ".join(f"{examples[at].id} = {first[at].doc_id}" for at in sorted(first)[:NAMED])
    counts = {**_shared(first, len(examples)), "documents": sharing, "of_documents": read}
    return {"split": "test", **counts, "ids": ids}


def _shared(matches: Sequence[Match] | Mapping[int, Document], size: int) -> dict[str, Value]:
    return {"examples": len(matches), "of": size, "share": len(matches) / max(1, size)}


def _named(matches: Sequence[Match]) -> str:
    return ", ".join(f"{example.id} = {other.id}" for example, other in matches[:NAMED])
