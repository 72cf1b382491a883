"""One label per word: softmax and cross-entropy at each word's first token; F1 of BIO spans, accuracy of words."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dana.core.config import require
from dana.corpus.text import REPLACEMENT, normalise
from dana.tasks.kinds.base import UNSEEN, Kind, Label, Tallies

OUTSIDE = "O"


@dataclass(frozen=True)
class TokenLabels(Kind):
    """One of several labels per word. Labels are tuples of class numbers, one per word.

    Scores are micro-F1 of whole spans (type and both ends right) if the labels are BIO, and the
    share of words right. A truncated word is wrong, and in no span.
    """

    name = "token_labels"
    metrics = {"span_f1": "higher", "accuracy": "higher"}  # noqa: RUF012, never changed
    main_metric = "span_f1"
    pipeline = "token-classification"
    per_word = True

    def check_card(self, metric: str, template: str | None, text_pair: str | None) -> None:
        super().check_card(metric, template, text_pair)
        hint = "accuracy, unless the labels are O, B-TYPE and I-TYPE"
        require(metric in self.defined_metrics, "metric", metric, hint)
        require(template is None, "template", template, "left out: the text is a list of words")
        require(text_pair is None, "text_pair", text_pair, "left out: the text is a list of words")

    @property
    def defined_metrics(self) -> Sequence[str]:
        is_bio = (
            name[:2] in ("B-", "I-") and len(name) > 2 for name in self.labels if name != OUTSIDE
        )
        return list(self.metrics) if OUTSIDE in self.labels and all(is_bio) else ["accuracy"]

    @classmethod
    def read_text(cls, value: Any) -> tuple[str, tuple[str, ...] | None]:
        words = value.split() if isinstance(value, str) else value
        if not isinstance(words, list | tuple) or not all(isinstance(word, str) for word in words):
            raise ValueError(f"is {type(value).__name__}, not a list of words")
        if not all(word.strip() for word in words):
            raise ValueError("has an empty word")
        # A word of which nothing is left keeps its place, because it has a label.
        cleaned = tuple(normalise(word) or REPLACEMENT for word in words)
        return " ".join(cleaned), cleaned

    def read(self, value: Any) -> Label:
        self.names_in(value)
        return tuple(map(self.code, value))

    def code(self, label: Any) -> int:
        # a number is a class number, unless labels are named by numbers
        is_code = (
            isinstance(label, int)
            and not isinstance(label, bool)
            and not any(map(str.isdigit, self.labels))
        )
        return label if is_code and 0 <= label < len(self.labels) else super().code(label)

    def decode(self, outputs: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        codes = np.where(outputs.any(1), outputs.argmax(1), UNSEEN)
        return self.gather(
            [tuple(part.tolist()) for part in np.split(codes, np.cumsum(sizes)[:-1])]
        )

    def tallies(self, predictions: np.ndarray, labels: np.ndarray, metric: str) -> Tallies:
        count = self._spans_right if metric == "span_f1" else _words_right
        counts = np.array(
            [list(map(count, predicted, labels)) for predicted in predictions], dtype=np.float64
        )
        right, of = counts.transpose(2, 1, 0)
        if metric == "span_f1":
            return (right, of), lambda both, either: 2 * both / np.maximum(either, 1)
        return (right, of), np.divide

    def _spans_right(self, guess: Sequence[int], actual: Sequence[int]) -> tuple[int, int]:
        guess_spans, label_spans = self.spans(guess), self.spans(actual)
        return len(guess_spans & label_spans), len(guess_spans) + len(label_spans)

    def spans(self, codes: Sequence[int]) -> set[tuple[str, int, int]]:
        """Find the spans of BIO labels: type, first word, end.

        An I that follows no label of its type begins a span, as in the CoNLL-2000 script and in
        seqeval.
        """
        spans, start, kind = set(), 0, ""
        for position, code in enumerate([*codes, UNSEEN]):
            name = OUTSIDE if code == UNSEEN else self.labels[code]
            prefix, _, label_type = name.partition("-")
            if kind and (prefix != "I" or label_type != kind):
                spans.add((kind, start, position))
                kind = ""
            if label_type and not kind:
                start, kind = position, label_type
        return spans

    def prediction_columns(self, outputs: np.ndarray, sizes: np.ndarray) -> dict[str, Any]:
        import pyarrow as pa

        # labels and probabilities of truncated words are null
        labels = self.decode(outputs, sizes)
        names = [
            [None if code == UNSEEN else self.labels[code] for code in codes] for codes in labels
        ]
        likely = np.split(outputs.max(1), np.cumsum(sizes)[:-1])
        return {
            "label": pa.array(names, pa.list_(pa.string())),
            "probability": pa.array(
                [[float(probability) or None for probability in part] for part in likely],
                pa.list_(pa.float32()),
            ),
        }


def _words_right(guess: Sequence[int], actual: Sequence[int]) -> tuple[int, int]:
    return sum(map(int.__eq__, guess, actual)), len(actual)
