"""A label a word: softmax and cross-entropy at each word's first token; F1 of spans by BIO tags, accuracy of words."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from dana.core.config import require
from dana.tasks.kinds.base import Answer, Kind, Scorer, by_tallies, listed
from dana.tasks.metrics import is_degenerate

UNSEEN = -1  # the prediction of a word that was cut off: wrong, and of no span
OUTSIDE = "O"


@dataclass(frozen=True)
class TokenLabels(Kind):
    """One of several labels for each word. Answers are tuples of class numbers, one a word.

    Scores are F1 of whole spans (micro, type and both ends right), where labels are BIO; and the share of words right.
    """

    name = "token_labels"
    metrics = {"span_f1": "higher", "accuracy": "higher"}  # noqa: RUF012, never changed
    main_metric = "span_f1"
    pipeline = "token-classification"
    per_word = True

    def check_metric(self, metric: str) -> None:
        super().check_metric(metric)
        allowed = "accuracy where labels are not O, B-TYPE and I-TYPE"
        require(metric != "span_f1" or self._are_bio, "metric", metric, allowed)

    def check_fields(self, template: str | None, text_pair: str | None) -> None:
        require(template is None, "template", template, "left out: the text is a list of words")
        require(text_pair is None, "text_pair", text_pair, "left out: the text is a list of words")

    @property
    def _are_bio(self) -> bool:
        typed = (name[:2] in ("B-", "I-") and len(name) > 2 for name in self.labels if name != OUTSIDE)
        return OUTSIDE in self.labels and all(typed)

    @classmethod
    def read_text(cls, value: Any) -> tuple[str, tuple[str, ...] | None]:
        """Words as they are, or a text parted at white space."""
        words = value.split() if isinstance(value, str) else value
        if not isinstance(words, list | tuple) or not all(isinstance(word, str) for word in words):
            raise ValueError(f"is {type(value).__name__}, not a list of words")
        if not all(word.strip() for word in words):
            raise ValueError("has an empty word")
        return " ".join(words), tuple(words)

    @classmethod
    def names_in(cls, value: Any) -> Collection[str]:
        return [str(label) for label in listed(value, "a list of labels, one a word")]

    def read(self, value: Any) -> Answer:
        """Names of labels, or their numbers where no label is called by one."""
        return tuple(self._code(label) for label in listed(value, "a list of labels, one a word"))

    def _code(self, label: Any) -> int:
        numbered = isinstance(label, int) and not isinstance(label, bool) and not any(map(str.isdigit, self.labels))
        return label if numbered and 0 <= label < len(self.labels) else self.code(label)

    def sizes(self, answers: Sequence[Answer]) -> np.ndarray:
        return np.array([len(codes) for codes in answers], dtype=np.int64)  # type: ignore[arg-type]

    def targets(self, answers: Sequence[Answer]) -> np.ndarray:
        return np.array(list(chain.from_iterable(answers)), dtype=np.int64)  # type: ignore[arg-type]

    def loss(self, logits: Any, targets: Any) -> Any:
        from torch.nn.functional import cross_entropy

        return cross_entropy(logits, targets)

    def activate(self, logits: Any) -> Any:
        return logits.softmax(-1)

    def decode(self, activated: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        codes = np.where(activated.any(1), activated.argmax(1), UNSEEN)
        return self.gather([tuple(part.tolist()) for part in np.split(codes, np.cumsum(sizes)[:-1])])

    @property
    def scored(self) -> Sequence[str]:
        return list(self.metrics) if self._are_bio else ["accuracy"]

    def collapsed(self, predictions: np.ndarray, references: np.ndarray) -> bool:
        """Nearly all words get one label, and in the data they do not."""
        return is_degenerate(self.targets(predictions.tolist()), self.targets(references.tolist()))

    def scorer(self, predictions: np.ndarray, references: np.ndarray, metric: str) -> Scorer:
        pairs = [[(guess, true) for guess, true in zip(own, references, strict=True)] for own in predictions]
        if metric == "accuracy":
            alike = [[sum(map(int.__eq__, guess, true)) for guess, true in own] for own in pairs]
            return by_tallies((_by_text(alike), _by_text([[len(true) for _, true in own] for own in pairs])), np.divide)
        if metric != "span_f1":
            raise ValueError(f"metric={metric!r}: must be one of {', '.join(self.metrics)}")
        spans = [[(self.spans(guess), self.spans(true)) for guess, true in own] for own in pairs]
        right = _by_text([[len(guess & true) for guess, true in own] for own in spans])
        found = _by_text([[len(guess) + len(true) for guess, true in own] for own in spans])
        return by_tallies((right, found), lambda both, either: 2 * both / np.maximum(either, 1))

    def spans(self, codes: Sequence[int]) -> set[tuple[str, int, int]]:
        """Type, first word and end of each span of BIO labels.

        An I that follows no label of its type begins a span, as in the CoNLL-2000 script and in seqeval.
        """
        found, begun, kind = set(), 0, ""
        for place, code in enumerate([*codes, UNSEEN]):
            name = OUTSIDE if code == UNSEEN else self.labels[code]
            part, _, own = name.partition("-")
            if kind and (part != "I" or own != kind):
                found.add((kind, begun, place))
                kind = ""
            if own and not kind:
                begun, kind = place, own
        return found

    def columns(self, activated: np.ndarray, references: np.ndarray) -> dict[str, Any]:
        import pyarrow as pa

        sizes = self.sizes(references.tolist())
        predictions = self.decode(activated, sizes)
        likely = [list(part) for part in np.split(activated, np.cumsum(sizes)[:-1])]
        return {
            "label": pa.array(map(list, references), pa.list_(pa.int32())),
            "prediction": pa.array(map(list, predictions), pa.list_(pa.int32())),
            "probabilities": pa.array(likely, pa.list_(pa.list_(pa.float32()))),
        }

    def activated(self, table: Mapping[str, Any]) -> np.ndarray:
        return np.array(list(chain.from_iterable(table["probabilities"].to_pylist())), dtype=np.float32)

    def answers(self, column: Any) -> np.ndarray:
        found = [tuple(codes) for codes in column.to_pylist()]
        if not all(UNSEEN <= code < len(self.labels) for codes in found for code in codes):
            raise ValueError(f"a class outside 0 to {len(self.labels) - 1}")
        return self.gather(found)

    def shown(self, activated: np.ndarray, sizes: np.ndarray) -> dict[str, Any]:
        """Each word's label and its probability; null of words that were cut off."""
        import pyarrow as pa

        names = [
            [None if code == UNSEEN else self.labels[code] for code in codes] for codes in self.decode(activated, sizes)
        ]
        likely = np.split(activated.max(1), np.cumsum(sizes)[:-1])
        return {
            "label": pa.array(names, pa.list_(pa.string())),
            "probability": pa.array([[float(one) or None for one in part] for part in likely], pa.list_(pa.float32())),
        }

    def counts(self, answers: Sequence[Answer], train: Sequence[Answer]) -> list[tuple[str, int, int]]:
        """How many words have each label, of all words."""
        codes = self.targets(answers)
        found = np.bincount(codes, minlength=len(self.labels))
        return [(label, int(count), codes.size) for label, count in zip(self.labels, found, strict=True)]

    def drift(self, train: Sequence[Answer], other: Sequence[Answer]) -> tuple[float | None, float | None]:
        """Total variation distance of the words' labels; no p, the words of a text are not independent."""
        shares = [np.array([count / max(1, of) for _, count, of in self.counts(part, part)]) for part in (train, other)]
        return float(np.abs(shares[0] - shares[1]).sum() / 2), None


def _by_text(rows: Sequence[Sequence[int]]) -> np.ndarray:
    """Numbers of models and texts as an array of shape (texts, models)."""
    return np.array(rows, dtype=np.float64).T
