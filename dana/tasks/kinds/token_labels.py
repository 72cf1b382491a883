"""One label per word: softmax and cross-entropy at each word's first token.

The scores are the F1 of BIO spans and the accuracy of words.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dana.core.config import require
from dana.corpus.text import REPLACEMENT, normalise
from dana.tasks.kinds.base import UNSEEN, Kind, Label, Tallies, split_units

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
        types = [name for name in self.labels if name != OUTSIDE]
        are_bio = all(name[:2] in ("B-", "I-") and len(name) > 2 for name in types)
        if OUTSIDE in self.labels and are_bio:
            return list(self.metrics)
        return ["accuracy"]

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
        # A number is a class number, unless labels are named by numbers.
        is_code = (
            isinstance(label, int)
            and not isinstance(label, bool)
            and not any(map(str.isdigit, self.labels))
        )
        if is_code and 0 <= label < len(self.labels):
            code: int = label
            return code
        return super().code(label)

    def decode(self, outputs: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        codes = np.where(outputs.any(1), outputs.argmax(1), UNSEEN)
        return self.gather([tuple(part.tolist()) for part in split_units(codes, sizes)])

    def tallies(self, predictions: np.ndarray, labels: np.ndarray, metric: str) -> Tallies:
        count = self._spans_right if metric == "span_f1" else _words_right
        by_model = [list(map(count, predicted, labels)) for predicted in predictions]
        counts = np.array(by_model, dtype=np.float64)  # (models, texts, 2)
        right, of = counts.transpose(2, 1, 0)
        return (right, of), _f1_of_spans if metric == "span_f1" else np.divide

    def _spans_right(self, prediction: Sequence[int], label: Sequence[int]) -> tuple[int, int]:
        """Count the spans of a text that are right, and those of prediction and label together."""
        predicted_spans = self.spans(prediction)
        label_spans = self.spans(label)
        right = predicted_spans & label_spans
        return len(right), len(predicted_spans) + len(label_spans)

    def spans(self, codes: Sequence[int]) -> set[tuple[str, int, int]]:
        """Find the spans of BIO labels: type, first word, end.

        An I that follows no label of its type begins a span, as in the CoNLL-2000 script and in
        seqeval.
        """
        spans = set()
        start = 0
        open_type = ""  # type of the span that begins at `start`; empty outside of spans
        for position, code in enumerate([*codes, UNSEEN]):
            name = OUTSIDE if code == UNSEEN else self.labels[code]
            prefix, _, label_type = name.partition("-")
            if open_type and (prefix != "I" or label_type != open_type):
                spans.add((open_type, start, position))
                open_type = ""
            if label_type and not open_type:
                start = position
                open_type = label_type
        return spans

    def prediction_columns(self, outputs: np.ndarray, sizes: np.ndarray) -> dict[str, Any]:
        import pyarrow as pa

        # Labels and probabilities of truncated words are null.
        names = [list(map(self._name, codes)) for codes in self.decode(outputs, sizes)]
        probabilities = []
        for row in split_units(outputs.max(1), sizes):
            probabilities.append([float(probability) or None for probability in row])
        return {
            "label": pa.array(names, pa.list_(pa.string())),
            "probability": pa.array(probabilities, pa.list_(pa.float32())),
        }

    def _name(self, code: int) -> str | None:
        """Return the label of a class number; None for a truncated word."""
        return None if code == UNSEEN else self.labels[code]


def _words_right(prediction: Sequence[int], label: Sequence[int]) -> tuple[int, int]:
    """Count the words of a text whose label is right, and all of its words."""
    return sum(map(int.__eq__, prediction, label)), len(label)


def _f1_of_spans(right: np.ndarray, both: np.ndarray) -> np.ndarray:
    """Compute F1 from the spans that are right, and those of predictions and labels together."""
    f1: np.ndarray = 2 * right / np.maximum(both, 1)
    return f1
