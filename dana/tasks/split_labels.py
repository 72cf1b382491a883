"""Examples by split to counts, lengths, label shares and label drift, as rows of tables."""

from collections.abc import Mapping, Sequence

import numpy as np

from dana.core.text_table import Value
from dana.tasks.card import TaskCard
from dana.tasks.examples import Example
from dana.tasks.kinds.base import Answer


def split_rows(card: TaskCard, splits: Mapping[str, Sequence[Example]]) -> list[dict[str, Value]]:
    """A row a split.

    ``drift`` and ``drift_p`` are those of the card's kind (:meth:`dana.tasks.kinds.base.Kind.drift`): of one label a
    text, the total variation distance of the label shares to those of train, in [0, 1], and the p value of Pearson's
    chi-square test that both are drawn from one distribution. Words are what spaces part, of a pair
    those of both texts.

    Args:
        card: Its labels and expected sizes.
        splits: Examples by split, train among them.
    """
    kind, train = card.target, _labels(splits["train"])
    rows: list[dict[str, Value]] = []
    for split, examples in splits.items():
        lengths = [sum(len(text.split()) for text in example.texts) for example in examples]
        median, most = (int(np.quantile(lengths, share, method="inverted_cdf")) for share in (0.5, 0.95))
        distance, p = (None, None) if split == "train" else kind.drift(train, _labels(examples))
        rows.append(
            {
                "split": split,
                "examples": len(examples),
                "expected": " or ".join(map(str, card.expected(split))),
                "empty": sum(not all(example.texts) for example in examples),
                "median_words": median,
                "words_95": most,
                "drift": distance,
                "drift_p": p,
                "absent_labels": ", ".join(kind.absent(_labels(examples))),
            }
        )
    return rows


def label_rows(card: TaskCard, splits: Mapping[str, Sequence[Example]]) -> list[dict[str, Value]]:
    """A row a split and label, or range of values: how many examples (or words) have it, and their share."""
    kind, train = card.target, _labels(splits["train"])
    return [
        {"split": split, "label": label, "count": count, "share": count / max(1, of)}
        for split, examples in splits.items()
        for label, count, of in kind.counts(_labels(examples), train)
    ]


def _labels(examples: Sequence[Example]) -> list[Answer]:
    return [example.label for example in examples]
