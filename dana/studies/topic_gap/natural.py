"""The two arms without made text: a topic's own documents to train on, or those least about it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from dana.studies.topic_gap.arm import ArmTexts, TopicCase


@dataclass(frozen=True)
class OnTopicArm:
    """Trained on the topic's own documents: what could be reached, had they labels."""

    version: ClassVar[int] = 1
    seeded: ClassVar[bool] = False

    def identity(self) -> dict[str, Any]:
        """See :class:`dana.studies.topic_gap.arm.TopicArm`."""
        return {"arm": "on"}

    def texts(self, case: TopicCase, seed: int, folder: Path) -> ArmTexts:
        """See :class:`dana.studies.topic_gap.arm.TopicArm`."""
        return ArmTexts(case.texts(case.split.on))


@dataclass(frozen=True)
class OffTopicArm:
    """Trained on the documents least about the topic."""

    version: ClassVar[int] = 1
    seeded: ClassVar[bool] = False

    def identity(self) -> dict[str, Any]:
        """See :class:`dana.studies.topic_gap.arm.TopicArm`."""
        return {"arm": "off"}

    def texts(self, case: TopicCase, seed: int, folder: Path) -> ArmTexts:
        """See :class:`dana.studies.topic_gap.arm.TopicArm`."""
        return ArmTexts(case.texts(case.split.off))
