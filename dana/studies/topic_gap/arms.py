"""Arms of the topic gap: one topic's sets to the texts that a classifier is trained on.

An arm is a frozen dataclass of settings, registered under the entry-point group ``dana.topic_gap_arms``;
``augmented:ratio=2`` names one with a setting. A package's own stands beside those that are built in.

References:
    Roussinov and Sharoff 2023, BERT goes off-topic.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Protocol

import pandas as pd

from dana.core.config import require
from dana.core.errors import DataError
from dana.core.logging import get_logger
from dana.core.registry import Registry
from dana.core.schemas import Document
from dana.studies.augmentation.generators import GENERATORS
from dana.studies.augmentation.synthetic import (
    NONE,
    PAPER,
    RANDOM,
    TOPIC,
    AugmentSettings,
    LabelledText,
    Prompt,
    choose_prompts,
    counts_by_label,
    generator_identity,
    on_topic_prompts,
    synthesize,
)
from dana.studies.topic_gap.documents import UNUSED, strip_to_letters
from dana.studies.topics.model import Topics

TOPIC_GAP_ARMS = Registry("dana.topic_gap_arms")

log = get_logger(__name__)


@dataclass(frozen=True)
class TopicCase:
    """What an arm is given: one topic, one n. Labels of the sets ``test`` and ``unused`` are not to be looked at.

    Attributes:
        topic: Its number.
        n: Texts of each label to train on.
        documents: All of the pool, a row each: id, label, text, whole, stripped
            (:func:`dana.studies.topic_gap.documents.pool_documents`), share (of the topic in it) and set
            (:func:`dana.studies.topic_gap.documents.split_by_topic`).
        topics: Folder that :meth:`dana.studies.topics.model.Topics.load` opens.
    """

    topic: int
    n: int
    documents: pd.DataFrame
    topics: Path

    def texts(self, part: str, view: str = "stripped") -> tuple[LabelledText, ...]:
        """The documents of a set, as a classifier sees them; by the view ``whole`` as a generator does."""
        rows = self.documents.loc[self.documents["set"] == part, ["id", view, "label"]]
        return tuple(LabelledText(*row) for row in rows.itertuples(index=False, name=None))


@dataclass(frozen=True)
class ArmTexts:
    """What an arm gives.

    Attributes:
        train: To train on; further fields of a subclass of LabelledText are written beside a text.
        validation: To choose the epoch by; None: the topic's validation set.
    """

    train: tuple[LabelledText, ...]
    validation: tuple[LabelledText, ...] | None = None


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


def checked_texts(arm: str, case: TopicCase, given: ArmTexts) -> ArmTexts:
    """What an arm gave, if a classifier can be trained on it and it holds no test text.

    Raises:
        DataError: Naming the arm and the text.
    """
    test = case.texts("test")
    known, named, worded = ({getattr(row, field) for row in test} for field in ("label", "id", "text"))
    for part, texts in (("train", given.train), ("validation", given.validation)):
        if texts is not None and not texts:
            raise DataError(f"arm {arm}: gave no text to {part} on")
        for one in texts or ():
            if not one.text.strip() or one.label not in known:
                raise DataError(f"arm {arm}: {part} text {one.id!r} is empty or of an unknown label {one.label!r}")
            if one.id in named or one.text in worded:
                raise DataError(f"arm {arm}: {part} text {one.id!r} is a test text")
    return given


@dataclass(frozen=True)
class OffTopicArm:
    """Trained on the documents least about the topic."""

    version: ClassVar[int] = 1
    seeded: ClassVar[bool] = False

    def identity(self) -> dict[str, Any]:
        """See :class:`TopicArm`."""
        return {"arm": type(self).__name__, **asdict(self)}

    def texts(self, case: TopicCase, seed: int, folder: Path) -> ArmTexts:
        """See :class:`TopicArm`."""
        return ArmTexts(case.texts("off"))


@dataclass(frozen=True)
class OnTopicArm(OffTopicArm):
    """Trained on the topic's own documents: what could be reached, had they labels."""

    version: ClassVar[int] = 1

    def texts(self, case: TopicCase, seed: int, folder: Path) -> ArmTexts:
        """See :class:`TopicArm`."""
        return ArmTexts(case.texts("on"))


@dataclass(frozen=True)
class RepeatedArm(OffTopicArm):
    """Trained on the texts of ``off``, each several times: what more steps alone do.

    Attributes:
        times: How often each text is in the training set; 2 has the steps of synthetic text one to one.
    """

    times: int = 2
    version: ClassVar[int] = 1

    def __post_init__(self) -> None:
        require(self.times >= 2, "times", self.times, "at least 2")

    def texts(self, case: TopicCase, seed: int, folder: Path) -> ArmTexts:
        """See :class:`TopicArm`."""
        return ArmTexts(case.texts("off") * self.times)


