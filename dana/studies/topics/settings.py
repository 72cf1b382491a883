"""Settings of topics."""

from dataclasses import asdict, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from dana.core.artifacts import fingerprint
from dana.core.errors import ConfigError, SettingError, nearest_path
from dana.core.registry import Registry, origin_of
from dana.core.settings import Count, Int, Share, settings_model

TOPIC_MODELS = Registry("dana.topic_models")


@settings_model
class TopicSettings:
    """How topics are fitted, and to which words."""

    model: str = "etm"
    """etm (embedded topic model) or lda, with settings as in etm:steps=800,vectors=FILE."""
    k: Annotated[list[Annotated[Int, Field(ge=2)]], Field(min_length=1)] = field(
        default_factory=lambda: [25]
    )
    """Numbers of topics to choose from, by coherence times diversity."""
    seeds: Count = 1
    """Initialisations of each number of topics; the best fit is used."""
    fit: Annotated[Int, Field(ge=2)] = 100_000
    """Documents to fit on, drawn at random; all documents are assigned."""
    vocabulary: Annotated[Int, Field(ge=2)] = 10_000
    """Maximum number of words, the most frequent first."""
    min_documents: Count = 5
    """Leave out words that are in fewer documents."""
    max_share: Share = 0.5
    """Leave out words that are in more than this share of the documents."""
    stop_words: str = "english"
    """Words to leave out: english (scikit-learn's 318), none, or a file with one word per line."""

    def __post_init__(self) -> None:
        if len(set(self.k)) < len(self.k):
            raise SettingError("k", self.k, "distinct")

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
