"""Settings of topics: the model, how many, from how many seeds, of which words, fitted on how much."""

from dataclasses import asdict, dataclass, field
from typing import Any

from dana.core.artifacts import fingerprint
from dana.core.config import require
from dana.core.origin import origin_of
from dana.core.studies import StudyTable
from dana.studies.topics.vocabulary import WordLimits


@dataclass(frozen=True)
class TopicSettings(WordLimits):
    """How topics are fitted.

    Attributes:
        model: ``etm`` (embedded topic model) or ``lda``, with settings as in ``etm:epochs=50,vectors=FILE``.
        k: Numbers of topics; of several the best is taken, by coherence times diversity.
        seeds: Fits of each number of topics from other beginnings; the best is kept.
        fit: Documents to fit on, drawn by a hash; any number is assigned.
    """

    model: str = "etm"
    k: list[int] = field(default_factory=lambda: [25])
    seeds: int = 1
    fit: int = 100_000

    def __post_init__(self) -> None:
        super().__post_init__()
        require(bool(self.k) and all(k >= 2 for k in self.k), "k", self.k, "whole numbers of at least 2")
        require(len(set(self.k)) == len(self.k), "k", self.k, "distinct")
        require(self.seeds >= 1, "seeds", self.seeds, "at least 1")
        require(self.fit >= 2, "fit", self.fit, "at least 2")

    def identity(self) -> dict[str, Any]:
        """Plain values for a fingerprint of one fit: all but numbers of topics and of seeds."""
        from dana.studies.topics.base import TOPIC_MODELS

        model = TOPIC_MODELS.create(self.model)
        values = {key: value for key, value in asdict(self).items() if key not in ("k", "seeds")}
        values["stop_words"] = fingerprint(sorted(self.left_out()))
        return values | {"model": model.identity(), "code": origin_of(model)}


def _setting_of(section: str, rest: str) -> str | None:
    """The setting behind a key of a topic model's manifest."""
    name = rest.partition(".")[0] or section
    return {"general": None, "seed": "selection.seed", "code": None}.get(name, f"topics.{name}")


TABLES = {"topic-model": StudyTable(_setting_of)}
