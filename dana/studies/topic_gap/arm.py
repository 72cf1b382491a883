"""The contract of an arm: one topic's sets to the texts that a classifier is trained on.

An arm is a frozen dataclass of settings in one file, registered under the entry-point group ``dana.topic_gap_arms``;
``augmented:ratio=2`` names one with a setting.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from dana.core.errors import DataError
from dana.core.registry import Registry
from dana.studies.topic_gap.pool import LabelledDocuments
from dana.studies.topic_gap.splits import TopicSplit

TOPIC_GAP_ARMS = Registry("dana.topic_gap_arms")


@dataclass(frozen=True)
class TrainingText:
    """A text to train on or to validate with.

    Attributes:
        id: The document's, or, of a made text, its own.
        text: As a classifier sees it (:func:`dana.studies.topic_gap.views.strip_to_letters`).
        label: Name of the label.
        about: Where a made text is from, plain values by name; written beside it.
    """

    id: str
    text: str
    label: str
    about: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class TopicCase:
    """What an arm is given: one topic, one n. Labels of ``split.test`` and ``split.unused`` are not to be looked at.

    Attributes:
        topic: Its number.
        n: Texts of each label to train on.
        documents: All of the pool.
        theta: float32 of shape (documents, topics): how much of each document is of each topic.
        split: The topic's sets, as places in `documents`.
        topics: Folder that :meth:`dana.studies.topics.model.Topics.load` opens.
    """

    topic: int
    n: int
    documents: LabelledDocuments
    theta: np.ndarray
    split: TopicSplit
    topics: Path

    def texts(self, places: Iterable[int]) -> tuple[TrainingText, ...]:
        """Documents as texts to train on."""
        pool = self.documents
        return tuple(TrainingText(pool.id[at], pool.stripped[at], pool.label[at]) for at in map(int, places))


@dataclass(frozen=True)
class ArmTexts:
    """What an arm gives.

    Attributes:
        train: To train on.
        validation: To choose the epoch by; None: the topic's validation set.
    """

    train: tuple[TrainingText, ...]
    validation: tuple[TrainingText, ...] | None = None


class TopicArm(Protocol):
    """A way to train for a topic.

    Attributes:
        seeded: Whether its texts depend on the seed; else they are made once for all seeds.
    """

    seeded: bool

    def identity(self) -> dict[str, Any]:
        """Plain values for a fingerprint: the settings that decide its texts."""
        ...

    def texts(self, case: TopicCase, seed: int, folder: Path) -> ArmTexts:
        """The texts of one topic and n; the same arguments give the same texts.

        Args:
            case: The topic's sets.
            seed: Root seed of what is drawn.
            folder: Need not be there. For artifacts (:func:`dana.core.artifacts.make`), such as a fitted generator,
                that arms of this topic, n and seed share: they are called one after the other, again after a kill.
        """
        ...


def checked_texts(arm: str, case: TopicCase, made: ArmTexts) -> ArmTexts:
    """What an arm gave, if a classifier can be trained on it and it holds no test text.

    Raises:
        DataError: Naming the arm and the text.
    """
    pool = case.documents
    test = {pool.id[row] for row in case.split.test} | {pool.stripped[row] for row in case.split.test}
    known = {case.documents.label[row] for row in case.split.test}
    for part, texts in (("train", made.train), ("validation", made.validation)):
        if texts is None:
            continue
        if not texts:
            raise DataError(f"arm {arm}: gave no text to {part} on")
        for one in texts:
            if not one.text.strip() or one.label not in known:
                raise DataError(f"arm {arm}: {part} text {one.id!r} is empty or of an unknown label {one.label!r}")
            if one.id in test or one.text in test:
                raise DataError(f"arm {arm}: {part} text {one.id!r} is a test text")
    return made
