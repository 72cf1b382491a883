"""Settings of topics."""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from dana.core.artifacts import fingerprint
from dana.core.config import check_fields, require
from dana.core.errors import ConfigError, nearest_path
from dana.core.registry import Registry, origin_of

TOPIC_MODELS = Registry("dana.topic_models")


@dataclass(frozen=True)
class TopicSettings:
    """How topics are fitted, and to which words.

    Attributes:
        model: ``etm`` (embedded topic model) or ``lda``, with settings as in
            ``etm:steps=800,vectors=FILE``.
        k: Numbers of topics to choose from, by coherence times diversity.
        seeds: Initialisations of each number of topics; the best fit is used.
        fit: Documents to fit on, drawn at random; all documents are assigned.
        vocabulary: Maximum number of words, the most frequent first.
        min_documents: Leave out words that are in fewer documents.
        max_share: Leave out words that are in more than this share of the documents.
        stop_words: Words to leave out: ``english`` (scikit-learn's 318), ``none``, or a file with
            one word per line.
    """

    model: str = "etm"
    k: list[int] = field(default_factory=lambda: [25])
    seeds: int = 1
    fit: int = 100_000
    vocabulary: int = 10_000
    min_documents: int = 5
    max_share: float = 0.5
    stop_words: str = "english"

    def __post_init__(self) -> None:
        require(
            bool(self.k) and all(k >= 2 for k in self.k), "k", self.k, "whole numbers of at least 2"
        )
        require(len(set(self.k)) == len(self.k), "k", self.k, "distinct")
        check_fields(
            self,
            seeds="at least 1",
            fit="at least 2",
            vocabulary="at least 2",
            min_documents="at least 1",
        )
        check_fields(self, max_share="in (0, 1]")

    def read_stop_words(self) -> frozenset[str]:
        """Return the stop words in lower case.

        Raises:
            ConfigError: If their file cannot be read.
        """
        if self.stop_words == "none":
            return frozenset()
        if self.stop_words == "english":
            from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

            return frozenset(ENGLISH_STOP_WORDS)
        path = Path(self.stop_words)
        try:
            return frozenset(path.read_text(encoding="utf-8").lower().split())
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            remedy = (
                f"english, none, or a file with one word per line ({reason}){nearest_path(path)}"
            )
            raise ConfigError(f"stop_words={self.stop_words!r}: must be {remedy}") from error

    def identity(self) -> dict[str, Any]:
        """Return plain values for the fingerprint of one fit: all but `k` and `seeds`."""
        model = TOPIC_MODELS.create(self.model)
        values = {key: value for key, value in asdict(self).items() if key not in ("k", "seeds")}
        values["stop_words"] = fingerprint(sorted(self.read_stop_words()))
        return values | {"model": model.identity(), "code": origin_of(model)}
