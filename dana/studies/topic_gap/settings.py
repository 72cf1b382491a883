"""Settings of the topic gap."""

from dataclasses import dataclass, field

from dana.core.config import check_fields, require

OFF, ON, ALL = "off", "on", "all"
DROP, KEEP = "drop", "keep"
SHORT = (DROP, KEEP)
RANKS, RANDOM = "ranks", "random"
DRAWS = (RANKS, RANDOM)


@dataclass(frozen=True)
class TopicGapSettings:
    """Topics, sizes of their sets, training texts, and windows of documents.

    Attributes:
        n: Texts of each label to train on; several numbers are compared.
        topics: Topics by number, from 0; or ``all`` that separate the documents.
        test: Texts of each label to test on, on topic.
        validation: Texts of each label to choose the epoch by, off topic.
        arms: Training texts: ``on``, ``off``, an arm with synthetic text such as ``augmented``, or
            a plug-in's; must have ``off``, the baseline of the others.
        labels: Labels of the task to use; empty for all.
        window: Characters of a document to use, at a random position.
        short: ``drop`` documents shorter than the window, or ``keep`` them whole.
        draw: ``ranks`` tests the documents most about a topic and trains on the next; ``random``
            assigns the same documents to the two sets at random, and so off topic.
        topics_of: Folder of a run with topics (``dana studies topics fit``); by default topics are
            fitted.
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
        numbers = bool(self.topics) and all(
            isinstance(topic, int) and topic >= 0 for topic in self.topics
        )
        require(
            self.topics == [ALL] or numbers,
            "topics",
            self.topics,
            "all, or numbers of topics from 0",
        )
        has_baseline = OFF in self.arms and len(self.arms) > 1
        require(has_baseline, "arms", self.arms, "off, the baseline, and at least one other")
        require(
            len(self.labels) != 1,
            "labels",
            self.labels,
            "at least two labels of the task, or empty for all",
        )
        for name in ("n", "topics", "arms", "labels"):
            values = getattr(self, name)
            require(len(set(values)) == len(values), name, values, "distinct")
        check_fields(self, **dict.fromkeys(("test", "validation", "window"), "at least 1"))
        require(self.short in SHORT, "short", self.short, " or ".join(SHORT))
        require(self.draw in DRAWS, "draw", self.draw, " or ".join(DRAWS))
