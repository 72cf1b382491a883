"""Settings of the topic gap."""

from dataclasses import field
from typing import Annotated

from pydantic import Field

from dana.core.errors import SettingError
from dana.core.settings import Count, CountOrZero, OneOf, settings_model

OFF = "off"
ON = "on"
ALL = "all"
DROP = "drop"
KEEP = "keep"
SHORT = (DROP, KEEP)
RANKS = "ranks"
RANDOM = "random"
DRAWS = (RANKS, RANDOM)


@settings_model
class TopicGapSettings:
    """Topics, sizes of their sets, training texts, and windows of documents."""

    n: Annotated[list[Count], Field(min_length=1)] = field(default_factory=lambda: [30, 100])
    """Texts of each label to train on; several numbers are compared."""
    topics: list[CountOrZero | str] = field(default_factory=lambda: ["all"])
    """Topics by number, from 0; or all that separate the documents."""
    test: Count = 50
    """Texts of each label to test on, on topic."""
    validation: Count = 50
    """Texts of each label to choose the epoch by, off topic."""
    arms: list[str] = field(default_factory=lambda: ["on", "off"])
    """Training texts: on, off, an arm with synthetic text such as augmented, or a plug-in's; must
    have off, the baseline of the others."""
    labels: list[str] = field(default_factory=list)
    """Labels of the task to use; empty for all."""
    window: Count = 1000
    """Characters of a document to use, at a random position."""
    short: Annotated[str, OneOf(SHORT)] = "drop"
    """drop documents shorter than the window, or keep them whole."""
    draw: Annotated[str, OneOf(DRAWS)] = "ranks"
    """ranks tests the documents most about a topic and trains on the next; random assigns the same
    documents to the two sets at random, and so off topic."""
    topics_of: str | None = None
    """Folder of a run with topics (dana studies topics fit); by default topics are fitted."""

    def __post_init__(self) -> None:
        are_numbers = bool(self.topics) and all(isinstance(topic, int) for topic in self.topics)
        if self.topics != [ALL] and not are_numbers:
            raise SettingError("topics", self.topics, "all, or numbers of topics from 0")
        if OFF not in self.arms or len(self.arms) == 1:
            raise SettingError("arms", self.arms, "off, the baseline, and at least one other")
        if len(self.labels) == 1:
            remedy = "at least two labels of the task, or empty for all"
            raise SettingError("labels", self.labels, remedy)
        for name in ("n", "topics", "arms", "labels"):
            values = getattr(self, name)
            if len(set(values)) < len(values):
                raise SettingError(name, values, "distinct")
