"""Settings of the topic gap: topics, sizes of their sets, what is trained on, and how documents are cut."""

from dataclasses import dataclass, field

from dana.core.config import require

OFF, ON, ALL = "off", "on", "all"
DROP, KEEP = "drop", "keep"
SHORT = (DROP, KEEP)
RANKS, RANDOM = "ranks", "random"
DRAWS = (RANKS, RANDOM)


@dataclass(frozen=True)
class TopicGapSettings:
    """Topics, how many texts of each label every set has, and what is trained on.

    Attributes:
        n: Texts of each label to train on, several numbers.
        topics: Topics by number, from 0; or ``all`` of which the documents' shares differ.
        test: Texts of each label to test on, on topic.
        validation: Texts of each label to choose the epoch by, off topic.
        arms: What is trained on: ``on``, ``off``, an arm with synthetic text such as ``augmented``, or a plug-in's;
            ``off`` is what the others are compared with.
        labels: Labels of the task to take; empty takes all.
        window: Characters that are kept of a document, from a place that its id decides.
        short: Documents shorter than the window: ``drop``, or ``keep`` them whole.
        draw: Who of a topic's documents is in which set: ``ranks`` tests those most about it and trains on the next;
            ``random`` deals the same documents to both at random, and so off topic.
        topics_of: A run's folder with topics (``dana topics fit``); else they are fitted.
    """

    n: list[int] = field(default_factory=lambda: [30, 100])
    topics: list[int | str] = field(default_factory=lambda: ["all"])
    test: int = 50
    validation: int = 50
    arms: list[str] = field(default_factory=lambda: ["on", "off"])
    labels: list[str] = field(default_factory=list)
    window: int = 1000
    short: str = "drop"
    draw: str = "ranks"
    topics_of: str | None = None

    def __post_init__(self) -> None:
        require(bool(self.n) and min(self.n) >= 1, "n", self.n, "whole numbers of at least 1")
        numbers = bool(self.topics) and all(isinstance(topic, int) and topic >= 0 for topic in self.topics)
        require(self.topics == [ALL] or numbers, "topics", self.topics, "all, or numbers of topics from 0")
        compared = OFF in self.arms and len(self.arms) > 1
        require(compared, "arms", self.arms, "off and others: off is what they are compared with")
        require(len(self.labels) != 1, "labels", self.labels, "at least two labels of the task, or empty for all")
        for name in ("n", "topics", "arms", "labels"):
            values = getattr(self, name)
            require(len(set(values)) == len(values), name, values, "distinct")
        for name in ("test", "validation", "window"):
            require(getattr(self, name) >= 1, name, getattr(self, name), "at least 1")
        require(self.short in SHORT, "short", self.short, " or ".join(SHORT))
        require(self.draw in DRAWS, "draw", self.draw, " or ".join(DRAWS))
