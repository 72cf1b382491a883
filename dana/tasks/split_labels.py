"""Examples by split to counts, lengths, label shares and label drift, as rows of tables."""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from dana.core.text_table import Value
from dana.tasks.card import TaskCard
from dana.tasks.examples import Example


def split_rows(card: TaskCard, splits: Mapping[str, Sequence[Example]]) -> list[dict[str, Value]]:
    """A row a split.

    ``drift`` is the total variation distance of the label shares to those of train, in [0, 1], and ``drift_p`` the p
    value of Pearson's chi-square test that both are drawn from one distribution. Words are what spaces part, of a pair
    those of both texts.

    Args:
        card: Its labels and expected sizes.
        splits: Examples by split, train among them.
    """
    train = label_counts(card, splits["train"])
    rows: list[dict[str, Value]] = []
    for split, examples in splits.items():
        counts = label_counts(card, examples)
        lengths = [sum(len(text.split()) for text in example.texts) for example in examples]
        median, most = (int(np.quantile(lengths, share, method="inverted_cdf")) for share in (0.5, 0.95))
        distance, p = (None, None) if split == "train" else label_drift(train, counts)
        absent = [label for label, count in zip(card.labels, counts, strict=True) if not count]
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
                "absent_labels": ", ".join(absent),
            }
        )
    return rows


def label_rows(card: TaskCard, splits: Mapping[str, Sequence[Example]]) -> list[dict[str, Value]]:
    """A row a split and label: how many examples have it, and their share of the split."""
    return [
        {"split": split, "label": label, "count": int(count), "share": float(count / len(examples))}
        for split, examples in splits.items()
        for label, count in zip(card.labels, label_counts(card, examples), strict=True)
    ]


def label_counts(card: TaskCard, examples: Sequence[Example]) -> np.ndarray:
    """Examples of each label, int64 of shape (labels,)."""
    counts = Counter(example.label for example in examples)
    return np.array([counts[code] for code in range(len(card.labels))], dtype=np.int64)


def label_drift(train: np.ndarray, other: np.ndarray) -> tuple[float, float]:
    """Total variation distance of two label distributions, and the p value of the chi-square test of homogeneity.

    Args:
        train: Counts, shape (labels,), not all 0.
        other: The same.
    """
    from scipy.stats import chi2_contingency

    distance = float(np.abs(train / train.sum() - other / other.sum()).sum() / 2)
    seen = np.stack([train, other])[:, (train + other) > 0]
    return distance, float(chi2_contingency(seen, correction=False).pvalue) if seen.shape[1] > 1 else 1.0
