"""Arms of the topic gap: how the training texts of a topic are chosen or written.

An arm is a frozen dataclass of settings, registered under the entry-point group
``dana.topic_gap_arms``; ``augmented:ratio=2`` names one with a setting.

References:
    Roussinov and Sharoff 2023, BERT goes off-topic.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Protocol

import pandas as pd
from pydantic import Field

from dana.core.errors import DataError
from dana.core.logging import get_logger
from dana.core.registry import Registry
from dana.core.schemas import Document
from dana.core.settings import Int, OneOf, settings_model
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

Texts = tuple[LabelledText, ...]
TOPIC_GAP_ARMS = Registry("dana.topic_gap_arms")

log = get_logger(__name__)


@dataclass(frozen=True)
class TopicCase:
    """Input of an arm: one topic with its sets.

    Arms must not use the labels of the sets ``test`` and ``unused``.

    Attributes:
        topic: Number of the topic.
        n: Texts of each label to train on.
        documents: One row per document of the pool: id, label, text, whole, stripped
            (:func:`dana.studies.topic_gap.documents.pool_documents`), share (of the topic) and set
            (:func:`dana.studies.topic_gap.documents.split_by_topic`).
        topics: Folder of the topics, for :meth:`dana.studies.topics.model.Topics.load`.
    """

    topic: int
    n: int
    documents: pd.DataFrame
    topics: Path

    def texts(self, part: str, view: str = "stripped") -> Texts:
        """Return the documents of a set.

        Args:
            part: Name of the set.
            view: ``stripped``, as a classifier sees them, or ``whole``, as a generator does.
        """
        rows = self.documents.loc[self.documents["set"] == part, ["id", view, "label"]]
        return tuple(LabelledText(*row) for row in rows.itertuples(index=False, name=None))


class TopicArm(Protocol):
    """A choice of training texts for a topic.

    Attributes:
        seeded: True if its texts depend on the seed; else they are made once for all seeds.
    """

    seeded: bool

    def identity(self) -> dict[str, Any]:
        """Return plain values for a fingerprint: the settings that decide the texts."""
        ...

    def texts(self, case: TopicCase, seed: int, folder: Path) -> Texts:
        """Choose or write the training texts of one topic and n, as a function of the arguments.

        Fields of subclasses of LabelledText are written, too.

        Args:
            case: The topic and its sets.
            seed: Root seed of random draws.
            folder: Folder for artifacts (:func:`dana.core.artifacts.make`), such as a fitted
                generator, that arms of this topic, n and seed share. Arms are called one after the
                other, and again after a kill.
        """
        ...


def check_arm_texts(arm: str, case: TopicCase, texts: Texts) -> None:
    """Check that a classifier can be trained on an arm's texts and that none is a test text.

    Raises:
        DataError: If not; names the arm and the text.
    """
    test = case.texts("test")
    labels = {row.label for row in test}
    ids = {row.id for row in test}
    wordings = {row.text for row in test}
    if not texts:
        raise DataError(f"arm {arm}: returned no train texts")
    for text in texts:
        if not text.text.strip() or text.label not in labels:
            raise DataError(
                f"arm {arm}: train text {text.id!r} is empty or has an unknown label {text.label!r}"
            )
        if text.id in ids or text.text in wordings:
            raise DataError(f"arm {arm}: train text {text.id!r} is a test text")


@dataclass(frozen=True)
class OffTopicArm:
    """Train on the documents least about the topic."""

    version: ClassVar[int] = 1
    seeded: ClassVar[bool] = False

    def identity(self) -> dict[str, Any]:
        return {"arm": type(self).__name__, **asdict(self)}

    def texts(self, case: TopicCase, seed: int, folder: Path) -> Texts:
        return case.texts("off")


@dataclass(frozen=True)
class OnTopicArm(OffTopicArm):
    """Train on documents of the topic: the upper bound."""

    version: ClassVar[int] = 1

    def texts(self, case: TopicCase, seed: int, folder: Path) -> Texts:
        return case.texts("on")


@settings_model
class RepeatedArm(OffTopicArm):
    """Train on the texts of ``off``, each several times: the control for the number of steps.

    Attributes:
        times: Copies of each text; 2 has as many steps as one synthetic text per real one.
    """

    times: Annotated[Int, Field(ge=2)] = 2
    version: ClassVar[int] = 1

    def texts(self, case: TopicCase, seed: int, folder: Path) -> Texts:
        return case.texts("off") * self.times


@dataclass(frozen=True)
class AugmentedBaselineArm:
    """Train on off-topic documents and on synthetic texts written without keywords.

    It is the "aug baseline" of Table 5. Generators are fitted to the windows as they are; the texts
    that they write are stripped to letters. The other arms with synthetic text differ in its
    keywords.

    Attributes:
        ratio: Synthetic texts of a label per off-topic document.
        generator: Spec of a generator, with settings separated by ``;``:
            ``t5:model=t5-small;epochs=16``.
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
        """Return the settings of the synthetic texts."""
        fields = asdict(self) | {"generator": self.generator.replace(";", ",")}
        fields.pop("pool", None)
        return AugmentSettings(
            **fields, control=self.control, shuffle_labels=self.shuffle_labels, seed=seed
        )

    def identity(self) -> dict[str, Any]:
        component = generator_identity(self.settings(0).generator)
        return {"arm": type(self).__name__, **asdict(self), "made_by": component}

    def prompts(
        self,
        case: TopicCase,
        topics: Topics,
        rows: Sequence[LabelledText],
        settings: AugmentSettings,
    ) -> list[Prompt]:
        """Make the prompts of the synthetic texts."""
        return choose_prompts(topics, rows, settings)

    def texts(self, case: TopicCase, seed: int, folder: Path) -> Texts:
        """Add synthetic texts to those of ``off``.

        Arms with equal keywords and generator share them. Those that have no letters, or the
        letters of a test text, are dropped.
        """
        settings = self.settings(seed)
        topics = Topics.load(case.topics)
        off = case.texts("off", "whole")
        prompts = self.prompts(case, topics, off, settings)
        rows = synthesize(topics, off, prompts, settings, folder)
        letters = [replace(row, text=strip_to_letters(row.text)) for row in rows]
        test_texts = {"", *(row.text for row in case.texts("test"))}
        synthetic = [row for row in letters if row.text not in test_texts]
        if len(synthetic) < len(letters):
            log.warning(
                "topic %d: dropped %d of %d synthetic texts,"
                " which have no letters or are a test text",
                case.topic,
                len(letters) - len(synthetic),
                len(letters),
            )
        return (*case.texts("off"), *synthetic)


