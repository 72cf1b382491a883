"""A label a word: softmax and cross-entropy at each word's first token; F1 of spans by BIO tags, accuracy of words."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dana.core.config import require
from dana.tasks.kinds.base import UNSEEN, Answer, Kind

OUTSIDE = "O"


@dataclass(frozen=True)
class TokenLabels(Kind):
    """One of several labels for each word. Answers are tuples of class numbers, one a word.

    Scores are F1 of whole spans (micro, type and both ends right), where labels are BIO; and the share of words right.
    A word that was cut off is wrong, and of no span.
    """

    name = "token_labels"
    metrics = {"span_f1": "higher", "accuracy": "higher"}  # noqa: RUF012, never changed
    main_metric = "span_f1"
    pipeline = "token-classification"
    per_word = True

    def check_card(self, metric: str, template: str | None, text_pair: str | None) -> None:
        super().check_card(metric, template, text_pair)
        allowed = "accuracy where labels are not O, B-TYPE and I-TYPE"
        require(metric in self.scored, "metric", metric, allowed)
        require(template is None, "template", template, "left out: the text is a list of words")
        require(text_pair is None, "text_pair", text_pair, "left out: the text is a list of words")

    @property
    def scored(self) -> Sequence[str]:
        typed = (name[:2] in ("B-", "I-") and len(name) > 2 for name in self.labels if name != OUTSIDE)
        return list(self.metrics) if OUTSIDE in self.labels and all(typed) else ["accuracy"]

    @classmethod
    def read_text(cls, value: Any) -> tuple[str, tuple[str, ...] | None]:
        """Words as they are, or a text parted at white space."""
        words = value.split() if isinstance(value, str) else value
        if not isinstance(words, list | tuple) or not all(isinstance(word, str) for word in words):
            raise ValueError(f"is {type(value).__name__}, not a list of words")
        if not all(word.strip() for word in words):
            raise ValueError("has an empty word")
        return " ".join(words), tuple(words)

    def read(self, value: Any) -> Answer:
        """Names of labels, or their numbers where no label is called by one."""
        self.names_in(value)
        return tuple(map(self.code, value))

    def code(self, label: Any) -> int:
        numbered = isinstance(label, int) and not isinstance(label, bool) and not any(map(str.isdigit, self.labels))
        return label if numbered and 0 <= label < len(self.labels) else super().code(label)

    def decode(self, activated: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        codes = np.where(activated.any(1), activated.argmax(1), UNSEEN)
        return self.gather([tuple(part.tolist()) for part in np.split(codes, np.cumsum(sizes)[:-1])])

    def tallied(
        self, predictions: np.ndarray, references: np.ndarray, metric: str
    ) -> tuple[Sequence[np.ndarray], Callable[..., np.ndarray]]:
        count = self._spans_right if metric == "span_f1" else _words_right
        counts = np.array([list(map(count, own, references)) for own in predictions], dtype=np.float64)
        right, of = counts.transpose(2, 1, 0)
        if metric == "span_f1":
            return (right, of), lambda both, either: 2 * both / np.maximum(either, 1)
        return (right, of), np.divide

    def _spans_right(self, guess: Sequence[int], true: Sequence[int]) -> tuple[int, int]:
        """How many spans are predicted right, and how many are predicted or true."""
        predicted, wanted = self.spans(guess), self.spans(true)
        return len(predicted & wanted), len(predicted) + len(wanted)

    def spans(self, codes: Sequence[int]) -> set[tuple[str, int, int]]:
        """Type, first word and end of each span of BIO labels.

        An I that follows no label of its type begins a span, as in the CoNLL-2000 script and in seqeval.
        """
        spans, begun, kind = set(), 0, ""
        for place, code in enumerate([*codes, UNSEEN]):
            name = OUTSIDE if code == UNSEEN else self.labels[code]
            part, _, own = name.partition("-")
            if kind and (part != "I" or own != kind):
                spans.add((kind, begun, place))
                kind = ""
            if own and not kind:
                begun, kind = place, own
        return spans

    def shown(self, activated: np.ndarray, sizes: np.ndarray) -> dict[str, Any]:
        """Each word's label and its probability; null of words that were cut off."""
        import pyarrow as pa

        answers = self.decode(activated, sizes)
        names = [[None if code == UNSEEN else self.labels[code] for code in codes] for codes in answers]
        likely = np.split(activated.max(1), np.cumsum(sizes)[:-1])
        return {
            "label": pa.array(names, pa.list_(pa.string())),
            "probability": pa.array([[float(one) or None for one in part] for part in likely], pa.list_(pa.float32())),
        }


def _words_right(guess: Sequence[int], true: Sequence[int]) -> tuple[int, int]:
    """How many words are right, and how many there are."""
    return sum(map(int.__eq__, guess, true)), len(true)