@dataclass(frozen=True)
class AugmentedBaselineArm:
    """Off-topic documents and synthetic ones of the same labels; generators learn and write without keywords.

    Generators learn from the windows as they are; what they write is stripped to letters as all else. The other arms
    with synthetic text differ in what that is written from (Table 5, "aug baseline").

    Attributes:
        ratio: Synthetic texts of a label for each off-topic document of it.
        generator: A generator's spec, its settings parted by ``;``: ``t5:model=t5-small;epochs=16``.
    """

    ratio: float = 1.0
    generator: str = "embedded"
    version: ClassVar[int] = 1
    seeded: ClassVar[bool] = True
    control: ClassVar[str] = NONE
    shuffle_labels: ClassVar[bool] = False

    def __post_init__(self) -> None:
        GENERATORS.create(self.settings(0).generator)

    def settings(self, seed: int) -> AugmentSettings:
        """The settings of the synthetic texts."""
        given = asdict(self) | {"generator": self.generator.replace(";", ",")}
        given.pop("pool", None)
        return AugmentSettings(**given, control=self.control, shuffle_labels=self.shuffle_labels, seed=seed)

    def identity(self) -> dict[str, Any]:
        """See :class:`TopicArm`."""
        component = generator_identity(self.settings(0).generator)
        return {"arm": type(self).__name__, **asdict(self), "made_by": component}

    def prompts(
        self, case: TopicCase, topics: Topics, rows: Sequence[LabelledText], settings: AugmentSettings
    ) -> list[Prompt]:
        """What the synthetic texts are to be about."""
        return choose_prompts(topics, rows, settings)

    def texts(self, case: TopicCase, seed: int, folder: Path) -> ArmTexts:
        """See :class:`TopicArm`; arms of equal keywords and generator share what they write.

        What is written without a letter, or is a test text by its letters, is left out.
        """
        settings, topics, off = self.settings(seed), Topics.load(case.topics), case.texts("off", "whole")
        prompts = self.prompts(case, topics, off, settings)
        rows = synthesize(topics, off, prompts, settings, folder)
        written = [replace(row, text=strip_to_letters(row.text)) for row in rows]
        refused = {"", *(row.text for row in case.texts("test"))}
        added = [row for row in written if row.text not in refused]
        if len(added) < len(written):
            what = "topic %d: %d of %d synthetic texts hold no letter, or are a test text"
            log.warning(what, case.topic, len(written) - len(added), len(written))
        return ArmTexts((*case.texts("off"), *added))


@dataclass(frozen=True)
class RandomKeywordsArm(AugmentedBaselineArm):
    """Off-topic documents and synthetic ones, from keywords of off-topic documents of any label at random (Table 6).

    Attributes:
        keywords: See :class:`dana.studies.augmentation.synthetic.AugmentSettings`.
        reading: See there.
    """

    keywords: int = 10
    reading: str = PAPER
    version: ClassVar[int] = 1
    control: ClassVar[str] = RANDOM


@dataclass(frozen=True)
class AugmentedArm(AugmentedBaselineArm):
    """Off-topic documents and synthetic ones, written from the keywords of documents on the topic (section 3.2).

    Attributes:
        keywords: See :class:`dana.studies.augmentation.synthetic.AugmentSettings`.
        reading: See there.
        pool: Where keywords are from, never looking at labels: ``unused``: the documents of no set that are most about
            the topic; ``test``: the test documents, as in the paper.
    """

    keywords: int = 10
    reading: str = PAPER
    pool: str = UNUSED
    version: ClassVar[int] = 1
    control: ClassVar[str] = TOPIC

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.pool in (UNUSED, "test"), "pool", self.pool, f"{UNUSED} or test")

    def prompts(
        self, case: TopicCase, topics: Topics, rows: Sequence[LabelledText], settings: AugmentSettings
    ) -> list[Prompt]:
        """Those of as many documents as a label gets texts, those most about the topic first, of equal ones by id."""
        count = max(counts_by_label(rows, settings.ratio).values())
        pool = case.documents[case.documents["set"] == self.pool]
        best = pool.sort_values(["share", "id"], ascending=[False, True]).head(count)
        documents = [Document(name, UNUSED, text) for name, text in zip(best["id"], best["whole"], strict=True)]
        return on_topic_prompts(topics, case.topic, documents, settings, count)


@dataclass(frozen=True)
class ShuffledArm(AugmentedArm):
    """What the arm ``augmented`` trains on; its synthetic texts get each other's labels at random (section 4.2)."""

    version: ClassVar[int] = 1
    shuffle_labels: ClassVar[bool] = True