@dataclass(frozen=True)
class RandomKeywordsArm(AugmentedBaselineArm):
    """Train on off-topic documents and on synthetic texts from keywords of random ones (Table 6).

    Attributes:
        keywords: See :class:`dana.studies.augmentation.synthetic.AugmentSettings`.
        reading: See there.
    """

    keywords: int = 10
    reading: str = PAPER
    version: ClassVar[int] = 1
    control: ClassVar[str] = RANDOM


@settings_model
class AugmentedArm(AugmentedBaselineArm):
    """Train on off-topic documents and on synthetic texts about the topic (section 3.2).

    The synthetic texts are written from keywords of documents on the topic.

    Attributes:
        keywords: See :class:`dana.studies.augmentation.synthetic.AugmentSettings`.
        reading: See there.
        pool: Documents that keywords are from, without their labels: ``unused`` (documents of no
            set, those most about the topic) or ``test`` (the test documents, as in the paper).
    """

    keywords: int = 10
    reading: str = PAPER
    pool: Annotated[str, OneOf((UNUSED, "test"))] = UNUSED
    version: ClassVar[int] = 1
    control: ClassVar[str] = TOPIC

    def prompts(
        self,
        case: TopicCase,
        topics: Topics,
        rows: Sequence[LabelledText],
        settings: AugmentSettings,
    ) -> list[Prompt]:
        """Make prompts from the documents of the pool that are most about the topic.

        They are as many as the label with the most synthetic texts gets.
        """
        count = max(counts_by_label(rows, settings.ratio).values())
        pool = case.documents[case.documents["set"] == self.pool]
        best = pool.sort_values(["share", "id"], ascending=[False, True]).head(count)
        documents = [
            Document(name, UNUSED, text)
            for name, text in zip(best["id"], best["whole"], strict=True)
        ]
        return on_topic_prompts(topics, case.topic, documents, settings, count)


@settings_model
class ShuffledArm(AugmentedArm):
    """Train as the arm ``augmented``, with shuffled labels of the synthetic texts (section 4.2)."""

    version: ClassVar[int] = 1
    shuffle_labels: ClassVar[bool] = True
